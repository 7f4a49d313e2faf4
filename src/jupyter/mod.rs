//! The Jupyter messaging protocol 5.5: frames and signing, sockets, dispatch, iopub.
//!
//! May import `event`, `config`, `engine` and `cell` (for completion). [`serve`] is the way in. From the
//! outside in:
//!
//! | module | what |
//! | --- | --- |
//! | [`wire`] | connection file, signed messages, headers |
//! | [`sockets`] | the five sockets on a thread of their own; `zeromq` never leaves it |
//! | `kernel` | the loop: messages, signals, the parent's death |
//! | `dispatch` | what happens when: a pure state machine |
//! | `messages` | the table of requests and replies |
//! | `context` | the wrapper around every handler: busy, handler, reply, idle |
//! | `handlers` | what each request means |
//! | `execute` | one cell, from request to reply |
//! | `present`, `answer`, `notice` | from events to messages; throttling; pure |
//! | `broadcast`, `iopub`, `pace` | the messages of iopub, their one writer, the server's rate limits |
//! | `stdin`, `history` | questions to the user; what was run before |
//! | `signals`, `parent` | why a kernel ends without being asked |
//!
//! A new message type is one row in `messages`, one struct, and one arm in `handlers`.

mod guard;
pub mod sockets;
pub mod wire;

mod answer;
mod broadcast;
mod context;
mod dispatch;
mod execute;
mod handlers;
mod history;
mod iopub;
mod kernel;
mod messages;
mod notice;
mod pace;
mod parent;
mod present;
mod signals;
mod stdin;

use std::sync::Arc;

use crate::config::{Flavor, Updates};
use crate::engine::Interpreter;

use wire::ConnectionInfo;

/// What the kernel must know beside its connection.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which kernelspec is running.
    pub flavor: Flavor,
    /// Whether a Jupyter server with rate limits reads iopub (it sets `JPY_SESSION_NAME`): stay below them.
    pub paced: bool,
    /// How replies are shown while they grow.
    pub updates: Updates,
    /// The process whose death ends the kernel (`JPY_PARENT_PID`).
    pub parent: Option<i32>,
    /// Whether SIGINT interrupts and SIGTERM ends the kernel. Tests leave their process's signals alone.
    pub signals: bool,
}

/// Why the kernel ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitReason {
    /// A client asked for it.
    Shutdown {
        /// And will start it again.
        restart: bool,
    },
    /// SIGTERM.
    Terminated,
    /// The process that started the kernel is gone.
    ParentGone,
    /// The sockets were closed from within: a bug, the log says more.
    Disconnected,
}

/// The kernel could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The sockets could not be opened.
    #[error(transparent)]
    Sockets(#[from] sockets::SocketError),
    /// The operating system refuses signal handlers.
    #[error("cannot take over the signals of the process: {0}; the limit of open files may be reached")]
    Signals(#[from] std::io::Error),
}

/// Serves one kernel until it ends. Needs a runtime with at least two workers, so that showing output
/// never waits for the code that makes it.
///
/// When it returns, the interpreter was shut down and everything said was handed to the clients.
///
/// # Errors
/// [`ServeError`] when the kernel can't start; once started it ends with an [`ExitReason`].
pub async fn serve(
    connection: &ConnectionInfo,
    interpreter: Arc<dyn Interpreter>,
    options: Options,
) -> Result<ExitReason, ServeError> {
    kernel::run(connection, interpreter, options).await
}
