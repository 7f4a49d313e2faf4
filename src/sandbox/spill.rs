//! The file that takes the output that a cell does not show.
//!
//! Imports nothing of ours. Writing happens on a thread for blocking work; the session never waits for a
//! disk, it only stops reading from the guest while the writer is behind.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Chunks that may wait for the disk.
const DEPTH: usize = 16;

/// Makes a fresh file for output, and says where the user finds it.
#[derive(Clone)]
pub struct Shelf(Arc<dyn Fn() -> io::Result<(File, String)> + Send + Sync>);

impl Shelf {
    /// A place for files: `create` opens a new one, without following links, and names it.
    pub fn new(create: impl Fn() -> io::Result<(File, String)> + Send + Sync + 'static) -> Self {
        Shelf(Arc::new(create))
    }

    pub(crate) fn create(&self) -> io::Result<(File, String)> {
        (self.0)()
    }
}

/// A file being written.
pub(crate) struct Spill {
    chunks: Option<mpsc::Sender<Vec<u8>>>,
    /// What the writer has no room for yet.
    behind: Vec<u8>,
    /// Bytes that the file may still grow by.
    room: u64,
    beyond: u64,
    writer: JoinHandle<io::Result<()>>,
}

/// How a file ended up.
pub(crate) struct SpillEnd {
    /// Bytes beyond its limit.
    pub(crate) beyond: u64,
    /// Why it is incomplete.
    pub(crate) error: Option<String>,
}

impl Spill {
    pub(crate) fn start(mut file: File, limit: u64) -> Self {
        let (chunks, mut incoming) = mpsc::channel::<Vec<u8>>(DEPTH);
        let writer = tokio::task::spawn_blocking(move || {
            let mut outcome = Ok(());
            // After an error the rest is still taken, so that nobody waits for the writer.
            while let Some(chunk) = incoming.blocking_recv() {
                if outcome.is_ok() {
                    outcome = file.write_all(&chunk);
                }
            }
            outcome
        });
        Spill { chunks: Some(chunks), behind: Vec::new(), room: limit, beyond: 0, writer }
    }

    pub(crate) fn write(&mut self, mut bytes: Vec<u8>) {
        let taken = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.beyond += (bytes.len() - taken) as u64;
        bytes.truncate(taken);
        self.room -= taken as u64;
        if bytes.is_empty() {
            return;
        }
        if self.behind.is_empty()
            && let Some(chunks) = &self.chunks
        {
            match chunks.try_send(bytes) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
                Err(mpsc::error::TrySendError::Full(back)) => bytes = back,
            }
        }
        self.behind.append(&mut bytes);
    }

    /// Whether the writer is behind.
    pub(crate) fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Waits until the writer has room. Safe to drop at any moment.
    pub(crate) async fn catch_up(&mut self) {
        if let Some(chunks) = &self.chunks
            && let Ok(permit) = chunks.reserve().await
        {
            permit.send(std::mem::take(&mut self.behind));
        } else {
            self.behind.clear();
        }
    }

    /// Closes the file.
    pub(crate) async fn finish(mut self) -> SpillEnd {
        if self.is_behind() {
            self.catch_up().await;
        }
        self.chunks = None;
        let error = match self.writer.await {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(e) => Some(e.to_string()),
        };
        SpillEnd { beyond: self.beyond, error }
    }
}
