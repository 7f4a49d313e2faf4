//! A kernel that is nothing but the transport, in this process or in one of its own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cellblock::jupyter::sockets::{Inbound, Outbound, bind};
use cellblock::jupyter::wire::ConnectionInfo;
use serde_json::{Map, json};

use crate::wire_client::{self, Client};

/// A kernel that is nothing but the transport: busy, an echo, idle.
pub(crate) struct Echo {
    pub(crate) file: PathBuf,
    pub(crate) outbound: Outbound,
    pub(crate) runtime: tokio::runtime::Runtime,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Echo {
    pub(crate) fn start() -> Self {
        Self::start_with(wire_client::connection_file)
    }

    pub(crate) fn start_with(file: impl FnOnce(&std::path::Path) -> PathBuf) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let file = file(dir.path());
        let connection = ConnectionInfo::from_file(&file).expect("a valid connection file");
        let (mut inbox, outbound, thread) = bind(&connection).expect("sockets");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let out = outbound.clone();
        runtime.spawn(async move {
            while let Some(message) = inbox.recv().await {
                serve(&out, message).await;
            }
        });
        Echo { file, outbound, runtime, thread: Some(thread), _dir: dir }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.file)
    }
}

/// The echo in a process of its own, so that its memory can be measured and it can die.
pub(crate) struct EchoProcess {
    pub(crate) file: PathBuf,
    process: ChildTest,
    _dir: tempfile::TempDir,
}

impl EchoProcess {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let file = wire_client::connection_file(dir.path());
        let process = ChildTest::start("neighbour::an_echo_in_a_process_of_its_own_answers", &file);
        EchoProcess { file, process, _dir: dir }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.file)
    }

    /// The most memory that the process ever had, in MiB.
    pub(crate) fn peak_mib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id()));
        let status = status.expect("a live process");
        let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("its peak");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1024
    }
}

/// One test of this binary, run once more as a child process, where it plays another part; killed when dropped.
pub(crate) struct ChildTest(pub(crate) std::process::Child);

/// Tells the child where its argument is.
pub(crate) const CHILD_ARGUMENT: &str = "NEIGHBOUR_CHILD_ARGUMENT";

impl ChildTest {
    pub(crate) fn start(name: &str, argument: &Path) -> Self {
        let child = std::process::Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", name, "--nocapture"])
            .env(CHILD_ARGUMENT, argument)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        ChildTest(child.expect("a child process"))
    }

    /// The child's argument, inside the child; `None` in the test itself.
    pub(crate) fn argument() -> Option<PathBuf> {
        std::env::var_os(CHILD_ARGUMENT).map(PathBuf::from)
    }

    /// Waits until the parent ends, inside the child.
    pub(crate) fn wait_for_parent() {
        let mut all = Vec::new();
        std::io::stdin().read_to_end(&mut all).expect("a pipe from the parent");
    }
}

impl Drop for ChildTest {
    fn drop(&mut self) {
        // It may have died already, as some of these tests want it to.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let closed = self.outbound.clone();
        self.runtime.block_on(async move { closed.close().await });
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the thread of the sockets panicked");
        }
    }
}

async fn serve(out: &Outbound, message: Inbound) {
    let Inbound { signed, peer, .. } = message;
    let parent = Some(&signed.header);
    let status = |state: &str| {
        out.signer().seal(parent, "status", &json!({ "execution_state": state }), &Map::new(), Vec::new())
    };
    let topic = bytes::Bytes::from_static(b"kernel.status");
    out.send_iopub(topic.clone(), status("busy")).await.expect("open sockets");
    match signed.header.msg_type.as_str() {
        "ask" => {
            let question = json!({ "prompt": "?", "password": false });
            let frames = out.signer().seal(parent, "input_request", &question, &Map::new(), Vec::new());
            out.send_stdin(&peer, frames).await.expect("a stdin connection");
        }
        // Fills iopub with so many MiB, then replies.
        "flood" => {
            let mib = signed.content["mib"].as_u64().expect("a number");
            // Buffers, because signing and writing so much text takes long in a debug build.
            let buffer = bytes::Bytes::from(vec![b'x'; 1 << 20]);
            let content = json!({ "name": "stdout", "text": "" });
            for _ in 0..mib {
                let frames = out.signer().seal(parent, "stream", &content, &Map::new(), vec![buffer.clone()]);
                out.send_iopub("stream".into(), frames).await.expect("open sockets");
            }
        }
        // Waits until a file is there.
        "hold" => {
            let file = signed.content["until"].as_str().expect("a path");
            while !std::path::Path::new(file).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        _ => {}
    }
    let reply = out.signer().seal(parent, "echo_reply", &signed.content, &Map::new(), signed.buffers.clone());
    out.send_reply(&peer, reply).await.expect("open sockets");
    out.send_iopub(topic, status("idle")).await.expect("open sockets");
}
