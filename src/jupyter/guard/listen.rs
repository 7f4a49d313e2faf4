//! The public listeners and the handshake with whoever connects.
//!
//! Imports `wire` for the connection file and its siblings. The guard answers the handshake itself; only
//! when it is complete does ZeroMQ hear of the connection.

use std::collections::VecDeque;
use std::io;
use std::net::ToSocketAddrs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::private::PrivateSocket;
use super::registry::{Connection, Registry};
use super::stream::Stream;
use super::zmtp::{self, Ready, Splitter, Unit, Violation};
use super::{Limits, relay};
use crate::jupyter::wire::{ConnectionInfo, Port, Transport};

/// Bytes read at once from a client that has not finished its handshake.
const HANDSHAKE_READ: usize = 512;

/// After a failed accept (too many open files) the listener rests for this long.
const REST: Duration = Duration::from_millis(50);

/// A public socket, bound and not yet served.
#[derive(Debug)]
pub(crate) struct Public {
    port: Port,
    listener: Listener,
}

#[derive(Debug)]
enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

/// A socket file that is removed with its listener.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Gone already is as good as removed, and there is nobody to tell anything else to.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The address of one of the five sockets, for people.
pub(crate) fn address(connection: &ConnectionInfo, port: Port) -> String {
    let number = connection.port(port);
    match connection.transport {
        Transport::Tcp => format!("tcp://{}:{number}", connection.ip),
        Transport::Ipc => format!("ipc://{}-{number}", connection.ip),
    }
}

impl Public {
    /// Binds one of the five sockets of a connection file.
    pub(crate) fn bind(connection: &ConnectionInfo, port: Port) -> io::Result<Self> {
        let number = connection.port(port);
        let listener = match connection.transport {
            Transport::Tcp => {
                // ZeroMQ's way to say "every interface".
                let ip = if connection.ip == "*" { "0.0.0.0" } else { &connection.ip };
                let addresses: Vec<_> = (ip, number).to_socket_addrs()?.collect();
                let listener = std::net::TcpListener::bind(&addresses[..])?;
                listener.set_nonblocking(true)?;
                Listener::Tcp(listener)
            }
            Transport::Ipc => {
                let path = PathBuf::from(format!("{}-{number}", connection.ip));
                unlink_stale(&path)?;
                let listener = std::os::unix::net::UnixListener::bind(&path)?;
                let file = SocketFile(path);
                std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                Listener::Unix(listener, file)
            }
        };
        Ok(Public { port, listener })
    }

    /// Accepts and relays until `stop`.
    pub(crate) async fn serve(
        self,
        registry: Arc<Registry>,
        private: PrivateSocket,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> io::Result<()> {
        let door = Arc::new(Door { port: self.port, registry, private });
        let mut pending: VecDeque<(tokio::task::JoinHandle<()>, CancellationToken)> = VecDeque::new();
        let acceptor = Acceptor::new(self.listener)?;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return Ok(()),
                accepted = acceptor.accept() => accepted,
            };
            let stream = match accepted {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(socket = self.port.name(), %error, "cannot accept a connection");
                    tokio::time::sleep(REST).await;
                    continue;
                }
            };
            // A finished handshake leaves the list by its token, long before its connection ends.
            pending.retain(|(task, done)| !task.is_finished() && !done.is_cancelled());
            if pending.len() >= door.registry.limits.pending
                && let Some((oldest, _)) = pending.pop_front()
            {
                tracing::debug!(socket = self.port.name(), "too many handshakes: the oldest is dropped");
                oldest.abort();
            }
            let (door, done) = (Arc::clone(&door), CancellationToken::new());
            let (finished, stop) = (done.clone(), stop.clone());
            let task = tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = door.admit(stream, finished) => {}
                }
            });
            pending.push_back((task, done));
        }
    }
}

/// A socket file that nobody listens on any more would make binding fail. Anything else stays.
fn unlink_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if found.file_type().is_socket() && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

