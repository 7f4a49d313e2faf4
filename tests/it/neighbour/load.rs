//! Floods: subscribers that do not read or read slowly, senders that never finish, crowds.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;
use zeromq::{Socket as _, SocketRecv as _, SocketSend as _};

use super::echo::{Echo, EchoProcess};
use super::{ends, round_trip};
use crate::wire_client::zmtp::{self, Socket, Stream};
use crate::wire_client::{self, Channel, Client, Connection, Message, PATIENCE, Request, Session};

/// A subscriber that has shaken hands, subscribed to everything, and reads only when told to.
fn lazy_subscriber(address: &str) -> Stream {
    let mut stream = Stream::connect(address).expect("a connection");
    zmtp::handshake(&mut stream, "SUB", b"").expect("a handshake");
    stream.write_all(&zmtp::message(&[b"\x01"])).expect("a subscription");
    stream
}

/// Asserts that so many MiB of output came, whole and in order, the idle after them.
fn assert_flood(client: &mut Client, request: &Request, mib: usize) {
    client.expect_busy(request);
    for _ in 0..mib {
        assert_eq!(client.expect_iopub(request, "stream").buffers[0].len(), 1 << 20);
    }
    client.expect_idle(request);
}

#[test]
fn a_subscriber_that_never_reads_costs_neither_the_others_nor_much_memory() {
    const MIB: usize = 250;
    let echo = EchoProcess::start();
    let mut client = echo.client();
    let address = client.connection.address(client.connection.iopub);
    let mut lazy: Vec<Stream> = (0..5).map(|_| lazy_subscriber(&address)).collect();
    let request = client.send(Channel::Shell, "flood", &json!({ "mib": MIB }));
    assert_flood(&mut client, &request, MIB);
    client.expect_reply(&request, "echo_reply");
    for stream in &mut lazy {
        assert!(ends(stream), "a subscriber that is too far behind must be cut");
    }
    let peak = echo.peak_mib();
    assert!(peak < 320, "the kernel held {peak} MiB: five subscribers together may hold 192");
    round_trip(&mut client, Channel::Shell);
}

#[test]
fn when_nobody_reads_requests_are_still_answered() {
    const MIB: usize = 150;
    let echo = EchoProcess::start();
    let connection = Connection::read(&echo.file);
    wire_client::wait_until_up(&connection);
    let _lazy = lazy_subscriber(&connection.address(connection.iopub));
    let mut session = Session::new(&connection.key);
    let mut shell = Socket::connect(&connection.address(connection.shell), "DEALER", b"");
    let (id, frames) = session.request("flood", &json!({ "mib": MIB }));
    shell.send(&frames);
    let reply = session.check(shell.recv(2 * PATIENCE).expect("a reply"));
    assert_eq!(reply.parent_id(), Some(id.as_str()));
    round_trip(&mut echo.client(), Channel::Shell);
}

#[test]
fn a_lone_subscriber_that_reads_slowly_loses_nothing() {
    const MIB: usize = 120;
    let echo = Echo::start();
    let connection = Connection::read(&echo.file);
    let mut slow = lazy_subscriber(&connection.address(connection.iopub));
    let mut session = Session::new(&connection.key);
    let mut read = move || -> Message {
        // At most some 50 MiB/s.
        std::thread::sleep(Duration::from_millis(20));
        session.check(zmtp::read_message(&mut slow).expect("a message"))
    };
    assert_eq!(read().kind(), "iopub_welcome");
    let session = Session::new(&connection.key);
    let mut shell = Socket::connect(&connection.address(connection.shell), "DEALER", b"");
    shell.send(&session.request("flood", &json!({ "mib": MIB })).1);
    assert_eq!(read().content["execution_state"], "busy");
    for _ in 0..MIB {
        assert_eq!(read().kind(), "stream");
    }
    assert_eq!(read().content["execution_state"], "idle");
    assert!(shell.recv(PATIENCE).is_some());
}

#[test]
fn without_the_guard_a_subscriber_that_never_reads_blocks_the_others() {
    let [port] = wire_client::free_ports();
    let address = format!("tcp://127.0.0.1:{port}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let mut socket = zeromq::XPubSocket::new();
        socket.bind(&address).await.expect("a free port");
        let at = address.clone();
        let _lazy = tokio::task::spawn_blocking(move || lazy_subscriber(&at)).await.expect("a subscriber");
        socket.recv().await.expect("a subscription");
        let message = || zeromq::ZmqMessage::from(vec![0u8; 1 << 20]);
        let sends = async {
            for _ in 0..200 {
                socket.send(message()).await.expect("a live subscriber");
            }
        };
        let sent = tokio::time::timeout(Duration::from_secs(5), sends).await;
        assert!(sent.is_err(), "the guard would not be needed");
    });
}

#[test]
fn messages_that_never_end_are_bounded_together() {
    let echo = EchoProcess::start();
    let mut client = echo.client();
    let address = client.connection.address(client.connection.shell);
    // Each is below what one message may have; together they are 600 MiB.
    let header = [&[2u8][..], &(60u64 << 20).to_be_bytes()].concat();
    let senders: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = Stream::connect(&address).expect("a connection");
            zmtp::handshake(&mut stream, "DEALER", b"").expect("a handshake");
            let header = header.clone();
            std::thread::spawn(move || {
                let part = vec![7; 1 << 20];
                // It may be cut at any moment.
                let _ = stream.write_all(&header);
                let _ = (0..50).all(|_| stream.write_all(&part).is_ok());
                stream
            })
        })
        .collect();
    let mut streams: Vec<_> = senders.into_iter().map(|s| s.join().expect("a sender")).collect();
    round_trip(&mut client, Channel::Shell);
    let peak = echo.peak_mib();
    assert!(peak < 360, "the kernel held {peak} MiB of messages that never ended");
    let silent = [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut];
    let is_cut = |stream: &mut Stream| {
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        !stream.read_to_end(&mut Vec::new()).is_err_and(|e| silent.contains(&e.kind()))
    };
    assert!(streams.iter_mut().any(is_cut), "nobody was cut, and yet so little was held");
}

