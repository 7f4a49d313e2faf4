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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_flush_is_complete_when_everything_before_it_is_taken() {
        let outbox = Outbox::default();
        outbox.mark(1);
        assert_eq!(outbox.flushed(), 1, "nothing waited");
        outbox.put(Bytes::from_static(b"abc"));
        outbox.mark(2);
        outbox.put(Bytes::from_static(b"def"));
        outbox.take(|_| Ok(2)).unwrap();
        assert_eq!((outbox.flushed(), outbox.behind()), (1, 4));
        outbox.take(|_| Ok(1)).unwrap();
        assert_eq!((outbox.flushed(), outbox.behind()), (2, 3));
    }

    #[test]
    fn an_error_takes_nothing() {
        let outbox = Outbox::default();
        outbox.put(Bytes::from_static(b"abc"));
        assert!(outbox.take(|_| Err(std::io::ErrorKind::WouldBlock.into())).is_err());
        assert_eq!((outbox.behind(), outbox.taken()), (3, 0));
    }

    proptest! {
        #[test]
        fn every_byte_comes_out_once_and_in_order(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..100),
            steps in prop::collection::vec(1usize..200, 0..100),
        ) {
            let outbox = Outbox::default();
            let mut out = Vec::new();
            let mut steps = steps.into_iter().cycle();
            let take = |out: &mut Vec<u8>, most: usize| outbox.take(|pieces| {
                let all: Vec<u8> = pieces.iter().flat_map(|p| p.iter().copied()).collect();
                let n = all.len().min(most);
                out.extend_from_slice(&all[..n]);
                Ok(n)
            });
            for message in &messages {
                outbox.put(message.clone().into());
                if let Some(most) = steps.next() && most % 3 == 0 {
                    take(&mut out, most).unwrap();
                }
            }
            while !outbox.is_empty() {
                take(&mut out, steps.next().unwrap_or(7)).unwrap();
            }
            prop_assert_eq!(outbox.behind(), 0);
            prop_assert_eq!(outbox.taken(), out.len() as u64);
            prop_assert_eq!(out, messages.concat());
        }
    }
}
