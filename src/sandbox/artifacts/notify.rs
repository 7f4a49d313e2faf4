//! What the system says of changes in some directories (inotify).
//!
//! Imports nothing of ours but [`Spot`]. Nothing is done while a run goes on: what happens waits in the system's
//! queue, which is bounded, and is read when the run is over. A run that changes nothing costs one system call.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

/// A file or directory: which of the watched trees, and where in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Spot {
    pub(super) tree: usize,
    pub(super) path: PathBuf,
}

/// One thing that happened.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// A file was made, written, or moved here.
    File(Spot),
    /// A directory came up.
    Directory(Spot),
    /// A directory went away: it was moved or removed.
    Gone(Spot),
    /// More happened than was kept.
    Lost,
}

/// The most directories that are watched at once: the system has a limit for all programs of a user.
const WATCHES: usize = 512;
/// The most events of one reading; more count as [`Change::Lost`].
const EVENTS: usize = 50_000;

const WANTED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::ONLYDIR);
/// Of the directory above a tree only what becomes of the tree's root is of interest.
const WANTED_ABOVE: WatchFlags =
    WatchFlags::CREATE.union(WatchFlags::MOVED_TO).union(WatchFlags::MOVED_FROM).union(WatchFlags::ONLYDIR);

/// A queue of the system's, and which directory each watch is for.
pub(super) struct Notify {
    queue: OwnedFd,
    watches: HashMap<i32, Watched>,
}

struct Watched {
    spot: Spot,
    /// Only this name in it is of interest.
    only: Option<PathBuf>,
}

impl Notify {
    pub(super) fn open() -> io::Result<Self> {
        let queue = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Notify { queue, watches: HashMap::new() })
    }

    /// Watches a directory, which is open; only `only` in it, when that is given. `false`: it can't be watched, or
    /// too many are.
    pub(super) fn add(&mut self, directory: &OwnedFd, spot: Spot, only: Option<PathBuf>) -> bool {
        if self.watches.len() >= WATCHES {
            return false;
        }
        // By its descriptor: by then the guest may have put something else under its name.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let wanted = if only.is_some() { WANTED_ABOVE } else { WANTED };
        match inotify::add_watch(&self.queue, path, wanted) {
            Ok(watch) => {
                self.watches.insert(watch, Watched { spot, only });
                true
            }
            Err(_) => false,
        }
    }

    /// Whether anything happened. One system call.
    pub(super) fn stirred(&self) -> bool {
        rustix::io::ioctl_fionread(&self.queue).map_or(true, |bytes| bytes > 0)
    }

    /// What happened since this was last asked.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut reader = Reader::new(&self.queue, &mut buffer);
        let mut gone = Vec::new();
        for _ in 0..EVENTS {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => {
                    drop_watches(&self.queue, &mut self.watches, &gone);
                    return changes;
                }
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let kind = event.events();
            if kind.contains(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change::Lost);
                continue;
            }
            if kind.contains(ReadFlags::IGNORED) {
                self.watches.remove(&event.wd());
                continue;
            }
            let (Some(watched), Some(name)) = (self.watches.get(&event.wd()), event.file_name()) else {
                continue;
            };
            let name = Path::new(OsStr::from_bytes(name.to_bytes()));
            if watched.only.as_deref().is_some_and(|only| only != name || !kind.contains(ReadFlags::ISDIR)) {
                continue;
            }
            let spot = Spot { tree: watched.spot.tree, path: watched.spot.path.join(name) };
            let change = match (kind.contains(ReadFlags::ISDIR), kind.contains(ReadFlags::MOVED_FROM)) {
                (true, true) => {
                    gone.push(spot.clone());
                    Change::Gone(spot)
                }
                (true, false) => Change::Directory(spot),
                (false, true) => continue,
                (false, false) => Change::File(spot),
            };
            // Writing is one event after the other.
            if changes.last() != Some(&change) {
                changes.push(change);
            }
        }
        changes.push(Change::Lost);
        drop_watches(&self.queue, &mut self.watches, &gone);
        changes
    }
}

/// What was moved away is watched no longer: it may be anywhere.
fn drop_watches(queue: &OwnedFd, watches: &mut HashMap<i32, Watched>, gone: &[Spot]) {
    for spot in gone {
        let inside =
            |watched: &Watched| watched.spot.tree == spot.tree && watched.spot.path.starts_with(&spot.path);
        let ended: Vec<i32> = watches.iter().filter(|(_, w)| inside(w)).map(|(watch, _)| *watch).collect();
        for watch in ended {
            let _ = inotify::remove_watch(queue, watch);
            watches.remove(&watch);
        }
    }
}
