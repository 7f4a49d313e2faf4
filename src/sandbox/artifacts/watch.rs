//! Which files a run wrote, without looking through the tree each time.
//!
//! Imports `workspace`. The system tells (`notify`); where it can't, or lost count, one bounded look through the
//! tree does (`scan`). What comes out are names only: whoever opens them finds what is there by then.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::notify::{Change, Notify, Spot};
use crate::sandbox::workspace::Workspace;

/// The most entries that one look through the trees takes in.
const ENTRIES: usize = 20_000;
/// The longest that it takes.
const LONGEST: Duration = Duration::from_millis(250);
/// The deepest that it goes.
const DEPTH: usize = 32;
/// The most files that are told; the rest is counted.
const FILES: usize = 2_000;
/// Times of files are as coarse as the system's clock tick.
const TICK: Duration = Duration::from_millis(20);

/// A directory whose files are of interest, with everything below it.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// The directory that the container sees.
    pub(crate) mounted: Arc<Workspace>,
    /// Where in it the files are.
    pub(crate) below: PathBuf,
    /// A directory in it that another tree covers.
    pub(crate) except: Option<PathBuf>,
}

/// What a run wrote.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Written {
    /// The tree, and the path from the directory that the container sees.
    pub(crate) files: Vec<(usize, PathBuf)>,
    /// How many more there are, about.
    pub(crate) more: usize,
}

/// Watches the trees of one container.
pub(crate) struct Watch {
    trees: Vec<Tree>,
    notify: Option<Notify>,
    /// Not every directory is watched: one look through the trees after each run finds the rest.
    partial: bool,
    since: SystemTime,
    /// How the files looked when the run began, where the system does not tell.
    before: HashMap<Spot, Stamp>,
}

/// What changes when a file is written. The guest can set a file's times, but not the one of its last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    changed: (i64, u64),
    inode: u64,
    size: i64,
}

impl Watch {
    /// Begins to watch. `blind`: the system does not see what the guest does (another kernel runs it).
    pub(crate) fn open(trees: Vec<Tree>, blind: bool) -> Self {
        let notify = if blind { None } else { Notify::open().ok() };
        let mut watch =
            Watch { trees, notify, partial: false, since: SystemTime::now(), before: HashMap::new() };
        for tree in 0..watch.trees.len() {
            watch.take_up_tree(tree);
        }
        watch
    }

    pub(crate) fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// Whether [`Watch::start`] and [`Watch::written`] have anything to do: one system call.
    pub(crate) fn stirred(&self) -> bool {
        self.partial || self.notify.as_ref().is_none_or(Notify::stirred)
    }

    /// A run begins: what happened before is no work of its.
    pub(crate) fn start(&mut self) {
        self.since = SystemTime::now();
    }

    /// Forgets what happened before the run. To be called when something stirred.
    pub(crate) fn forget(&mut self) {
        let mut ignored = Seen::default();
        self.follow(&mut ignored);
        if self.notify.is_none() {
            self.before = self.scan(|_| true).0.into_iter().collect();
        }
    }

    /// What was written since the run began. To be called when something stirred.
    pub(crate) fn written(&mut self) -> Written {
        let mut seen = Seen::default();
        self.follow(&mut seen);
        if self.notify.is_none() || self.partial || seen.lost {
            let since = self.since - TICK;
            let (found, cut) = if self.notify.is_none() {
                let (found, cut) = self.scan(|_| true);
                let new = found.iter().filter(|(spot, stamp)| self.before.get(spot) != Some(stamp));
                (new.map(|(spot, _)| spot.clone()).collect::<Vec<_>>(), cut)
            } else {
                let (found, cut) = self.scan(|stamp| after(stamp, since));
                (found.into_iter().map(|(spot, _)| spot).collect(), cut)
            };
            seen.more += usize::from(cut);
            for spot in found {
                seen.add(spot);
            }
        }
        let there = |spot: &Spot| self.trees[spot.tree].stamp(&spot.path).is_some();
        let files = seen.files.into_iter().filter(there).map(|spot| (spot.tree, spot.path)).collect();
        Written { files, more: seen.more }
    }

    /// Takes in what the system told, directory by directory.
    fn follow(&mut self, seen: &mut Seen) {
        let Some(notify) = &mut self.notify else { return };
        let mut budget = Budget::new();
        for change in notify.changes() {
            match change {
                Change::File(spot) => {
                    if !hidden(&spot.path) {
                        seen.add(spot);
                    }
                }
                Change::Directory(spot) => self.take_up(&spot, &mut budget, Some(seen)),
                Change::Gone(_) => {}
                Change::Lost => seen.lost = true,
            }
        }
        if seen.lost {
            // Directories may have been missed.
            for tree in 0..self.trees.len() {
                self.take_up_tree(tree);
            }
        }
    }

    fn take_up_tree(&mut self, tree: usize) {
        let Tree { mounted, below, .. } = self.trees[tree].clone();
        if let Some(notify) = &mut self.notify
            && below.components().next().is_some()
            && let Ok(above) = mounted.directory_below("")
            && !notify.add(&above, Spot { tree, path: PathBuf::new() }, Some(below.clone()))
        {
            self.partial = true;
        }
        self.take_up(&Spot { tree, path: below }, &mut Budget::new(), None);
    }

