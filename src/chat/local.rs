//! The small model on this machine: one server per user, shared by kernels, gone with the last of them.
//!
//! Imports `config` (for [`Secret`]). The server is a Python script inside this binary
//! (`local_server.py`), run by the interpreter that was installed beside the model. Each kernel holds
//! a connection to its socket; when the last one closes, however its kernel ended, the server ends.
//! The socket lies in a folder that only the user can enter; through it a kernel learns the loopback
//! address and the token that the model's server demands.
//!
//! Starting is free of races by a lock file: under the lock, whoever still can't connect starts a
//! server and lets go of the lock when it listens. A server that is about to end closes connections
//! without an answer, and the kernel begins again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::progress::Progress;
use crate::config::Secret;

const SCRIPT: &str = include_str!("local_server.py");
/// How long a started process may take until its socket is there (Python's own start).
const LISTEN_TIME: Duration = Duration::from_secs(20);
/// How long loading the model may take: slow disks exist.
const LOAD_TIME: Duration = Duration::from_mins(3);
/// The context when the installation names none, in tokens.
const CONTEXT: usize = 4096;
/// Tokens of the context kept free for the reply and the system prompt.
const RESERVED: usize = 1536;

/// A running server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// The model's name.
    pub(super) name: String,
    /// Its base URL.
    pub(super) url: String,
    /// The key it demands.
    pub(super) token: Secret,
    /// Characters of dialogue that fit into its context.
    pub(super) budget: usize,
}

/// What `model.json` says.
#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    ctx: Option<usize>,
}

/// What the server tells a kernel.
#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Ready { url: String, token: String, name: String, context: usize },
    Failed { error: String },
}

/// The local model, installed or not.
#[derive(Debug)]
pub(super) struct LocalModel {
    folder: Option<PathBuf>,
    runtime: Option<PathBuf>,
    held: Mutex<Option<(UnixStream, Server)>>,
}

impl LocalModel {
    pub(super) fn new(folder: Option<PathBuf>, runtime: Option<PathBuf>) -> Self {
        LocalModel { folder, runtime, held: Mutex::new(None) }
    }

