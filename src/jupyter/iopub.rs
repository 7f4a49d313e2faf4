//! The one writer of iopub: one ordered queue, adjacent stream texts joined, rate limits respected.
//!
//! May import `event` and its siblings. Every message carries the header of the request that caused it
//! from the place where it is queued, so nothing can be attributed to a wrong cell.
//!
//! - [`Iopub::post`] never waits and is never refused: status, errors, what ends things.
//! - [`Iopub::offer`] waits for room: everything that a run shows. So a slow front end slows down the
//!   reader of the run's events, whose channel is bounded.
//! - A text is sent at once when the queue is empty. While the writer is busy (or held back by
//!   [`Pace`]) texts of the same stream are joined, which is what makes floods cheap.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use serde_json::Map;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::event::Stream;

use super::broadcast::{Broadcast, State};
use super::pace::{Pace, Weight};
use super::sockets::{Outbound, SendError};
use super::wire::{Frames, Header, Signer};

/// The header of the request that caused a message; `None` for the kernel's own.
pub(crate) type Parent = Option<Arc<Header>>;

/// Where the writer's messages go.
pub(crate) trait Sink: Send + 'static {
    /// Hands one message to all subscribers.
    fn publish(&self, topic: Bytes, frames: Frames) -> impl Future<Output = Result<(), SendError>> + Send;
}

impl Sink for Outbound {
    fn publish(&self, topic: Bytes, frames: Frames) -> impl Future<Output = Result<(), SendError>> + Send {
        self.send_iopub(topic, frames)
    }
}

/// How much waits and how much is joined.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes of queued output above which [`Iopub::offer`] waits.
    queued: usize,
    /// Bytes of text in one `stream` message.
    chunk: usize,
}

/// At full speed: few large messages.
const FAST: Limits = Limits { queued: 1 << 20, chunk: 256 << 10 };
/// Held back: what is queued delays what comes behind it (status of other requests), so it is little.
const PACED: Limits = Limits { queued: 128 << 10, chunk: 32 << 10 };

/// The sending side; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Iopub {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    queue: Mutex<Queue>,
    /// Something was queued.
    work: Notify,
    /// Something was taken.
    room: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    /// The writer has taken a message and not yet handed it over.
    sending: bool,
    closed: bool,
}

#[derive(Debug)]
enum Item {
    Message(Parent, Broadcast),
    /// Everything before it has been handed over.
    Flushed(oneshot::Sender<()>),
}

impl Iopub {
    /// Starts the writer; it ends at [`Iopub::close`], or when the sockets are closed.
    pub(crate) fn start(sink: impl Sink, signer: Signer, paced: bool) -> (Self, JoinHandle<()>) {
        let limits = if paced { PACED } else { FAST };
        let shared =
            Arc::new(Shared { limits, queue: Mutex::default(), work: Notify::new(), room: Notify::new() });
        let pace = paced.then(|| Pace::new(Instant::now()));
        let writer = Writer { topic: format!("kernel.{}", signer.session()), sink, signer, pace };
        let task = tokio::spawn(writer.run(Arc::clone(&shared)));
        (Iopub { shared }, task)
    }

    /// Queues a message without waiting.
    pub(crate) fn post(&self, parent: &Parent, message: Broadcast) {
        let mut queue = self.shared.lock();
        if !queue.closed {
            queue.push(parent, message, self.shared.limits.chunk);
            self.shared.work.notify_one();
        }
    }

    /// Queues a message when there is room for it.
    pub(crate) async fn offer(&self, parent: &Parent, message: Broadcast) {
        loop {
            {
                let mut queue = self.shared.lock();
                if queue.closed {
                    return;
                }
                if queue.bytes < self.shared.limits.queued {
                    queue.push(parent, message, self.shared.limits.chunk);
                    self.shared.work.notify_one();
                    // Another waiter's permit may have been the one that woke this one.
                    self.shared.room.notify_one();
                    return;
                }
            }
            self.shared.room.notified().await;
        }
    }

    /// Waits until everything queued so far has been handed to the sockets.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        {
            let mut queue = self.shared.lock();
            if queue.closed || (queue.items.is_empty() && !queue.sending) {
                return;
            }
            queue.items.push_back(Item::Flushed(done));
            self.shared.work.notify_one();
        }
        // An error means that the writer is gone, and with it everybody who could listen.
        let _ = flushed.await;
    }

    /// Ends the writer after what is queued.
    pub(crate) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        self.shared.room.notify_one();
    }
}