enum Acceptor {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, #[allow(dead_code, reason = "removed when dropped")] SocketFile),
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        Ok(match listener {
            Listener::Tcp(listener) => Acceptor::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listener::Unix(listener, file) => {
                Acceptor::Unix(tokio::net::UnixListener::from_std(listener)?, file)
            }
        })
    }

    async fn accept(&self) -> io::Result<Stream> {
        match self {
            Acceptor::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Messages are whole when they are written; waiting for more only delays them.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Acceptor::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// What the connections of one socket share.
pub(super) struct Door {
    pub(super) port: Port,
    pub(super) registry: Arc<Registry>,
    private: PrivateSocket,
}

/// Why a handshake did not succeed.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the client {0}")]
    Violation(#[from] Violation),
    #[error("the socket has as many connections as it may have")]
    Full,
    #[error("it took too long")]
    Slow,
}

impl Door {
    /// Serves one connection from its first byte to its last.
    async fn admit(&self, client: Stream, handshake_done: CancellationToken) {
        let handshake = tokio::time::timeout(self.registry.limits.handshake, self.handshake(&client)).await;
        // However it ended, it is no longer pending.
        handshake_done.cancel();
        match handshake.unwrap_or(Err(Failed::Slow)) {
            Ok(both) => {
                let connection = Arc::clone(&both.connection);
                relay::run(self, client, both).await;
                self.registry.remove(&connection);
            }
            Err(error) => {
                tracing::debug!(socket = self.port.name(), %error, "a handshake failed");
            }
        }
    }

    async fn handshake(&self, client: &Stream) -> Result<Established, Failed> {
        // libzmq sends the rest of its greeting only when it has seen the beginning of ours.
        client.write_all(&zmtp::greeting()).await?;
        let mut from_client = BytesMut::new();
        read_greeting(client, &mut from_client).await?;
        client.write_all(&zmtp::ready(socket_type(self.port), b"")).await?;
        let mut client_splitter = Splitter::new(Limits::message(self.port));
        let body = read_command(client, &mut from_client, &mut client_splitter).await?;
        let ready = Ready::parse(&body)?;
        if !partners(self.port).contains(&ready.socket_type.as_ref()) {
            client.write_all(&zmtp::error("incompatible socket type")).await?;
            return Err(Violation::SocketType.into());
        }

        let connection = self.registry.admit(self.port, ready.identity).ok_or(Failed::Full)?;
        let registered = Registered { registry: &self.registry, connection: Some(connection) };
        let established =
            self.introduce(&registered, ready.socket_type, from_client, client_splitter).await?;
        registered.keep();
        Ok(established)
    }

    /// The second handshake, with ZeroMQ, under an identity of our own: so none is ever used twice.
    async fn introduce(
        &self,
        registered: &Registered<'_>,
        client_type: Bytes,
        from_client: BytesMut,
        client_splitter: Splitter,
    ) -> Result<Established, Failed> {
        let Some(connection) = registered.connection.clone() else { return Err(Failed::Full) };
        let private = Stream::Unix(self.private.connect().await?);
        let mut hello = BytesMut::from(&zmtp::greeting()[..]);
        hello.unsplit(zmtp::ready(&client_type, &identity(connection.id)));
        private.write_all(&hello).await?;
        let mut from_kernel = BytesMut::new();
        read_greeting(&private, &mut from_kernel).await?;
        let mut kernel_splitter = Splitter::trusting();
        read_command(&private, &mut from_kernel, &mut kernel_splitter).await?;
        connection.wait_accepted().await;
        Ok(Established { connection, private, from_client, client_splitter, from_kernel, kernel_splitter })
    }
}

/// Both handshakes are done; whatever was read beyond them waits in the buffers.
pub(super) struct Established {
    pub(super) connection: Arc<Connection>,
    pub(super) private: Stream,
    pub(super) from_client: BytesMut,
    pub(super) client_splitter: Splitter,
    pub(super) from_kernel: BytesMut,
    pub(super) kernel_splitter: Splitter,
}

/// Takes a connection out of the registry again when its handshake is dropped half-way.
struct Registered<'a> {
    registry: &'a Registry,
    connection: Option<Arc<Connection>>,
}

impl Registered<'_> {
    fn keep(mut self) {
        self.connection = None;
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.registry.remove(&connection);
        }
    }
}

/// The identity under which ZeroMQ knows a connection, and back.
pub(crate) fn identity(id: u64) -> [u8; 9] {
    let mut identity = *b"c........";
    identity[1..].copy_from_slice(&id.to_be_bytes());
    identity
}

/// The connection that ZeroMQ knows by this identity.
pub(crate) fn connection_of(identity: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(identity.strip_prefix(b"c")?.try_into().ok()?))
}

async fn read_greeting(stream: &Stream, buffer: &mut BytesMut) -> Result<(), Failed> {
    while buffer.len() < zmtp::GREETING {
        zmtp::check_greeting(buffer)?;
        read_some(stream, buffer).await?;
    }
    zmtp::check_greeting(&buffer.split_to(zmtp::GREETING))?;
    Ok(())
}

async fn read_command(
    stream: &Stream,
    buffer: &mut BytesMut,
    splitter: &mut Splitter,
) -> Result<Bytes, Failed> {
    loop {
        match splitter.next(buffer)? {
            Some(Unit::Command(body)) => return Ok(body),
            Some(Unit::Message(_)) => return Err(Violation::Command.into()),
            None => read_some(stream, buffer).await?,
        }
    }
}

async fn read_some(stream: &Stream, buffer: &mut BytesMut) -> io::Result<()> {
    match stream.read(buffer, HANDSHAKE_READ).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// What we are on this socket.
fn socket_type(port: Port) -> &'static [u8] {
    match port {
        Port::Shell | Port::Control | Port::Stdin => b"ROUTER",
        Port::Iopub => b"XPUB",
        Port::Heartbeat => b"REP",
    }
}

/// Who may talk to us there.
fn partners(port: Port) -> &'static [&'static [u8]] {
    match port {
        Port::Shell | Port::Control | Port::Stdin => &[b"DEALER", b"REQ", b"ROUTER"],
        Port::Iopub => &[b"SUB", b"XSUB"],
        Port::Heartbeat => &[b"REQ", b"DEALER"],
    }
}
