//! An actor before a live supervisor: one queue of runs and requests, one container.
//!
//! May import `event` and `config`. Whoever asks waits in one line: cells, tool calls, completion. The actor
//! starts a container when one is needed, notices when it is gone, and says what state was lost.
//!
//! | module | what |
//! | --- | --- |
//! | `boot` | from nothing to a live supervisor |
//! | `drive` | one run to its end |
//! | `feed` | what its process reads |
//! | `idle` | what happens between runs |
//! | `pipe` | a program beside the code: bytes in, bytes out |
//! | `state` | what a session holds, out of its container and into another |
//! | `reply` | what a run's end carries into the reply |
//! | `traces` | what a run leaves in its folders |
//! | `words` | how it ended, for the user |

mod boot;
mod drive;
mod feed;
mod idle;
mod pipe;
mod reply;
mod state;
mod traces;
mod words;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::ask::Marked;
use crate::event::{Ask, EventSender, Failure, Notice};

use super::artifacts::Folder;
use super::backend::{Backend, BackendError, Container, Obituary, Usage};
use super::definition::{Definition, Place, Plan};
use super::disk::{Disk, Limits};
use super::language::{Language, Program};
use super::output::Outlet;
use super::runner::Script;
use super::runner::frame::{Incoming, Order};
use super::{PythonInfo, Run, RunEnd};
use boot::{Live, StartError, Starting};
use drive::{Driven, Ending, Surroundings};
use feed::Feed;
#[allow(unused_imports, reason = "the next commits use it")]
pub(super) use pipe::{Piece, PipeJob};
pub use state::Inventory;
pub(super) use state::{PackJob, Packed, TOO_LARGE, Way};
use words::By;

const OBITUARY: Duration = Duration::from_secs(3);
/// How long the removal of a run's folder may take.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a start that was interrupted may take to end; it goes on ending by itself after that.
const STOPPED_START: Duration = Duration::from_millis(1500);

/// Something for the session to do.
pub(super) enum Job {
    Run(Box<RunJob>),
    Request {
        request: Value,
        reply: oneshot::Sender<Value>,
    },
    /// Runs a program beside the code.
    Pipe(PipeJob),
    /// Takes out or brings in what the session holds.
    Pack(PackJob),
    Warm,
    /// Ends the container; `why` completes "The container NAME ..." at its next use, `None` when the user knows.
    Stop {
        why: Option<String>,
        done: oneshot::Sender<()>,
    },
    /// Says how the container is.
    Look {
        reply: oneshot::Sender<Look>,
    },
    Reset {
        done: oneshot::Sender<()>,
    },
}

pub(super) struct RunJob {
    pub(super) run: Run,
    pub(super) language: &'static Language,
    pub(super) events: EventSender,
    pub(super) ask: Arc<dyn Ask>,
    pub(super) cancel: CancellationToken,
    pub(super) end: oneshot::Sender<(RunEnd, Outlet)>,
}

/// How a container is.
#[derive(Debug, Clone, Default)]
pub(super) struct Look {
    /// The engine's id of the image that runs.
    pub(super) image: Option<String>,
    /// For how long it has been running.
    pub(super) up: Option<Duration>,
    /// What it uses now.
    pub(super) usage: Option<Usage>,
    /// Why it was stopped, in a sentence that its next user is told.
    pub(super) stopped: Option<String>,
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
    definition: Arc<Definition>,
    place: Place,
    /// Whether the folder there goes when the kernel ends.
    temporary: bool,
    /// The folder of a run of its own, once there is one.
    folder: Option<Folder>,
    /// The image in place of the definition's own.
    image: Option<String>,
    idle: Option<Duration>,
    script: Script,
    guarded: bool,
    shutdown: CancellationToken,
    state: watch::Sender<State>,
    python: watch::Sender<Option<PythonInfo>>,
    live: Option<Live>,
    starting: Option<Starting>,
    /// When the last job ended.
    last_job: Instant,
    /// Why the container was stopped between two runs: what to say before the next.
    stopped: Option<String>,
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
    pub(super) definition: Arc<Definition>,
    pub(super) place: Place,
    pub(super) temporary: bool,
    pub(super) image: Option<String>,
    /// How long the container may be idle before it is stopped.
    pub(super) idle: Option<Duration>,
    pub(super) script: Script,
    pub(super) guarded: bool,
    pub(super) shutdown: CancellationToken,
    pub(super) state: watch::Sender<State>,
    pub(super) python: watch::Sender<Option<PythonInfo>>,
}

