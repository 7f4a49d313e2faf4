//! The connections behind the guard: who claims to be whom, what they hold, who may stay.
//!
//! Imports `wire` for socket names and its siblings. Shared between the thread of the sockets and those
//! that send; every lock is held for a few instructions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::outbox::Outbox;
use crate::jupyter::wire::Port;

/// A connection that holds no more than this is never dropped for the common budget: as many connections as
/// there may be cannot fill it so.
const MODEST: usize = 1 << 20;

/// One connection whose handshake is done.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Unique in this kernel; ZeroMQ knows the connection by it.
    pub(crate) id: u64,
    pub(crate) port: Port,
    /// The identity that the client claims; may be empty, may be a lie.
    pub(crate) claimed: Bytes,
    /// What waits for the client.
    pub(crate) outbox: Outbox,
    /// There is something to write.
    pub(crate) wake_writer: Notify,
    /// Ends the connection.
    pub(crate) cut: CancellationToken,
    /// ZeroMQ has taken it up.
    accepted: AtomicBool,
    accepted_now: Notify,
    /// It takes part in flushes (subscribers only).
    joined: AtomicBool,
    /// It has sent a message.
    spoke: AtomicBool,
    /// It has sent a message with the right signature.
    trusted: AtomicBool,
    /// Bytes of the incomplete message, and since when there is one.
    incomplete: Mutex<Option<(usize, Instant)>>,
}

