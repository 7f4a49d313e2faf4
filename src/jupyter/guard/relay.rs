//! One established connection: what the client sends goes to ZeroMQ in whole messages, what ZeroMQ sends
//! goes into the outbox at once, and a writer gives the client what it takes.
//!
//! Imports its siblings. The three loops run in one task and end together.

use std::io;

use bytes::{Bytes, BytesMut};

use super::listen::{Door, Established};
use super::marks::{self, Mark};
use super::registry::{Connection, Registry};
use super::stream::Stream;
use super::zmtp::{self, Splitter, Unit, Violation};
use crate::jupyter::wire::Port;

/// Bytes read at once.
const READ: usize = 64 << 10;

/// The most that is reserved ahead for a message that the kernel itself sends.
const RESERVE: usize = 4 << 20;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("one side closed it: {0}")]
    Io(#[from] io::Error),
    #[error("the client {0}")]
    Violation(#[from] Violation),
    #[error("it was cut")]
    Cut,
}

/// Relays until one side closes, breaks a rule or is cut.
pub(super) async fn run(door: &Door, client: Stream, established: Established) {
    let Established { connection, private, from_client, client_splitter, from_kernel, kernel_splitter } =
        established;
    let registry = &*door.registry;
    let reader = Reader { registry, connection: &connection, client: &client, private: &private };
    let drain =
        Drain { registry, connection: &connection, private: &private, welcomed: door.port != Port::Iopub };
    let ended = tokio::select! {
        () = connection.cut.cancelled() => Ended::Cut,
        ended = reader.run(from_client, client_splitter) => ended,
        ended = drain.run(from_kernel, kernel_splitter) => ended,
        error = write(registry, &connection, &client) => Ended::Io(error),
    };
    tracing::debug!(socket = door.port.name(), connection = connection.id, %ended, "a connection ended");
}

/// Client to ZeroMQ.
struct Reader<'a> {
    registry: &'a Registry,
    connection: &'a Connection,
    client: &'a Stream,
    private: &'a Stream,
}

impl Reader<'_> {
    async fn run(&self, mut buffer: BytesMut, mut splitter: Splitter) -> Ended {
        match self.relay(&mut buffer, &mut splitter).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn relay(
        &self,
        buffer: &mut BytesMut,
        splitter: &mut Splitter,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut subscriptions = Subscriptions::default();
        if self.connection.port == Port::Iopub {
            let id = self.connection.id;
            let mut join = subscribe(&marks::flush_topic());
            join.unsplit(subscribe(&Mark::Welcome(id).encode()));
            join.unsplit(subscribe(&Mark::Joined(id).encode()));
            self.private.write_all(&join).await?;
        }
        loop {
            while let Some(unit) = splitter.next(buffer)? {
                match unit {
                    Unit::Message(message) if self.connection.port == Port::Iopub => {
                        if let Some(relayed) = self.subscription(&message, &mut subscriptions)? {
                            self.private.write_all(&relayed).await?;
                        }
                    }
                    Unit::Message(message) => {
                        self.connection.has_spoken();
                        self.private.write_all(&message).await?;
                    }
                    Unit::Command(body) => {
                        // ZeroMQ knows no command but READY, so a client's pings are answered here.
                        let pong = zmtp::pong(&body).ok_or(Violation::Command)?;
                        self.registry.send(self.connection, pong.freeze());
                    }
                }
                self.registry.hold_incoming(self.connection, buffer.len());
            }
            // A stranger's memory grows with what it sends, never with what it announces.
            if self.client.read(buffer, READ).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            self.registry.hold_incoming(self.connection, buffer.len());
            tokio::task::consume_budget().await;
        }
    }

    /// What a subscriber's message becomes: the subscription, and a mark that asks for its welcome.
    fn subscription(
        &self,
        message: &Bytes,
        known: &mut Subscriptions,
    ) -> Result<Option<BytesMut>, Violation> {
        let Some((body, _)) = zmtp::split_first(message) else { return Ok(None) };
        match body.split_first() {
            Some((1, topic)) => {
                known.add(topic, self.registry.limits.subscriptions)?;
                self.connection.has_spoken();
                let mut mark = BytesMut::from(&Mark::Subscribed(self.connection.id).encode()[..]);
                mark.extend_from_slice(topic);
                let mut relayed = BytesMut::from(&message[..]);
                relayed.unsplit(subscribe(&mark));
                // The mark has said what it had to: it need not stay subscribed.
                let mut leave = BytesMut::from(&[0u8][..]);
                leave.unsplit(mark);
                relayed.unsplit(zmtp::single(&leave));
                Ok(Some(relayed))
            }
            Some((0, topic)) => Ok(known.remove(topic).then(|| BytesMut::from(&message[..]))),
            // Not a subscription: an XSUB may send others, and nobody listens to them.
            _ => Ok(None),
        }
    }
}

