//! From nothing to a live supervisor.
//!
//! A start runs as a task of its own: the kernel warms the sandbox before anybody waits for it, and whoever
//! comes to wait later is told of the progress.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::event::{self, Event, terminal};
use crate::sandbox::backend::{Backend, BackendError, Container, GuestInput, GuestOutput, Obituary};
use crate::sandbox::definition::Plan;
use crate::sandbox::runner::frame::{Decoder, Frame, FrameError, Hello, Incoming, Order, encode, encode_raw};
use crate::sandbox::runner::{PROTOCOL, Script};
use crate::sandbox::spill::Shelf;
use crate::sandbox::workspace::Workspace;

use super::traces::Traces;

/// How long the supervisor may take for its first word.
const HELLO: Duration = Duration::from_secs(30);
/// A write to the supervisor, which always reads, takes no longer than this.
const WRITE: Duration = Duration::from_secs(5);
/// Frames read ahead of the session.
const DEPTH: usize = 32;
const READ: usize = 256 << 10;
/// Said once per container where it is so; the session starts all the same.
const UNFILTERED: &str = "the sandbox can't filter system calls here (the engine's runtime or the machine's architecture does \
                          not let it), so code in it can give files in the workspace the set-user-id bit: let nobody else \
                          run what lies there";

/// A live container and the channel to its supervisor.
pub(super) struct Live {
    pub(super) container: Arc<dyn Container>,
    input: GuestInput,
    pub(super) frames: mpsc::Receiver<Result<Incoming, FrameError>>,
    next_run: u32,
    /// What the backend wants the user to know.
    pub(super) notices: Vec<String>,
    /// Where output goes that a cell does not show.
    pub(super) shelf: Option<Shelf>,
    /// The engine's id of the image.
    pub(super) image: String,
    /// When it came up.
    pub(super) since: tokio::time::Instant,
    /// The host's side of `/session` or `/work`.
    pub(super) place: Option<Arc<Workspace>>,
    /// The host's side of `/workspace`.
    pub(super) workspace: Option<Arc<Workspace>>,
    /// What runs leave behind; taken out while one goes on.
    pub(super) traces: Option<Traces>,
    /// Whether code of a model's has run in it.
    pub(super) of_model: bool,
}

/// Why there is no live session.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(
        "the sandbox's main process did not come up ({0}); its image needs Python 3.8 or newer, with ctypes, as \
         `python3` on its PATH: `cellblock build` makes one, sandbox.image names another"
    )]
    Silent(String),
    #[error("the sandbox speaks protocol {0} and this kernel {PROTOCOL}: they are not from the same version")]
    Protocol(u32),
    #[error(
        "the sandbox's main process can't be protected from the code in it ({0}), so nothing was run; the engine must \
         start it as PID 1, and the image's Python must have ctypes"
    )]
    Exposed(String),
    #[error("the start of the sandbox broke off: {0}")]
    Broke(String),
}

/// A start in progress.
pub(super) struct Starting {
    task: JoinHandle<Result<Live, StartError>>,
    over: Option<Result<Live, StartError>>,
    progress: mpsc::Receiver<Event>,
    pub(super) cancel: CancellationToken,
    /// The last remark on the progress that nobody has seen.
    pub(super) last: Option<Event>,
}

impl Starting {
    pub(super) fn begin(backend: Arc<dyn Backend>, plan: Plan, script: Script, guarded: bool) -> Self {
        let (told, progress) = event::channel(16);
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        let (definition, place) = (Arc::clone(&plan.definition), plan.place.clone());
        let task = tokio::spawn(async move {
            let sources = script.sources();
            let started = {
                let plan = Plan { argv: Script::argv(&sources), ..plan };
                backend.start(plan, Some(told), stop.clone()).await?
            };
            let traces = {
                let (own, workspace) = (started.place.clone(), started.workspace.clone());
                Traces::open(own, workspace, &definition, &place)
            }
            .await;
            let (frames_in, frames) = mpsc::channel(DEPTH);
            tokio::spawn(read(started.output, frames_in));
            let (container, input, notices) = (Arc::from(started.container), started.input, started.notices);
            let workspace = started.workspace;
            let shelf = workspace.clone().map(shelf);
            let (image, place) = (started.image, started.place);
            let mut live = Live {
                container,
                input,
                frames,
                next_run: 0,
                notices,
                shelf,
                image,
                since: tokio::time::Instant::now(),
                place,
                workspace,
                traces,
                of_model: false,
            };
            let greeted = tokio::select! {
                greeted = live.greet(&sources, guarded) => greeted,
                () = stop.cancelled() => Err(BackendError::Cancelled.into()),
            };
            match greeted {
                Ok(()) => Ok(live),
                Err(e) => {
                    live.container.destroy().await;
                    Err(e)
                }
            }
        });
        Starting { task, over: None, progress, cancel, last: None }
    }