/// All connections of the kernel.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) limits: Limits,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next_id: AtomicU64,
    next_flush: AtomicU64,
    /// Bytes of incomplete messages, over all connections.
    incoming: AtomicUsize,
    /// Bytes that wait for clients, over all connections.
    outgoing: AtomicUsize,
    /// A client took something, or is gone.
    progress: Notify,
    /// No subscriber moves: iopub does not wait until one has caught up.
    unpaced: AtomicBool,
    /// A connection was added.
    arrived: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    pub(crate) fn new(limits: Limits) -> Self {
        Registry {
            limits,
            connections: Mutex::default(),
            next_id: AtomicU64::new(1),
            next_flush: AtomicU64::new(1),
            incoming: AtomicUsize::new(0),
            outgoing: AtomicUsize::new(0),
            progress: Notify::new(),
            unpaced: AtomicBool::new(false),
            arrived: Notify::new(),
        }
    }

    /// Admits a connection, dropping a less worthy one when the socket is full; `None`: it is refused.
    pub(crate) fn admit(&self, port: Port, claimed: Bytes) -> Option<Arc<Connection>> {
        let mut connections = lock(&self.connections);
        let there: Vec<_> = connections.values().filter(|c| c.port == port).collect();
        if there.len() >= self.limits.connections {
            let trusted: Vec<Bytes> =
                connections.values().filter(|c| c.is_trusted()).map(|c| c.claimed.clone()).collect();
            let known =
                |c: &Connection| c.is_trusted() || (!c.claimed.is_empty() && trusted.contains(&c.claimed));
            // Silent ones go first, oldest first. Where a client proves itself by its first message, one
            // that spoke without proof goes next. Elsewhere nothing tells a stranger from a client, and
            // those who are there keep their place.
            let proves = matches!(port, Port::Shell | Port::Control | Port::Stdin);
            let victim = there
                .into_iter()
                .filter(|c| !known(c) && (proves || !c.spoke.load(Ordering::Relaxed)))
                .min_by_key(|c| (c.spoke.load(Ordering::Relaxed), c.id))?
                .id;
            if let Some(victim) = connections.remove(&victim) {
                victim.cut.cancel();
            }
        }
        let connection = Arc::new(Connection {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            port,
            claimed,
            outbox: Outbox::default(),
            wake_writer: Notify::new(),
            cut: CancellationToken::new(),
            accepted: AtomicBool::new(false),
            accepted_now: Notify::new(),
            joined: AtomicBool::new(false),
            spoke: AtomicBool::new(false),
            trusted: AtomicBool::new(false),
            incomplete: Mutex::default(),
        });
        connections.insert(connection.id, Arc::clone(&connection));
        Some(connection)
    }

    /// Forgets a connection and what it held.
    pub(crate) fn remove(&self, connection: &Connection) {
        connection.cut.cancel();
        lock(&self.connections).remove(&connection.id);
        self.hold_incoming(connection, 0);
        self.outgoing.fetch_sub(connection.outbox.behind(), Ordering::Relaxed);
        self.progress.notify_waiters();
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Connection>> {
        lock(&self.connections).get(&id).cloned()
    }

    /// The connections of one socket.
    pub(crate) fn on(&self, port: Port) -> Vec<Arc<Connection>> {
        lock(&self.connections).values().filter(|c| c.port == port).cloned().collect()
    }

    /// ZeroMQ knows the connection now.
    pub(crate) fn accepted(&self, id: u64) {
        if let Some(connection) = self.get(id) {
            connection.accepted.store(true, Ordering::Release);
            connection.accepted_now.notify_one();
            self.arrived.notify_waiters();
        }
    }

    /// XPUB has registered the subscriptions that every relay makes.
    pub(crate) fn joined(&self, id: u64) {
        if let Some(connection) = self.get(id) {
            connection.joined.store(true, Ordering::Release);
        }
    }

    /// The connection has proved that it knows the key.
    pub(crate) fn trust(&self, id: u64) {
        if let Some(connection) = self.get(id) {
            connection.trusted.store(true, Ordering::Relaxed);
        }
    }

    /// Where a message for a client goes: its connection when that is alive, else the newest one that claims
    /// the same identity, one that proved itself before one that did not.
    pub(crate) fn route(&self, port: Port, id: u64, claimed: &[u8]) -> Option<u64> {
        let connections = lock(&self.connections);
        if connections.contains_key(&id) {
            return Some(id);
        }
        connections
            .values()
            .filter(|c| !claimed.is_empty() && c.port == port && c.claimed == claimed && c.is_accepted())
            .max_by_key(|c| (c.is_trusted(), c.id))
            .map(|c| c.id)
    }

    /// All connections on one socket that claim an identity. Waits for the first: a client opens its
    /// connections one after another.
    pub(crate) async fn claiming(&self, port: Port, claimed: &[u8], patience: Duration) -> Vec<u64> {
        let deadline = Instant::now() + patience;
        loop {
            let arrived = self.arrived.notified();
            let found: Vec<u64> = lock(&self.connections)
                .values()
                .filter(|c| !claimed.is_empty() && c.port == port && c.claimed == claimed && c.is_accepted())
                .map(|c| c.id)
                .collect();
            if !found.is_empty() || tokio::time::timeout_at(deadline, arrived).await.is_err() {
                return found;
            }
        }
    }

    /// Notes that a connection holds this many bytes of an incomplete message. Above the common budget the
    /// connection whose message has been incomplete longest is dropped: a client's own is a matter of
    /// milliseconds.
    pub(crate) fn hold_incoming(&self, connection: &Connection, bytes: usize) {
        let before = {
            let mut incomplete = lock(&connection.incomplete);
            let before = *incomplete;
            *incomplete = (bytes > 0).then(|| (bytes, before.map_or_else(Instant::now, |(_, t)| t)));
            before.map_or(0, |(n, _)| n)
        };
        if bytes <= before {
            self.incoming.fetch_sub(before - bytes, Ordering::Relaxed);
            return;
        }
        let total = self.incoming.fetch_add(bytes - before, Ordering::Relaxed) + bytes - before;
        if total > self.limits.incoming {
            let oldest = lock(&self.connections)
                .values()
                .filter(|c| !c.cut.is_cancelled())
                .filter_map(|c| {
                    let held = (*lock(&c.incomplete)).filter(|(bytes, _)| *bytes > MODEST)?;
                    Some((held.1, Arc::clone(c)))
                })
                .min_by_key(|(since, c)| (*since, c.id));
            if let Some((_, oldest)) = oldest {
                tracing::warn!(
                    socket = oldest.port.name(),
                    "incomplete messages fill their budget: a client is cut"
                );
                oldest.cut.cancel();
            }
        }
    }

    /// Queues a message for a client. A client that is too far behind is cut; nobody waits.
    pub(crate) fn send(&self, connection: &Connection, message: Bytes) {
        let size = message.len();
        // The budget counts what waited before, so that one large message reaches a client that keeps up.
        let behind = connection.outbox.put(message);
        let total = self.outgoing.fetch_add(size, Ordering::Relaxed) + size;
        connection.wake_writer.notify_one();
        if behind >= self.limits.outbox {
            tracing::warn!(socket = connection.port.name(), behind, "a client that does not read is cut");
            connection.cut.cancel();
        } else if total > self.limits.outboxes + size {
            let last = lock(&self.connections)
                .values()
                .filter(|c| !c.cut.is_cancelled())
                .max_by_key(|c| c.outbox.behind())
                .cloned();
            if let Some(last) = last.filter(|c| c.outbox.behind() > self.limits.window) {
                tracing::warn!(
                    socket = last.port.name(),
                    "clients that do not read fill the common budget: the last is cut"
                );
                last.cut.cancel();
            }
        }
    }

    /// Notes that a client took this many bytes.
    pub(crate) fn took(&self, bytes: usize) {
        self.outgoing.fetch_sub(bytes, Ordering::Relaxed);
        self.progress.notify_waiters();
    }

    /// Whether so much waits that [`Registry::pace`] has something to say.
    pub(crate) fn is_behind(&self) -> bool {
        self.outgoing.load(Ordering::Relaxed) > self.limits.window
    }

    /// Waits while even the fastest subscriber is behind by more than the window.
    ///
    /// So a lone client that reads more slowly than the kernel writes loses nothing, and a stalled one
    /// beside it stalls nobody. When none moves they are not waited for until one has caught up.
    pub(crate) async fn pace(&self) {
        let window = self.limits.window;
        let mut started: Option<(Instant, HashMap<u64, u64>)> = None;
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if !self.is_behind() {
                return self.unpaced.store(false, Ordering::Relaxed);
            }
            let subscribers: Vec<_> =
                self.on(Port::Iopub).into_iter().filter(|c| !c.cut.is_cancelled()).collect();
            let best = subscribers.iter().filter(|c| c.spoke()).map(|c| c.outbox.behind()).min();
            if best.is_none_or(|behind| behind <= window) {
                return self.unpaced.store(false, Ordering::Relaxed);
            }
            if self.unpaced.load(Ordering::Relaxed) {
                return;
            }
            let (since, taken) = started.get_or_insert_with(|| (Instant::now(), taken(&subscribers)));
            let deadline = *since + self.limits.patience;
            if tokio::time::timeout_at(deadline, progress).await.is_err() {
                let moved = subscribers.iter().any(|c| {
                    let before = taken.get(&c.id).copied().unwrap_or_default();
                    c.outbox.taken() - before >= self.limits.crawl
                });
                if !moved {
                    tracing::warn!("no subscriber reads its output: it is no longer waited for");
                    return self.unpaced.store(true, Ordering::Relaxed);
                }
                started = None;
            }
        }
    }

    /// A number for a flush.
    pub(crate) fn next_flush(&self) -> u64 {
        self.next_flush.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until these connections have come to flush `n`; those that do not move are not waited for.
    pub(crate) async fn flushed(&self, n: u64, mut waiting: Vec<Arc<Connection>>) {
        let mut since = Instant::now();
        let mut before = taken(&waiting);
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            waiting.retain(|c| c.outbox.flushed() < n && !c.cut.is_cancelled());
            if waiting.is_empty() {
                return;
            }
            if tokio::time::timeout_at(since + self.limits.patience, progress).await.is_err() {
                waiting.retain(|c| {
                    c.outbox.taken() - before.get(&c.id).copied().unwrap_or_default() >= self.limits.crawl
                });
                since = Instant::now();
                before = taken(&waiting);
            }
        }
    }

    /// A relay has seen a flush come out of ZeroMQ.
    pub(crate) fn mark(&self, connection: &Connection, flush: u64) {
        connection.outbox.mark(flush);
        self.progress.notify_waiters();
    }

    /// Ends every connection.
    pub(crate) fn cut_all(&self) {
        for connection in lock(&self.connections).values() {
            connection.cut.cancel();
        }
    }
}

fn taken(connections: &[Arc<Connection>]) -> HashMap<u64, u64> {
    connections.iter().map(|c| (c.id, c.outbox.taken())).collect()
}

impl Connection {
    /// Waits until ZeroMQ has taken the connection up.
    pub(crate) async fn wait_accepted(&self) {
        while !self.is_accepted() {
            self.accepted_now.notified().await;
        }
    }

    fn is_accepted(&self) -> bool {
        self.accepted.load(Ordering::Acquire)
    }

    fn is_trusted(&self) -> bool {
        self.trusted.load(Ordering::Relaxed)
    }

    /// It has sent a message (a subscriber: it has subscribed).
    pub(crate) fn has_spoken(&self) {
        self.spoke.store(true, Ordering::Relaxed);
    }

    fn spoke(&self) -> bool {
        self.spoke.load(Ordering::Relaxed)
    }

    /// It takes part in flushes.
    pub(crate) fn is_joined(&self) -> bool {
        self.joined.load(Ordering::Acquire)
    }
}
