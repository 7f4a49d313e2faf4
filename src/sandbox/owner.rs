//! Who owns a container: which kernel, on which machine, and whether that kernel still lives.
//!
//! Imports nothing of ours. The labels are the only memory there is: the reaper finds a kernel's containers
//! by them, and the sweep at the next start finds those of kernels that are dead.

use std::collections::HashMap;
use std::fs;

use uuid::Uuid;

/// Marks everything of ours, with the value `1`.
pub const LABEL: &str = "cellblock";
/// Which kernel: a UUID.
pub const LABEL_KERNEL: &str = "cellblock.kernel";
/// The kernel's process id, in its own process-id name space.
pub const LABEL_PID: &str = "cellblock.pid";
/// When that process started, in clock ticks since boot: a process id alone is used again.
pub const LABEL_STARTED: &str = "cellblock.started";
/// Boot and process-id name space in which the process id means something.
pub const LABEL_HOST: &str = "cellblock.host";

/// The name of the container's definition.
pub const LABEL_CONTAINER: &str = "cellblock.container";
/// The name of its session; empty when it runs one block.
pub const LABEL_SESSION: &str = "cellblock.session";
/// The notebook's directory.
pub const LABEL_DIRECTORY: &str = "cellblock.directory";

/// One kernel, as it is written on its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Names the kernel; fresh for every process.
    pub kernel: Uuid,
    /// Its process id.
    pub pid: u32,
    /// When the process started (clock ticks since boot); `None` where it can't be found out.
    pub started: Option<u64>,
    /// Boot and process-id name space; `None` where they can't be found out.
    pub host: Option<String>,
}

impl Owner {
    /// This very process.
    pub fn current() -> Self {
        let pid = std::process::id();
        Owner { kernel: Uuid::new_v4(), pid, started: started(pid), host: host() }
    }

    /// The labels of this kernel's containers.
    pub fn labels(&self) -> HashMap<String, String> {
        let mut labels = HashMap::from([
            (LABEL.to_owned(), "1".to_owned()),
            (LABEL_KERNEL.to_owned(), self.kernel.to_string()),
            (LABEL_PID.to_owned(), self.pid.to_string()),
        ]);
        if let Some(started) = self.started {
            labels.insert(LABEL_STARTED.to_owned(), started.to_string());
        }
        if let Some(host) = &self.host {
            labels.insert(LABEL_HOST.to_owned(), host.clone());
        }
        labels
    }

    /// The filter that finds this kernel's containers: `label=value`.
    pub fn filter(&self) -> String {
        filter(&self.kernel.to_string())
    }
}

/// The filter that finds the containers of the kernel with that UUID: `label=value`.
pub(crate) fn filter(kernel: &str) -> String {
    format!("{LABEL_KERNEL}={kernel}")
}

/// Whether a container with these labels belongs to a kernel of which it is certain that it is dead.
///
/// Anything uncertain counts as alive: labels of another machine, boot or process-id name space, missing
/// labels, a system without `/proc`.
pub(crate) fn is_orphan(labels: &HashMap<String, String>) -> bool {
    let Some(here) = host() else { return false };
    orphan_on(&here, labels, started)
}

fn orphan_on(here: &str, labels: &HashMap<String, String>, started: impl Fn(u32) -> Option<u64>) -> bool {
    let number = |name: &str| labels.get(name).and_then(|v| v.parse::<u64>().ok());
    let (Some(pid), Some(ticks)) = (number(LABEL_PID), number(LABEL_STARTED)) else { return false };
    let Ok(pid) = u32::try_from(pid) else { return false };
    labels.get(LABEL_HOST).is_some_and(|host| host == here) && started(pid) != Some(ticks)
}

/// Start of a process in clock ticks since boot; `None` when there is no such process (or it is a zombie).
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in parentheses and may hold anything: count fields after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn host() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    // `pid:[4026531836]`: only the number.
    let space: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}/{space}", boot.trim()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_living_kernel_owns_its_containers() {
        assert!(!is_orphan(&Owner::current().labels()));
    }

    #[test]
    fn a_dead_kernel_on_this_host_leaves_orphans() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let ticks = started(pid).unwrap_or(1);
        child.wait().unwrap();
        let dead = Owner { pid, started: Some(ticks), ..Owner::current() };
        assert!(is_orphan(&dead.labels()));
    }

    #[test]
    fn a_process_id_that_is_used_again_does_not_keep_orphans() {
        let mut labels = Owner::current().labels();
        labels.insert(LABEL_STARTED.to_owned(), "1".to_owned());
        assert!(is_orphan(&labels));
    }

    #[test]
    fn what_is_uncertain_counts_as_alive() {
        let labels = Owner { pid: 1, started: Some(1), ..Owner::current() }.labels();
        let dead = |_| None;
        let here = host().unwrap();
        assert!(orphan_on(&here, &labels, dead));
        assert!(!orphan_on("another boot/4026531836", &labels, dead));
        for missing in [LABEL_PID, LABEL_STARTED, LABEL_HOST] {
            let mut labels = labels.clone();
            labels.remove(missing);
            assert!(!orphan_on(&here, &labels, dead), "{missing}");
        }
    }
}
