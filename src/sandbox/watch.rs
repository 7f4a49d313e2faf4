//! What a run has shown so far, for whoever wants to know before its end.
//!
//! May import `event`. The run pays one uncontended lock for each piece of output; the text is put together only when
//! somebody asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::transcript::Transcript;

/// A look at one run: given to it in [`Run::watch`](super::Run::watch), and asked while it runs.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    state: State,
    transcript: Transcript,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// It waits for its turn, or for its container.
    #[default]
    Waits,
    Runs,
    Over,
}

impl PartialEq for Watch {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        // A transcript is whole between any two pieces.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its code runs by now, or has run.
    pub fn has_begun(&self) -> bool {
        self.lock().state != State::Waits
    }

    /// What it has shown, as [`RunEnd::transcript`](super::RunEnd::transcript) would say it; `None` unless it runs.
    pub fn so_far(&self) -> Option<String> {
        let watched = self.lock();
        (watched.state == State::Runs).then(|| watched.transcript.so_far())
    }

    /// The code is about to run.
    pub(crate) fn begin(&self) {
        self.lock().state = State::Runs;
    }

    pub(crate) fn record<T>(&self, record: impl FnOnce(&mut Transcript) -> T) -> T {
        record(&mut self.lock().transcript)
    }

    /// The run is over; what the model may be told of it.
    pub(crate) fn finish(&self) -> String {
        let mut watched = self.lock();
        watched.state = State::Over;
        std::mem::take(&mut watched.transcript).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Stream;

    #[test]
    fn output_can_be_looked_at_while_the_run_lasts_and_is_not_taken_by_it() {
        let watch = Watch::default();
        watch.record(|all| all.text(Stream::Stdout, "early\n"));
        assert_eq!((watch.has_begun(), watch.so_far()), (false, None));
        watch.begin();
        watch.record(|all| all.text(Stream::Stdout, "late\n"));
        let all = "[stdout]\nearly\nlate\n";
        assert_eq!((watch.has_begun(), watch.so_far().as_deref()), (true, Some(all)));
        assert_eq!(watch.finish(), all);
        assert_eq!((watch.has_begun(), watch.so_far()), (true, None), "over");
    }
}
