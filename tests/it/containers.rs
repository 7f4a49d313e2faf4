//! What the tests of the container engine share: a backend on the development image, and ways to run
//! something in a container and look at what it said.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cellblock::config::{Flavor, SandboxSettings, Settings};
use cellblock::sandbox::backend::Started;
use cellblock::sandbox::definition::{Definition, Place, Plan};
use cellblock::sandbox::docker::{Docker, Options, Prepared};
use cellblock::sandbox::image;
use cellblock::sandbox::reaper::{COMMAND, Program};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The longest that anything here may take; only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Names the engine's runtime that the tests run with (see `gvisor`); without it: the engine's default.
pub(crate) const RUNTIME: &str = "CELLBLOCK_TEST_RUNTIME";

/// The image that the tests run in: the binary's own, or a development image where only that one is there.
pub(crate) fn image() -> String {
    let there = |name: &str| docker(&["image", "inspect", name]).status.success();
    for name in [image::default_tag(), "cellblock-python:dev".to_owned()] {
        if there(&name) {
            return name;
        }
    }
    image::default_tag()
}

/// Runs the engine's own command-line client.
pub(crate) fn docker(arguments: &[&str]) -> Output {
    Command::new("docker").args(arguments).output().expect("the docker command")
}

/// The same, for its output.
pub(crate) fn said(arguments: &[&str]) -> String {
    let output = docker(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Makes an image from the tests' own by more lines of a Dockerfile.
pub(crate) fn derive(name: &str, lines: &str) {
    use std::io::Write;
    let mut build = Command::new("docker")
        .args(["build", "-q", "-t", name, "-"])
        .env("DOCKER_BUILDKIT", "0")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the docker command");
    let dockerfile = format!("FROM {}\n{lines}\n", image());
    build.stdin.take().unwrap().write_all(dockerfile.as_bytes()).unwrap();
    assert!(build.wait().unwrap().success(), "{dockerfile}");
}

/// Ids of the containers with that label.
pub(crate) fn labelled(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    said(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
}

/// Waits until `check` holds.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !check() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The built-in settings, with the tests' image.
pub(crate) fn sandbox_settings() -> SandboxSettings {
    let mut settings = Settings::builtin(Flavor::Markdown).sandbox;
    // Without a setting the backend takes the binary's own image, and builds it where it is missing.
    settings.image = Some(image()).filter(|image| *image != image::default_tag());
    settings.runtime = std::env::var(RUNTIME).ok();
    settings
}

/// What a backend is told, by default.
pub(crate) fn options(directory: &Path) -> Options {
    Options {
        directory: directory.to_owned(),
        host: None,
        authorities: None,
        proxies: Vec::new(),
        state: Some(directory.join(".state")),
        reaper: Program { path: env!("CARGO_BIN_EXE_cellblock").into(), arguments: vec![COMMAND.into()] },
        temporary: Vec::new(),
    }
}

/// A plan for this main process in that container.
pub(crate) fn plan(definition: &Arc<Definition>, argv: &[&str]) -> Plan {
    Plan {
        definition: Arc::clone(definition),
        argv: argv.iter().map(|a| (*a).to_owned()).collect(),
        image: None,
        place: Place::Session("test".into()),
        temporary: false,
    }
}

/// A kernel's backend with a directory of its own.
pub(crate) struct Bench {
    pub(crate) directory: TempDir,
    pub(crate) docker: Docker,
    pub(crate) definition: Arc<Definition>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// With other options.
    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let directory = TempDir::new().unwrap();
        let mut options = options(directory.path());
        change(&mut options);
        let definition = Arc::new(Definition::python(&sandbox_settings()));
        Bench { docker: Docker::new(options), directory, definition }
    }

    /// With another definition of the container.
    pub(crate) fn of(change: impl FnOnce(&mut Definition)) -> Self {
        let mut bench = Bench::new();
        change(Arc::make_mut(&mut bench.definition));
        bench
    }

    /// A plan for this main process.
    pub(crate) fn plan(&self, argv: &[&str]) -> Plan {
        plan(&self.definition, argv)
    }

    /// The label of this backend's containers.
    pub(crate) fn label(&self) -> String {
        self.docker.owner().filter()
    }

    pub(crate) async fn prepare(&self, argv: &[&str]) -> Prepared {
        self.docker.prepare(self.plan(argv), None).await.expect("the engine, the image and the workspace")
    }

    /// Starts a container, after `change` has taken a defence away.
    pub(crate) async fn start(&self, argv: &[&str], change: impl FnOnce(&mut Prepared)) -> Started {
        let mut prepared = self.prepare(argv).await;
        change(&mut prepared);
        self.docker.launch(prepared, CancellationToken::new()).await.expect("a container")
    }

    /// Runs a Python program to its end; what it printed, and its last words.
    pub(crate) async fn python(&self, code: &str, change: impl FnOnce(&mut Prepared)) -> Ran {
        let mut started = self.start(&["python3", "-c", code], change).await;
        let mut out = Vec::new();
        tokio::time::timeout(PATIENCE, started.output.read_to_end(&mut out)).await.expect("an end").unwrap();
        let end = started.container.obituary().await;
        let err = started.container.last_words();
        started.container.destroy().await;
        Ran { out: String::from_utf8_lossy(&out).trim().to_owned(), err, end }
    }
}

/// What a program in a container did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) end: cellblock::sandbox::backend::Obituary,
}

/// A socket before the engine's that passes everything on but requests for one path: those it keeps until they
/// are released.
pub(crate) struct Front {
    pub(crate) socket: PathBuf,
    kept: Arc<Semaphore>,
    released: Arc<Semaphore>,
    open: CancellationToken,
}

impl Front {
    pub(crate) fn new(directory: &Path, path: &'static str) -> Self {
        let front = Front {
            socket: directory.join("front.sock"),
            kept: Arc::new(Semaphore::new(0)),
            released: Arc::new(Semaphore::new(0)),
            open: CancellationToken::new(),
        };
        let listener = UnixListener::bind(&front.socket).unwrap();
        let (kept, released, open) = (front.kept.clone(), front.released.clone(), front.open.clone());
        tokio::spawn(open.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let pass = Self::pass(client, path, kept.clone(), released.clone());
                tokio::spawn(open.clone().run_until_cancelled_owned(pass));
            }
        }));
        front
    }

    async fn pass(mut client: UnixStream, path: &str, kept: Arc<Semaphore>, released: Arc<Semaphore>) {
        let mut head = vec![0; 64 << 10];
        let length = client.read(&mut head).await.unwrap();
        head.truncate(length);
        let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
        if line.split(['?', ' ']).any(|part| part.ends_with(path)) {
            kept.add_permits(1);
            released.acquire().await.unwrap().forget();
        }
        let mut engine = UnixStream::connect("/var/run/docker.sock").await.unwrap();
        engine.write_all(&head).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
    }

    /// Waits until a request is kept.
    pub(crate) async fn keeps_one(&self) {
        tokio::time::timeout(PATIENCE, self.kept.acquire()).await.expect("the request").unwrap().forget();
    }

    /// Lets one request through.
    pub(crate) fn release(&self) {
        self.released.add_permits(1);
    }

    /// Ends every connection and takes no more, as an engine that was stopped.
    pub(crate) fn close(&self) {
        self.open.cancel();
    }
}