    /// Where it is or would be installed.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    fn manifest(&self) -> Option<Manifest> {
        let text = std::fs::read_to_string(self.folder()?.join("model.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Whether everything is there.
    pub(super) fn is_installed(&self) -> bool {
        self.name().is_some()
    }

    /// The installed model's name.
    pub(super) fn name(&self) -> Option<String> {
        let folder = self.folder()?;
        let complete = folder.join("model.gguf").is_file() && folder.join("venv/bin/python").exists();
        complete.then(|| self.manifest()).flatten().map(|manifest| manifest.name)
    }

    /// Lets go of the server; it ends when no other kernel holds it.
    pub(super) async fn release(&self) {
        self.held.lock().await.take();
    }

    /// The running server, started when it is not. Dropping the future leaves nothing behind: a server
    /// that nobody comes to ends by itself.
    ///
    /// The error says what happened and what to do.
    pub(super) async fn server(&self, progress: &mut Progress<'_>) -> Result<Server, String> {
        let mut held = self.held.lock().await;
        if let Some((stream, server)) = held.as_ref()
            && matches!(stream.try_read(&mut [0]), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
        {
            return Ok(server.clone());
        }
        held.take();
        let Some((folder, manifest)) = self.folder().zip(self.manifest()).filter(|_| self.is_installed())
        else {
            let folder = self.folder().map_or_else(String::new, |f| format!(" in {}", f.display()));
            return Err(format!(
                "the local model is not installed{folder}; choose another model with %model, or install it \
                 with scripts/get-model.py"
            ));
        };
        let began = Instant::now();
        let place = Place::find(self.runtime.as_deref(), folder)?;
        // A server may end between its socket being found and its answer; then it is our turn.
        for _ in 0..3 {
            let stream = match connect(&place.socket).await {
                Some(stream) => stream,
                None => start(&place, folder, &manifest, progress).await?,
            };
            if let Some(answer) = answer(stream, &manifest.name, began, progress).await? {
                let server = answer.1.clone();
                *held = Some(answer);
                return Ok(server);
            }
        }
        Err(format!(
            "the local model's server ended three times before it could be asked{}; its log is {}",
            last_words(&place.log),
            place.log.display()
        ))
    }
}

/// Where kernels and the server meet.
struct Place {
    socket: PathBuf,
    lock: PathBuf,
    log: PathBuf,
}

impl Place {
    fn find(runtime: Option<&Path>, folder: &Path) -> Result<Place, String> {
        let uid = rustix::process::getuid();
        let usual = runtime.map(|runtime| runtime.join("cellblock"));
        // A socket's path is limited to some hundred bytes.
        let dir = usual
            .filter(|dir| dir.as_os_str().len() < 70)
            .unwrap_or_else(|| PathBuf::from(format!("/tmp/cellblock-{}", uid.as_raw())));
        private(&dir)?;
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
        let name =
            digest.iter().take(6).fold(String::from("model-"), |name, byte| format!("{name}{byte:02x}"));
        let file = |end: &str| dir.join(format!("{name}.{end}"));
        Ok(Place { socket: file("sock"), lock: file("lock"), log: file("log") })
    }
}

/// Makes sure of a folder that nobody else can enter or prepare.
fn private(dir: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let failed = |what: std::io::Error| {
        format!("the folder {} for the local model's socket can't be used: {what}", dir.display())
    };
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(e)),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(dir).map_err(failed)?;
    if !meta.is_dir() || meta.uid() != rustix::process::getuid().as_raw() {
        return Err(format!(
            "{} is not a folder of yours, so the local model's socket can't be kept there safely; \
             remove it, or set XDG_RUNTIME_DIR to a private folder",
            dir.display()
        ));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

/// A connection, when a server listens.
async fn connect(socket: &Path) -> Option<UnixStream> {
    UnixStream::connect(socket).await.ok()
}

/// Starts a server, unless another kernel does; either way, connects to it.
async fn start(
    place: &Place,
    folder: &Path,
    manifest: &Manifest,
    progress: &mut Progress<'_>,
) -> Result<UnixStream, String> {
    let failed = |what: &dyn std::fmt::Display| {
        format!(
            "the local model's server can't be started: {what}; its log is {}. \
             scripts/get-model.py repairs the installation; %model chooses another model",
            place.log.display()
        )
    };
    progress.say(format!("starting the local model {}", manifest.name)).await;
    let deadline = Instant::now() + LISTEN_TIME;
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::open(&place.lock, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed(&e))?;
    while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() > deadline {
            return Err(failed(&"another kernel has been starting it for too long"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if let Some(stream) = connect(&place.socket).await {
        return Ok(stream);
    }
    let log = std::fs::File::create(&place.log).map_err(|e| failed(&e))?;
    // The environment may hold keys; the server needs none of it.
    let mut child = tokio::process::Command::new(folder.join("venv/bin/python"))
        .args(["-I", "-c", SCRIPT])
        .arg(&place.socket)
        .arg(folder.join("model.gguf"))
        .arg(&manifest.name)
        .arg(manifest.ctx.unwrap_or(CONTEXT).to_string())
        .arg("1")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn()
        .map_err(|e| failed(&e))?;
    loop {
        if let Some(stream) = connect(&place.socket).await {
            return Ok(stream);
        }
        if let Some(status) = child.try_wait().map_err(|e| failed(&e))? {
            return Err(failed(&format!("it ended with {status}{}", last_words(&place.log))));
        }
        if Instant::now() > deadline {
            let _ = child.start_kill();
            return Err(failed(&"it did not begin to listen in time"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The end of the server's log.
fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    match text.lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!(": {}", line.chars().filter(|c| !c.is_control()).take(300).collect::<String>()),
        None => String::new(),
    }
}

/// Waits for the server's answer; `None` when it ended without one.
async fn answer(
    stream: UnixStream,
    name: &str,
    began: Instant,
    progress: &mut Progress<'_>,
) -> Result<Option<(UnixStream, Server)>, String> {
    let mut lines = BufReader::new(stream).lines();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let line = loop {
        tokio::select! {
            biased;
            read = lines.next_line() => match read {
                Ok(Some(line)) => break line,
                Ok(None) | Err(_) => return Ok(None),
            },
            _ = tick.tick() => {
                if began.elapsed() > LOAD_TIME {
                    return Err(format!(
                        "the local model {name} was not loaded within {} s; choose another with %model",
                        LOAD_TIME.as_secs()
                    ));
                }
                if began.elapsed() > Duration::from_millis(300) {
                    let seconds = began.elapsed().as_secs();
                    progress.say(format!("loading the local model {name} ({seconds} s)")).await;
                }
            }
        }
    };
    match serde_json::from_str(&line) {
        Ok(Answer::Ready { url, token, name, context }) => {
            let budget = context.saturating_sub(RESERVED).saturating_mul(3);
            let server = Server { name, url, token: Secret::new(token), budget };
            Ok(Some((lines.into_inner().into_inner(), server)))
        }
        Ok(Answer::Failed { error }) => Err(format!(
            "the local model can't be loaded: {error}; scripts/get-model.py repairs the installation"
        )),
        Err(e) => Err(format!("the local model's server can't be understood: {e}; restart the kernel")),
    }
}
