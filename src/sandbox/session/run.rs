//! A cell's block, from its job to its end: the container it needs, the order, what it showed, what it left, how it ended.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Map, Value, json};

use crate::event::ask::Marked;
use crate::event::{Ask, Failure, Notice};
use crate::sandbox::definition::Place;
use crate::sandbox::disk::{Disk, Limits};
use crate::sandbox::language::Program;
use crate::sandbox::output::Outlet;
use crate::sandbox::runner::frame::Order;
use crate::sandbox::{Run, RunEnd};

use super::drive::{self, Driven, Ending, Surroundings};
use super::feed::Feed;
use super::words::By;
use super::{RunJob, Session, next_frame, reply, words};

impl Session {
    pub(super) async fn run(&mut self, job: RunJob) {
        let limits = &self.definition.limits;
        let cap = job.run.tighter.output.unwrap_or(limits.output);
        let mut outlet = Outlet::new(job.run.shown, cap, limits.spill, None);
        if let Some(watch) = &job.run.watch {
            outlet.watched(watch.clone());
        }
        let mut end = RunEnd { container: self.definition.name.clone(), ..RunEnd::default() };
        // A container that ended while it waited must not fail the run: another one starts.
        while self.live.is_some()
            && let Some(incoming) = next_frame(&mut self.live).now_or_never()
        {
            self.idle_frame(incoming).await;
        }
        if let Some(stopped) = self.stopped.take() {
            outlet.notice(Notice::warning(stopped));
        }
        end.failure = match self.ensure(&job.events, &job.cancel, &mut outlet).await {
            Ok(()) => {
                let traces = self.live.as_mut().and_then(|live| live.traces.take());
                let traces = match traces {
                    Some(traces) => traces.begin().await,
                    None => None,
                };
                let failure = self.run_live(&job, &mut outlet, &mut end).await;
                if let Some(traces) = traces {
                    let traces = self.leave(traces, &mut outlet, &job.cancel).await;
                    if let Some(live) = &mut self.live {
                        live.traces = traces;
                    }
                }
                failure
            }
            Err(failure) => Some(failure),
        };
        end.pictures = outlet.take_pictures();
        end.transcript = outlet.finish(end.failure.as_ref()).await;
        end.shown = outlet.shown();
        // Whoever asked may be gone; the run itself is over either way.
        let _ = job.end.send((end, outlet));
    }

