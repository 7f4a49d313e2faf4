//! The life of a session's and a run's folder on the host.
//!
//! Imports `definition`, `workspace` and `remove`. What lies in `artifacts` is the user's and stays; everything
//! else goes with the session or run. The reaper does this, which outlives the kernel whatever becomes of it, so
//! that a full folder holds up nobody's shutdown.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::remove::remove;
use super::{ARTIFACTS, OUTPUTS, PENDING, SESSIONS};
use crate::sandbox::definition::Place;
use crate::sandbox::workspace::open_directory;

/// A folder that goes when its session or run is over, its artifacts excepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// The notebook's directory.
    home: PathBuf,
    run: bool,
    name: String,
}

impl Folder {
    /// The folder of `place` below the notebook's directory.
    pub fn new(home: impl Into<PathBuf>, place: &Place) -> Self {
        let (run, name) = match place {
            Place::Session(name) => (false, name.clone()),
            Place::Run(id) => (true, id.clone()),
        };
        Folder { home: home.into(), run, name }
    }

    /// Takes those out of a list that are gone. The newest stay: they may be about to be made.
    pub(crate) fn forget_gone(folders: &mut Vec<Folder>) {
        let recent = folders.split_off(folders.len().saturating_sub(16));
        folders.retain(|folder| folder.path().symlink_metadata().is_ok());
        folders.extend(recent);
    }

    fn path(&self) -> PathBuf {
        let above = if self.run { Path::new(OUTPUTS).join(PENDING) } else { PathBuf::from(SESSIONS) };
        self.home.join(above).join(&self.name)
    }

    /// Keeps the artifacts of a run: they move to `outputs/<id>`, of which the path from the notebook's directory
    /// is returned. `None`: there are none, or they can't be moved.
    pub(crate) fn promote(&self) -> Option<PathBuf> {
        let outputs = open_directory(&home(&self.home).ok()?, Path::new(OUTPUTS)).ok()?;
        let own = open_directory(&open_directory(&outputs, Path::new(PENDING)).ok()?, Path::new(&self.name))
            .ok()?;
        if !holds_something(&own) {
            return None;
        }
        let moved = renameat_with(&own, ARTIFACTS, &outputs, &self.name, RenameFlags::NOREPLACE);
        if let Err(Errno::INVAL | Errno::NOSYS) = moved {
            // A file system that can't promise to replace nothing: only an empty directory would be.
            rustix::fs::renameat(&own, ARTIFACTS, &outputs, &self.name).ok()?;
        } else {
            moved.ok()?;
        }
        // The guest may have put a link there in the meantime.
        if open_directory(&outputs, Path::new(&self.name)).is_err() {
            let _ = unlinkat(&outputs, &self.name, AtFlags::empty());
            return None;
        }
        Some(Path::new(OUTPUTS).join(&self.name))
    }

    /// Removes it, its artifacts excepted, and the folders above when they are empty. `false`: something is left
    /// for which there was no time, or which the system does not let go.
    ///
    /// # Errors
    /// What the system says; a folder that is gone already is no error.
    pub fn settle(&self, until: Instant) -> io::Result<bool> {
        match self.try_settle(until) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            settled => settled,
        }
    }

    fn try_settle(&self, until: Instant) -> io::Result<bool> {
        let home = home(&self.home)?;
        let name = OsStr::new(&self.name);
        if self.run {
            self.promote();
            let outputs = open_directory(&home, Path::new(OUTPUTS))?;
            let settled = open_directory(&outputs, Path::new(PENDING))
                .and_then(|pending| remove(&pending, name, None, until));
            let _ = unlinkat(&outputs, PENDING, AtFlags::REMOVEDIR);
            let _ = unlinkat(&home, OUTPUTS, AtFlags::REMOVEDIR);
            return settled;
        }
        let sessions = open_directory(&home, Path::new(SESSIONS))?;
        let own = open_directory(&sessions, Path::new(name));
        let keep = own.is_ok_and(|own| holds_something(&own)).then_some(ARTIFACTS);
        let settled = remove(&sessions, name, keep, until);
        let _ = unlinkat(&home, SESSIONS, AtFlags::REMOVEDIR);
        settled
    }
}

/// The notebook's directory, by its path: it is the user's, and no guest can put anything in its place.
fn home(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Whether anything lies in the folder's artifacts. One that can't be read counts: it may.
fn holds_something(own: &OwnedFd) -> bool {
    let artifacts = match open_directory(own, Path::new(ARTIFACTS)) {
        Ok(artifacts) => artifacts,
        Err(error) => return error.kind() == io::ErrorKind::PermissionDenied,
    };
    let Ok(entries) = Dir::read_from(&artifacts) else { return true };
    entries.into_iter().flatten().any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
}

#[cfg(test)]
#[path = "folders_tests.rs"]
#[allow(clippy::unwrap_used)]
mod tests;
