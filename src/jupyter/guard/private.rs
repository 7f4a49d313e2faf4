//! The unix sockets behind the guard, where ZeroMQ listens.
//!
//! Imports nothing of ours. They live in a fresh folder that only this user can enter. On Linux the folder
//! is removed at once: the guard reaches the sockets through open descriptors. Elsewhere it lives as long as the
//! [`PrivateDir`]. Either way a small process, started before the folder is made, removes it should the kernel be
//! killed meanwhile: so nothing is left behind, however the kernel ends.

use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::env as temporary;

/// Waits for the end of its input, which comes when the kernel closes it or dies, and removes the folder.
const KEEPER: &str = "echo; read -r _; exec rm -rf -- \"$1\"";

/// The folder of the private sockets.
#[derive(Debug)]
pub(crate) struct PrivateDir {
    path: PathBuf,
    keeper: Option<Child>,
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
        let name = format!("cellblock-{:016x}", fastrand::u64(..));
        let path = std::path::absolute(temporary::temp_dir().join(name))?;
        let keeper = match keep(&path) {
            Ok(keeper) => Some(keeper),
            Err(error) => {
                tracing::debug!(%error, "no shell: a kernel that is killed now leaves a folder behind");
                None
            }
        };
        if let Err(error) = std::fs::DirBuilder::new().mode(0o700).create(&path) {
            // Whatever has that name is not ours.
            if let Some(mut keeper) = keeper {
                keeper.kill()?;
                keeper.wait()?;
            }
            return Err(error);
        }
        Ok(PrivateDir { path, keeper })
    }

    /// Listens on a new socket in the folder.
    #[cfg(target_os = "linux")]
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, PrivateSocket)> {
        use std::os::fd::AsRawFd;

        use rustix::fs::{Mode, OFlags, open};

        // The name of a unix socket has at most 107 bytes, and a temporary folder's may be longer: so both
        // binding and connecting go through descriptors.
        let folder = open(&self.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
        let socket = open(self.path.join(name), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        Ok((listener, PrivateSocket { path, _socket: socket }))
    }

    /// Listens on a new socket in the folder.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn listen(&self, name: &str) -> io::Result<(UnixListener, PrivateSocket)> {
        let path = self.path.join(name);
        Ok((UnixListener::bind(&path)?, PrivateSocket { path }))
    }

    /// All sockets are there: on Linux their names are no longer needed.
    pub(crate) fn seal(self) -> io::Result<Option<Self>> {
        if cfg!(target_os = "linux") {
            std::fs::remove_dir_all(&self.path)?;
            return Ok(None);
        }
        Ok(Some(self))
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // Gone already is as good as removed.
        let _ = std::fs::remove_dir_all(&self.path);
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            // It finds nothing and ends; somebody has to notice, and nobody has to wait. Without a thread it is noticed
            // by the system when the kernel ends.
            let _ = std::thread::Builder::new().name("keeper".to_owned()).spawn(move || keeper.wait());
        }
    }
}

/// Starts the process that removes the folder, and waits until it listens. It is in no group that a signal for the
/// kernel's reaches.
fn keep(folder: &Path) -> io::Result<Child> {
    let mut keeper = Command::new("sh")
        .args(["-c", KEEPER, "cellblock-keeper"])
        .arg(folder)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut said) = keeper.stdout.take() {
        said.read_exact(&mut [0])?;
    }
    Ok(keeper)
}

impl PrivateSocket {
    /// Connects to it.
    pub(crate) async fn connect(&self) -> io::Result<tokio::net::UnixStream> {
        tokio::net::UnixStream::connect(&self.path).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn nothing_is_left_when_the_kernel_dies_before_the_folder_is_sealed() {
        let mut dir = PrivateDir::new().unwrap();
        let _socket = dir.listen("shell").unwrap();
        let (path, mut keeper) = (dir.path.clone(), dir.keeper.take().unwrap());
        // All that a killed process does: its end of the pipe is closed.
        std::mem::forget(dir);
        assert!(path.join("shell").exists());
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_sealed_folder_is_gone_and_its_sockets_are_reached() {
        let dir = PrivateDir::new().unwrap();
        let path = dir.path.clone();
        let (listener, socket) = dir.listen("shell").unwrap();
        let _dir = dir.seal().unwrap();
        assert_eq!(path.exists(), !cfg!(target_os = "linux"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _stream = runtime.block_on(socket.connect()).unwrap();
        listener.accept().unwrap();
    }
}
