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
//! | `run` | a cell's block, from its job to its end |
//! | `reply` | what a run's end carries into the reply |
//! | `traces` | what a run leaves in its folders |
//! | `words` | how it ended, for the user |

mod boot;
mod drive;
mod feed;
mod idle;
mod pipe;
mod reply;
mod run;
mod state;
mod traces;
mod words;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{Ask, EventSender, Failure};

use super::artifacts::Folder;
use super::backend::{Backend, BackendError, Container, Obituary, Usage};
use super::definition::{Definition, Place, Plan};
use super::language::Language;
use super::output::Outlet;
use super::runner::Script;
use super::runner::frame::Incoming;
use super::{PythonInfo, Run, RunEnd};
use boot::{Live, StartError, Starting};
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
