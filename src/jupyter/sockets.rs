//! The kernel's five sockets, behind which every ZeroMQ type stays.
//!
//! May import `config` and its siblings `wire` and `guard`. [`bind`] starts one thread with a
//! current-thread runtime; everything that touches ZeroMQ lives there. The rest of the kernel sees an
//! [`Inbox`] of authenticated messages and a cloneable [`Outbound`].

mod zmq;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::guard::Limits;
use super::guard::listen::{Public, address};
use super::guard::private::PrivateDir;
use super::guard::registry::{Connection, Registry};
use super::wire::{ConnectionInfo, Frames, Opener, Port, Signed, Signer};

/// Messages per channel that wait for the kernel; beyond them clients wait.
const INBOX: usize = 256;

/// Messages that wait for ZeroMQ, and their bytes; beyond them senders wait.
const OUTBOX: usize = 256;
const OUTBOX_BYTES: usize = 4 << 20;

/// How long a question waits for the client's stdin connection to appear.
const STDIN_PATIENCE: Duration = Duration::from_secs(1);

/// How long closing waits for slow clients: a client that shuts the kernel down gives it 2.5 s for everything.
const CLOSING: Duration = Duration::from_millis(500);

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

/// The sending side, for any thread; cheap to clone. When the last clone is dropped the sockets close.
#[derive(Debug, Clone)]
pub struct Outbound {
    signer: Signer,
    registry: Arc<Registry>,
    shell: mpsc::Sender<Reply>,
    control: mpsc::Sender<Reply>,
    stdin: mpsc::Sender<Reply>,
    iopub: mpsc::Sender<Publish>,
    iopub_bytes: Arc<Semaphore>,
    _stop: Arc<DropGuard>,
    stopped: CancellationToken,
}

/// What a ROUTER is told to do.
#[derive(Debug)]
enum Reply {
    Send(Peer, Frames),
    Flush(Flush),
}

/// What XPUB is told to do.
#[derive(Debug)]
enum Publish {
    Send(Bytes, Frames, OwnedSemaphorePermit),
    Flush(Flush),
}

/// Asks for a mark behind everything sent so far; the answer is who has to come to it.
#[derive(Debug)]
struct Flush {
    number: u64,
    waiting: oneshot::Sender<Vec<Arc<Connection>>>,
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
    /// on the same channel; when there is none the reply is dropped, as nobody waits for it.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub async fn send_reply(&self, peer: &Peer, frames: Frames) -> Result<(), SendError> {
        let queue = match peer.channel {
            Channel::Shell => &self.shell,
            Channel::Control => &self.control,
            Channel::Stdin => &self.stdin,
        };
        queue.send(Reply::Send(peer.clone(), frames)).await.map_err(|_| SendError::Closed)
    }

    /// Publishes to every subscriber of the topic. Waits while the fastest subscriber is behind.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub async fn send_iopub(&self, topic: Bytes, frames: Frames) -> Result<(), SendError> {
        let size = u32::try_from(frames.size().min(OUTBOX_BYTES)).unwrap_or(u32::MAX);
        let bytes = Arc::clone(&self.iopub_bytes);
        let permit = bytes.acquire_many_owned(size).await.map_err(|_| SendError::Closed)?;
        self.iopub.send(Publish::Send(topic, frames, permit)).await.map_err(|_| SendError::Closed)
    }

    /// Asks the client that sent a shell request, through its stdin connections: those that claim the same
    /// identity. Waits for a moment when it is still opening them.
    ///
    /// # Errors
    /// [`SendError::NoPeer`] when it has none: nobody would ever answer.
    pub async fn send_stdin(&self, shell: &Peer, frames: Frames) -> Result<(), SendError> {
        let found = self.registry.claiming(Port::Stdin, &shell.claimed, STDIN_PATIENCE).await;
        if found.is_empty() {
            return Err(SendError::NoPeer(Port::Stdin.name()));
        }
        for connection in found {
            let peer = Peer {
                channel: Channel::Stdin,
                connection,
                claimed: shell.claimed.clone(),
                route: Vec::new(),
            };
            self.stdin.send(Reply::Send(peer, frames.clone())).await.map_err(|_| SendError::Closed)?;
        }
        Ok(())
    }

    /// Waits until everything sent before is with the clients' operating systems. Clients that have
    /// stopped reading are waited for about a second; put a deadline around it where time matters.
    pub async fn flush(&self) {
        let number = self.registry.next_flush();
        let mut waiting = Vec::new();
        let (done, came) = oneshot::channel();
        if self.iopub.send(Publish::Flush(Flush { number, waiting: done })).await.is_ok() {
            waiting.extend(came.await.unwrap_or_default());
        }
        for queue in [&self.shell, &self.control, &self.stdin] {
            let (done, came) = oneshot::channel();
            if queue.send(Reply::Flush(Flush { number, waiting: done })).await.is_ok() {
                waiting.extend(came.await.unwrap_or_default());
            }
        }
        self.registry.flushed(number, waiting).await;
    }

    /// Flushes, half a second at most, then closes all sockets; their thread ends.
    pub async fn close(&self) {
        if tokio::time::timeout(CLOSING, self.flush()).await.is_err() {
            tracing::warn!("a client was too slow to receive everything before the end");
        }
        self.stopped.cancel();
    }
}

