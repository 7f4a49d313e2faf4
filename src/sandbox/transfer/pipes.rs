//! The ends of the pipes to the program in the container: an archive one way or the other, and what it says.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Transferred, failed};
use crate::event::{Failure, terminal};
use crate::sandbox::archive::Report;

/// Bytes in one piece on its way.
const PIECE: usize = 128 << 10;
/// What the program inside may say at most, in bytes.
const WORDS: usize = 1 << 20;

/// What the program in the container says on its standard error, line by line.
#[derive(Default)]
pub(super) struct Words {
    line: Vec<u8>,
    taken: usize,
    pub(super) total: Option<u64>,
    failed: Option<String>,
    report: Report,
}

impl Words {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.taken = self.taken.saturating_add(bytes.len());
        if self.taken > WORDS {
            return;
        }
        self.line.extend_from_slice(bytes);
        let mut lines: VecDeque<Vec<u8>> =
            self.line.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        self.line = lines.pop_back().unwrap_or_default();
        for line in lines {
            let Ok(said) = serde_json::from_slice::<Value>(&line) else { continue };
            let text = |value: &Value| -> String {
                terminal::filtered(value.as_str().unwrap_or_default()).chars().take(300).collect()
            };
            if let Some(total) = said["total"].as_u64() {
                self.total = Some(total);
            } else if said["missing"].is_string() {
                self.failed = Some(format!("nothing in the container is called {}", text(&said["missing"])));
            } else if said["failed"].is_string() {
                self.failed = Some(format!("in the container: {}", text(&said["failed"])));
            } else if said["skipped"].is_array() {
                self.report.refuse(text(&said["skipped"][0]).as_bytes(), &text(&said["skipped"][1]));
            }
        }
    }

    /// Whether it said that it failed.
    pub(super) fn told(&self) -> Result<(), Failure> {
        self.failed.as_ref().map_or(Ok(()), |why| Err(failed(why.clone())))
    }

    pub(super) fn with(self, host: Report) -> Transferred {
        let guest = self.report;
        let skipped = host.refused.into_iter().chain(guest.refused).collect();
        Transferred { files: host.files, bytes: host.bytes, skipped, more: host.more + guest.more }
    }
}

/// The writing end for a thread that packs.
pub(super) struct Sink {
    input: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
}

impl Sink {
    pub(super) fn new(input: mpsc::Sender<Bytes>) -> Self {
        Sink { input, piece: Vec::with_capacity(PIECE) }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.input.blocking_send(piece.into()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The reading end for a thread that unpacks.
pub(super) struct Source {
    more: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Source {
    pub(super) fn new(more: mpsc::Receiver<Bytes>) -> Self {
        Source { more, rest: Bytes::new() }
    }
}

impl Read for Source {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.more.blocking_recv() {
                Some(bytes) => self.rest = bytes,
                None => return Ok(0),
            }
        }
        let count = self.rest.len().min(into.len());
        self.rest.copy_to_slice(&mut into[..count]);
        Ok(count)
    }
}
