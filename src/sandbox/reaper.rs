//! Nothing stays when the kernel is killed: a small process of its own that outlives it.
//!
//! Imports `docker`, `owner` and `artifacts`. A container whose kernel dies removes itself, because its input ends; but
//! not one that was created and not yet started. So before a kernel creates anything it starts a reaper
//! (`cellblock reaper`, hidden), which is told over a pipe what is going on. When the pipe ends without
//! `Order::Done`, the kernel is dead, and the reaper removes what carries the kernel's label until nothing
//! is left. Then, and also when the kernel ended in order, go the folders of its sessions and runs: a shutdown
//! need not wait until all that a guest wrote is removed. The pipe is the whole protocol: the system closes it whatever way the kernel dies.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::artifacts::Folder;
use super::docker::Engine;
use super::owner;

/// The hidden subcommand's name.
pub const COMMAND: &str = "reaper";
/// What the reaper writes when it listens and can't be hit by the kernel's signals any more.
const READY: u8 = b'r';
/// How long a reaper may take to come up.
const STARTUP: Duration = Duration::from_secs(10);
/// How long nothing may be found before the work counts as done.
const QUIET: Duration = Duration::from_secs(2);
/// The same when the kernel died while it waited for the engine to create a container: the engine goes on
/// creating it, and it may appear late.
const QUIET_PENDING: Duration = Duration::from_secs(15);
/// How long a kernel that ends in order waits for the folders to be removed.
const FAREWELL: Duration = Duration::from_millis(800);
/// How long the removal of folders may take. A guest may have made millions of files.
const REMOVAL: Duration = Duration::from_mins(2);
/// How many folders are kept in mind before those that are gone are forgotten.
const FOLDERS: usize = 64;
/// How often to look.
const PAUSE: Duration = Duration::from_millis(100);
/// When to give up on an engine that does not answer; the sweep at the next start is left.
const PATIENCE: Duration = Duration::from_mins(5);

/// What a kernel tells its reaper, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// First: whose containers, and where the engine is.
    Guard { kernel: String, engine: String },
    /// A container of that name is about to be created.
    Creating(String),
    /// The engine has answered.
    Created(String),
    /// A directory to remove in the end.
    Directory(PathBuf),
    /// A folder of a session or run that goes when its containers are gone, its artifacts excepted.
    Folder(Folder),
    /// Every container is gone: only the folders are left.
    Done,
}

/// How to start a reaper.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// This very binary, which must know the hidden subcommand.
    ///
    /// # Errors
    /// When the system does not say what runs here.
    pub fn this() -> std::io::Result<Self> {
        // Through /proc it is found even when an upgrade has replaced the file meanwhile.
        let own = PathBuf::from("/proc/self/exe");
        let path = if own.exists() { own } else { crate::config::Environment::executable()? };
        Ok(Program { path, arguments: vec![COMMAND.into()] })
    }
}

/// The kernel's end of the pipe.
pub(crate) struct Reaper {
    child: Child,
    orders: ChildStdin,
}

impl Reaper {
    /// Starts a reaper and waits until it is ready.
    pub(crate) async fn start(
        program: &Program,
        kernel: &str,
        engine: &str,
        directories: &[PathBuf],
        folders: &[Folder],
    ) -> std::io::Result<Reaper> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            // It needs nothing of the kernel's environment, keys least of all, and keeps no directory busy.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not the kernel's: whoever waits for the end of that would wait for the reaper too.
            .stderr(Stdio::null())
            .spawn()?;
        let lost = || std::io::Error::other("its pipes are missing");
        let orders = child.stdin.take().ok_or_else(lost)?;
        let mut answer = child.stdout.take().ok_or_else(lost)?;
        let mut reaper = Reaper { child, orders };
        reaper.tell(&Order::Guard { kernel: kernel.to_owned(), engine: engine.to_owned() }).await?;
        for directory in directories {
            reaper.tell(&Order::Directory(directory.clone())).await?;
        }
        for folder in folders {
            reaper.folder(folder).await?;
        }
        // A test harness that stands in for the binary may print something first.
        let ready = async {
            while answer.read_u8().await? != READY {}
            Ok(())
        };
        match tokio::time::timeout(STARTUP, ready).await {
            Ok(ready) => ready.map(|()| reaper),
            Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "it does not come up")),
        }
    }

    /// Whether it still runs.
    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// A container of that name is about to be created.
    pub(crate) async fn creating(&mut self, name: &str) -> std::io::Result<()> {
        self.tell(&Order::Creating(name.to_owned())).await
    }

    /// The engine has answered, one way or the other.
    pub(crate) async fn created(&mut self, name: &str) -> std::io::Result<()> {
        self.tell(&Order::Created(name.to_owned())).await
    }

    /// A folder that is about to be made.
    pub(crate) async fn folder(&mut self, folder: &Folder) -> std::io::Result<()> {
        self.tell(&Order::Folder(folder.clone())).await
    }

    /// Every container is gone; waits a moment for the reaper's end. It goes on alone when there is much to remove.
    pub(crate) async fn dismiss(mut self) -> std::io::Result<()> {
        self.tell(&Order::Done).await?;
        drop(self.orders);
        tokio::time::timeout(FAREWELL, self.child.wait()).await.map_or(Ok(()), |ended| ended.map(drop))
    }

    async fn tell(&mut self, order: &Order) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.orders.write_all(&line).await?;
        self.orders.flush().await
    }
}

