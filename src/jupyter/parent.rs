//! The kernel ends when the process that started it does.
//!
//! Imports nothing of ours. Jupyter says who that is (`JPY_PARENT_PID`). A process whose parent dies gets
//! a new one: PID 1, or a subreaper, so the number to look for is "another one", not 1. When the kernel
//! was started through a wrapper, its parent is not Jupyter: then Jupyter's existence is what counts.

use std::time::Duration;

use rustix::process::{Pid, getppid, test_kill_process};

/// How often to look.
const INTERVAL: Duration = Duration::from_millis(500);

/// What to look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watch {
    /// Nothing: there is no parent that could die alone.
    Nothing,
    /// This process must stay our parent.
    Parent(Pid),
    /// This process must exist.
    Existence(Pid),
    /// It died before we could look.
    Gone,
}

impl Watch {
    /// Decides from Jupyter's process id, our parent's, and whether Jupyter's process exists.
    fn choose(jupyter: Option<i32>, parent: Option<Pid>, exists: impl Fn(Pid) -> bool) -> Self {
        let Some(jupyter) = jupyter.and_then(Pid::from_raw) else { return Watch::Nothing };
        match parent {
            // PID 1 never dies alone: it is init, or the only process of a container.
            _ if jupyter == Pid::INIT => Watch::Nothing,
            // No parent in this PID namespace: Jupyter's number is from another one and means nothing here.
            None => Watch::Nothing,
            Some(parent) if parent == jupyter => Watch::Parent(jupyter),
            Some(_) if exists(jupyter) => Watch::Existence(jupyter),
            Some(_) => Watch::Gone,
        }
    }

    fn is_gone(self) -> bool {
        match self {
            Watch::Nothing => false,
            Watch::Parent(pid) => getppid() != Some(pid),
            Watch::Existence(pid) => !exists(pid),
            Watch::Gone => true,
        }
    }
}

/// Whether there is such a process; one that may not be signalled exists too.
fn exists(pid: Pid) -> bool {
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

/// Returns when the process that started the kernel is gone; never, when there is none to watch.
pub(crate) async fn gone(jupyter: Option<i32>) {
    let watch = Watch::choose(jupyter, getppid(), exists);
    tracing::debug!(?watch, "watching the parent");
    if watch == Watch::Nothing {
        return std::future::pending().await;
    }
    while !watch.is_gone() {
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(jupyter: Option<i32>, parent: i32, exists: bool) -> Watch {
        Watch::choose(jupyter, Pid::from_raw(parent), |_| exists)
    }

    #[test]
    fn our_own_parent_must_stay_our_parent() {
        assert_eq!(choose(Some(42), 42, true), Watch::choose(Some(42), Pid::from_raw(42), |_| false));
        assert!(matches!(choose(Some(42), 42, true), Watch::Parent(_)));
    }

    #[test]
    fn behind_a_wrapper_jupyter_must_exist() {
        assert!(matches!(choose(Some(42), 50, true), Watch::Existence(_)));
    }

    #[test]
    fn a_parent_that_died_before_we_looked_is_gone() {
        for adopted_by in [1, 900] {
            assert_eq!(choose(Some(42), adopted_by, false), Watch::Gone);
        }
        assert!(Watch::Gone.is_gone());
    }

    #[test]
    fn without_a_parent_that_could_die_alone_nothing_is_watched() {
        assert_eq!(choose(None, 42, true), Watch::Nothing);
        assert_eq!(choose(Some(0), 42, true), Watch::Nothing);
        assert_eq!(choose(Some(1), 1, true), Watch::Nothing);
        assert_eq!(choose(Some(42), 0, false), Watch::Nothing, "another PID namespace");
    }

    #[test]
    fn the_real_parent_of_this_test_is_not_gone() {
        assert!(!Watch::choose(getppid().map(|pid| pid.as_raw_nonzero().get()), getppid(), exists).is_gone());
    }
}