#[test]
fn an_announced_length_is_not_allocated() {
    let echo = EchoProcess::start();
    let mut client = echo.client();
    let before = echo.peak_mib();
    let header = [&[2u8][..], &(60u64 << 20).to_be_bytes()].concat();
    let mut streams: Vec<Stream> = (0..10)
        .map(|_| {
            let address = client.connection.address(client.connection.shell);
            let mut stream = Stream::connect(&address).expect("a connection");
            zmtp::handshake(&mut stream, "DEALER", b"").expect("a handshake");
            stream.write_all(&header).expect("an open connection");
            stream
        })
        .collect();
    round_trip(&mut client, Channel::Shell);
    let peak = echo.peak_mib();
    assert!(peak < before + 20, "from {before} to {peak} MiB for ten headers");
    for stream in &mut streams {
        stream.write_all(&[0; 100]).expect("still open: it is a length that is allowed");
    }
}

#[test]
fn a_crowd_of_strangers_does_not_keep_a_client_out() {
    let echo = Echo::start();
    let connection = Connection::read(&echo.file);
    // They stay, having shaken hands.
    let crowd: Vec<Socket> = [connection.shell, connection.control, connection.stdin]
        .iter()
        .flat_map(|port| {
            let address = connection.address(*port);
            (0..60).map(move |i| Socket::connect(&address, "DEALER", format!("{i}").as_bytes()))
        })
        .collect();
    let mut client = echo.client();
    round_trip(&mut client, Channel::Shell);
    round_trip(&mut client, Channel::Control);
    let request = client.send(Channel::Shell, "ask", &json!({}));
    client.expect_input_request(&request);
    client.expect_busy(&request);
    client.expect_idle(&request);
    client.expect_reply(&request, "echo_reply");
    // More strangers do not push it out again.
    let more: Vec<Socket> =
        (0..60).map(|_| Socket::connect(&connection.address(connection.shell), "DEALER", b"")).collect();
    round_trip(&mut client, Channel::Shell);
    drop((crowd, more));
}

#[test]
fn a_subscriber_may_not_subscribe_without_end_or_to_private_topics() {
    let echo = Echo::start();
    let mut client = echo.client();
    let address = client.connection.address(client.connection.iopub);
    let mut private = Socket::connect(&address, "SUB", b"");
    private.send(&[b"\x01\0cb\0F"]);
    assert!(private.ends_within(PATIENCE));
    let mut greedy = Socket::connect(&address, "SUB", b"");
    for i in 0..1000 {
        // It is cut at some point.
        if greedy.send_raw(&zmtp::message(&[format!("\x01{i}")])).is_err() {
            break;
        }
    }
    assert!(greedy.ends_within(PATIENCE));
    let mut long = Socket::connect(&address, "SUB", b"");
    long.send(&[vec![1; 1000]]);
    assert!(long.ends_within(PATIENCE));
    let mut modest = Socket::connect(&address, "SUB", b"");
    for _ in 0..1000 {
        modest.send(&[b"\x01kernel"]);
        modest.send(&[b"\x00kernel"]);
    }
    assert!(!modest.ends_within(Duration::from_millis(100)));
    round_trip(&mut client, Channel::Shell);
}

#[test]
fn clients_that_reset_their_connections_disturb_nobody() {
    let echo = Echo::start();
    let mut client = echo.client();
    let connection = client.connection.clone();
    for _ in 0..20 {
        for (address, kind) in super::addresses(&connection) {
            let mut stream = Stream::connect(&address).expect("a connection");
            zmtp::handshake(&mut stream, kind, b"again").expect("a handshake");
            // Unread and half-sent data make the end a reset.
            let _ = stream.write_all(&zmtp::frame(1, b"half a message"));
            stream.shutdown();
        }
        round_trip(&mut client, Channel::Shell);
        client.expect_heartbeat();
    }
}

#[test]
fn flushing_waits_until_a_reader_has_everything_but_not_for_one_that_does_not_read() {
    const MIB: usize = 40;
    let echo = Echo::start();
    let connection = Connection::read(&echo.file);
    let mut stream = lazy_subscriber(&connection.address(connection.iopub));
    let session = Session::new(&connection.key);
    let mut shell = Socket::connect(&connection.address(connection.shell), "DEALER", b"");
    shell.send(&session.request("flood", &json!({ "mib": MIB })).1);
    let out = echo.outbound.clone();
    // It gives up on the reader, which only now begins.
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(3));
        let mut total = 0;
        let mut buffer = vec![0; 1 << 20];
        while let Ok(n) = stream.read(&mut buffer)
            && n > 0
        {
            total += n;
        }
        total
    });
    let started = Instant::now();
    assert!(shell.recv(PATIENCE).is_some());
    let again = out.clone();
    echo.runtime.block_on(async move { again.flush().await });
    assert!(started.elapsed() < PATIENCE, "flushing must end though nobody reads");
    // By now the reader reads: this flush ends when it has all, and closing right after loses nothing.
    std::thread::sleep(Duration::from_secs(4));
    echo.runtime.block_on(async move { out.close().await });
    let total = reader.join().expect("a reader");
    assert!(total > MIB << 20, "only {total} bytes came");
}