/// The reaper process: reads orders until their end, then cleans up.
///
/// Memory stays small: the engine is not spoken to before it must be.
pub fn main(orders: impl Read) -> ExitCode {
    // Out of the kernel's session and process group, whose signals (Ctrl-C, a server that kills its kernel's
    // group) must not take both down. Being the leader of a session already is as good.
    let _ = rustix::process::setsid();
    match run(orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(orders: impl Read) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ignored =
        [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
    let _ignored = {
        let _inside = runtime.enter();
        ignored.map(signal)
    };
    let mut orders = BufReader::new(orders).lines();
    let mut next = || orders.next().and_then(Result::ok).and_then(|line| serde_json::from_str(&line).ok());
    let Some(Order::Guard { kernel, engine }) = next() else {
        let what = "this is part of the kernel, which starts it itself; there is nothing to run by hand";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what));
    };
    let mut stdout = std::io::stdout();
    stdout.write_all(&[READY])?;
    stdout.flush()?;
    let (mut pending, mut directories) = (HashSet::new(), Vec::new());
    let (mut folders, mut forget_at, mut done) = (Vec::<Folder>::new(), FOLDERS, false);
    while let Some(order) = next() {
        match order {
            Order::Creating(name) => {
                pending.insert(name);
            }
            Order::Created(name) => {
                pending.remove(&name);
            }
            Order::Directory(path) => directories.push(path),
            Order::Folder(folder) => {
                folders.push(folder);
                if folders.len() >= forget_at {
                    Folder::forget_gone(&mut folders);
                    forget_at = folders.len() + FOLDERS;
                }
            }
            Order::Done => {
                done = true;
                break;
            }
            Order::Guard { .. } => {}
        }
    }
    if !done {
        for directory in directories {
            let _ = std::fs::remove_dir_all(directory);
        }
        let quiet = if pending.is_empty() { QUIET } else { QUIET_PENDING };
        runtime.block_on(clean(&engine, &owner::filter(&kernel), quiet));
    }
    let until = Instant::now() + REMOVAL;
    for folder in folders {
        let _ = folder.settle(until);
    }
    Ok(())
}

/// Removes what has the label, until nothing has had it for `quiet`.
async fn clean(address: &str, label: &str, quiet: Duration) {
    let begin = Instant::now();
    let mut engine = None;
    let mut seen = Instant::now();
    while seen.elapsed() < quiet && begin.elapsed() < PATIENCE {
        if engine.is_none() {
            engine = Engine::connect(Some(address)).await.ok();
        }
        let found = match &engine {
            Some(engine) => engine.find(label).await,
            None => Ok(Vec::new()),
        };
        match (&engine, found) {
            (Some(engine), Ok(found)) => {
                let removals = found.iter().map(|container| engine.remove(&container.id));
                if !futures_util::future::join_all(removals).await.is_empty() {
                    seen = Instant::now();
                }
            }
            // Silence of the engine proves nothing.
            _ => seen = Instant::now(),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_orders_it_refuses_and_ends() {
        for orders in ["", "nonsense\n", "\"done\"\n"] {
            assert!(run(orders.as_bytes()).is_err());
        }
    }

    #[test]
    fn a_dismissed_reaper_ends_without_asking_the_engine() {
        let orders = "{\"guard\":{\"kernel\":\"k\",\"engine\":\"unix:///nowhere\"}}\n\"done\"\n";
        assert!(run(orders.as_bytes()).is_ok());
    }
}
