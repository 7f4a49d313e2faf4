//! A running container: its streams, its end, and why it ended.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bollard::container::LogOutput;
use bollard::models::ContainerConfig;
use bollard::query_parameters::{CommitContainerOptionsBuilder, StatsOptionsBuilder};
use bytes::{Buf, Bytes};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, ready};
use tokio::io::{AsyncRead, ReadBuf};

use super::engine::Engine;
use super::explain::status;
use super::watch::Watch;
use crate::sandbox::backend::{BackendError, Container, Obituary, Usage};

/// How much of the main process's standard error is kept: the end of it, in bytes.
const LAST_WORDS: usize = 8 << 10;
/// How long to wait for the engine's word on why something ended.
const WORD: Duration = Duration::from_secs(2);
/// How long an out-of-memory notification may come after the death that it explains.
const LATE: Duration = Duration::from_millis(300);
/// The same where the whole container died of it: gVisor takes its time.
const LATER: Duration = Duration::from_secs(1);
/// How `SIGKILL` looks as an exit code.
const KILLED: i64 = 137;

/// Between two looks at what a container uses.
const BETWEEN: Duration = Duration::from_millis(400);
/// What images of kept containers are called.
const KEPT: &str = "cellblock-kept";
/// Their label.
pub(super) const KEPT_LABEL: &str = "cellblock.kept";

/// What a container has used up to a moment.
struct Sample {
    at: Instant,
    /// Bytes.
    memory: u64,
    /// Nanoseconds.
    processor: u64,
}

/// A container that was created; destroyed at the latest when this is dropped.
pub(super) struct DockerContainer {
    engine: Engine,
    watch: Watch,
    id: String,
    memory: Option<u64>,
    words: LastWords,
    /// Variables whose values are kept in no image.
    private: Vec<String>,
    /// How many out-of-memory kills [`Container::out_of_memory`] has told.
    told: AtomicU64,
    /// Whether its end is our own doing.
    ending: AtomicBool,
    /// Whether it is gone for certain.
    destroyed: AtomicBool,
}

impl DockerContainer {
    pub(super) fn new(
        engine: Engine,
        watch: Watch,
        id: String,
        memory: Option<i64>,
        words: LastWords,
    ) -> Self {
        let memory = memory.and_then(|m| u64::try_from(m).ok());
        let (ending, destroyed) = (AtomicBool::new(false), AtomicBool::new(false));
        let (told, private) = (AtomicU64::new(0), Vec::new());
        DockerContainer { engine, watch, id, memory, words, private, told, ending, destroyed }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// With variables whose values are to be kept to it.
    pub(super) fn with_private(mut self, names: Vec<String>) -> Self {
        self.private = names;
        self
    }

    /// What it uses at this moment.
    async fn sample(&self) -> Option<Sample> {
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let mut stats = std::pin::pin!(self.engine.client.stats(&self.id, Some(options)));
        let stats = tokio::time::timeout(WORD, stats.next()).await.ok()??.ok()?;
        let memory = stats.memory_stats?;
        let kinds = memory.stats.unwrap_or_default();
        // Pages of files that could be taken back: control groups 1 and 2 have a name each.
        let cache = kinds.get("total_inactive_file").or_else(|| kinds.get("inactive_file")).copied();
        Some(Sample {
            at: Instant::now(),
            memory: memory.usage?.saturating_sub(cache.unwrap_or_default()),
            processor: stats.cpu_stats?.cpu_usage?.total_usage?,
        })
    }

    async fn end(&self) -> Obituary {
        if self.ending.load(Ordering::SeqCst) {
            return Obituary::Removed;
        }
        let over = |f: &super::watch::Fate| f.exit.is_some() || f.gone;
        let mut fate = self.watch.fate(&self.id, WORD, over).await;
        if fate.exit == Some(KILLED) && fate.out_of_memory == 0 && !fate.killed {
            fate = self.watch.fate(&self.id, LATER, |f| f.out_of_memory > 0).await;
        }
        // An engine that shuts down kills its containers first: then its silence is the news.
        if let Err(error) = self.engine.answers().await {
            return Obituary::EngineGone(error.to_string());
        }
        match (fate.exit, self.memory) {
            (Some(KILLED), Some(memory)) if fate.out_of_memory > 0 => Obituary::OutOfMemory(memory),
            (Some(code), _) if !fate.killed => Obituary::Exited(code),
            (Some(_), _) => Obituary::Removed,
            (None, _) => self.silent().await,
        }
    }

    /// No word of its end: the event was missed, or it never ended.
    async fn silent(&self) -> Obituary {
        let found = self.engine.client.inspect_container(&self.id, None).await;
        match found.map(|c| c.state.unwrap_or_default()) {
            Ok(state) if state.oom_killed == Some(true) => {
                self.memory.map_or(Obituary::Removed, Obituary::OutOfMemory)
            }
            Ok(state) if state.running == Some(false) => Obituary::Exited(state.exit_code.unwrap_or(-1)),
            Ok(_) => Obituary::Removed,
            Err(error) if status(&error) == Some(404) => Obituary::Removed,
            Err(error) => {
                Obituary::EngineGone(self.engine.explain(&error, "asking for a container").to_string())
            }
        }
    }
}

impl Container for DockerContainer {
    fn destroy(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.ending.store(true, Ordering::SeqCst);
            match self.engine.remove(&self.id).await {
                Ok(()) => {
                    self.destroyed.store(true, Ordering::SeqCst);
                    self.watch.forget(&self.id);
                }
                // The reaper and the sweep are left.
                Err(error) => tracing::warn!(container = %self.id, %error, "could not remove a container"),
            }
        })
    }

    fn out_of_memory(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async move {
            let told = self.told.load(Ordering::SeqCst);
            let fate = self.watch.fate(&self.id, LATE, |f| f.out_of_memory > told).await;
            self.told.store(fate.out_of_memory, Ordering::SeqCst);
            self.memory.filter(|_| fate.out_of_memory > told)
        })
    }

    fn usage(&self) -> BoxFuture<'_, Option<Usage>> {
        Box::pin(async move {
            let before = self.sample().await?;
            tokio::time::sleep(BETWEEN).await;
            let now = self.sample().await?;
            let elapsed = now.at.duration_since(before.at).as_secs_f64();
            let used = Duration::from_nanos(now.processor.saturating_sub(before.processor)).as_secs_f64();
            Some(Usage { memory: now.memory, cpus: used / elapsed })
        })
    }

    fn commit(&self) -> BoxFuture<'_, Result<String, BackendError>> {
        Box::pin(async move {
            let id = uuid::Uuid::new_v4().simple().to_string();
            let options = CommitContainerOptionsBuilder::new()
                .container(&self.id)
                .repo(KEPT)
                .tag(id.get(..12).unwrap_or(&id))
                // A pause would stop the supervisor, which is asked for the state at the same time.
                .pause(false)
                .build();
            let kept = HashMap::from([(KEPT_LABEL.to_owned(), "1".to_owned())]);
            // A container's variables stay in its image: not those that may hold a password.
            let blank = self.private.iter().map(|name| format!("{name}=")).collect();
            let config =
                ContainerConfig { labels: Some(kept), env: Some(blank), ..ContainerConfig::default() };
            let made = self.engine.patient().commit_container(options, config).await;
            Ok(made.map_err(|e| self.engine.explain(&e, "keeping a container as an image"))?.id)
        })
    }

    fn id(&self) -> Option<&str> {
        Some(&self.id)
    }

    fn paused(&self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let found = self.engine.client.inspect_container(&self.id, None).await;
            found.is_ok_and(|found| found.state.is_some_and(|state| state.paused == Some(true)))
        })
    }

    fn last_words(&self) -> String {
        self.words.text()
    }

    fn obituary(&self) -> BoxFuture<'_, Obituary> {
        Box::pin(self.end())
    }
}

