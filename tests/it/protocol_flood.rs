//! Floods: nothing is lost, idle comes last, and the limits of Jupyter Server are kept.

use std::collections::VecDeque;
use std::time::Duration;

use cellblock::jupyter::Options;
use chrono::{DateTime, FixedOffset};
use serde_json::json;

use crate::protocol::execute;
use crate::scripted::{Kernel, line, options};
use crate::wire_client::{Channel, Message};

/// Compares the text with the numbered lines, without keeping 50 MB twice.
#[derive(Default)]
struct Lines {
    rest: String,
    next: usize,
}

impl Lines {
    fn take(&mut self, text: &str) {
        self.rest.push_str(text);
        let whole = self.rest.len() / 100 * 100;
        for got in self.rest.as_bytes()[..whole].chunks_exact(100) {
            assert_eq!(got, line(self.next).as_bytes(), "line {}", self.next);
            self.next += 1;
        }
        self.rest.drain(..whole);
    }
}

#[test]
fn fifty_megabytes_arrive_whole_in_few_messages_and_idle_is_last() {
    const LINES: usize = 500_000;
    let kernel = Kernel::start();
    let mut client = kernel.client();
    let code = format!("lines {LINES}");
    let request = client.execute(&code);
    client.expect_busy(&request);
    client.expect_execute_input(&request, &code);
    let (mut lines, mut messages) = (Lines::default(), 0);
    while lines.next < LINES {
        lines.take(&client.expect_stream(&request, "stdout"));
        messages += 1;
    }
    client.expect_idle(&request);
    assert_eq!(client.expect_reply(&request, "execute_reply").content["status"], "ok");
    assert!(messages < 5_000, "{messages} messages: texts were not joined");
    kernel.shut_down(client);
}

/// The window of Jupyter Server 2.21, as its source has it, but by the time at which the kernel spoke: this
/// test may itself be slow to listen.
#[derive(Default)]
struct Server {
    window: VecDeque<(DateTime<FixedOffset>, usize)>,
    bytes: usize,
    worst: (usize, usize),
}

impl Server {
    fn arrived(&mut self, message: &Message) {
        let kind = message.kind();
        if kind == "status" && message.content["execution_state"] == "idle" {
            self.window.clear();
            self.bytes = 0;
        }
        if ["status", "comm_open", "execute_input"].contains(&kind) {
            return;
        }
        let date = message.header["date"].as_str().unwrap_or_default();
        let now = chrono::DateTime::parse_from_rfc3339(date).expect("a date");
        while let Some((expires, size)) = self.window.front().copied()
            && now >= expires
        {
            self.bytes -= size;
            self.window.pop_front();
        }
        let parts = [
            serde_json::to_string(&message.header),
            serde_json::to_string(&message.parent_header),
            serde_json::to_string(&message.metadata),
            serde_json::to_string(&message.content),
        ];
        let size = if kind == "stream" {
            parts.iter().map(|part| part.as_ref().expect("JSON").len()).sum()
        } else {
            0
        };
        self.bytes += size;
        self.window.push_back((now + Duration::from_secs(3), size));
        self.worst = (self.worst.0.max(self.window.len()), self.worst.1.max(self.bytes));
    }

    /// Whether it would have dropped anything.
    fn drops(&self) -> bool {
        self.worst.0 > 3 * 1_000 || self.worst.1 > 3 * 1_000_000
    }
}

#[test]
fn under_a_jupyter_server_a_flood_stays_below_its_limits_and_control_is_answered_meanwhile() {
    const LINES: usize = 50_000;
    let kernel = Kernel::start_with(Options { paced: true, ..options() });
    let mut client = kernel.client();
    let code = format!("lines {LINES}\nfail at the end");
    let request = execute(&mut client, &code, &json!({}), &json!({"cellId": "c"}));
    let (mut lines, mut server, mut error) = (Lines::default(), Server::default(), false);
    let (mut busy, mut nudge) = (0, None);
    loop {
        let message = client.next_iopub();
        server.arrived(&message);
        if message.parent_id() != Some(request.msg_id.as_str()) {
            continue;
        }
        match message.kind() {
            "stream" => lines.take(message.content["text"].as_str().expect("text")),
            "error" => error = true,
            "status" => busy += 1,
            _ => {}
        }
        if busy == 2 {
            break;
        }
        if nudge.is_none() && lines.next > LINES / 2 {
            nudge = Some(client.send(Channel::Control, "kernel_info_request", &json!({})));
            client.expect_reply(nudge.as_ref().expect("a request"), "kernel_info_reply");
        }
    }
    assert_eq!(lines.next, LINES);
    assert!(error, "the error was lost");
    assert!(nudge.is_some());
    assert!(!server.drops(), "{:?} messages and bytes in three seconds", server.worst);
    assert_eq!(client.expect_reply(&request, "execute_reply").content["ename"], "ScriptError");
    kernel.shut_down(client);
}
