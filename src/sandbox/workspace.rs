//! The host directory behind `/workspace`: found, created, checked, and opened without following links.
//!
//! Imports nothing of ours. The guest owns everything below this directory and can change it at any moment,
//! from another container too: put a link where a directory was, a FIFO where a file is expected. So the
//! host never opens a path below it as a whole; it walks from a descriptor of the directory itself
//! ([`Workspace::create_below`]), and creates only files that were not there.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};

use super::spec::Identity;

/// A workspace that may be mounted.
#[derive(Debug)]
pub struct Workspace {
    path: PathBuf,
    /// The notebook's directory: absolute, no links.
    home: PathBuf,
    directory: OwnedFd,
    /// Whether it is the notebook's directory itself (or holds it).
    exposes_notebook: bool,
}

/// Why a workspace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// It lies elsewhere.
    #[error(
        "the workspace {wanted} resolves to {found}, which is outside the notebook's directory {directory}; code in \
         the sandbox would read and change files there. Remove the link or choose a folder inside; to allow it, set \
         `sandbox.workspace_outside = true` in your own settings (cellblock config shows where they are)"
    )]
    Outside {
        /// As it was set.
        wanted: PathBuf,
        /// Where it really is.
        found: PathBuf,
        /// Where it has to be.
        directory: PathBuf,
    },
    /// A link on the way leads elsewhere in the notebook's directory.
    #[error(
        "the workspace {wanted} leads over a link to {found}; code in the sandbox would read and change files there. Remove \
         the link or choose a folder; to allow it, set `sandbox.workspace_outside = true` in your own settings"
    )]
    Linked {
        /// As it was set.
        wanted: PathBuf,
        /// Where it really is.
        found: PathBuf,
    },
    /// It is not a directory.
    #[error(
        "the workspace {0} is not a directory: remove that file, or set another folder (sandbox.workspace)"
    )]
    NotADirectory(PathBuf),
    /// The system refuses.
    #[error("the workspace {path} can't be {action}: {source}; set another folder (sandbox.workspace)")]
    Io {
        /// Which path.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody replaced it between the check and the mount.
    #[error("the workspace {0} was replaced by something else while the sandbox started; run the cell again")]
    Replaced(PathBuf),
}

impl Workspace {
    /// Finds the workspace `wanted` (relative to `directory`) and creates it when it is missing.
    ///
    /// # Errors
    /// When it lies outside `directory` although `outside` does not allow it, or the system refuses.
    pub fn prepare(directory: &Path, wanted: &Path, outside: bool) -> Result<Self, WorkspaceError> {
        let resolve = |path: &Path| path.canonicalize().map_err(|e| failed(path, "found", e));
        let home = resolve(directory)?;
        let target = home.join(wanted);
        let check = |found: &Path| {
            if outside || found.starts_with(&home) {
                return Ok(());
            }
            Err(WorkspaceError::Outside {
                wanted: wanted.to_owned(),
                found: found.to_owned(),
                directory: home.clone(),
            })
        };
        // What exists is checked before anything is created, so that nothing is made in a foreign place.
        check(&existing(&target)?)?;
        match std::fs::create_dir_all(&target) {
            Ok(()) => {}
            Err(e)
                if e.kind() == io::ErrorKind::AlreadyExists || e.kind() == io::ErrorKind::NotADirectory =>
            {
                return Err(WorkspaceError::NotADirectory(target));
            }
            Err(e) => return Err(failed(&target, "created", e)),
        }
        let path = resolve(&target)?;
        check(&path)?;
        // A link that stays inside leads to what the user keeps there: `.git/hooks`, the notebook itself. An
        // absolute path is the user's own word: no project can set one.
        if !outside && wanted.is_relative() && path != lexical(&home, wanted) {
            return Err(WorkspaceError::Linked { wanted: wanted.to_owned(), found: path });
        }
        if !path.is_dir() {
            return Err(WorkspaceError::NotADirectory(path));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, &path, flags, Mode::empty())
            .map_err(|e| failed(&path, "opened", e.into()))?;
        let exposes_notebook = home.starts_with(&path);
        Ok(Workspace { path, home, directory, exposes_notebook })
    }

