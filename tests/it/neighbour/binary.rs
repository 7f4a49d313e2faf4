//! The volley against the real kernel.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::json;

use super::addresses;
use crate::wire_client::zmtp::{self, Socket, Stream};
use crate::wire_client::{self, Channel, Client, PATIENCE, Session};

/// `cellblock kernel`, killed when the test fails before it has ended.
struct Kernel(Child);

impl Drop for Kernel {
    fn drop(&mut self) {
        // Ended already when all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_kernel_survives_a_volley_from_a_stranger_and_shuts_down_in_order() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = wire_client::connection_file(dir.path());
    let kernel = Command::new(env!("CARGO_BIN_EXE_cellblock"))
        .args(["kernel", "-f"])
        .arg(&file)
        .current_dir(dir.path())
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut kernel = Kernel(kernel.expect("the binary"));
    let mut client = Client::connect(&file);
    let connection = client.connection.clone();
    ask_for_info(&mut client, Channel::Shell);

    let mut silent = Vec::new();
    for (address, kind) in addresses(&connection) {
        let mut huge = Socket::connect(&address, kind, b"");
        // Each of these may be closed under our hands; that is the point.
        let _ = huge.send_raw(&[&[2u8][..], &(1u64 << 61).to_be_bytes()].concat());
        assert!(huge.ends_within(PATIENCE), "{address}");
        for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 200], &zmtp::greeting()] {
            let mut stream = Stream::connect(&address).expect("a connection");
            let _ = stream.write_all(garbage);
            silent.push(stream);
        }
        silent.extend((0..40).map(|_| Stream::connect(&address).expect("a connection")));
    }
    let forger = Session::new("not the key");
    for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
        client.send_frames(channel, &forger.request("shutdown_request", &json!({ "restart": false })).1);
        client.send_frames(channel, &vec![b"<IDS|MSG>".to_vec()]);
        client.send_frames(channel, &vec![Vec::new()]);
    }
    ask_for_info(&mut client, Channel::Shell);
    ask_for_info(&mut client, Channel::Control);
    client.expect_heartbeat();

    let shutdown = client.send(Channel::Control, "shutdown_request", &json!({ "restart": false }));
    client.expect_busy(&shutdown);
    // Other clients of the kernel hear of it as well.
    client.expect_iopub(&shutdown, "shutdown_reply");
    client.expect_reply(&shutdown, "shutdown_reply");
    client.expect_idle(&shutdown);
    let deadline = Instant::now() + PATIENCE;
    while kernel.0.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < deadline, "the kernel does not end");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn ask_for_info(client: &mut Client, channel: Channel) {
    let request = client.send(channel, "kernel_info_request", &json!({}));
    client.expect_busy(&request);
    client.expect_idle(&request);
    if channel == Channel::Shell {
        // Said of its own accord to whoever has just come.
        assert_eq!(client.expect_iopub_any(&json!({})).content["execution_state"], "idle");
    }
    let reply = client.expect_reply(&request, "kernel_info_reply");
    assert_eq!(reply.content["protocol_version"], "5.5");
}