impl Session {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            backend,
            definition,
            place,
            temporary,
            image,
            idle,
            script,
            guarded,
            shutdown,
            state,
            python,
        } = parts;
        Session {
            backend,
            definition,
            place,
            temporary,
            folder: None,
            image,
            idle,
            last_job: Instant::now(),
            stopped: None,
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
            let deadline = self.idle.filter(|_| self.live.is_some()).map(|idle| self.last_job + idle);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                job = jobs.recv() => match job {
                    Some(job) => {
                        self.job(job).await;
                        self.last_job = Instant::now();
                    }
                    None => break,
                },
                () = drive::at(deadline), if deadline.is_some() => {
                    let idle = self.idle.map_or(0, |idle| idle.as_secs());
                    let idle = if idle < 120 { format!("{idle} s") } else { format!("{} min", idle / 60) };
                    self.stop(Some(&format!("was stopped after {idle} without use (idle_timeout)"))).await;
                }
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
        if let Some(folder) = self.folder.take() {
            // What takes longer is left to the reaper.
            let until = std::time::Instant::now() + SETTLING;
            let _ = tokio::task::spawn_blocking(move || folder.settle(until)).await;
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
            Job::Pipe(job) => self.pipe_job(job).await,
            Job::Pack(job) => self.pack_job(job).await,
            Job::Warm => self.begin(),
            Job::Stop { why, done } => {
                self.stop(why.as_deref()).await;
                let _ = done.send(());
            }
            Job::Look { reply } => {
                let _ = reply.send(self.look().await);
            }
            Job::Reset { done } => {
                self.reset().await;
                let _ = done.send(());
            }
        }
    }

    fn begin(&mut self) {
        if self.live.is_none() && self.starting.is_none() {
            let plan = Plan {
                definition: Arc::clone(&self.definition),
                argv: Vec::new(),
                image: self.image.clone(),
                place: self.place.clone(),
                temporary: self.temporary,
            };
            self.starting =
                Some(Starting::begin(Arc::clone(&self.backend), plan, self.script.clone(), self.guarded));
            self.state.send_replace(State::Starting);
        }
    }

    /// Takes over what a finished start brought. A failure is told to the next that needs the sandbox.
    async fn settle(&mut self) {
        let Some(starting) = self.starting.take() else { return };
        match starting.outcome().await {
            Ok(live) => {
                self.goes_live(live);
                self.state.send_replace(State::Live);
            }
            Err(e) => {
                tracing::warn!(error = %e, "the sandbox did not start in the background");
                self.state.send_replace(State::Cold);
            }
        }
    }

    fn goes_live(&mut self, live: Live) {
        if let (Place::Run(_), Some(own)) = (&self.place, &live.place) {
            self.folder = Some(Folder::new(own.home(), &self.place));
        }
        self.live = Some(live);
    }

    /// A live session, started when need be, its progress shown.
    async fn ensure(
        &mut self,
        events: &EventSender,
        cancel: &CancellationToken,
        outlet: &mut Outlet,
    ) -> Result<(), Failure> {
        self.begin();
        let Some(mut starting) = self.starting.take() else { return Ok(()) };
        loop {
            if let Some(event) = starting.last.take() {
                outlet.rich(event, 100);
            }
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => break,
                () = cancel.cancelled() => break,
                permit = events.reserve(), if outlet.has_events() => match (permit, outlet.next()) {
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
            Ok(live) => {
                self.goes_live(live);
                self.state.send_replace(State::Live);
                if cancel.is_cancelled() {
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
        let limits = &self.definition.limits;
        let cap = job.run.tighter.output.unwrap_or(limits.output);
        let mut outlet = Outlet::new(job.run.shown, cap, limits.spill, None);
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

    /// Ends an idle container. Whoever uses it next is told why, and what was lost.
    async fn stop(&mut self, why: Option<&str>) {
        if why.is_none() {
            (self.stopped, self.lost) = (None, None);
        }
        if self.live.is_none() && self.starting.is_none() {
            return;
        }
        if let Some(starting) = self.starting.take() {
            starting.cancel.cancel();
        }
        self.end_live().await;
        self.between.clear();
        self.between_size = 0;
        let name = &self.definition.name;
        let Some(why) = why else {
            self.used = false;
            return;
        };
        self.stopped = Some(if std::mem::take(&mut self.used) {
            self.lost = None;
            format!(
                "The container {name} {why}. Python's variables and imports and the files in /tmp are lost; /workspace and \
                 /session are kept."
            )
        } else {
            format!(
                "The container {name} {why}. The files in /tmp are lost; /workspace and /session are kept."
            )
        });
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
        let by = By::of(&self.definition, false);
        if let Some(container) = self.container() {
            let silent = || Obituary::EngineGone("no word in time".into());
            let obituary =
                tokio::time::timeout(OBITUARY, container.obituary()).await.unwrap_or_else(|_| silent());
            told = words::gone(&obituary, broken, by);
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
        Program::Session => (Order::Python, drive::python_order(&job.run, job.ask.available())),
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