    /// The workspace `wanted` as [`Workspace::prepare`] finds it, when it is there; nothing is made.
    pub fn find(directory: &Path, wanted: &Path, outside: bool) -> Option<Self> {
        directory.join(wanted).is_dir().then(|| Self::prepare(directory, wanted, outside).ok()).flatten()
    }

    /// Opens a directory that is there already: one at an absolute path without links.
    ///
    /// # Errors
    /// What the system says; a link on the way is one.
    pub fn existing(path: &Path) -> io::Result<Self> {
        let directory = open_unlinked(path)?;
        Ok(Workspace { path: path.to_owned(), home: path.to_owned(), directory, exposes_notebook: false })
    }

    /// Where it really is: absolute, no links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The notebook's directory: absolute, no links.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Where it lies from the notebook's directory; `None` when it is outside.
    pub(crate) fn relative(&self) -> Option<&Path> {
        self.path.strip_prefix(&self.home).ok()
    }

    /// The directory itself.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Whether the notebook itself lies in it, so that the sandbox can change the notebook.
    pub(crate) fn exposes_notebook(&self) -> bool {
        self.exposes_notebook
    }

    /// Gives the directory itself (nothing below it) to the sandbox's user; says so when something changed.
    ///
    /// # Errors
    /// When the file system refuses, as network file systems do to root.
    pub(crate) fn give_to(&self, user: Identity) -> Result<Option<String>, WorkspaceError> {
        let stat = rustix::fs::fstat(&self.directory).map_err(|e| failed(&self.path, "read", e.into()))?;
        if (stat.st_uid, stat.st_gid) == (user.uid, user.gid) {
            return Ok(None);
        }
        rustix::fs::fchown(&self.directory, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))
            .map_err(|e| failed(&self.path, "given to the sandbox's user", e.into()))?;
        Ok(Some(format!(
            "The kernel runs as root and the sandbox as user {user}: the directory {} now belongs to that user \
             (before: {}:{}; what lies in it was left alone).",
            self.path.display(),
            stat.st_uid,
            stat.st_gid
        )))
    }

    /// Makes a directory in it, which belongs to the sandbox's user when `user` names one. What is there already is
    /// left as it is, whatever it is.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn adopt(&self, name: &str, user: Option<Identity>) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let Some(user) = user else { return Ok(()) };
        // A guest that owns this directory already may have put something else there since: nothing is given away
        // that has anything in it, and through no link.
        let made = open_directory(&self.directory, Path::new(name))?;
        let empty = rustix::fs::Dir::read_from(&made)?
            .all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")));
        if empty {
            rustix::fs::fchown(&made, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        }
        Ok(())
    }

    /// Whether the path still leads to the directory that was checked.
    ///
    /// # Errors
    /// [`WorkspaceError::Replaced`] when it does not.
    pub(crate) fn verify(&self) -> Result<(), WorkspaceError> {
        let replaced = || WorkspaceError::Replaced(self.path.clone());
        let ours = rustix::fs::fstat(&self.directory).map_err(|_| replaced())?;
        let now = rustix::fs::lstat(&self.path).map_err(|_| replaced())?;
        if (ours.st_dev, ours.st_ino) == (now.st_dev, now.st_ino) { Ok(()) } else { Err(replaced()) }
    }

    /// Creates a file below the workspace, with the directories on its way, following no link at all.
    ///
    /// `path` is relative and has only plain names. What is made belongs to the kernel's user. It is never
    /// given to the sandbox's user, not even under a root kernel: between making a directory and giving it
    /// away the guest, which owns the workspace, could rename a directory of somebody else into its place.
    ///
    /// # Errors
    /// `AlreadyExists` when there is anything of that name (a link that leads nowhere included),
    /// `InvalidInput` for a path that is not plain, and what the system says otherwise: a directory that the
    /// guest replaced by a link is `ELOOP` or `ENOTDIR`.
    pub fn create_below(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let names = plain(path)?;
        let Some((file, parents)) = names.split_last() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty path"));
        };
        let mut parent = self.directory.try_clone()?;
        for name in parents {
            parent = enter(&parent, name)?;
        }
        // The last step, too, from the descriptor that was walked to: the guest may have moved it meanwhile,
        // which does no harm, because wherever it went is below the workspace.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&parent, *file, flags, Mode::from_raw_mode(0o644))?;
        Ok(File::from(made))
    }

    /// Opens a regular file below the workspace to read it, following no link at all, and never waiting.
    ///
    /// # Errors
    /// `InvalidInput` for a path that is not plain and for what is no regular file, and what the system says.
    pub fn open_below(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let names = plain(path.as_ref())?;
        let Some((file, parents)) = names.split_last() else { return Err(irregular()) };
        let mut parent = self.directory.try_clone()?;
        for name in parents {
            parent = open_directory(&parent, name)?;
        }
        open_regular(&parent, file)
    }

    /// Opens a directory below the workspace, or (`path` empty) the workspace itself, following no link at all.
    ///
    /// # Errors
    /// `InvalidInput` for a path that is not plain, and what the system says.
    pub(crate) fn directory_below(&self, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
        let mut directory = self.directory.try_clone()?;
        for name in plain(path.as_ref())? {
            directory = open_directory(&directory, name)?;
        }
        Ok(directory)
    }
}

