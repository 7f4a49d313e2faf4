//! The thread of the sockets: the tasks that own the ZeroMQ sockets, on one current-thread runtime.
//!
//! Imports its parent, `wire` and `guard`. What zeromq 0.7 needs to be treated like, and where:
//! replies are lost when identities recur on several threads (one thread, and the guard makes identities
//! unique); XPUB registers subscriptions only inside `recv` and blocks on a stalled subscriber (`xpub`
//! selects over both, the guard always drains); `recv` fails when a client resets (never fatal here); a
//! peer's death is noticed only while `recv` is polled (every socket is, stdin too).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::{Map, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use zeromq::prelude::*;
use zeromq::{RepSocket, RouterRecvHalf, RouterSendHalf, RouterSocket, SocketEvent, XPubSocket, ZmqMessage};

use super::{Channel, Flush, Inbound, Peer, Publish, Reply};
use crate::jupyter::guard::listen::{Public, connection_of, identity};
use crate::jupyter::guard::marks::Mark;
use crate::jupyter::guard::private::PrivateSocket;
use crate::jupyter::guard::registry::Registry;
use crate::jupyter::wire::{Opener, Port, Signer};

/// How long closing waits for the connections' tasks.
const CLOSING: Duration = Duration::from_millis(200);

/// One socket, public and private side.
pub(super) struct Door {
    pub(super) port: Port,
    pub(super) public: Public,
    pub(super) listener: std::os::unix::net::UnixListener,
    pub(super) private: PrivateSocket,
}

/// Where a ROUTER's messages go and its replies come from.
type Ends = (mpsc::Sender<Inbound>, mpsc::Receiver<Reply>);

/// What the thread is given.
pub(super) struct Sockets {
    pub(super) registry: Arc<Registry>,
    pub(super) signer: Signer,
    pub(super) opener: Arc<Mutex<Opener>>,
    pub(super) stop: CancellationToken,
    pub(super) shell: Ends,
    pub(super) control: Ends,
    pub(super) stdin: Ends,
    pub(super) publications: mpsc::Receiver<Publish>,
}

/// Says that the sockets are up, or why they are not.
type Ready = std::sync::mpsc::SyncSender<Result<(), String>>;

/// The body of the thread.
pub(super) fn run(sockets: Sockets, doors: Vec<Door>, ready: &Ready) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Nobody waits any more when a `send` below fails, so there is nobody to tell.
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = ready.send(Err(format!("the runtime: {error}")));
            return;
        }
    };
    runtime.block_on(async {
        let (stop, registry) = (sockets.stop.clone(), Arc::clone(&sockets.registry));
        let tasks = TaskTracker::new();
        if let Err(error) = start(sockets, doors, &tasks).await {
            let _ = ready.send(Err(error.to_string()));
            return;
        }
        let _ = ready.send(Ok(()));
        stop.cancelled().await;
        registry.cut_all();
        tasks.close();
        if tokio::time::timeout(CLOSING, tasks.wait()).await.is_err() {
            tracing::debug!("some connections were still open when the sockets closed");
        }
    });
}

async fn start(sockets: Sockets, doors: Vec<Door>, tasks: &TaskTracker) -> Result<(), zeromq::ZmqError> {
    let Sockets { registry, signer, opener, stop, shell, control, stdin, publications } = sockets;
    let mut ends = [
        Some((Channel::Shell, shell)),
        None,
        Some((Channel::Stdin, stdin)),
        Some((Channel::Control, control)),
        None,
    ];
    let mut publications = Some(publications);
    for Door { port, public, listener, private } in doors {
        if let Some((channel, (inbox, replies))) = ends[port as usize].take() {
            let mut socket = RouterSocket::new();
            watch(&mut socket, &registry, tasks, &stop);
            socket.bind_listener(listener).await?;
            let (send, recv) = socket.split();
            let receiver = Receiver { channel, registry: Arc::clone(&registry), opener: Arc::clone(&opener) };
            tasks.spawn(until(&stop, receiver.run(recv, inbox)));
            tasks.spawn(until(&stop, reply(port, send, replies, Arc::clone(&registry))));
        } else if port == Port::Heartbeat {
            let mut socket = RepSocket::new();
            watch(&mut socket, &registry, tasks, &stop);
            socket.bind_listener(listener).await?;
            tasks.spawn(until(&stop, echo(socket)));
        } else if let Some(publications) = publications.take() {
            let mut socket = XPubSocket::new();
            watch(&mut socket, &registry, tasks, &stop);
            socket.bind_listener(listener).await?;
            let publisher = Publisher { registry: Arc::clone(&registry), signer: signer.clone(), socket };
            tasks.spawn(until(&stop, publisher.run(publications)));
        }
        let (registry, tracker, stopped) = (Arc::clone(&registry), tasks.clone(), stop.clone());
        tasks.spawn(async move {
            if let Err(error) = public.serve(registry, private, tracker, stopped).await {
                tracing::error!(socket = port.name(), %error, "a socket stopped listening");
            }
        });
    }
    Ok(())
}

