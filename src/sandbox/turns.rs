//! How many blocks run at once, over all kernels of a user: one locked file for each.
//!
//! Imports nothing of ours. The lock belongs to the open file, so it goes when the process does, however that
//! ends.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::FlockOperation;

/// How often a block that waits looks for a free turn.
const LOOK: Duration = Duration::from_millis(50);

/// The turns of one kernel.
#[derive(Debug, Clone)]
pub struct Turns {
    /// Where the files lie, and how many there are; `None`: everybody may run.
    limit: Option<(PathBuf, usize)>,
}

/// A turn; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _locked: Option<File>,
}

impl Turns {
    /// At most `count` at once, counted in `directory` (created when it is missing).
    pub fn new(directory: impl Into<PathBuf>, count: usize) -> Self {
        Turns { limit: Some((directory.into(), count.max(1))) }
    }

    /// As many as come.
    pub fn unlimited() -> Self {
        Turns { limit: None }
    }

    /// How many may run at once.
    pub(crate) fn count(&self) -> Option<usize> {
        self.limit.as_ref().map(|(_, count)| *count)
    }

    /// A turn, when one is free now.
    pub(crate) fn take(&self) -> std::io::Result<Option<Turn>> {
        let Some((directory, count)) = &self.limit else { return Ok(Some(Turn { _locked: None })) };
        std::fs::create_dir_all(directory)?;
        for number in 0..*count {
            let path = directory.join(format!("turn-{number}"));
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(Turn { _locked: Some(file) })),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(None)
    }

    /// Waits for a turn. Safe to drop at any moment.
    pub(crate) async fn wait(&self) -> std::io::Result<Turn> {
        loop {
            if let Some(turn) = self.take()? {
                return Ok(turn);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[tokio::test]
    async fn no_more_run_than_there_are_turns_and_an_ended_one_is_free_again() {
        let directory = tempfile::tempdir().unwrap();
        // Two kernels, each with its own view of the same turns.
        let (one, two) = (Turns::new(directory.path(), 2), Turns::new(directory.path(), 2));
        let first = one.take().unwrap().unwrap();
        let _second = two.take().unwrap().unwrap();
        assert!(one.take().unwrap().is_none());
        assert!(tokio::time::timeout(Duration::from_millis(120), two.wait()).await.is_err());
        drop(first);
        two.wait().await.unwrap();
    }

    #[test]
    fn without_a_limit_everybody_runs() {
        let turns = Turns::unlimited();
        let taken: Vec<_> = (0..100).map(|_| turns.take().unwrap().unwrap()).collect();
        assert_eq!(taken.len(), 100);
    }
}
