//! The transport against real sockets: what clients need of it, and what a hostile neighbour on the same
//! network can do to it. Each defence is shown to matter: the attack succeeds against a bare ZeroMQ socket.

mod binary;
mod echo;
mod load;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;
use zeromq::{Socket as _, SocketRecv as _, SocketSend as _};

use crate::wire_client::zmtp::{self, Socket, Stream};
use crate::wire_client::{self, Channel, Client, Connection, PATIENCE, Session};
use echo::{ChildTest, Echo, EchoProcess};

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
    let deadline = Instant::now() + PATIENCE;
    while sockets(&dir) > 0 {
        assert!(Instant::now() < deadline, "socket files were left behind");
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

#[test]
fn a_reply_follows_a_client_that_reconnects_under_its_identity() {
    let echo = Echo::start();
    let gate = echo.file.with_file_name("gate");
    let mut watching = echo.client();
    let connection = Connection::read(&echo.file);
    let mut session = Session::new(&connection.key);
    let (id, frames) = session.request("hold", &json!({ "until": gate.to_str() }));
    let mut first = Socket::connect(&connection.address(connection.shell), "DEALER", b"same");
    first.send(&frames);
    assert_eq!(watching.next_iopub().parent_id(), Some(id.as_str()));
    drop(first);
    let second = Socket::connect(&connection.address(connection.shell), "DEALER", b"same");
    std::fs::write(&gate, "").expect("a file");
    let reply = session.check(second.recv(PATIENCE).expect("the reply"));
    assert_eq!(reply.parent_id(), Some(id.as_str()));
    assert_eq!(watching.next_iopub().content["execution_state"], "idle");
}

/// A bare ROUTER on a thread of its own. It says when it has a message, and answers it with the same again
/// each time that it is told to.
struct BareRouter {
    address: String,
    received: std::sync::mpsc::Receiver<()>,
    answer: tokio::sync::mpsc::UnboundedSender<()>,
}

impl BareRouter {
    fn start() -> BareRouter {
        let [port] = wire_client::free_ports();
        let address = format!("tcp://127.0.0.1:{port}");
        let (bound, ready) = std::sync::mpsc::channel();
        let (tell, received) = std::sync::mpsc::channel();
        let (answer, mut answers) = tokio::sync::mpsc::unbounded_channel();
        let at = address.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let mut socket = zeromq::RouterSocket::new();
                socket.bind(&at).await.expect("a free port");
                bound.send(()).expect("the test waits");
                let message = socket.recv().await.expect("a message");
                tell.send(()).expect("the test waits");
                // Ends with the test: its sender is dropped then.
                while answers.recv().await.is_some() {
                    socket.send(message.clone()).await.expect("a peer");
                }
            });
        });
        ready.recv().expect("a bound socket");
        BareRouter { address, received, answer }
    }
}

#[test]
fn claiming_anothers_identity_steals_nothing() {
    let echo = Echo::start();
    let gate = echo.file.with_file_name("gate");
    let mut victim = Client::connect_as(&echo.file, b"victim");
    let request = victim.send(Channel::Shell, "hold", &json!({ "until": gate.to_str() }));
    victim.expect_busy(&request);
    let connection = Connection::read(&echo.file);
    let thief = Socket::connect(&connection.address(connection.shell), "DEALER", b"victim");
    std::fs::write(&gate, "").expect("a file");
    victim.expect_reply(&request, "echo_reply");
    victim.expect_idle(&request);
    round_trip(&mut victim, Channel::Shell);
    assert_eq!(thief.recv(Duration::from_millis(100)), None);
}

#[test]
fn without_the_guard_claiming_anothers_identity_steals_its_replies() {
    let router = BareRouter::start();
    let mut victim = Socket::connect(&router.address, "DEALER", b"victim");
    victim.send(&["secret"]);
    // The victim is registered, or its message could not have been received.
    router.received.recv_timeout(PATIENCE).expect("the victim's message");
    let thief = Socket::connect(&router.address, "DEALER", b"victim");
    // The thief is registered some time after its handshake; an answer before that goes to the victim.
    let deadline = Instant::now() + PATIENCE;
    let stolen = loop {
        router.answer.send(()).expect("a live socket");
        match thief.recv(Duration::from_millis(50)) {
            None => assert!(Instant::now() < deadline, "the thief was never answered"),
            stolen => break stolen,
        }
    };
    assert_eq!(stolen, Some(vec![b"secret".to_vec()]));
}