impl Queue {
    fn push(&mut self, parent: &Parent, message: Broadcast, chunk: usize) {
        match message {
            Broadcast::Stream { stream, text } => self.push_text(parent, stream, text, chunk),
            message => {
                self.bytes += message.size();
                self.items.push_back(Item::Message(parent.clone(), message));
            }
        }
    }

    /// Joins a text with the last message when that is of the same run and stream; splits what is too long.
    fn push_text(&mut self, parent: &Parent, stream: Stream, text: String, chunk: usize) {
        let mut rest = text.as_str();
        if let Some(Item::Message(owner, Broadcast::Stream { stream: last, text: tail })) =
            self.items.back_mut()
            && *last == stream
            && same(owner, parent)
        {
            let fits = rest.floor_char_boundary(chunk.saturating_sub(tail.len()));
            tail.push_str(&rest[..fits]);
            self.bytes += fits;
            rest = &rest[fits..];
        } else if !text.is_empty() && text.len() <= chunk {
            let message = Broadcast::Stream { stream, text };
            self.bytes += message.size();
            self.items.push_back(Item::Message(parent.clone(), message));
            return;
        }
        while !rest.is_empty() {
            let fits = rest.floor_char_boundary(chunk);
            let message = Broadcast::text(stream, &rest[..fits]);
            self.bytes += message.size();
            self.items.push_back(Item::Message(parent.clone(), message));
            rest = &rest[fits..];
        }
    }
}

/// Whether two messages belong to the same request.
fn same(a: &Parent, b: &Parent) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // No code that can panic runs under the lock; a poisoned queue is still a queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn next(&self) -> Option<Item> {
        loop {
            {
                let mut queue = self.lock();
                queue.sending = false;
                if let Some(item) = queue.items.pop_front() {
                    if let Item::Message(_, message) = &item {
                        queue.bytes -= message.size().min(queue.bytes);
                        queue.sending = true;
                    }
                    self.room.notify_one();
                    return Some(item);
                }
                if queue.closed {
                    return None;
                }
            }
            self.work.notified().await;
        }
    }

    /// Nobody can listen any more: refuse and forget everything.
    fn abandon(&self) {
        let mut queue = self.lock();
        *queue = Queue { closed: true, ..Queue::default() };
        self.room.notify_one();
    }
}

struct Writer<S> {
    topic: String,
    sink: S,
    signer: Signer,
    pace: Option<Pace>,
}

impl<S: Sink> Writer<S> {
    async fn run(mut self, shared: Arc<Shared>) {
        while let Some(item) = shared.next().await {
            match item {
                Item::Flushed(done) => {
                    // Whoever waited may have given up.
                    let _ = done.send(());
                }
                Item::Message(parent, message) => {
                    if let Err(error) = self.send(parent.as_deref(), message).await {
                        tracing::warn!(%error, "iopub has ended");
                        return shared.abandon();
                    }
                }
            }
        }
    }

