//! The guard: our own listeners in front of ZeroMQ, so that no stranger on the network meets it directly.
//!
//! May import `wire` for the names of the five sockets; knows no ZeroMQ types and no Jupyter messages.
//!
//! The `zeromq` crate allocates what a frame header announces, waits for ever for a handshake, lets one
//! stalled subscriber block all others and trusts the identity that a client claims. So its sockets
//! listen on private unix sockets, and the guard relays between them and the public ones: it speaks just
//! enough ZMTP 3 to bound everything a client can make the kernel hold, and it always takes what the
//! kernel sends.
//!
//! | file | what |
//! | --- | --- |
//! | [`zmtp`] | greetings, commands, message boundaries; pure and total |
//! | [`marks`] | private messages between `sockets` and the relays, and their names |
//! | [`registry`] | the connections: who claims to be whom, who may stay |
//! | [`outbox`] | what waits for one client, its budget, flushing, back-pressure |
//! | [`private`] | the unix sockets behind the guard |
//! | [`listen`] | public listeners, the handshake and its caps |
//! | [`relay`] | one established connection |
//!
//! To bound something else, add it to [`Limits`] and check it where the bytes come in.

pub(crate) mod listen;
pub(crate) mod marks;
pub(crate) mod outbox;
pub(crate) mod private;
pub(crate) mod registry;
mod relay;
mod stream;
pub(crate) mod zmtp;

use std::time::Duration;

use super::wire::Port;

/// What strangers can make the kernel hold. One set of numbers for all kernels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// From accepting a connection to the end of its handshake.
    pub(crate) handshake: Duration,
    /// Handshakes in progress per socket; above it the oldest is dropped.
    pub(crate) pending: usize,
    /// Established connections per socket. Each costs three descriptors, and five sockets have to stay
    /// below the usual limit of 1,024 together.
    pub(crate) connections: usize,
    /// Bytes of incomplete messages over all connections; above it the oldest incomplete one is dropped.
    pub(crate) incoming: usize,
    /// Bytes that wait for one client; a client that is behind by more is disconnected.
    pub(crate) outbox: usize,
    /// Bytes that wait for all clients; above it the client that is furthest behind is disconnected.
    pub(crate) outboxes: usize,
    /// Iopub waits while its fastest subscriber is behind by more than this many bytes.
    pub(crate) window: usize,
    /// A client that takes fewer bytes than this in [`Limits::patience`] is not waited for.
    pub(crate) crawl: u64,
    /// How long a client may do nothing before it is no longer waited for.
    pub(crate) patience: Duration,
    /// Subscriptions of one subscriber.
    pub(crate) subscriptions: usize,
}

impl Limits {
    /// The limits of every kernel.
    pub(crate) const DEFAULT: Limits = Limits {
        handshake: Duration::from_secs(10),
        pending: 32,
        connections: 40,
        incoming: 128 << 20,
        outbox: 64 << 20,
        outboxes: 192 << 20,
        window: 4 << 20,
        crawl: 64 << 10,
        patience: Duration::from_secs(1),
        subscriptions: 256,
    };

    /// What one message from a client may be on this socket.
    pub(crate) fn message(port: Port) -> zmtp::Caps {
        match port {
            Port::Shell | Port::Control | Port::Stdin => zmtp::Caps { bytes: 64 << 20, frames: 1024 },
            Port::Iopub => zmtp::Caps { bytes: 520, frames: 1 },
            Port::Heartbeat => zmtp::Caps { bytes: 64 << 10, frames: 16 },
        }
    }
}
