//! An actor before a live supervisor: one queue of runs and requests, one container.
//!
//! May import `event` and `config`. Whoever asks waits in one line: cells, tool calls, completion. The actor
//! starts a container when one is needed, notices when it is gone, and says what state was lost.
//!
//! | module | what |
//! | --- | --- |
//! | `boot` | from nothing to a live supervisor |
//! | `drive` | one run to its end |
//! | `idle` | what happens between runs |
//! | `reply` | what a run's end carries into the reply |
//! | `words` | how it ended, for the user |

mod boot;
mod drive;
mod idle;
mod reply;
mod words;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::config::SandboxSettings;
use crate::event::{Ask, EventSender, Failure, Notice};

use super::backend::{Backend, BackendError, Container, Obituary};
use super::language::{Language, Program};
use super::output::Outlet;
use super::runner::Script;
use super::runner::frame::{Incoming, Order};
use super::{PythonInfo, Run, RunEnd};
use boot::{Live, StartError, Starting};
use drive::{Driven, Ending, Surroundings};

const OBITUARY: Duration = Duration::from_secs(3);
/// How long a start that was interrupted may take to end; it goes on ending by itself after that.
const STOPPED_START: Duration = Duration::from_millis(1500);

/// Something for the session to do.
pub(super) enum Job {
    Run(Box<RunJob>),
    Request { request: Value, reply: oneshot::Sender<Value> },
    Warm,
    Reset { done: oneshot::Sender<()> },
}

pub(super) struct RunJob {
    pub(super) run: Run,
    pub(super) language: &'static Language,
    pub(super) events: EventSender,
    pub(super) ask: Arc<dyn Ask>,
    pub(super) cancel: CancellationToken,
    pub(super) end: oneshot::Sender<(RunEnd, Outlet)>,
}

/// Whether there is a sandbox to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Cold,
    Starting,
    Live,
}

/// The actor.
pub(super) struct Session {
    backend: Arc<dyn Backend>,
    settings: SandboxSettings,
    script: Script,
    guarded: bool,
    shutdown: CancellationToken,
    state: watch::Sender<State>,
    python: watch::Sender<Option<PythonInfo>>,
    live: Option<Live>,
    starting: Option<Starting>,
    /// Whether the Python session holds something that could be lost.
    used: bool,
    /// State that was lost when nobody was looking: what to say before the next Python run.
    lost: Option<String>,
    between: Vec<Incoming>,
    between_size: usize,
}

/// What the actor is made with.
pub(super) struct Parts {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) settings: SandboxSettings,
    pub(super) script: Script,
    pub(super) guarded: bool,
    pub(super) shutdown: CancellationToken,
    pub(super) state: watch::Sender<State>,
    pub(super) python: watch::Sender<Option<PythonInfo>>,
}