fn subscribe(topic: &[u8]) -> BytesMut {
    let mut body = BytesMut::from(&[1u8][..]);
    body.extend_from_slice(topic);
    zmtp::single(&body)
}

/// What one subscriber has subscribed to, because XPUB keeps every subscription it is sent.
#[derive(Debug, Default)]
struct Subscriptions(Vec<Vec<u8>>);

impl Subscriptions {
    fn add(&mut self, topic: &[u8], most: usize) -> Result<(), Violation> {
        if topic.starts_with(marks::PREFIX) || self.0.len() >= most {
            return Err(Violation::Subscription);
        }
        self.0.push(topic.to_vec());
        Ok(())
    }

    fn remove(&mut self, topic: &[u8]) -> bool {
        let found = self.0.iter().position(|known| known == topic);
        found.map(|at| self.0.swap_remove(at)).is_some()
    }
}

/// ZeroMQ to the outbox; never waits for the client.
struct Drain<'a> {
    registry: &'a Registry,
    connection: &'a Connection,
    private: &'a Stream,
    /// A subscriber gets nothing before its first welcome: what was published between its subscription
    /// and the welcome was published before it subscribed, as far as it can tell.
    welcomed: bool,
}

impl Drain<'_> {
    async fn run(mut self, mut buffer: BytesMut, mut splitter: Splitter) -> Ended {
        match self.drain(&mut buffer, &mut splitter).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn drain(
        &mut self,
        buffer: &mut BytesMut,
        splitter: &mut Splitter,
    ) -> Result<std::convert::Infallible, Ended> {
        loop {
            while let Some(unit) = splitter.next(buffer)? {
                if let Unit::Message(message) = unit {
                    self.deliver(message);
                }
            }
            let missing = splitter.wanted().saturating_sub(buffer.len());
            if self.private.read(buffer, missing.clamp(READ, RESERVE)).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            tokio::task::consume_budget().await;
        }
    }

    fn deliver(&mut self, message: Bytes) {
        let Some((first, rest)) = zmtp::split_first(&message) else { return };
        match Mark::decode(&first) {
            Some((Mark::Flush(n), _)) => self.registry.mark(self.connection, n),
            // Every subscriber to everything is sent all welcomes; only its own is for it.
            Some((Mark::Welcome(id), _)) if id == self.connection.id => {
                self.welcomed = true;
                self.registry.send(self.connection, rest);
            }
            None if self.welcomed => self.registry.send(self.connection, message),
            Some(_) | None => {}
        }
    }
}

/// The outbox to the client; returns when the client is gone.
async fn write(registry: &Registry, connection: &Connection, client: &Stream) -> io::Error {
    loop {
        if connection.outbox.is_empty() {
            connection.wake_writer.notified().await;
            continue;
        }
        match connection.outbox.take(|pieces| client.try_write(pieces)) {
            Ok(0) => return io::ErrorKind::WriteZero.into(),
            Ok(taken) => registry.took(taken),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if let Err(error) = client.writable().await {
                    return error;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error,
        }
        tokio::task::consume_budget().await;
    }
}