/// Opens a regular file to read it. What the guest puts in its place at the wrong moment (a FIFO, a device, a
/// link, a file with a lease on it) is opened without waiting, at most, and then refused.
pub fn open_regular(parent: &OwnedFd, name: &Path) -> io::Result<File> {
    let is_file = |stat: &rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file(&rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?) {
        return Err(irregular());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::empty())?;
    if is_file(&rustix::fs::fstat(&file)?) { Ok(File::from(file)) } else { Err(irregular()) }
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

/// Opens a directory at a path without links: one on the way is an error.
pub(crate) fn open_unlinked(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), rustix::fs::ResolveFlags::NO_SYMLINKS) {
        // Linux before 5.6, or a seccomp profile that does not know the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
        other => return Ok(other?),
    }
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    if path.canonicalize()? == path { Ok(directory) } else { Err(rustix::io::Errno::LOOP.into()) }
}

/// Opens a directory in `parent`, making it when it is missing.
fn enter(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => open_directory(parent, name),
        Err(e) => Err(e.into()),
    }
}

/// One step down, over nothing but a real directory of the same mount.
pub(crate) fn open_directory(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match rustix::fs::openat2(parent, name, flags, Mode::empty(), how) {
            // Linux before 5.6, or a seccomp profile that does not know the call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            other => return Ok(other?),
        }
    }
    // One plain name and O_NOFOLLOW: this can't leave `parent` either.
    Ok(rustix::fs::openat(parent, name, flags, Mode::empty())?)
}

/// A path below a directory without looking at the file system.
fn lexical(home: &Path, path: &Path) -> PathBuf {
    let mut found = home.to_owned();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            Component::Normal(name) => found.push(name),
            _ => {}
        }
    }
    found
}

/// The names of a relative path that has nothing but names.
fn plain(path: &Path) -> io::Result<Vec<&Path>> {
    path.components()
        .map(|part| match part {
            Component::Normal(name) => Ok(Path::new(name)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain path below the workspace")),
        })
        .collect()
}

/// The deepest part of a path that exists, resolved.
fn existing(path: &Path) -> Result<PathBuf, WorkspaceError> {
    let mut at = path;
    loop {
        match at.canonicalize() {
            Ok(found) => return Ok(found),
            // A link to nowhere: to create its target would be to follow it.
            Err(e) if at.is_symlink() => return Err(failed(at, "resolved (it is a link to nowhere)", e)),
            // Below what is missing `..` means nothing yet: it could lead out of what is checked here.
            Err(e) if e.kind() == io::ErrorKind::NotFound && at.file_name().is_none() => {
                return Err(failed(path, "found", e));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => match at.parent() {
                Some(parent) => at = parent,
                None => return Err(failed(path, "found", e)),
            },
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(WorkspaceError::NotADirectory(path.to_owned()));
            }
            Err(e) => return Err(failed(at, "resolved", e)),
        }
    }
}

fn failed(path: &Path, action: &'static str, source: io::Error) -> WorkspaceError {
    WorkspaceError::Io { path: path.to_owned(), action, source }
}
