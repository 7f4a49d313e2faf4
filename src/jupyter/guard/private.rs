//! The unix sockets behind the guard, where ZeroMQ listens.
//!
//! Imports nothing of ours. They live in a fresh folder that only this user can enter. On Linux the folder
//! is removed at once: the guard reaches the sockets through open descriptors, so nothing is left behind
//! however the kernel ends. Elsewhere the folder lives as long as the [`PrivateDir`].

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use tempfile::TempDir;

/// The folder of the private sockets.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    dir: TempDir,
}

/// The way to one private socket.
#[derive(Debug)]
pub(crate) struct PrivateSocket {
    path: PathBuf,
    #[cfg(target_os = "linux")]
    _socket: std::os::fd::OwnedFd,
}

impl PrivateDir {
    /// A fresh folder, mode 0700.
    pub(crate) fn new() -> io::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("cellblock-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()?;
        Ok(PrivateDir { dir })
    }

    /// Listens on a new socket in the folder.
    #[cfg(target_os = "linux")]
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, PrivateSocket)> {
        use std::os::fd::AsRawFd;

        use rustix::fs::{Mode, OFlags, open};

        // The name of a unix socket has at most 107 bytes, and a temporary folder's may be longer: so both
        // binding and connecting go through descriptors.
        let folder = open(self.dir.path(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
        let socket = open(self.dir.path().join(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        Ok((listener, PrivateSocket { path, _socket: socket }))
    }

    /// Listens on a new socket in the folder.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, PrivateSocket)> {
        let path = self.dir.path().join(name);
        Ok((UnixListener::bind(&path)?, PrivateSocket { path }))
    }

    /// All sockets are there: on Linux their names are no longer needed.
    pub(crate) fn seal(self) -> io::Result<Option<Self>> {
        if cfg!(target_os = "linux") {
            self.dir.close()?;
            return Ok(None);
        }
        Ok(Some(self))
    }
}

impl PrivateSocket {
    /// Connects to it.
    pub(crate) async fn connect(&self) -> io::Result<tokio::net::UnixStream> {
        tokio::net::UnixStream::connect(&self.path).await
    }
}