#[test]
fn short_forged_unsigned_and_replayed_messages_are_ignored() {
    let echo = Echo::start();
    let mut client = echo.client();
    let connection = client.connection.clone();
    let stranger = Session::new("another key");
    let unsigned = Session::new("");
    for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
        let whole = client.session.request("echo", &json!({})).1;
        for length in 0..whole.len() {
            let short: Vec<Vec<u8>> = whole[..length].to_vec();
            client.send_frames(channel, &if short.is_empty() { vec![Vec::new()] } else { short });
        }
        client.send_frames(channel, &stranger.request("echo", &json!({})).1);
        client.send_frames(channel, &unsigned.request("echo", &json!({})).1);
        let mut tampered = whole.clone();
        tampered[5] = br#"{"value":43}"#.to_vec();
        client.send_frames(channel, &tampered);
        client.send_frames(channel, &vec![vec![0xff; 100]; 100]);
        let request = client.send(channel, "echo", &json!({}));
        client.expect_busy(&request);
        client.expect_idle(&request);
        client.expect_reply(&request, "echo_reply");

        let header = client.session.header("echo");
        let once = client.session.frames(&header, &json!({}), &json!({}), &json!({}));
        let port = [connection.shell, connection.control, connection.stdin][channel as usize];
        let mut elsewhere = Socket::connect(&connection.address(port), "DEALER", b"");
        client.send_frames(channel, &once);
        client.expect_iopub_any(&header);
        client.expect_iopub_any(&header);
        assert!(client.try_recv(channel, PATIENCE).is_some());
        client.send_frames(channel, &once);
        elsewhere.send(&once);
        assert_eq!(elsewhere.recv(Duration::from_millis(50)), None);
    }
    round_trip(&mut client, Channel::Shell);
}

/// The five addresses of a kernel with the socket types of their clients.
fn addresses(connection: &Connection) -> [(String, &'static str); 5] {
    [
        (connection.address(connection.shell), "DEALER"),
        (connection.address(connection.control), "DEALER"),
        (connection.address(connection.stdin), "DEALER"),
        (connection.address(connection.iopub), "SUB"),
        (connection.address(connection.heartbeat), "REQ"),
    ]
}

#[test]
fn a_frame_that_announces_two_to_the_61_bytes_ends_only_its_own_connection() {
    let echo = EchoProcess::start();
    let mut client = echo.client();
    let huge = [&[2u8][..], &(1u64 << 61).to_be_bytes()].concat();
    let half = [&[2u8][..], &(1u64 << 31).to_be_bytes()].concat();
    for (address, kind) in addresses(&client.connection) {
        for header in [&huge, &half] {
            let mut attacker = Socket::connect(&address, kind, b"");
            // The connection may be closed under our hands.
            let _ = attacker.send_raw(header);
            assert!(attacker.ends_within(PATIENCE), "{address} still waits for it");

            let mut before_ready = Stream::connect(&address).expect("a connection");
            before_ready.write_all(&[&zmtp::greeting()[..], header].concat()).expect("an open connection");
            assert!(ends(&mut before_ready), "{address} still waits for it");
        }
    }
    round_trip(&mut client, Channel::Shell);
    client.expect_heartbeat();
}

#[test]
fn without_the_guard_such_a_frame_aborts_the_process() {
    if let Some(path) = ChildTest::argument() {
        return serve_bare(&path);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("bare");
    let mut child = ChildTest::start("neighbour::without_the_guard_such_a_frame_aborts_the_process", &path);
    let address = format!("ipc://{}", path.display());
    let deadline = Instant::now() + PATIENCE;
    while Stream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "the bare socket does not come up");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut attacker = Socket::connect(&address, "DEALER", b"");
    attacker.send_raw(&[&[2u8][..], &(1u64 << 61).to_be_bytes()].concat()).expect("an open connection");
    let status = child.0.wait().expect("an end");
    assert!(!status.success(), "{status}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "{status}");
}

/// A router without a guard, for as long as it lives.
fn serve_bare(path: &std::path::Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut socket = zeromq::RouterSocket::new();
        socket.bind(&format!("ipc://{}", path.display())).await.expect("a free path");
        loop {
            // Whatever comes is of no interest: that the process lives is.
            let _ = socket.recv().await;
        }
    });
}

