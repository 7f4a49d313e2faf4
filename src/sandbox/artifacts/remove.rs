//! Taking away a tree that a guest made: through no link, whatever its depth, in bounded time.
//!
//! Imports `workspace`. A tree can be deeper than a process may have files open, and its directories may be
//! closed even to their owner. So nothing is walked down: each directory of a directory is moved up beside it,
//! and two descriptors are enough for any tree.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, renameat, unlinkat};
use rustix::io::Errno;

use crate::sandbox::workspace::open_directory;

/// Removes everything in the directory `name` of `parent` but the entry `keep`, and the directory itself when
/// nothing is to be kept. `false`: something is left, which the system does not let go or for which there was
/// no time.
///
/// # Errors
/// When there is no such directory, or it can't be opened.
pub(super) fn remove(parent: &OwnedFd, name: &OsStr, keep: Option<&str>, until: Instant) -> io::Result<bool> {
    let root = open(parent, name)?;
    let mut work = Work { root: &root, keep, until, moved: 0 };
    while work.round()? {}
    if keep.is_some() {
        return Ok(work.entries()?.is_empty());
    }
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok())
}

struct Work<'a> {
    root: &'a OwnedFd,
    keep: Option<&'a str>,
    until: Instant,
    /// Directories that were moved up, for their names.
    moved: u64,
}

/// The most names read before they are dealt with.
const BATCH: usize = 1024;

impl Work<'_> {
    /// Some of what is in the root.
    fn entries(&self) -> io::Result<Vec<Box<OsStr>>> {
        names(self.root, self.keep)
    }

    /// Deals with some of what is in the root; `false` when there is nothing left to do, or nothing can be done.
    fn round(&mut self) -> io::Result<bool> {
        let mut progress = false;
        for name in self.entries()? {
            if Instant::now() >= self.until {
                return Ok(false);
            }
            progress |= gone(self.root, &name) || self.empty(&name);
        }
        Ok(progress)
    }

    /// Empties a directory of the root: files go, directories come up; `true` when anything did.
    fn empty(&mut self, name: &OsStr) -> bool {
        let Ok(directory) = open(self.root, name) else { return false };
        let mut progress = false;
        loop {
            let mut here = false;
            for inner in names(&directory, None).unwrap_or_default() {
                if Instant::now() >= self.until {
                    return progress;
                }
                here |= gone(&directory, &inner) || self.lift(&directory, &inner);
            }
            progress |= here;
            if !here {
                break;
            }
        }
        progress | gone(self.root, name)
    }

    /// Moves a directory up into the root.
    fn lift(&mut self, from: &OwnedFd, name: &OsStr) -> bool {
        // Whoever may not write to a directory may not move it to another place either.
        let Ok(_open) = open(from, name) else { return false };
        for _ in 0..100 {
            self.moved += 1;
            let up = format!(".cellblock-gone-{}", self.moved);
            match renameat(from, name, self.root, up.as_str()) {
                Ok(()) => return true,
                // The guest was here first.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(_) => return false,
            }
        }
        false
    }
}

/// Some of the names in a directory.
fn names(directory: &OwnedFd, keep: Option<&str>) -> io::Result<Vec<Box<OsStr>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") || keep.is_some_and(|keep| keep.as_bytes() == name) {
            continue;
        }
        names.push(OsStr::from_bytes(name).into());
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

/// Removes a file, a link or an empty directory.
fn gone(parent: &OwnedFd, name: &OsStr) -> bool {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => true,
        Err(Errno::ISDIR | Errno::PERM) => unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok(),
        Err(_) => false,
    }
}

/// Opens a directory, and opens it up to its owner first when it is closed: code in a sandbox runs as the
/// kernel's own user where that is not root.
fn open(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let usable = |directory: &OwnedFd| {
        rustix::fs::fstat(directory).is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU))
    };
    let opened = open_directory(parent, Path::new(name));
    match opened {
        Ok(directory) if usable(&directory) => return Ok(directory),
        Ok(directory) => {
            // As root nothing is closed.
            let _ = rustix::fs::fchmod(&directory, Mode::RWXU);
            return Ok(directory);
        }
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
        Err(_) => {}
    }
    // A descriptor that only names it, which needs no permission on the directory itself.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let named = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", named.as_raw_fd());
    rustix::fs::chmodat(CWD, path.as_str(), Mode::RWXU, AtFlags::empty())?;
    open_directory(parent, Path::new(name))
}
