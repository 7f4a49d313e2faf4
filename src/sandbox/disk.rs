//! How much a run's folders may grow: a watcher on the host, which stops the run.
//!
//! Imports `workspace`. No engine limits a directory that it binds into a container. So the space that the
//! workspace and the session's folder take is counted when a run begins, and again and again while it goes on: at
//! first every second, less often the longer it takes to count, but at once when the file system itself has lost
//! much of its room. Nothing is followed, nothing is opened but directories.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, statat};
use tokio::sync::oneshot;

use super::workspace::{Workspace, open_directory};

/// How often to count, at first.
const PAUSE: Duration = Duration::from_secs(1);
/// Counting takes at most one part in so many of the time.
const SHARE: u32 = 50;
/// What takes no longer is counted at the end of every run.
const CHEAP: Duration = Duration::from_millis(20);
/// And what takes no longer than one part in so many of the run itself.
const TAIL: u32 = 10;
/// The same when the file system says that much was written.
const URGENT: u32 = 8;
/// How long a run waits for the first count. After that it begins, and what it writes meanwhile may not count.
const PATIENCE: Duration = Duration::from_millis(150);
/// What every file costs at least: a file system has only so many of them.
const ENTRY: u64 = 512;
/// Directories that are open at once, and so the deepest that a tree may be.
const DEPTH: usize = 100;
/// Files with several names that are told apart; further ones count by each name.
const LINKED: usize = 200_000;

/// A run has written more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// What it may write, in bytes.
    pub(crate) limit: u64,
    /// How much the workspace has grown by, and how much the folder of the session or run.
    pub(crate) workspace: u64,
    pub(crate) own: u64,
    /// Where the count ended because directories lie too deep in one another.
    pub(crate) deep: bool,
}

/// Watches one run; ends with it.
pub(crate) struct Disk {
    full: oneshot::Receiver<Full>,
    over: Arc<AtomicBool>,
    last: tokio::task::JoinHandle<Option<Full>>,
    stop: Option<oneshot::Sender<()>>,
}

/// The two directories that count, and the limit.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) limit: u64,
    pub(crate) workspace: Option<Arc<Workspace>>,
    pub(crate) own: Option<Arc<Workspace>>,
}

impl Disk {
    /// Begins to watch. Waits a moment for the first count.
    pub(crate) async fn begin(limits: Limits) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (told, full) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let (counted, first) = oneshot::channel();
        let last = tokio::spawn(watch(limits, Arc::clone(&over), counted, told, stopped));
        let _ = tokio::time::timeout(PATIENCE, first).await;
        Disk { full, over, last, stop: Some(stop) }
    }

    /// Waits until the run has written too much. Safe to drop at any moment.
    pub(crate) async fn full(&mut self) -> Full {
        match (&mut self.full).await {
            Ok(full) => full,
            Err(_) => std::future::pending().await,
        }
    }

    /// The run is over: whether it had written too much by then, which is counted when there is reason to.
    pub(crate) async fn end(mut self) -> Option<Full> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        (&mut self.last).await.ok().flatten()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

async fn watch(
    limits: Limits,
    over: Arc<AtomicBool>,
    counted: oneshot::Sender<()>,
    told: oneshot::Sender<Full>,
    mut stopped: oneshot::Receiver<()>,
) -> Option<Full> {
    let (begun, since) = (SystemTime::now(), Instant::now());
    let free = limits.free();
    let first = count(&limits, &over, Some(begun)).await?;
    let _ = counted.send(());
    if let Some(full) = limits.exceeded(&first, &first) {
        let _ = told.send(full);
        return Some(full);
    }
    let (mut took, mut at) = (first.took, Instant::now());
    let mut seen = free;
    loop {
        let ending = tokio::select! {
            _ = &mut stopped => true,
            () = tokio::time::sleep(PAUSE) => false,
        };
        let lost =
            seen.iter().zip(limits.free()).any(|(then, now)| then.saturating_sub(now) >= limits.limit / 2);
        let due = if lost { took * URGENT } else { took * SHARE };
        // At the end only what is cheap or suspicious is counted once more.
        if ending && !lost && took > CHEAP.max(since.elapsed() / TAIL) {
            return None;
        }
        if !ending && at.elapsed() < due {
            continue;
        }
        seen = limits.free();
        let now = count(&limits, &over, None).await?;
        (took, at) = (now.took, Instant::now());
        if let Some(full) = limits.exceeded(&first, &now) {
            let _ = told.send(full);
            return Some(full);
        }
        if ending {
            return None;
        }
    }
}

/// What the two directories take.
#[derive(Debug, Clone, Copy)]
struct Count {
    workspace: Size,
    own: Size,
    took: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    bytes: u64,
    /// Directories that lie too deep to be counted.
    deep: bool,
}

impl Limits {
    fn exceeded(&self, first: &Count, now: &Count) -> Option<Full> {
        let workspace = now.workspace.bytes.saturating_sub(first.workspace.bytes);
        let own = now.own.bytes.saturating_sub(first.own.bytes);
        // Also when they were there before: anything could be hidden in them.
        let deep = now.workspace.deep || now.own.deep;
        let full = Full { limit: self.limit, workspace, own, deep };
        (deep || workspace.saturating_add(own) > self.limit).then_some(full)
    }