/// Runs a task until the sockets close.
fn until<F: Future<Output = ()>>(stop: &CancellationToken, task: F) -> impl Future<Output = ()> + use<F> {
    let stop = stop.clone();
    async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = task => {}
        }
    }
}

/// Tells the guard which connections a socket has taken up: before that it does not know them.
fn watch(socket: &mut impl Socket, registry: &Arc<Registry>, tasks: &TaskTracker, stop: &CancellationToken) {
    let (mut events, registry) = (socket.monitor(), Arc::clone(registry));
    tasks.spawn(until(stop, async move {
        while let Some(event) = events.next().await {
            if let SocketEvent::Accepted(_, peer) = event
                && let Some(id) = connection_of(peer.as_ref())
            {
                registry.accepted(id);
            }
        }
    }));
}

/// The receiving half of a ROUTER.
struct Receiver {
    channel: Channel,
    registry: Arc<Registry>,
    opener: Arc<Mutex<Opener>>,
}

impl Receiver {
    async fn run(self, mut socket: RouterRecvHalf, inbox: mpsc::Sender<Inbound>) {
        let mut refused: u64 = 0;
        loop {
            let message = match socket.recv().await {
                Ok(message) => message,
                Err(error) => {
                    tracing::debug!(channel = ?self.channel, %error, "receiving failed; going on");
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            match self.open(message) {
                // The kernel has gone and reads no more; the replies it has left may still be sent.
                Ok(inbound) => {
                    if inbox.send(inbound).await.is_err() {
                        return;
                    }
                }
                Err(reason) => {
                    refused += 1;
                    // A stranger must not be able to fill the log either.
                    if refused.is_power_of_two() {
                        tracing::warn!(channel = ?self.channel, refused, "a message was refused: {reason}");
                    }
                }
            }
        }
    }

    fn open(&self, message: ZmqMessage) -> Result<Inbound, String> {
        let mut frames = message.into_vec();
        if frames.is_empty() {
            return Err("it is empty".to_owned());
        }
        let id = connection_of(&frames.remove(0)).ok_or("it came past the guard")?;
        let opened = self.opener.lock().unwrap_or_else(PoisonError::into_inner).open(frames);
        let mut signed = opened.map_err(|refused| refused.to_string())?;
        self.registry.trust(id);
        let claimed = self.registry.get(id).map(|c| c.claimed.clone()).unwrap_or_default();
        let route = std::mem::take(&mut signed.route);
        let peer = Peer { channel: self.channel, connection: id, claimed, route };
        Ok(Inbound { channel: self.channel, signed, peer })
    }
}

/// The sending half of a ROUTER.
async fn reply(
    port: Port,
    mut socket: RouterSendHalf,
    mut replies: mpsc::Receiver<Reply>,
    registry: Arc<Registry>,
) {
    while let Some(reply) = replies.recv().await {
        match reply {
            Reply::Send(peer, frames) => {
                let Some(id) = registry.route(port, peer.connection, &peer.claimed) else {
                    tracing::debug!(socket = port.name(), "a reply has nobody left to receive it");
                    continue;
                };
                let all = peer.route.into_iter().chain(frames.0);
                if let Err(error) = socket.send(addressed(id, all)).await {
                    tracing::debug!(socket = port.name(), %error, "a reply could not be sent");
                }
            }
            Reply::Flush(Flush { number, waiting }) => {
                let mut reached = Vec::new();
                for connection in registry.on(port) {
                    let mark = [Mark::Flush(number).encode()];
                    // Fails for a connection that is going: it need not be waited for.
                    if socket.send(addressed(connection.id, mark)).await.is_ok() {
                        reached.push(connection);
                    }
                }
                // Fails when the flush was given up.
                let _ = waiting.send(reached);
            }
        }
    }
}

fn addressed(id: u64, frames: impl IntoIterator<Item = Bytes>) -> ZmqMessage {
    let mut message = ZmqMessage::from(Bytes::copy_from_slice(&identity(id)));
    frames.into_iter().for_each(|frame| message.push_back(frame));
    message
}

/// XPUB with everything that is published.
struct Publisher {
    registry: Arc<Registry>,
    signer: Signer,
    socket: XPubSocket,
}

impl Publisher {
    async fn run(mut self, mut publications: mpsc::Receiver<Publish>) {
        let registry = Arc::clone(&self.registry);
        // The message that waits for its subscribers. Subscriptions are registered meanwhile: a new
        // subscriber may be the one that reads. The wait goes on across them, or they could prolong it.
        let mut waiting: Option<(Publish, futures_util::future::BoxFuture<'_, ()>)> = None;
        loop {
            tokio::select! {
                subscription = self.socket.recv() => match subscription {
                    Ok(message) => self.subscribed(&message).await,
                    Err(error) => {
                        tracing::debug!(%error, "a subscriber is gone");
                        tokio::task::yield_now().await;
                    }
                },
                () = async { if let Some((_, pace)) = &mut waiting { pace.await } }, if waiting.is_some() => {
                    if let Some((publication, _)) = waiting.take() {
                        self.publish(publication).await;
                    }
                }
                publication = publications.recv(), if waiting.is_none() => {
                    let Some(publication) = publication else { return };
                    if registry.is_behind() && matches!(publication, Publish::Send(..)) {
                        waiting = Some((publication, Box::pin(registry.pace())));
                    } else {
                        self.publish(publication).await;
                    }
                }
            }
        }
    }

    async fn publish(&mut self, publication: Publish) {
        match publication {
            Publish::Send(topic, frames, permit) => {
                self.send(topic, None, frames.0).await;
                drop(permit);
            }
            Publish::Flush(Flush { number, waiting }) => {
                self.send(Mark::Flush(number).encode(), None, Vec::new()).await;
                let joined = self.registry.on(Port::Iopub).into_iter().filter(|c| c.is_joined());
                // Fails when the flush was given up.
                let _ = waiting.send(joined.collect());
            }
        }
    }

    /// A relay subscribed: one of its marks, or a client's topic, which XPUB itself has taken up.
    async fn subscribed(&mut self, message: &ZmqMessage) {
        let Some((1, topic)) = message.get(0).and_then(|frame| frame.split_first()) else { return };
        match Mark::decode(topic) {
            Some((Mark::Joined(id), _)) => self.registry.joined(id),
            Some((Mark::Subscribed(id), topic)) => {
                let content = json!({ "subscription": String::from_utf8_lossy(topic) });
                let welcome = self.signer.seal(None, "iopub_welcome", &content, &Map::new(), Vec::new());
                let topic = Bytes::copy_from_slice(topic);
                self.send(Mark::Welcome(id).encode(), Some(topic), welcome.0).await;
            }
            _ => {}
        }
    }

    async fn send(&mut self, first: Bytes, second: Option<Bytes>, frames: Vec<Bytes>) {
        let mut message = ZmqMessage::from(first);
        second.into_iter().chain(frames).for_each(|frame| message.push_back(frame));
        if let Err(error) = self.socket.send(message).await {
            tracing::debug!(%error, "a subscriber went while it was sent to");
        }
    }
}

/// The heartbeat.
async fn echo(mut socket: RepSocket) {
    loop {
        let done = match socket.recv().await {
            Ok(message) => socket.send(message).await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a heartbeat's client is gone");
            tokio::task::yield_now().await;
        }
    }
}