impl Session {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { backend, settings, script, guarded, shutdown, state, python } = parts;
        Session {
            backend,
            settings,
            script,
            guarded,
            shutdown,
            state,
            python,
            live: None,
            starting: None,
            used: false,
            lost: None,
            between: Vec::new(),
            between_size: 0,
        }
    }

    /// Serves the queue until it closes or the shutdown comes; nothing remains afterwards.
    pub(super) async fn serve(mut self, mut jobs: mpsc::Receiver<Job>) {
        let shutdown = self.shutdown.clone();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                job = jobs.recv() => match job {
                    Some(job) => self.job(job).await,
                    None => break,
                },
                incoming = next_frame(&mut self.live), if self.live.is_some() => self.idle_frame(incoming).await,
                () = started(&mut self.starting), if self.starting.is_some() => self.settle().await,
            }
        }
        jobs.close();
        if let Some(starting) = self.starting.take() {
            starting.cancel.cancel();
            if let Ok(live) = starting.outcome().await {
                live.container.destroy().await;
            }
        }
        if let Some(live) = self.live.take() {
            live.container.destroy().await;
        }
    }

    async fn job(&mut self, job: Job) {
        match job {
            Job::Run(job) => self.run(*job).await,
            Job::Request { request, reply } => {
                if !reply.is_closed() {
                    let answer = self.request(&request).await;
                    let _ = reply.send(answer);
                }
            }
            Job::Warm => self.begin(),
            Job::Reset { done } => {
                self.reset().await;
                let _ = done.send(());
            }
        }
    }

    fn begin(&mut self) {
        if self.live.is_none() && self.starting.is_none() {
            self.starting =
                Some(Starting::begin(Arc::clone(&self.backend), self.script.clone(), self.guarded));
            self.state.send_replace(State::Starting);
        }
    }

    /// Takes over what a finished start brought. A failure is told to the next that needs the sandbox.
    async fn settle(&mut self) {
        let Some(starting) = self.starting.take() else { return };
        match starting.outcome().await {
            Ok(live) => {
                self.live = Some(live);
                self.state.send_replace(State::Live);
            }
            Err(e) => {
                tracing::warn!(error = %e, "the sandbox did not start in the background");
                self.state.send_replace(State::Cold);
            }
        }
    }

    /// A live session, started when need be, its progress shown.
    async fn ensure(&mut self, job: &RunJob, outlet: &mut Outlet) -> Result<(), Failure> {
        self.begin();
        let Some(mut starting) = self.starting.take() else { return Ok(()) };
        loop {
            if let Some(event) = starting.last.take() {
                outlet.rich(event, 100);
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                () = job.cancel.cancelled() => break,
                permit = job.events.reserve(), if outlet.has_events() => match (permit, outlet.next()) {
                    (Ok(permit), Some(event)) => permit.send(event),
                    _ => outlet.discard(),
                },
                over = starting.progressed() => if over {
                    break;
                },
            }
        }
        let started = if starting.is_over() {
            starting.outcome().await
        } else {
            // The backend sees to it that nothing remains, and may take a moment for it.
            starting.cancel.cancel();
            let outcome = tokio::time::timeout(STOPPED_START, starting.outcome()).await;
            outcome.unwrap_or_else(|_| Err(BackendError::Cancelled.into()))
        };
        match started {
            Ok(mut live) => {
                for notice in live.notices.drain(..) {
                    outlet.notice(Notice::warning(notice));
                }
                self.live = Some(live);
                self.state.send_replace(State::Live);
                if job.cancel.is_cancelled() {
                    return Err(Failure::new("KeyboardInterrupt", "interrupted before the code was run"));
                }
                Ok(())
            }
            Err(e) => {
                self.state.send_replace(State::Cold);
                Err(match e {
                    StartError::Backend(BackendError::Cancelled) => {
                        Failure::new("KeyboardInterrupt", "the start of the sandbox was interrupted")
                    }
                    e => Failure::new("SandboxError", e.to_string()),
                })
            }
        }
    }

    async fn run(&mut self, job: RunJob) {
        let mut outlet = Outlet::new(job.run.shown, self.settings.output, self.settings.spill, None);
        let mut end = RunEnd::default();
        end.failure = match self.ensure(&job, &mut outlet).await {
            Ok(()) => self.run_live(&job, &mut outlet, &mut end).await,
            Err(failure) => Some(failure),
        };
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
        let live = self.live.as_mut()?;
        outlet.set_shelf(live.shelf.clone());
        let number = live.number();
        let (order, payload) = match &job.language.program {
            Program::Session => (Order::Python, drive::python_order(&job.run, job.ask.available())),
            Program::Process { file, compile, run } => {
                let mut files = Map::new();
                files.insert((*file).to_owned(), Value::String(job.run.source.clone()));
                (Order::Process, json!({ "argv": run, "compile": compile, "files": files }))
            }
        };
        if let Err(e) = live.order(order, number, &payload).await {
            tracing::debug!(error = %e, "the supervisor takes no orders");
        }
        let around = Surroundings {
            timeout: job.run.timeout,
            events: &job.events,
            ask: Arc::clone(&job.ask),
            cancel: &job.cancel,
            shutdown: &self.shutdown,
            python: &self.python,
        };
        let Driven { ending, stop, duration, lost_beside } =
            drive::drive(live, number, &around, outlet).await;
        if let Some(lost) = lost_beside {
            self.lose_beside(&lost);
            if session && let Some(lost) = self.lost.take() {
                outlet.notice(Notice::warning(lost));
            }
        }
        self.used |= session;
        end.duration = duration;
        let memory = self.settings.memory;
        match ending {
            Ending::Done(done) => {
                let failure = words::done(&done, stop, outlet.take_held());
                end.payload = reply::payloads(done.payload);
                end.user_expressions = reply::expressions(done.user_expressions);
                failure
            }
            Ending::Exit(mut exit) => {
                exit.oom |= stop.is_none()
                    && matches!((exit.code, exit.signal), (Some(137), _) | (_, Some(9)))
                    && self.out_of_memory().await;
                end.exit_code = exit.code.or(exit.signal.map(|signal| 128 + signal));
                words::exit(&exit, stop, memory)
            }
            Ending::Lost(mut lost) => {
                lost.oom |= stop.is_none() && lost.signal == Some(9) && self.out_of_memory().await;
                self.used = false;
                Some(words::lost(&lost, stop, memory))
            }
            Ending::Fault(message) => Some(Failure::new("SandboxError", message)),
            Ending::Gone(broken) => {
                let (name, how) = self.bury(broken.as_deref()).await;
                let (name, how) = stop.map_or((name, how), words::stopped);
                Some(Failure::new(name, format!("{how}. {}", self.lost_all())))
            }
            Ending::Destroyed => {
                self.end_live().await;
                let (name, what) = stop.map_or(("SandboxError", "the sandbox ended".into()), words::stopped);
                Some(Failure::new(
                    name,
                    format!("{what}. Nothing else stopped it, so the sandbox was ended. {}", self.lost_all()),
                ))
            }
        }
    }

    /// What is gone with the container.
    fn lost_all(&mut self) -> &'static str {
        if std::mem::take(&mut self.used) {
            "Python's variables and imports and the files in /tmp are lost (the workspace is kept); the next cell starts a \
             fresh sandbox."
        } else {
            "The next cell starts a fresh sandbox."
        }
    }

    /// The engine's word on a kill that the supervisor could not explain.
    async fn out_of_memory(&mut self) -> bool {
        let Some(container) = self.container() else { return false };
        tokio::time::timeout(OBITUARY, container.out_of_memory()).await.unwrap_or_default().is_some()
    }

    fn container(&self) -> Option<Arc<dyn Container>> {
        self.live.as_ref().map(|live| Arc::clone(&live.container))
    }

    async fn end_live(&mut self) {
        if let Some(live) = self.live.take() {
            live.container.destroy().await;
        }
        self.state.send_replace(State::Cold);
    }

    /// Learns why the container ended, and removes what remains of it.
    async fn bury(&mut self, broken: Option<&str>) -> (&'static str, String) {
        let mut told = ("SandboxError", "the sandbox ended".to_owned());
        if let Some(container) = self.container() {
            let silent = || Obituary::EngineGone("no word in time".into());
            let obituary =
                tokio::time::timeout(OBITUARY, container.obituary()).await.unwrap_or_else(|_| silent());
            told = words::gone(&obituary, broken);
        }
        self.end_live().await;
        told
    }
}

async fn next_frame(live: &mut Option<Live>) -> Option<Result<Incoming, String>> {
    match live {
        Some(live) => live.frames.recv().await.map(|frame| frame.map_err(|e| e.to_string())),
        None => std::future::pending().await,
    }
}

/// Waits until a start is over, keeping its last remark. Safe to drop at any moment.
async fn started(starting: &mut Option<Starting>) {
    match starting {
        Some(starting) => starting.wait().await,
        None => std::future::pending().await,
    }
}
