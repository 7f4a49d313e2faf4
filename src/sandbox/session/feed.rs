//! What a process reads: handed on no faster than it is taken, so that nothing piles up inside.
//!
//! Imports nothing of ours but the frames.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Bytes that the supervisor may hold for a process.
const WINDOW: usize = 1 << 20;
/// The most in one frame.
const PIECE: usize = 128 << 10;

/// The standard input of one process.
#[derive(Debug)]
pub(super) struct Feed {
    more: Option<mpsc::Receiver<Bytes>>,
    waiting: Bytes,
    /// Sent, and not taken by the process yet.
    outstanding: usize,
    /// Its end was sent, or nobody reads it.
    over: bool,
}

impl Feed {
    /// A text.
    pub(super) fn text(text: &str) -> Self {
        let waiting = Bytes::copy_from_slice(text.as_bytes());
        Feed { more: None, waiting, outstanding: 0, over: false }
    }

    /// What comes through a channel, until it is closed.
    pub(super) fn stream(more: mpsc::Receiver<Bytes>) -> Self {
        Feed { more: Some(more), waiting: Bytes::new(), outstanding: 0, over: false }
    }

    /// The next piece, once there is one and room for it; an empty one is the end. Safe to drop at any moment.
    pub(super) async fn next(&mut self) -> Bytes {
        if self.over || self.outstanding >= WINDOW {
            return std::future::pending().await;
        }
        while self.waiting.is_empty() {
            let Some(more) = &mut self.more else {
                self.over = true;
                return Bytes::new();
            };
            match more.recv().await {
                Some(bytes) => self.waiting = bytes,
                None => self.more = None,
            }
        }
        let size = self.waiting.len().min(PIECE).min(WINDOW - self.outstanding);
        self.outstanding += size;
        self.waiting.split_to(size)
    }

    /// The process took so many bytes; 0: it reads no more, and whoever sends is told by a closed channel.
    pub(super) fn taken(&mut self, count: u32) {
        if count == 0 {
            self.over = true;
            (self.more, self.waiting) = (None, Bytes::new());
        }
        self.outstanding = self.outstanding.saturating_sub(count as usize);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::time::Duration;

    use super::*;

    async fn waits(feed: &mut Feed) -> bool {
        tokio::time::timeout(Duration::from_millis(20), feed.next()).await.is_err()
    }

    #[tokio::test]
    async fn no_more_is_sent_than_the_window_until_it_is_taken() {
        let (sender, more) = mpsc::channel(1);
        tokio::spawn(async move { while sender.send(Bytes::from(vec![0; 300 << 10])).await.is_ok() {} });
        let mut feed = Feed::stream(more);
        let mut sent = 0;
        while let Ok(piece) = tokio::time::timeout(Duration::from_millis(50), feed.next()).await {
            assert!(piece.len() <= PIECE);
            sent += piece.len();
        }
        assert_eq!(sent, WINDOW);
        feed.taken(5);
        assert_eq!(feed.next().await.len(), 5);
        assert!(waits(&mut feed).await);
        feed.taken(0);
        assert!(waits(&mut feed).await, "nobody reads it");
    }

    #[tokio::test]
    async fn the_end_comes_once_and_at_once_where_there_is_nothing() {
        let mut feed = Feed::text("");
        assert!(feed.next().await.is_empty());
        assert!(waits(&mut feed).await);
        let mut feed = Feed::text("two");
        assert_eq!(feed.next().await, "two");
        assert!(feed.next().await.is_empty());
        feed.taken(u32::MAX);
    }
}
