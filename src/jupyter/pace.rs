//! Staying below the rate limits of Jupyter Server, without losing anything.
//!
//! Imports nothing of ours; pure, the clock is a parameter. The server (2.21) keeps a window of three
//! seconds per connection and drops whatever exceeds 1,000 messages or 1,000,000 bytes of `stream` a
//! second in it, errors and results included. It counts the JSON frames of `stream` messages (header,
//! parent, metadata, content), counts every message but `status`, `comm_open` and `execute_input`, and
//! starts afresh at each `idle`.
//!
//! It measures when messages *arrive*, so a server that was busy for a moment sees them closer together
//! than they were sent. Two buckets with room to spare allow for that: in any three seconds at most
//! 0.6 + 3 x 0.6 = 2.4 of its 3 million bytes, and 2,400 of its 3,000 messages; it may lag by a second.

use std::time::{Duration, Instant};

/// Bytes of `stream` a second, and bytes that may leave at once.
const BYTES: f64 = 600_000.0;
/// Messages a second, and messages that may leave at once.
const MESSAGES: f64 = 600.0;

/// A budget that grows with time up to one second's worth.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Growth a second, and the most it can hold.
    rate: f64,
    /// Negative when more was taken than was there: a message is never split or refused, the next waits.
    level: f64,
}

impl Bucket {
    fn full(rate: f64) -> Self {
        Bucket { rate, level: rate }
    }

    fn grow(&mut self, elapsed: Duration) {
        self.level = (self.level + self.rate * elapsed.as_secs_f64()).min(self.rate);
    }

    /// How long until `amount` (or all that it can hold) is there.
    fn wait(&self, amount: f64) -> Duration {
        let missing = amount.min(self.rate) - self.level;
        if missing <= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(missing / self.rate) }
    }
}

/// How a message counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Not at all (`status`, `execute_input`).
    Free,
    /// As one message.
    Message,
    /// As one message with this many bytes of JSON frames.
    Stream(usize),
}

/// The pace of one iopub socket.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes: Bucket,
    messages: Bucket,
    at: Instant,
}

impl Pace {
    /// Nothing was sent yet.
    pub(crate) fn new(now: Instant) -> Self {
        Pace { bytes: Bucket::full(BYTES), messages: Bucket::full(MESSAGES), at: now }
    }

    /// Books one message; it may be sent when the returned time has passed.
    pub(crate) fn book(&mut self, now: Instant, weight: Weight) -> Duration {
        let (count, bytes) = match weight {
            Weight::Free => return Duration::ZERO,
            Weight::Message => (1.0, 0.0),
            // Far below 2^52: exact.
            #[allow(clippy::cast_precision_loss)]
            Weight::Stream(bytes) => (1.0, bytes as f64),
        };
        let elapsed = now.saturating_duration_since(self.at);
        self.at = self.at.max(now);
        self.bytes.grow(elapsed);
        self.messages.grow(elapsed);
        let wait = if bytes > 0.0 { self.bytes.wait(bytes) } else { Duration::ZERO };
        let wait = wait.max(self.messages.wait(count));
        self.bytes.level -= bytes;
        self.messages.level -= count;
        wait
    }

    /// An `idle` was sent: the server starts afresh, and so does this.
    pub(crate) fn idle(&mut self, now: Instant) {
        *self = Pace::new(now);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// The server's window, as its source has it.
    #[derive(Default)]
    struct Server {
        window: VecDeque<(Instant, usize)>,
        bytes: usize,
        worst: (f64, f64),
    }

    impl Server {
        #[allow(clippy::cast_precision_loss)]
        fn arrived(&mut self, now: Instant, bytes: usize) {
            while self.window.front().is_some_and(|(expires, _)| now >= *expires) {
                self.bytes -= self.window.pop_front().unwrap().1;
            }
            self.bytes += bytes;
            self.window.push_back((now + Duration::from_secs(3), bytes));
            let messages = self.window.len() as f64 / 3.0;
            self.worst = (self.worst.0.max(messages), self.worst.1.max(self.bytes as f64 / 3.0));
        }
    }

    /// Sends as fast as the pace (or without one a fast kernel) allows; the server reads in turns of `lag`.
    fn flood(paced: bool, weight: usize, count: usize, lag: Duration) -> (f64, f64, Duration) {
        let start = Instant::now();
        let (mut now, mut pace, mut server) = (start, Pace::new(start), Server::default());
        for _ in 0..count {
            let wait = pace.book(now, Weight::Stream(weight));
            now += if paced { wait } else { Duration::from_micros(100) };
            let turns = (now - start).as_nanos() / lag.as_nanos();
            let seen = start + lag * (u32::try_from(turns).unwrap() + 1);
            server.arrived(seen, weight);
        }
        (server.worst.0, server.worst.1, now - start)
    }

    #[test]
    fn a_flood_stays_below_the_servers_limits_even_when_it_reads_in_turns_of_a_second() {
        for weight in [100, 2_000, 66_000, 400_000] {
            let (messages, bytes, took) = flood(true, weight, 3_000, Duration::from_secs(1));
            assert!(messages <= 1_000.0, "{messages} messages/s at {weight}");
            assert!(bytes <= 1_000_000.0, "{bytes} B/s at {weight}");
            assert!(took > Duration::from_secs(3), "the test must outlast the window: {took:?}");
        }
    }

    #[test]
    fn without_the_pace_the_same_flood_exceeds_them() {
        let (messages, bytes, _) = flood(false, 2_000, 6_000, Duration::from_millis(10));
        assert!(messages > 1_000.0 && bytes > 1_000_000.0, "{messages} messages/s, {bytes} B/s");
    }

    #[test]
    fn the_first_output_and_what_comes_slowly_is_never_delayed() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for step in 0..1_000 {
            let now = start + Duration::from_millis(10 * step);
            assert_eq!(pace.book(now, Weight::Stream(500)), Duration::ZERO);
            assert_eq!(pace.book(now, Weight::Free), Duration::ZERO);
        }
    }

    #[test]
    fn other_messages_do_not_wait_for_bytes() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.book(start, Weight::Stream(600_000));
        assert_eq!(pace.book(start, Weight::Message), Duration::ZERO);
        assert!(pace.book(start, Weight::Stream(60_000)) > Duration::ZERO);
    }

    #[test]
    fn an_idle_starts_afresh() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.book(start, Weight::Stream(600_000));
        pace.idle(start);
        assert_eq!(pace.book(start, Weight::Stream(500_000)), Duration::ZERO);
    }
}