    async fn send(&mut self, parent: Option<&Header>, message: Broadcast) -> Result<(), SendError> {
        let msg_type = message.msg_type();
        let idle = message == Broadcast::Status(State::Idle);
        let free = matches!(message, Broadcast::Status(_) | Broadcast::ExecuteInput { .. });
        let text = matches!(message, Broadcast::Stream { .. });
        let topic = format!("{}.{msg_type}", self.topic);
        let frames = self.signer.seal(parent, msg_type, &message.content(), &Map::new(), Vec::new());
        if let Some(pace) = &mut self.pace {
            let weight = match (free, text) {
                (true, _) => Weight::Free,
                (_, false) => Weight::Message,
                // The delimiter and the signature do not count.
                _ => Weight::Stream(frames.as_slice().iter().skip(2).map(Bytes::len).sum()),
            };
            let wait = pace.book(Instant::now(), weight);
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        self.sink.publish(topic.into(), frames).await?;
        if idle && let Some(pace) = &mut self.pace {
            pace.idle(Instant::now());
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::config::Secret;

    struct Pipe(mpsc::Sender<Value>);

    impl Sink for Pipe {
        async fn publish(&self, _: Bytes, frames: Frames) -> Result<(), SendError> {
            let part = |at: usize| serde_json::from_slice::<Value>(&frames.as_slice()[at]).unwrap();
            let message = json!({"header": part(2), "parent": part(3), "content": part(5)});
            self.0.send(message).await.map_err(|_| SendError::Closed)
        }
    }

    fn start(depth: usize, paced: bool) -> (Iopub, JoinHandle<()>, mpsc::Receiver<Value>) {
        let (sender, receiver) = mpsc::channel(depth);
        let (iopub, task) = Iopub::start(Pipe(sender), Signer::new(&Secret::new("key")), paced);
        (iopub, task, receiver)
    }

    fn header(id: &str) -> Arc<Header> {
        Arc::new(Header { msg_id: id.into(), ..Header::default() })
    }

    #[tokio::test]
    async fn texts_are_joined_while_the_writer_is_busy_and_never_across_runs_or_streams() {
        let (iopub, task, mut seen) = start(1, false);
        let (a, b) = (Some(header("a")), Some(header("b")));
        for n in 0..100 {
            iopub.offer(&a, Broadcast::text(Stream::Stdout, format!("{n} "))).await;
        }
        iopub.offer(&a, Broadcast::text(Stream::Stderr, "oh")).await;
        iopub.offer(&b, Broadcast::text(Stream::Stderr, "no")).await;
        iopub.close();
        let mut texts: Vec<(String, String, String)> = Vec::new();
        let mut count = 0;
        while let Some(message) = seen.recv().await {
            count += 1;
            let key = (message["parent"]["msg_id"].to_string(), message["content"]["name"].to_string());
            let text = message["content"]["text"].as_str().unwrap();
            match texts.last_mut() {
                Some((id, name, all)) if (&*id, &*name) == (&key.0, &key.1) => all.push_str(text),
                _ => texts.push((key.0, key.1, text.to_owned())),
            }
        }
        task.await.unwrap();
        let expected = (0..100).map(|n| format!("{n} ")).collect::<Vec<_>>().concat();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert_eq!(texts[0].2, expected);
        assert_eq!((texts[1].2.as_str(), texts[2].2.as_str()), ("oh", "no"));
        assert!(count < 10, "{count} messages for 102 texts");
    }

    #[tokio::test]
    async fn a_long_text_is_split_between_characters() {
        let (iopub, task, mut seen) = start(1000, false);
        let text = "é𝒳x".repeat(100_000);
        iopub.offer(&None, Broadcast::text(Stream::Stdout, text.clone())).await;
        iopub.close();
        let mut all = String::new();
        while let Some(message) = seen.recv().await {
            let part = message["content"]["text"].as_str().unwrap();
            assert!(part.len() <= FAST.chunk);
            all.push_str(part);
        }
        task.await.unwrap();
        assert!(all == text, "the text changed");
    }

    #[tokio::test]
    async fn offers_wait_while_nobody_reads_but_posts_do_not() {
        let (iopub, _task, mut seen) = start(1, false);
        let full = async {
            for _ in 0..100 {
                let bundle = crate::event::Bundle::text("x".repeat(100_000));
                iopub.offer(&None, Broadcast::Display { bundle, id: None }).await;
            }
        };
        let patience = Duration::from_millis(300);
        assert!(tokio::time::timeout(patience, full).await.is_err(), "10 MB were queued without a reader");
        iopub.post(&None, Broadcast::Status(State::Idle));
        iopub.close();
        let mut last = Value::Null;
        while let Some(message) = seen.recv().await {
            last = message;
        }
        assert_eq!(last["content"]["execution_state"], "idle", "the idle was posted and is last");
    }

    #[tokio::test]
    async fn a_flush_ends_after_what_was_queued_and_also_when_nobody_listens_any_more() {
        let (iopub, _task, mut seen) = start(10, false);
        iopub.post(&None, Broadcast::Status(State::Busy));
        iopub.flush().await;
        assert!(seen.try_recv().is_ok());
        drop(seen);
        iopub.post(&None, Broadcast::Status(State::Idle));
        iopub.flush().await;
        iopub.offer(&None, Broadcast::Status(State::Idle)).await;
    }

    #[tokio::test]
    async fn paced_messages_count_the_bytes_that_the_server_counts() {
        let (iopub, task, mut seen) = start(100, true);
        let start = Instant::now();
        for _ in 0..10 {
            iopub.offer(&None, Broadcast::text(Stream::Stdout, "\u{1b}".repeat(30_000))).await;
        }
        iopub.close();
        let mut text = 0;
        while let Some(message) = seen.recv().await {
            text += message["content"]["text"].as_str().unwrap().len();
        }
        task.await.unwrap();
        assert_eq!(text, 300_000);
        // Each escape character takes six bytes in JSON: 1.8 MB, of which 0.6 MB may leave at once.
        assert!(start.elapsed().as_secs_f64() > 1.9, "sent within {:?}", start.elapsed());
    }
}