    /// Watches a directory and those below it. What lies in it is new when `seen` is given.
    fn take_up(&mut self, spot: &Spot, budget: &mut Budget, mut seen: Option<&mut Seen>) {
        let Some(notify) = &mut self.notify else { return };
        let mounted = Arc::clone(&self.trees[spot.tree].mounted);
        let mut open = vec![spot.path.clone()];
        while let Some(path) = open.pop() {
            if hidden(&path) || !self.trees[spot.tree].covers(&path) {
                continue;
            }
            let Ok(directory) = mounted.directory_below(&path) else { continue };
            // Watched first, so that nothing comes up unseen while it is read.
            if !notify.add(&directory, Spot { tree: spot.tree, path: path.clone() }, None) {
                self.partial = true;
            }
            let Ok(entries) = Dir::read_from(&directory) else { continue };
            for entry in entries.flatten() {
                if !budget.spend() {
                    self.partial = true;
                    return;
                }
                let name = entry.file_name().to_bytes();
                if name.starts_with(b".") {
                    continue;
                }
                let path = path.join(OsStr::from_bytes(name));
                match (kind(&directory, &entry), &mut seen) {
                    (FileType::Directory, _) => open.push(path),
                    (FileType::RegularFile, Some(seen)) => seen.add(Spot { tree: spot.tree, path }),
                    _ => {}
                }
            }
        }
    }

    /// One bounded look through the trees: the files whose stamp is `wanted`, and whether it broke off.
    fn scan(&self, wanted: impl Fn(&Stamp) -> bool) -> (Vec<(Spot, Stamp)>, bool) {
        let (mut found, mut budget, mut cut) = (Vec::new(), Budget::new(), false);
        for (index, tree) in self.trees.iter().enumerate() {
            let mut open = vec![tree.below.clone()];
            'tree: while let Some(path) = open.pop() {
                if !tree.covers(&path) {
                    continue;
                }
                let Ok(directory) = tree.mounted.directory_below(&path) else { continue };
                let Ok(entries) = Dir::read_from(&directory) else { continue };
                for entry in entries.flatten() {
                    let name = entry.file_name().to_bytes();
                    if name.starts_with(b".") {
                        continue;
                    }
                    if !budget.spend() {
                        cut = true;
                        break 'tree;
                    }
                    let name = OsStr::from_bytes(name);
                    match kind(&directory, &entry) {
                        FileType::Directory => open.push(path.join(name)),
                        FileType::RegularFile => {
                            if let Some(stamp) = stamp(&directory, Path::new(name)).filter(&wanted) {
                                found.push((Spot { tree: index, path: path.join(name) }, stamp));
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        (found, cut)
    }
}

impl Tree {
    fn covers(&self, path: &Path) -> bool {
        path.components().count() <= DEPTH
            && self.except.as_deref().is_none_or(|except| !path.starts_with(except))
    }

    fn stamp(&self, path: &Path) -> Option<Stamp> {
        let parent = self.mounted.directory_below(path.parent()?).ok()?;
        stamp(&parent, Path::new(path.file_name()?))
    }
}

/// Files that came up, each once, and how many there was no room for.
#[derive(Default)]
struct Seen {
    files: BTreeSet<Spot>,
    more: usize,
    lost: bool,
}

impl Seen {
    fn add(&mut self, spot: Spot) {
        if self.files.len() < FILES {
            self.files.insert(spot);
        } else if !self.files.contains(&spot) {
            // One that is written twice is counted twice here: nobody counts two thousand files after us.
            self.more += 1;
        }
    }
}

/// How much may be looked at.
struct Budget {
    entries: usize,
    until: Instant,
}

impl Budget {
    fn new() -> Self {
        Budget { entries: ENTRIES, until: Instant::now() + LONGEST }
    }

    fn spend(&mut self) -> bool {
        self.entries = self.entries.saturating_sub(1);
        self.entries > 0 && (!self.entries.is_multiple_of(64) || Instant::now() < self.until)
    }
}

/// Whether a part of a path is hidden: checkpoints of JupyterLab, caches, repositories.
fn hidden(path: &Path) -> bool {
    path.iter().any(|part| part.as_bytes().starts_with(b"."))
}

fn kind(directory: &std::os::fd::OwnedFd, entry: &rustix::fs::DirEntry) -> FileType {
    match entry.file_type() {
        FileType::Unknown => statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        known => known,
    }
}

/// How a regular file looks now.
#[allow(clippy::unnecessary_cast, reason = "the types differ between architectures")]
fn stamp(directory: &std::os::fd::OwnedFd, name: &Path) -> Option<Stamp> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some(Stamp {
        changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        inode: stat.st_ino,
        size: stat.st_size as i64,
    })
}

fn after(stamp: &Stamp, since: SystemTime) -> bool {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (seconds, nanos) = stamp.changed;
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return false };
    Duration::new(seconds, nanos.min(999_999_999)) >= since
}

#[cfg(test)]
#[path = "watch_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