    /// Free bytes of the file systems.
    fn free(&self) -> Vec<u64> {
        let free = |directory: &Arc<Workspace>| {
            let about = rustix::fs::fstatvfs(directory.directory()).ok()?;
            Some(about.f_bfree.saturating_mul(about.f_frsize))
        };
        self.workspace.iter().chain(&self.own).map(|directory| free(directory).unwrap_or_default()).collect()
    }
}

/// Counts, in a thread for blocking work. `None`: the run is over.
async fn count(limits: &Limits, over: &Arc<AtomicBool>, before: Option<SystemTime>) -> Option<Count> {
    let (limits, over) = (limits.clone(), Arc::clone(over));
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let mut tally = Tally { over: &over, before, linked: HashSet::new() };
        // The smaller one first; where one lies in the other it counts once.
        let own = limits.own.as_ref().map_or(Some(Size::default()), |own| tally.of(own, None))?;
        let inside = limits.own.as_ref().and_then(|own| rustix::fs::fstat(own.directory()).ok());
        let inside = inside.map(|stat| (stat.st_dev, stat.st_ino));
        let workspace = limits.workspace.as_ref().map_or(Some(Size::default()), |w| tally.of(w, inside))?;
        Some(Count { workspace, own, took: began.elapsed() })
    })
    .await
    .ok()?
}

struct Tally<'a> {
    over: &'a AtomicBool,
    /// Files made after this do not count.
    before: Option<SystemTime>,
    /// Files with several names that were counted.
    linked: HashSet<(u64, u64)>,
}

impl Tally<'_> {
    /// What a directory takes with everything below it but the directory `except`. `None`: the run is over.
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    fn of(&mut self, root: &Workspace, except: Option<(u64, u64)>) -> Option<Size> {
        let mut size = Size::default();
        let Ok(top) = root.directory_below("") else { return Some(size) };
        let Ok(entries) = Dir::read_from(&top) else { return Some(size) };
        let mut open = vec![(top, entries)];
        let mut steps = 0_u64;
        loop {
            let depth = open.len();
            let Some((directory, entries)) = open.last_mut() else { return Some(size) };
            steps += 1;
            if steps.is_multiple_of(256) && self.over.load(Ordering::Relaxed) {
                return None;
            }
            let Some(Ok(entry)) = entries.next() else {
                open.pop();
                continue;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name: OsString = OsStr::from_bytes(name).to_owned();
            let Ok(stat) = statat(&*directory, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_directory && except == Some((stat.st_dev as u64, stat.st_ino as u64)) {
                continue;
            }
            if !self.counts(&stat, directory, &name, is_directory) {
                continue;
            }
            let blocks = u64::try_from(stat.st_blocks as i64).unwrap_or_default();
            size.bytes = size.bytes.saturating_add(blocks.saturating_mul(512).max(ENTRY));
            if is_directory {
                if depth >= DEPTH {
                    size.deep = true;
                } else if let Ok(below) = enter(directory, Path::new(&name), stat.st_mode)
                    && let Ok(entries) = Dir::read_from(&below)
                {
                    open.push((below, entries));
                }
            }
        }
    }

    /// Whether a file has not been counted by another name, and was there in time.
    #[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
    fn counts(
        &mut self,
        stat: &rustix::fs::Stat,
        parent: &OwnedFd,
        name: &OsStr,
        is_directory: bool,
    ) -> bool {
        let linked = !is_directory && stat.st_nlink > 1 && self.linked.len() < LINKED;
        if linked && !self.linked.insert((stat.st_dev as u64, stat.st_ino as u64)) {
            return false;
        }
        // Only what changed since can be new.
        let Some(before) = self.before.filter(|before| !is_directory && secs(stat) >= seconds(*before))
        else {
            return true;
        };
        born(parent, name).is_none_or(|born| born <= before)
    }
}

#[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
fn secs(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_ctime as i64).unwrap_or_default()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// When a file was made, where the file system knows.
fn born(parent: &OwnedFd, name: &OsStr) -> Option<SystemTime> {
    use rustix::fs::StatxFlags;
    let about = rustix::fs::statx(parent, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()?;
    if about.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return None;
    }
    let since = Duration::new(u64::try_from(about.stx_btime.tv_sec).ok()?, about.stx_btime.tv_nsec);
    Some(SystemTime::UNIX_EPOCH + since)
}

/// Opens a directory. One that is closed to its owner, who is the kernel's user as well as the sandbox's where that
/// is not root, is opened up for this moment: else what lies in it would not count.
fn enter(parent: &OwnedFd, name: &Path, mode: u32) -> io::Result<OwnedFd> {
    match open_directory(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        opened => return opened,
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let named = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    rustix::fs::chmodat(CWD, path.as_str(), Mode::RWXU, AtFlags::empty())?;
    // Through the descriptor again, so that it is the same directory.
    let opened = open_directory(&named, Path::new("."));
    let _ = rustix::fs::chmodat(CWD, path.as_str(), Mode::from_raw_mode(mode), AtFlags::empty());
    opened
}