/// Binds the five sockets and starts their thread.
///
/// # Errors
/// [`SocketError`], naming the address that is taken.
pub fn bind(connection: &ConnectionInfo) -> Result<(Inbox, Outbound, JoinHandle<()>), SocketError> {
    let failed = |what| move |error: std::io::Error| SocketError::Start { what, reason: error.to_string() };
    let dir = PrivateDir::new().map_err(failed("private folder"))?;
    let mut doors = Vec::with_capacity(Port::ALL.len());
    for port in Port::ALL {
        let public = Public::bind(connection, port).map_err(|source| SocketError::Bind {
            address: address(connection, port),
            channel: port.name(),
            source,
        })?;
        let (listener, private) = dir.listen(port.name()).map_err(failed("private socket"))?;
        doors.push(zmq::Door { port, public, listener, private });
    }
    let dir = dir.seal().map_err(failed("private folder"))?;

    let signer = Signer::new(&connection.key);
    let registry = Arc::new(Registry::new(Limits::DEFAULT));
    let stopped = CancellationToken::new();
    let (to_control, control) = mpsc::channel(INBOX);
    let (to_shell, shell) = mpsc::channel(INBOX);
    let (to_stdin, stdin) = mpsc::channel(INBOX);
    let (shell_out, shell_replies) = mpsc::channel(OUTBOX);
    let (control_out, control_replies) = mpsc::channel(OUTBOX);
    let (stdin_out, stdin_replies) = mpsc::channel(OUTBOX);
    let (iopub, publications) = mpsc::channel(OUTBOX);
    let sockets = zmq::Sockets {
        registry: Arc::clone(&registry),
        signer: signer.clone(),
        opener: Arc::new(std::sync::Mutex::new(Opener::new(signer.clone()))),
        stop: stopped.clone(),
        shell: (to_shell, shell_replies),
        control: (to_control, control_replies),
        stdin: (to_stdin, stdin_replies),
        publications,
    };

    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("sockets".to_owned())
        .spawn(move || {
            // Held until the sockets close: elsewhere than on Linux the guard connects by its paths.
            let _dir = dir;
            zmq::run(sockets, doors, &ready);
        })
        .map_err(failed("thread"))?;
    match started.recv() {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => return Err(SocketError::Start { what: "ZeroMQ", reason }),
        Err(_) => {
            return Err(SocketError::Start { what: "thread", reason: "it ended at once".to_owned() });
        }
    }
    let outbound = Outbound {
        signer,
        registry,
        shell: shell_out,
        control: control_out,
        stdin: stdin_out,
        iopub,
        iopub_bytes: Arc::new(Semaphore::new(OUTBOX_BYTES)),
        _stop: Arc::new(stopped.clone().drop_guard()),
        stopped,
    };
    Ok((Inbox { control, shell, stdin }, outbound, thread))
}