    async fn run_live(&mut self, job: &RunJob, outlet: &mut Outlet, end: &mut RunEnd) -> Option<Failure> {
        let session = job.language.program == Program::Session;
        if session && let Some(lost) = self.lost.take() {
            outlet.notice(Notice::warning(lost));
        }
        self.show_between(outlet);
        let mut disk = match self.disk_limits() {
            Some(limits) => Some(Disk::begin(limits).await),
            None => None,
        };
        let live = self.live.as_mut()?;
        // Also what was remarked while it started before anybody looked.
        for notice in live.notices.drain(..) {
            outlet.notice(Notice::warning(notice));
        }
        end.image.clone_from(&live.image);
        end.container_id = live.container.id().map(str::to_owned);
        outlet.set_shelf(live.shelf.clone());
        let number = live.number();
        let ask = asked(job, live.of_model);
        live.of_model |= job.run.of_model;
        let (order, payload) = order_of(job);
        let feed = job.run.stdin.as_deref().filter(|_| !session).map(Feed::text);
        outlet.begin();
        if let Err(e) = live.order(order, number, &payload).await {
            tracing::debug!(error = %e, "the supervisor takes no orders");
        }
        let around = Surroundings {
            timeout: job.run.tighter.timeout,
            timeout_by: By::of(&self.definition, job.run.tighter.timeout < self.definition.limits.timeout),
            events: &job.events,
            ask,
            cancel: &job.cancel,
            shutdown: &self.shutdown,
            python: &self.python,
        };
        let Driven { ending, stop, duration, lost_beside, written } =
            drive::drive(live, number, (feed, disk.as_mut()), &around, outlet).await;
        let full = match disk {
            Some(disk) if stop.is_none() => disk.end().await,
            _ => None,
        };
        if let Some(lost) = lost_beside {
            let when = format!("While a {} block ran,", job.language.name);
            self.lose_beside(&lost, if session { "Just before this cell" } else { &when });
            if session && let Some(lost) = self.lost.take() {
                outlet.notice(Notice::warning(lost));
            }
        }
        self.used |= session;
        end.duration = duration;
        end.written = written;
        let (most, by) =
            (self.definition.limits.memory, By::of(&self.definition, job.run.tighter.memory.is_some()));
        let memory = (most, by);
        let lasting = matches!(self.place, Place::Session(_));
        let failure = match ending {
            Ending::Done(done) => {
                // The session's own word.
                end.peak_memory = done.memory.map(|used| used.min(most));
                let failure = words::done(&done, stop, outlet.take_held(), lasting);
                end.payload = reply::payloads(done.payload);
                end.user_expressions = reply::expressions(done.user_expressions);
                failure
            }
            Ending::Exit(mut exit) => {
                exit.oom |= stop.is_none()
                    && matches!((exit.code, exit.signal), (Some(137), _) | (_, Some(9)))
                    && self.out_of_memory().await;
                end.peak_memory = exit.memory;
                end.exit_code = exit.code.or(exit.signal.map(|signal| 128 + signal));
                words::exit(&exit, stop, memory)
            }
            Ending::Lost(mut lost) => {
                lost.oom |= stop.is_none() && lost.signal == Some(9) && self.out_of_memory().await;
                self.used = false;
                Some(words::lost(&lost, stop, memory, lasting))
            }
            Ending::Fault(message) => Some(Failure::new("SandboxError", message)),
            Ending::Gone(broken) => {
                let (name, how) = self.bury(broken.as_deref()).await;
                let (name, how) = stop.map_or((name, how), words::stopped);
                Some(Failure::new(name, format!("{how}. {}", self.lost_all())))
            }
            Ending::Destroyed { paused } => {
                self.end_live().await;
                let (name, what) = stop.map_or(("SandboxError", "the sandbox ended".into()), words::stopped);
                let why = if paused {
                    "Its container had been paused from outside, so the sandbox was ended"
                } else {
                    "Nothing else stopped it, so the sandbox was ended"
                };
                Some(Failure::new(name, format!("{what}. {why}. {}", self.lost_all())))
            }
        };
        // Over before it could be stopped.
        failure.or_else(|| full.map(|full| Failure::new("DiskFull", words::full(&full))))
    }

    /// What a run may write to the disk, where that is limited.
    fn disk_limits(&self) -> Option<Limits> {
        let (limit, live) = (self.definition.disk?, self.live.as_ref()?);
        Some(Limits { limit, workspace: live.workspace.clone(), own: live.place.clone() })
    }
}

/// Who answers the questions of a run. `after_model`: a model's code has run in its container before, and what it left
/// behind (a thread, a function in the place of `input`) can ask in the user's own run.
fn asked(job: &RunJob, after_model: bool) -> Arc<dyn Ask> {
    let ask = Arc::clone(&job.ask);
    // A run of the model's own is marked by who starts it.
    if after_model && !job.run.of_model {
        Arc::new(Marked { ask, mark: "[the model's code has run in this session]" })
    } else {
        ask
    }
}

/// What the supervisor is told to run.
fn order_of(job: &RunJob) -> (Order, Value) {
    match &job.language.program {
        Program::Session => (Order::Python, python_order(&job.run, job.ask.available())),
        Program::Process(process) => {
            let files: Map<String, Value> = process
                .files(&job.run.source)
                .into_iter()
                .map(|(name, text)| (name.to_owned(), Value::String(text.into_owned())))
                .collect();
            let (run, compile, stdin) = (process.run, process.compile, job.run.stdin.is_some());
            (Order::Process, json!({ "argv": run, "compile": compile, "files": files, "stdin": stdin }))
        }
    }
}

/// The order for the Python session.
fn python_order(run: &Run, allow_stdin: bool) -> Value {
    json!({
        "code": run.source,
        "count": run.count,
        "silent": run.silent,
        "store_history": run.store_history,
        "allow_stdin": allow_stdin,
        "user_expressions": run.user_expressions,
        "stdin": run.stdin,
        "texts": run.texts,
    })
}
