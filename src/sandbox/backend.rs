//! What a container engine must be able to do. A backend speaks no protocol: it starts a container,
//! hands over two byte streams and destroys it; everything else travels through the supervisor inside.

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::event::EventSender;

/// The container's standard input: the host writes frames to it.
pub type GuestInput = Box<dyn AsyncWrite + Send + Unpin>;
/// The container's standard output: the supervisor's frames.
pub type GuestOutput = Box<dyn AsyncRead + Send + Unpin>;

/// Starts containers.
pub trait Backend: Send + Sync {
    /// Starts one container with the given main process and hands it over.
    ///
    /// `progress` is told (as notices) what takes long: building or pulling the image.
    /// When the returned future is dropped or `cancel` fires, nothing remains.
    fn start<'a>(
        &'a self,
        argv: Vec<String>,
        progress: Option<EventSender>,
        cancel: tokio_util::sync::CancellationToken,
    ) -> BoxFuture<'a, Result<Started, BackendError>>;

    /// Removes everything this kernel has ever started.
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
}

/// A running container.
pub trait Container: Send + Sync {
    /// Destroys it; idempotent, and nothing remains.
    fn destroy(&self) -> BoxFuture<'_, ()>;

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
