//! What waits for one client: whole messages, counted in bytes.
//!
//! Imports nothing of ours but the limits. The relay puts in what ZeroMQ sends, at once and always; its
//! writer takes out what the client takes. Nothing here waits for a client.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};

/// How many pieces one system call writes.
const PIECES: usize = 64;

/// The messages that wait for one client, and how far it has come.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Bytes>,
    /// Bytes in `waiting`.
    behind: usize,
    /// Bytes ever put in and taken out.
    put: u64,
    taken: u64,
    /// Flushes that are complete when `taken` reaches the number.
    flushes: VecDeque<(u64, u64)>,
    /// The last complete flush.
    flushed: u64,
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in this file panics while it holds the lock, and the state is valid at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message; returns how many bytes waited before it.
    pub(crate) fn put(&self, message: Bytes) -> usize {
        let mut state = self.state();
        let before = state.behind;
        state.behind += message.len();
        state.put += message.len() as u64;
        state.waiting.push_back(message);
        before
    }

    /// Notes that flush `n` is complete when everything put so far is taken.
    pub(crate) fn mark(&self, n: u64) {
        let mut state = self.state();
        let at = state.put;
        state.flushes.push_back((at, n));
        state.settle();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().waiting.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn behind(&self) -> usize {
        self.state().behind
    }

    /// Bytes that the client ever took.
    pub(crate) fn taken(&self) -> u64 {
        self.state().taken
    }

    /// The last flush that is complete.
    pub(crate) fn flushed(&self) -> u64 {
        self.state().flushed
    }

    /// Writes what waits through `write` (one vectored, non-blocking write) and forgets what it took.
    pub(crate) fn take(
        &self,
        write: impl FnOnce(&[IoSlice<'_>]) -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        let mut state = self.state();
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (piece, bytes) in pieces.iter_mut().zip(&state.waiting) {
            *piece = IoSlice::new(bytes);
            count += 1;
        }
        let written = write(&pieces[..count])?;
        let mut left = written;
        while left > 0
            && let Some(front) = state.waiting.front_mut()
        {
            if front.len() > left {
                front.advance(left);
                break;
            }
            left -= front.len();
            state.waiting.pop_front();
        }
        state.behind -= written.min(state.behind);
        state.taken += written as u64;
        state.settle();
        Ok(written)
    }
}

impl State {
    fn settle(&mut self) {
        while let Some((at, n)) = self.flushes.front().copied()
            && at <= self.taken
        {
            self.flushed = self.flushed.max(n);
            self.flushes.pop_front();
        }
    }
}
