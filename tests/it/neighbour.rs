//! The transport against real sockets: what clients need of it, and what a hostile neighbour on the same
//! network can do to it. Each defence is shown to matter: the attack succeeds against a bare ZeroMQ socket.

use std::path::PathBuf;
use std::time::Duration;

use cellblock::jupyter::sockets::{Inbound, Outbound, bind};
use cellblock::jupyter::wire::ConnectionInfo;
use serde_json::{Map, json};

use crate::wire_client::{self, Channel, Client, PATIENCE};

/// A kernel that is nothing but the transport: busy, an echo, idle.
struct Echo {
    file: PathBuf,
    outbound: Outbound,
    runtime: tokio::runtime::Runtime,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Echo {
    fn start() -> Self {
        Self::start_with(wire_client::connection_file)
    }

    fn start_with(file: impl FnOnce(&std::path::Path) -> PathBuf) -> Self {
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

    fn client(&self) -> Client {
        Client::connect(&self.file)
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
            let text = "x".repeat((1 << 20) - 1) + "\n";
            let content = json!({ "name": "stdout", "text": text });
            for _ in 0..mib {
                let frames = out.signer().seal(parent, "stream", &content, &Map::new(), Vec::new());
                out.send_iopub("stream".into(), frames).await.expect("open sockets");
            }
        }
        _ => {}
    }
    let reply = out.signer().seal(parent, "echo_reply", &signed.content, &Map::new(), signed.buffers.clone());
    out.send_reply(&peer, reply).await.expect("open sockets");
    out.send_iopub(topic, status("idle")).await.expect("open sockets");
}

/// One request, answered as it should be.
fn round_trip(client: &mut Client, channel: Channel) {
    let request = client.send(channel, "echo", &json!({ "value": 42 }));
    client.expect_busy(&request);
    client.expect_idle(&request);
    assert_eq!(client.expect_reply(&request, "echo_reply").content["value"], 42);
}

#[test]
fn requests_are_answered_on_every_channel_and_the_heartbeat_beats() {
    let echo = Echo::start();
    let mut client = echo.client();
    for channel in [Channel::Shell, Channel::Control, Channel::Shell, Channel::Stdin] {
        round_trip(&mut client, channel);
    }
    client.expect_heartbeat();
    client.expect_heartbeat();
}

#[test]
fn unix_sockets_serve_as_tcp_does_and_are_removed() {
    let echo = Echo::start_with(|dir| {
        // A stale file from a kernel that was killed.
        drop(std::os::unix::net::UnixListener::bind(dir.join("kernel-1")).expect("a stale socket"));
        wire_client::ipc_connection_file(dir)
    });
    round_trip(&mut echo.client(), Channel::Shell);
    let dir = echo.file.parent().expect("a folder").to_owned();
    let sockets = |dir: &std::path::Path| {
        let names = std::fs::read_dir(dir).expect("the folder").map(|e| e.expect("an entry").file_name());
        names.filter(|n| n != "connection.json").count()
    };
    assert_eq!(sockets(&dir), 5);
    let runtime = &echo.runtime;
    let outbound = echo.outbound.clone();
    runtime.block_on(async move { outbound.close().await });
    let deadline = std::time::Instant::now() + PATIENCE;
    while sockets(&dir) > 0 {
        assert!(std::time::Instant::now() < deadline, "socket files were left behind");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_question_reaches_the_stdin_connection_of_the_client_that_asked() {
    let echo = Echo::start();
    let mut asking = Client::connect_as(&echo.file, b"asking");
    let mut other = Client::connect_as(&echo.file, b"other");
    let request = asking.send(Channel::Shell, "ask", &json!({}));
    let question = asking.expect_input_request(&request);
    assert_eq!(question.content["prompt"], "?");
    for client in [&mut asking, &mut other] {
        client.expect_busy(&request);
        client.expect_idle(&request);
    }
    asking.expect_reply(&request, "echo_reply");
}

#[test]
fn every_subscriber_is_welcomed_first_and_alone() {
    let echo = Echo::start();
    // Each client asserts that its own welcome is the first message, and that no other welcome comes.
    let mut clients: Vec<Client> = (0..4).map(|_| echo.client()).collect();
    let request = clients[0].send(Channel::Shell, "echo", &json!({}));
    for client in &mut clients {
        client.expect_busy(&request);
        client.expect_idle(&request);
    }
    clients[0].expect_reply(&request, "echo_reply");
}
