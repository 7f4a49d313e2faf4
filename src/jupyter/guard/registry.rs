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
            // What was cut a moment ago still counts in `total`, and must not cost a second one its place.
            let holding: Vec<_> = lock(&self.connections)
                .values()
                .filter(|c| !c.cut.is_cancelled())
                .filter_map(|c| (*lock(&c.incomplete)).map(|(bytes, since)| (bytes, since, Arc::clone(c))))
                .collect();
            let held: usize = holding.iter().map(|(bytes, ..)| bytes).sum();
            let oldest = holding
                .iter()
                .filter(|(bytes, ..)| *bytes > MODEST)
                .min_by_key(|(_, since, c)| (*since, c.id));
            if let Some((.., oldest)) = oldest.filter(|_| held > self.limits.incoming) {
                let socket = oldest.port.name();
                tracing::warn!(socket, "incomplete messages fill their budget: a client is cut");
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
            let live: Vec<_> =
                lock(&self.connections).values().filter(|c| !c.cut.is_cancelled()).cloned().collect();
            let waiting: usize = live.iter().map(|c| c.outbox.behind()).sum();
            let last = live.iter().max_by_key(|c| c.outbox.behind());
            if let Some(last) = last.filter(|_| waiting > self.limits.outboxes) {
                let socket = last.port.name();
                tracing::warn!(socket, "clients that do not read fill the common budget: the last is cut");
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn registry() -> Registry {
        Registry::new(Limits {
            connections: 3,
            incoming: 4 * MODEST,
            outbox: 100,
            outboxes: 250,
            window: 10,
            crawl: 5,
            patience: Duration::from_millis(20),
            ..Limits::DEFAULT
        })
    }

    fn subscriber(registry: &Registry) -> Arc<Connection> {
        let connection = registry.admit(Port::Iopub, Bytes::new()).unwrap();
        connection.has_spoken();
        connection
    }

    fn send(registry: &Registry, connection: &Connection, bytes: usize) {
        registry.send(connection, vec![0; bytes].into());
    }

    fn take(registry: &Registry, connection: &Connection, bytes: usize) {
        registry.took(connection.outbox.take(|_| Ok(bytes)).unwrap());
    }

    #[test]
    fn a_full_socket_drops_the_oldest_silent_stranger_and_never_a_client() {
        let registry = registry();
        let client = registry.admit(Port::Shell, "client".into()).unwrap();
        client.has_spoken();
        registry.trust(client.id);
        let talking = registry.admit(Port::Shell, "".into()).unwrap();
        talking.has_spoken();
        let silent = registry.admit(Port::Shell, "".into()).unwrap();
        let next = registry.admit(Port::Shell, "".into()).unwrap();
        assert!(silent.cut.is_cancelled() && !talking.cut.is_cancelled());
        next.has_spoken();
        registry.admit(Port::Shell, "client".into()).unwrap();
        assert!(talking.cut.is_cancelled() && !client.cut.is_cancelled());
    }

    #[test]
    fn subscribers_keep_their_place_against_newcomers() {
        let registry = registry();
        let there: Vec<_> = (0..3).map(|_| subscriber(&registry)).collect();
        assert!(registry.admit(Port::Iopub, Bytes::new()).is_none());
        assert!(there.iter().all(|c| !c.cut.is_cancelled()));
        registry.remove(&there[0]);
        assert!(registry.admit(Port::Iopub, Bytes::new()).is_some());
    }

    #[test]
    fn a_reply_goes_to_the_connection_that_asked_else_to_the_newest_of_the_same_client() {
        let registry = registry();
        let admit = |port, claimed: &'static str| {
            let connection = registry.admit(port, claimed.into()).unwrap();
            registry.accepted(connection.id);
            connection
        };
        let asked = admit(Port::Shell, "me");
        let again = admit(Port::Shell, "me");
        let stranger = admit(Port::Shell, "");
        admit(Port::Control, "me");
        let route = || registry.route(Port::Shell, asked.id, b"me");
        assert_eq!(route(), Some(asked.id));
        registry.remove(&asked);
        assert_eq!(route(), Some(again.id));
        let thief = admit(Port::Shell, "me");
        assert_eq!(route(), Some(thief.id), "the newest");
        registry.trust(again.id);
        assert_eq!(route(), Some(again.id), "one that knows the key before one that may not");
        assert_eq!(registry.route(Port::Shell, asked.id, b""), None, "no identity is nobody's");
        registry.remove(&again);
        registry.remove(&thief);
        assert_eq!(route(), None);
        assert!(!stranger.cut.is_cancelled());
    }

    #[test]
    fn the_message_that_has_been_incomplete_longest_makes_room() {
        let registry = registry();
        let first = registry.admit(Port::Shell, Bytes::new()).unwrap();
        let second = registry.admit(Port::Shell, Bytes::new()).unwrap();
        let small = registry.admit(Port::Control, Bytes::new()).unwrap();
        registry.hold_incoming(&small, MODEST);
        registry.hold_incoming(&first, 2 * MODEST);
        registry.hold_incoming(&second, MODEST);
        assert!(!first.cut.is_cancelled());
        registry.hold_incoming(&second, 2 * MODEST);
        assert!(first.cut.is_cancelled() && !second.cut.is_cancelled() && !small.cut.is_cancelled());
        for connection in [&first, &second, &small] {
            registry.remove(connection);
        }
        assert_eq!(registry.incoming.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_client_above_its_budget_is_cut_but_one_large_message_passes() {
        let registry = registry();
        let client = subscriber(&registry);
        send(&registry, &client, 150);
        assert!(!client.cut.is_cancelled(), "nothing waited before it");
        send(&registry, &client, 1);
        assert!(client.cut.is_cancelled());
        registry.remove(&client);
        assert_eq!(registry.outgoing.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_common_budget_is_at_the_expense_of_the_one_furthest_behind() {
        let registry = registry();
        let clients: Vec<_> = (0..3).map(|_| subscriber(&registry)).collect();
        for (client, bytes) in clients.iter().zip([99, 90, 60]) {
            send(&registry, client, bytes);
        }
        // What was cut counts no longer, though its task has not ended yet.
        for _ in 0..10 {
            send(&registry, &clients[2], 3);
        }
        let cut: Vec<_> = clients.iter().map(|c| c.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, false, false]);
    }

    #[tokio::test]
    async fn the_pace_is_that_of_the_fastest_subscriber() {
        let registry = registry();
        let (fast, stalled) = (subscriber(&registry), subscriber(&registry));
        send(&registry, &fast, 40);
        send(&registry, &stalled, 40);
        let pace = registry.pace();
        tokio::pin!(pace);
        assert!(futures_util::poll!(&mut pace).is_pending());
        take(&registry, &fast, 20);
        assert!(futures_util::poll!(&mut pace).is_pending());
        take(&registry, &fast, 15);
        pace.await;
        assert!(!registry.unpaced.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn when_nobody_moves_nobody_is_waited_for_until_one_has_caught_up() {
        let registry = registry();
        let stalled = subscriber(&registry);
        send(&registry, &stalled, 40);
        registry.pace().await;
        assert!(registry.unpaced.load(Ordering::Relaxed));
        let next = registry.pace();
        tokio::pin!(next);
        assert!(futures_util::poll!(&mut next).is_ready(), "the next message does not wait at all");
        take(&registry, &stalled, 35);
        registry.pace().await;
        assert!(!registry.unpaced.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_subscriber_that_leaves_is_not_waited_for() {
        let registry = registry();
        let subscriber = subscriber(&registry);
        send(&registry, &subscriber, 40);
        let pace = registry.pace();
        tokio::pin!(pace);
        assert!(futures_util::poll!(&mut pace).is_pending());
        registry.remove(&subscriber);
        assert!(futures_util::poll!(&mut pace).is_ready());
    }

    #[tokio::test]
    async fn a_flush_waits_for_readers_and_gives_up_on_others() {
        let registry = registry();
        let (reading, stalled) = (subscriber(&registry), subscriber(&registry));
        let flush = registry.next_flush();
        for connection in [&reading, &stalled] {
            send(&registry, connection, 40);
            registry.mark(connection, flush);
        }
        let flushed = registry.flushed(flush, vec![reading.clone(), stalled.clone()]);
        tokio::pin!(flushed);
        assert!(futures_util::poll!(&mut flushed).is_pending());
        take(&registry, &reading, 40);
        flushed.await;
        assert_eq!((reading.outbox.flushed(), stalled.outbox.flushed()), (flush, 0));
    }

    #[tokio::test]
    async fn a_question_waits_for_the_connection_that_is_just_being_opened() {
        let registry = registry();
        let none = registry.claiming(Port::Stdin, b"me", Duration::from_millis(1)).await;
        assert!(none.is_empty());
        let claiming = registry.claiming(Port::Stdin, b"me", Duration::from_secs(30));
        tokio::pin!(claiming);
        assert!(futures_util::poll!(&mut claiming).is_pending());
        let connection = registry.admit(Port::Stdin, "me".into()).unwrap();
        registry.accepted(connection.id);
        assert_eq!(claiming.await, [connection.id]);
    }
}
