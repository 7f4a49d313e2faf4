//! How patient a request is: at most four tries within thirty seconds, waits that double, with
//! jitter, or as long as the server asks. Imports nothing of ours.

use std::time::Duration;

use super::model::RetryAfter;

/// The most tries of one request.
const TRIES: u32 = 4;
/// No try begins later than this after the first.
const BUDGET: Duration = Duration::from_secs(30);
/// The first wait; each further one doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// What to do after a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Wait that long, then try again.
    Wait(Duration),
    /// Give up: every try is used.
    TriesUsed,
    /// Give up: the wait would end after the thirty seconds. Says how long it would have been.
    TooLong(Duration),
}

/// The tries of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Patience {
    failures: u32,
}

impl Patience {
    /// How many tries have failed.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Decides after a failure, `elapsed` after the first try began. `jitter` is from 0 up to 1.
    pub(crate) fn failed(&mut self, elapsed: Duration, asked: Option<RetryAfter>, jitter: f64) -> Decision {
        self.failures += 1;
        if self.failures >= TRIES {
            return Decision::TriesUsed;
        }
        let doubled = FIRST_WAIT * 2_u32.pow(self.failures - 1);
        // Between three quarters of the wait and the whole of it, so that kernels don't march in step;
        // never less than the server asks for.
        let own = doubled.mul_f64(0.75 + 0.25 * jitter.clamp(0.0, 1.0));
        let wait = asked.map_or(own, |RetryAfter(asked)| asked.max(own));
        if elapsed + wait > BUDGET { Decision::TooLong(wait) } else { Decision::Wait(wait) }
    }

    /// The most tries there are.
    pub(crate) fn tries() -> u32 {
        TRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_end_with_the_fourth_try() {
        let mut patience = Patience::default();
        let waits: Vec<_> = (0..4).map(|_| patience.failed(Duration::ZERO, None, 1.0)).collect();
        let ms = Duration::from_millis;
        assert_eq!(
            waits,
            [
                Decision::Wait(ms(500)),
                Decision::Wait(ms(1000)),
                Decision::Wait(ms(2000)),
                Decision::TriesUsed
            ]
        );
    }

    #[test]
    fn the_server_may_ask_for_longer_but_not_beyond_the_budget() {
        let asked = |seconds| Some(RetryAfter(Duration::from_secs(seconds)));
        let mut patience = Patience::default();
        assert_eq!(patience.failed(Duration::ZERO, asked(9), 0.0), Decision::Wait(Duration::from_secs(9)));
        assert_eq!(
            patience.failed(Duration::from_secs(10), asked(25), 0.0),
            Decision::TooLong(Duration::from_secs(25))
        );
        let mut patience = Patience::default();
        assert_eq!(
            patience.failed(Duration::ZERO, asked(0), 0.0),
            Decision::Wait(Duration::from_millis(375)),
            "an immediate retry would only add to the load"
        );
    }
}