impl Drop for DockerContainer {
    fn drop(&mut self) {
        if *self.destroyed.get_mut() {
            return;
        }
        // Without a runtime the process is ending, and the reaper does it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (engine, id) = (self.engine.clone(), self.id.clone());
            runtime.spawn(async move {
                if let Err(error) = engine.remove(&id).await {
                    tracing::warn!(container = %id, %error, "could not remove a container");
                }
            });
        }
    }
}

/// The end of what the main process wrote to its standard error.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&bytes[bytes.len().saturating_sub(LAST_WORDS)..]);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        kept.drain(..surplus);
    }

    pub(super) fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).into_owned()
    }
}

/// The attached output taken apart: standard output is read, standard error is kept as last words.
pub(super) struct Output<S> {
    attached: S,
    rest: Bytes,
    words: LastWords,
}

impl<S> Output<S> {
    pub(super) fn new(attached: S, words: LastWords) -> Self {
        Output { attached, rest: Bytes::new(), words }
    }
}

impl<S> AsyncRead for Output<S>
where
    S: Stream<Item = Result<LogOutput, bollard::errors::Error>> + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.attached).poll_next(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Ok(LogOutput::StdOut { message })) => self.rest = message,
                Some(Ok(LogOutput::StdErr { message })) => self.words.keep(&message),
                Some(Ok(LogOutput::StdIn { .. })) => {}
                // Without a terminal every piece carries a header; this one does not.
                Some(Ok(LogOutput::Console { .. })) => {
                    let what = "the engine sent output without its header";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
        let length = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..length]);
        self.rest.advance(length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn out(text: &'static str) -> LogOutput {
        LogOutput::StdOut { message: Bytes::from_static(text.as_bytes()) }
    }

    fn err(text: &'static str) -> LogOutput {
        LogOutput::StdErr { message: Bytes::from_static(text.as_bytes()) }
    }

    #[tokio::test]
    async fn the_two_streams_are_taken_apart() {
        let words = LastWords::default();
        let pieces = [out("one "), err("oh"), out(""), out("two"), err(" no")].map(Ok);
        let mut output = Output::new(futures_util::stream::iter(pieces), words.clone());
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!((text.as_str(), words.text().as_str()), ("one two", "oh no"));
    }

    #[tokio::test]
    async fn output_without_a_header_is_an_error() {
        let piece = LogOutput::Console { message: Bytes::from_static(b"\x03raw") };
        let mut output = Output::new(futures_util::stream::iter([Ok(piece)]), LastWords::default());
        assert_eq!(output.read_u8().await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn last_words_are_bounded_to_their_end() {
        let words = LastWords::default();
        for _ in 0..100 {
            words.keep(&[b'x'; 1000]);
        }
        words.keep(b"the end");
        assert_eq!(words.text().len(), LAST_WORDS);
        assert!(words.text().ends_with("xthe end"));
        words.keep(&vec![b'y'; 3 * LAST_WORDS]);
        assert_eq!(words.text(), "y".repeat(LAST_WORDS));
    }
}