    /// Waits for a remark on the progress (kept in `last`) or for the end (`true`). Safe to drop at any moment.
    pub(super) async fn progressed(&mut self) -> bool {
        if self.over.is_some() {
            return true;
        }
        tokio::select! {
            biased;
            Some(event) = self.progress.recv() => {
                self.last = Some(event);
                false
            }
            joined = &mut self.task => {
                self.over = Some(joined.unwrap_or_else(|e| Err(StartError::Broke(e.to_string()))));
                true
            }
        }
    }

    /// Waits for the end. Safe to drop at any moment.
    pub(super) async fn wait(&mut self) {
        while !self.progressed().await {}
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// What the start brought.
    pub(super) async fn outcome(mut self) -> Result<Live, StartError> {
        self.wait().await;
        self.over.take().unwrap_or_else(|| Err(BackendError::Cancelled.into()))
    }
}

/// Spilled output lies in a folder of its own in the workspace.
fn shelf(workspace: Arc<Workspace>) -> Shelf {
    Shelf::new(move || {
        let name = format!(".cellblock/output-{}.txt", chrono::Local::now().format("%Y%m%d-%H%M%S-%3f"));
        let file = workspace.create_below(&name)?;
        Ok((file, format!("/workspace/{name}")))
    })
}

impl Live {
    async fn greet(&mut self, sources: &[u8], guarded: bool) -> Result<(), StartError> {
        // A main process that never reads must not keep us from noticing that it ended.
        let written = self.write(sources).await;
        let first = tokio::time::timeout(HELLO, self.frames.recv()).await;
        let silent = |why: String| StartError::Silent(why);
        let hello: Hello = match first {
            Ok(Some(Ok(Incoming { frame: Frame::Hello(hello), .. }))) => hello,
            Ok(Some(Ok(_))) => return Err(silent("it began with something else than its hello".into())),
            Ok(Some(Err(e))) => return Err(silent(e.to_string())),
            Ok(None) => {
                return Err(silent(match self.container.obituary().await {
                    Obituary::Exited(code) => {
                        let words = terminal::filtered(&self.container.last_words());
                        format!("it ended with exit code {code} {}", words.trim()).trim_end().to_owned()
                    }
                    Obituary::OutOfMemory(_) => "it ran out of memory".into(),
                    Obituary::Removed => "it was removed".into(),
                    Obituary::EngineGone(why) => why,
                }));
            }
            Err(_) => {
                return Err(silent(match written {
                    Err(e) => e.to_string(),
                    Ok(()) => format!("no word from it in {} s", HELLO.as_secs()),
                }));
            }
        };
        tracing::debug!(python = %hello.python, uid = hello.uid, "the supervisor is up");
        if hello.protocol != PROTOCOL {
            return Err(StartError::Protocol(hello.protocol));
        }
        if guarded && hello.pid != 1 {
            return Err(StartError::Exposed(format!("it is process {}", hello.pid)));
        }
        if guarded && !hello.undumpable {
            return Err(StartError::Exposed("PR_SET_DUMPABLE failed".into()));
        }
        if !hello.filtered {
            self.notices.push(UNFILTERED.into());
        }
        Ok(())
    }

    /// A number for the next run or request; never 0.
    pub(super) fn number(&mut self) -> u32 {
        self.next_run = self.next_run.checked_add(1).unwrap_or(1);
        self.next_run
    }

    pub(super) async fn order(&mut self, order: Order, run: u32, payload: &Value) -> std::io::Result<()> {
        self.write(&encode(order, run, payload)).await
    }

    /// A piece of a process's standard input.
    pub(super) async fn feed(&mut self, run: u32, piece: &[u8]) -> std::io::Result<()> {
        self.write(&encode_raw(Order::Stdin, run, piece)).await
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let all = async {
            self.input.write_all(bytes).await?;
            self.input.flush().await
        };
        tokio::time::timeout(WRITE, all).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    }
}

/// Reads frames until the container's output ends or can't be followed.
async fn read(mut output: GuestOutput, frames: mpsc::Sender<Result<Incoming, FrameError>>) {
    let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::with_capacity(READ));
    loop {
        loop {
            match decoder.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(incoming)) => {
                    if frames.send(Ok(incoming)).await.is_err() {
                        return;
                    }
                }
                Err(e) => {
                    let _ = frames.send(Err(e)).await;
                    return;
                }
            }
        }
        bytes.reserve(READ);
        match output.read_buf(&mut bytes).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) => {
                tracing::debug!(error = %e, "the container's output broke off");
                return;
            }
        }
    }
}