#[test]
fn an_echo_in_a_process_of_its_own_answers() {
    if let Some(file) = ChildTest::argument() {
        let _echo = Echo::start_with(|_| file);
        return ChildTest::wait_for_parent();
    }
    let echo = EchoProcess::start();
    round_trip(&mut echo.client(), Channel::Shell);
    assert!(echo.peak_mib() > 0);
}

/// Whether the other side closes the connection; what it sends before is thrown away.
fn ends(stream: &mut Stream) -> bool {
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn nonsense_in_a_handshake_ends_it_at_once() {
    let echo = Echo::start();
    let mut client = echo.client();
    let mut curve = zmtp::greeting();
    curve[12..17].copy_from_slice(b"CURVE");
    let mut old = zmtp::greeting();
    old[10] = 1;
    let hello = |rest: &[u8]| [&zmtp::greeting()[..], rest].concat();
    let long_command = [&[6u8][..], &5000u64.to_be_bytes()].concat();
    let attempts = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        vec![0; 64],
        curve.to_vec(),
        old.to_vec(),
        hello(&zmtp::ready("PULL", b"")),
        hello(&zmtp::ready("DEALER", &[7; 256])),
        hello(&zmtp::frame(4, b"\x05READY\x0bSocket-Type\xff\xff\xff\xff")),
        hello(&zmtp::frame(4, b"\x05HELLO")),
        hello(&zmtp::frame(4, b"")),
        hello(&zmtp::message(&[b"no ready"])),
        hello(&[0xff; 100]),
        hello(&long_command),
    ];
    for attempt in attempts {
        let mut stream = Stream::connect(&client.connection.address(client.connection.shell)).expect("one");
        // It may be closed before everything is written.
        let _ = stream.write_all(&attempt);
        assert!(ends(&mut stream), "still open after {:?}", String::from_utf8_lossy(&attempt));
    }
    round_trip(&mut client, Channel::Shell);
}

/// How many of these connections the other side has closed.
fn closed(streams: &mut [Stream]) -> usize {
    let mut buffer = [0; 256];
    let ended = |stream: &mut Stream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout");
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    };
    streams.iter_mut().map(ended).filter(|ended| *ended).count()
}

#[test]
fn silent_and_half_open_connections_are_few_and_do_not_stay() {
    let echo = Echo::start();
    let connection = Connection::read(&echo.file);
    let bare = BareRouter::start();
    let greeting = zmtp::greeting();
    let mut per_socket: Vec<Vec<Stream>> = addresses(&connection)
        .iter()
        .map(|(address, _)| {
            (0..200)
                .map(|i| {
                    let mut stream = Stream::connect(address).expect("a connection");
                    // Silent; stopped in the middle of the greeting; stopped before READY.
                    let _ = stream.write_all(&greeting[..[0, 20, 64][i % 3]]);
                    stream
                })
                .collect()
        })
        .collect();
    let mut before_bare: Vec<Stream> =
        (0..200).map(|_| Stream::connect(&bare.address).expect("one")).collect();
    // A client gets in between them, on every socket.
    round_trip(&mut echo.client(), Channel::Shell);
    for streams in &mut per_socket {
        let deadline = Instant::now() + PATIENCE;
        while closed(streams) < 160 {
            assert!(Instant::now() < deadline, "strangers keep more handshakes open than they may");
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for streams in &mut per_socket {
        while closed(streams) < 200 {
            assert!(Instant::now() < deadline, "silent connections stay for ever");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    assert_eq!(closed(&mut before_bare), 0, "the guard would not be needed");
    round_trip(&mut echo.client(), Channel::Shell);
}
