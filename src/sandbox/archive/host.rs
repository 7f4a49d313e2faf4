//! A place on the host, opened without following links.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name in an open folder; the name need not be there.
#[derive(Debug)]
pub struct Spot {
    /// The folder.
    pub folder: OwnedFd,
    /// The name in it; `None`: the folder itself.
    pub name: Option<OsString>,
    /// How a person calls it.
    pub shown: PathBuf,
}

impl Spot {
    /// Finds the place of `path`. With `within` it must lie there, and no link on the way or at its end is followed;
    /// without it, the path is taken as it is, links and all.
    ///
    /// # Errors
    /// `PermissionDenied` when it leads out of `within`, and what the system says.
    pub fn find(path: &Path, within: Option<&Path>) -> io::Result<Spot> {
        match within {
            Some(within) => beneath(path, within),
            None => anywhere(path),
        }
    }

    /// What is there, links not followed; `None`: nothing.
    ///
    /// # Errors
    /// What the system says.
    pub fn kind(&self) -> io::Result<Option<FileType>> {
        let Some(name) = &self.name else { return Ok(Some(FileType::Directory)) };
        match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The folder of that name, made when it is missing.
    ///
    /// # Errors
    /// When something else is there, and what the system says.
    pub fn into_folder(self) -> io::Result<OwnedFd> {
        match self.name {
            Some(name) => enter(&self.folder, name.as_ref(), true),
            None => Ok(self.folder),
        }
    }
}

fn outside(path: &Path, within: &Path) -> io::Error {
    let why = format!("{} is outside {}", path.display(), within.display());
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn beneath(path: &Path, within: &Path) -> io::Result<Spot> {
    let inside = match path.strip_prefix(within) {
        Ok(inside) => inside,
        Err(_) if path.is_relative() => path,
        Err(_) => return Err(outside(path, within)),
    };
    let mut names = Vec::new();
    for part in inside.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return Err(outside(path, within)),
        }
    }
    // The folder itself is the user's choice: links on the way to it are followed.
    let mut folder = rustix::fs::openat(CWD, within, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())?;
    let name = names.pop().map(OsString::from);
    for step in names {
        folder = enter(&folder, Path::new(step), false)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", Path::new(step).display())))?;
    }
    Ok(Spot { folder, name, shown: path.to_owned() })
}

fn anywhere(path: &Path) -> io::Result<Spot> {
    let follow = FOLDER.difference(OFlags::NOFOLLOW);
    let open = |folder: &Path| rustix::fs::openat(CWD, folder, follow, Mode::empty());
    // A link at the end leads where the user said it may lead.
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(e) };
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            return Ok(Spot { folder: open(parent)?, name: Some(name.to_owned()), shown: path.to_owned() });
        }
        Err(e) => return Err(e),
    };
    let folder = open(real.parent().unwrap_or(&real))?;
    Ok(Spot { folder, name: real.file_name().map(ToOwned::to_owned), shown: path.to_owned() })
}

/// One step down, over nothing but a real folder; with `make` a missing one is made.
pub(super) fn enter(parent: &OwnedFd, name: &Path, make: bool) -> io::Result<OwnedFd> {
    if make {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(rustix::fs::openat(parent, name, FOLDER, Mode::empty())?)
}
