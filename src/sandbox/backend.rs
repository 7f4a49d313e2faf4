//! What a container engine must be able to do. A backend speaks no protocol: it starts a container,
//! hands over two byte streams and destroys it; everything else travels through the supervisor inside.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::event::EventSender;

use super::definition::{Definition, Plan};
use super::packages::Packages;
use super::workspace::Workspace;

/// The container's standard input: the host writes frames to it. To end it, call `shutdown`: dropping it
/// says nothing to the other side.
pub type GuestInput = Box<dyn AsyncWrite + Send + Unpin>;
/// The container's standard output: the supervisor's frames.
pub type GuestOutput = Box<dyn AsyncRead + Send + Unpin>;

/// Starts containers.
pub trait Backend: Send + Sync {
    /// Starts one container and hands it over.
    ///
    /// `progress` is told (as notices) what takes long: building or pulling the image.
    /// When the returned future is dropped or `cancel` fires, nothing remains.
    fn start(
        &self,
        plan: Plan,
        progress: Option<EventSender>,
        cancel: tokio_util::sync::CancellationToken,
    ) -> BoxFuture<'_, Result<Started, BackendError>>;

    /// Makes the definition's image: when it is missing or has changed, or from its first step when `fresh`.
    /// Returns the engine's id of it. When the future is dropped the work stops.
    fn make(
        &self,
        definition: Arc<Definition>,
        fresh: bool,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>>;

    /// Makes an image with more packages: `base` (an id), or the definition's own image, and one layer. The
    /// same packages on the same base are made once. Returns the id.
    fn derive(
        &self,
        definition: Arc<Definition>,
        base: Option<String>,
        packages: Packages,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>>;

    /// How many containers of other kernels use the session of that name in this notebook's directory.
    fn others(&self, _session: &str) -> BoxFuture<'_, usize> {
        Box::pin(std::future::ready(0))
    }

    /// Removes everything this kernel has ever started; nothing starts any more afterwards.
    fn destroy_all(&self) -> BoxFuture<'_, ()>;
}

/// A running container and its two byte streams.
pub struct Started {
    /// The container itself.
    pub container: Box<dyn Container>,
    /// Its standard input.
    pub input: GuestInput,
    /// Its standard output.
    pub output: GuestOutput,
    /// What the user should be told (the workspace was given to the sandbox's user, ...).
    pub notices: Vec<String>,
    /// The host's side of `/workspace`, for files that the kernel itself puts there.
    pub workspace: Option<Arc<Workspace>>,
    /// The host's side of `/session` or `/work`.
    pub place: Option<Arc<Workspace>>,
    /// The engine's id of the image that runs.
    pub image: String,
}

/// What a container uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Usage {
    /// Memory in bytes, without what the system could take back (page cache).
    pub memory: u64,
    /// CPUs' worth of time, over the last second or so.
    pub cpus: f64,
}

/// A running container.
pub trait Container: Send + Sync {
    /// Destroys it, at once and without asking it; idempotent, and nothing remains. Dropping a container does
    /// the same in the background.
    fn destroy(&self) -> BoxFuture<'_, ()>;

    /// Whether the memory limit killed a process inside since this was last asked: the limit in bytes.
    ///
    /// Such a kill need not end the container: asked when the Python session was lost or a process ended by
    /// `SIGKILL`. Waits a moment for the engine's word.
    fn out_of_memory(&self) -> BoxFuture<'_, Option<u64>>;

    /// What it uses now; `None` when the engine can't say.
    fn usage(&self) -> BoxFuture<'_, Option<Usage>>;

    /// Keeps its root file system as an image, of which the id is returned. What lies in a tmpfs or a mount is
    /// not in it.
    fn commit(&self) -> BoxFuture<'_, Result<String, BackendError>>;

    /// The engine's id of it, where it has one.
    fn id(&self) -> Option<&str> {
        None
    }

    /// Whether somebody has paused it.
    fn paused(&self) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(false))
    }

    /// The last that the main process wrote to its standard error (bounded, not sanitised).
    fn last_words(&self) -> String;

    /// Why it ended, asked after its output ended: out of memory, removed by others, the engine gone.
    fn obituary(&self) -> BoxFuture<'_, Obituary>;
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obituary {
    /// The memory limit (bytes) killed it.
    OutOfMemory(u64),
    /// It ended by itself with this code.
    Exited(i64),
    /// Somebody removed or killed it, or it is gone without a trace.
    Removed,
    /// The engine does not answer.
    EngineGone(String),
}

/// Why a container could not be started: what happened, why, and what to do next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// The engine does not answer or refuses us.
    #[error("{0}")]
    Engine(String),
    /// The image is missing and can't be made.
    #[error("{0}")]
    Image(String),
    /// The workspace can't be used.
    #[error("{0}")]
    Workspace(String),
    /// The start was cancelled.
    #[error("the start of the sandbox was interrupted")]
    Cancelled,
}
