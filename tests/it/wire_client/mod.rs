//! A strict Jupyter client on the raw wire, for integration tests.
//!
//! It checks the signature, the shape and the version of everything the kernel says, and when it is dropped
//! it fails the test if a message came that nobody asserted.
//!
//! ```ignore
//! let file = wire_client::connection_file(dir.path());
//! // start the kernel with `file`
//! let mut client = Client::connect(&file);
//! let request = client.execute("print(1)");
//! client.expect_busy(&request);
//! client.expect_execute_input(&request, "print(1)");
//! client.expect_stream_text(&request, "stdout", "1\n");
//! client.expect_idle(&request);
//! let reply = client.expect_reply(&request, "execute_reply");
//! assert_eq!(reply.content["status"], "ok");
//! ```
#![allow(dead_code, reason = "a toolbox: not every test uses every tool")]

pub(crate) mod zmtp;

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value, json};
use sha2::Sha256;

use zmtp::{Frames, Socket};

/// How long anything that must come may take. Generous: the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How long a dropped client listens for messages that nobody asserted.
const STRAGGLERS: Duration = Duration::from_millis(150);

const DELIMITER: &[u8] = b"<IDS|MSG>";

/// A channel on which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Shell,
    Control,
    Stdin,
}

/// What a connection file says, for the client's side.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    pub(crate) transport: String,
    pub(crate) ip: String,
    pub(crate) key: String,
    pub(crate) shell: u16,
    pub(crate) iopub: u16,
    pub(crate) stdin: u16,
    pub(crate) control: u16,
    pub(crate) heartbeat: u16,
}

impl Connection {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a connection file");
        let file: Value = serde_json::from_str(&text).expect("JSON in the connection file");
        let text = |name: &str| file[name].as_str().unwrap_or_default().to_owned();
        let port =
            |name: &str| u16::try_from(file[name].as_u64().expect("a port number")).expect("a port number");
        Connection {
            transport: text("transport"),
            ip: text("ip"),
            key: text("key"),
            shell: port("shell_port"),
            iopub: port("iopub_port"),
            stdin: port("stdin_port"),
            control: port("control_port"),
            heartbeat: port("hb_port"),
        }
    }

    /// The address of one port.
    pub(crate) fn address(&self, port: u16) -> String {
        match self.transport.as_str() {
            "ipc" => format!("ipc://{}-{port}", self.ip),
            _ => format!("tcp://{}:{port}", self.ip),
        }
    }
}

/// Ports that were free a moment ago. Different tests get different ones.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [_; N] =
        std::array::from_fn(|_| std::net::TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|l| l.local_addr().expect("its address").port())
}

/// Writes a connection file for TCP on loopback into `dir`.
pub(crate) fn connection_file(dir: &Path) -> PathBuf {
    let [shell, iopub, stdin, control, heartbeat] = free_ports();
    write_connection_file(
        dir,
        &json!({
            "transport": "tcp", "ip": "127.0.0.1", "key": uuid::Uuid::new_v4().to_string(),
            "signature_scheme": "hmac-sha256", "kernel_name": "cellblock",
            "shell_port": shell, "iopub_port": iopub, "stdin_port": stdin,
            "control_port": control, "hb_port": heartbeat,
        }),
    )
}

/// Writes a connection file for unix sockets into `dir`.
pub(crate) fn ipc_connection_file(dir: &Path) -> PathBuf {
    write_connection_file(
        dir,
        &json!({
            "transport": "ipc", "ip": dir.join("kernel").to_str().expect("a readable path"),
            "key": uuid::Uuid::new_v4().to_string(), "signature_scheme": "hmac-sha256",
            "shell_port": 1, "iopub_port": 2, "stdin_port": 3, "control_port": 4, "hb_port": 5,
        }),
    )
}

/// Writes this connection file into `dir`.
pub(crate) fn write_connection_file(dir: &Path, content: &Value) -> PathBuf {
    let path = dir.join("connection.json");
    std::fs::write(&path, content.to_string()).expect("a connection file that can be written");
    path
}

/// Waits until something listens on the connection's shell port.
pub(crate) fn wait_until_up(connection: &Connection) {
    let deadline = Instant::now() + PATIENCE;
    let address = connection.address(connection.heartbeat);
    while zmtp::Stream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "nothing listens on {address}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One message of the kernel, its signature checked.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// Iopub's topic, or routing frames.
    pub(crate) prefix: Frames,
    pub(crate) header: Map<String, Value>,
    pub(crate) parent_header: Value,
    pub(crate) metadata: Value,
    pub(crate) content: Value,
    pub(crate) buffers: Frames,
}

impl Message {
    pub(crate) fn kind(&self) -> &str {
        self.header["msg_type"].as_str().unwrap_or_default()
    }

    pub(crate) fn parent_id(&self) -> Option<&str> {
        self.parent_header["msg_id"].as_str()
    }
}

/// A request that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) msg_id: String,
    pub(crate) channel: Channel,
}

/// Signs and sends, receives and checks.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    key: Vec<u8>,
    pub(crate) id: String,
    seen: HashSet<Vec<u8>>,
}

impl Session {
    pub(crate) fn new(key: &str) -> Self {
        Session { key: key.as_bytes().to_vec(), id: uuid::Uuid::new_v4().to_string(), seen: HashSet::new() }
    }

    pub(crate) fn sign(&self, parts: &[Vec<u8>]) -> Vec<u8> {
        if self.key.is_empty() {
            return Vec::new();
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().iter().flat_map(|b| format!("{b:02x}").into_bytes()).collect()
    }

    /// A fresh header of a client.
    pub(crate) fn header(&self, kind: &str) -> Value {
        json!({
            "msg_id": uuid::Uuid::new_v4().to_string(), "session": self.id, "username": "tester",
            "date": chrono::Utc::now().to_rfc3339(), "msg_type": kind, "version": "5.5",
        })
    }

    /// The frames of a message: delimiter, signature, four JSON frames.
    pub(crate) fn frames(&self, header: &Value, parent: &Value, metadata: &Value, content: &Value) -> Frames {
        let parts: Vec<Vec<u8>> =
            [header, parent, metadata, content].iter().map(|part| part.to_string().into_bytes()).collect();
        let mut frames = vec![DELIMITER.to_vec(), self.sign(&parts)];
        frames.extend(parts);
        frames
    }

    /// A request with nothing special about it.
    pub(crate) fn request(&self, kind: &str, content: &Value) -> (String, Frames) {
        let header = self.header(kind);
        let id = header["msg_id"].as_str().expect("an id").to_owned();
        (id, self.frames(&header, &json!({}), &json!({}), content))
    }

    /// Checks everything that can be checked of one message without knowing what was asked.
    pub(crate) fn check(&mut self, mut frames: Frames) -> Message {
        let at = frames
            .iter()
            .position(|f| f == DELIMITER)
            .unwrap_or_else(|| panic!("a message without delimiter: {frames:?}"));
        let mut message = frames.split_off(at);
        assert!(message.len() >= 6, "a message with too few frames: {message:?}");
        let buffers = message.split_off(6);
        assert_eq!(message[1], self.sign(&message[2..6]), "a wrong signature: {message:?}");
        assert!(self.key.is_empty() || self.seen.insert(message[1].clone()), "a message sent twice");
        let json = |at: usize| -> Value {
            serde_json::from_slice(&message[at]).unwrap_or_else(|e| panic!("frame {at} is not JSON: {e}"))
        };
        let Value::Object(header) = json(2) else { panic!("the header is no object") };
        for field in ["msg_id", "session", "username", "date", "msg_type", "version"] {
            assert!(header.get(field).is_some_and(Value::is_string), "no {field} in {header:?}");
        }
        assert_eq!(header["version"], "5.5", "the protocol version must be 5.5 everywhere");
        chrono::DateTime::parse_from_rfc3339(header["date"].as_str().unwrap_or_default())
            .unwrap_or_else(|e| panic!("not a date: {e} in {header:?}"));
        let (parent_header, metadata, content) = (json(3), json(4), json(5));
        assert!(parent_header.is_object() && metadata.is_object() && content.is_object());
        Message { prefix: frames, header, parent_header, metadata, content, buffers }
    }
}

/// The client: five sockets, and what came and was not asserted yet.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) session: Session,
    shell: Socket,
    control: Socket,
    stdin: Socket,
    iopub: Socket,
    heartbeat: Socket,
    /// Messages that were received and put back.
    kept: VecDeque<Message>,
}

impl Client {
    /// Connects to the kernel of a connection file as soon as it listens, and asserts its welcome.
    pub(crate) fn connect(file: &Path) -> Self {
        Self::connect_as(file, uuid::Uuid::new_v4().to_string().as_bytes())
    }

    /// As [`Client::connect`], claiming an identity.
    pub(crate) fn connect_as(file: &Path, identity: &[u8]) -> Self {
        let connection = Connection::read(file);
        wait_until_up(&connection);
        let socket = |port, kind, identity: &[u8]| Socket::connect(&connection.address(port), kind, identity);
        let mut iopub = socket(connection.iopub, "SUB", b"");
        iopub.send(&[b"\x01"]);
        let mut client = Client {
            session: Session::new(&connection.key),
            shell: socket(connection.shell, "DEALER", identity),
            control: socket(connection.control, "DEALER", identity),
            stdin: socket(connection.stdin, "DEALER", identity),
            heartbeat: socket(connection.heartbeat, "REQ", b""),
            iopub,
            connection: connection.clone(),
            kept: VecDeque::new(),
        };
        let welcome = client.next_iopub();
        assert_eq!(welcome.kind(), "iopub_welcome", "the first message must be the welcome: {welcome:?}");
        assert_eq!(welcome.content["subscription"], "");
        client
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, channel: Channel, kind: &str, content: &Value) -> Request {
        self.send_with(channel, &self.session.header(kind), &json!({}), content)
    }

    /// Sends a request with a header and metadata of the caller's.
    pub(crate) fn send_with(
        &mut self,
        channel: Channel,
        header: &Value,
        metadata: &Value,
        content: &Value,
    ) -> Request {
        let msg_id = header["msg_id"].as_str().expect("an id").to_owned();
        let frames = self.session.frames(header, &json!({}), metadata, content);
        self.socket(channel).send(&frames);
        Request { msg_id, channel }
    }

    /// Sends frames as they are.
    pub(crate) fn send_frames(&mut self, channel: Channel, frames: &Frames) {
        self.socket(channel).send(frames);
    }

    fn socket(&mut self, channel: Channel) -> &mut Socket {
        match channel {
            Channel::Shell => &mut self.shell,
            Channel::Control => &mut self.control,
            Channel::Stdin => &mut self.stdin,
        }
    }

    /// Sends an `execute_request` as JupyterLab does, stdin allowed.
    pub(crate) fn execute(&mut self, code: &str) -> Request {
        self.send(
            Channel::Shell,
            "execute_request",
            &json!({
                "code": code, "silent": false, "store_history": true, "user_expressions": {},
                "allow_stdin": true, "stop_on_error": true,
            }),
        )
    }

    /// Answers an `input_request`.
    pub(crate) fn answer(&mut self, question: &Message, value: &str) {
        let parent = Value::Object(question.header.clone());
        let header = self.session.header("input_reply");
        let frames = self.session.frames(&header, &parent, &json!({}), &json!({ "value": value }));
        self.stdin.send(&frames);
    }

    /// The next message on a channel, when one comes in time.
    pub(crate) fn try_recv(&mut self, channel: Channel, timeout: Duration) -> Option<Message> {
        let frames = self.socket(channel).recv(timeout)?;
        Some(self.session.check(frames))
    }

    /// The next message on iopub, when one comes in time.
    pub(crate) fn try_iopub(&mut self, timeout: Duration) -> Option<Message> {
        if let Some(kept) = self.kept.pop_front() {
            return Some(kept);
        }
        let frames = self.iopub.recv(timeout)?;
        let message = self.session.check(frames);
        if message.content["execution_state"] == "starting" && message.parent_header == json!({}) {
            // Once, and only for clients that are as early as this one.
            return self.try_iopub(timeout);
        }
        Some(message)
    }

    /// The next message on iopub; fails the test when none comes.
    pub(crate) fn next_iopub(&mut self) -> Message {
        self.try_iopub(PATIENCE).expect("a message on iopub")
    }

    /// Puts a message back, to be the next one again.
    pub(crate) fn keep(&mut self, message: Message) {
        self.kept.push_front(message);
    }

    /// The next message on iopub, which must be of this kind and caused by this request.
    pub(crate) fn expect_iopub(&mut self, request: &Request, kind: &str) -> Message {
        let message = self.next_iopub();
        assert_eq!(message.kind(), kind, "{message:?}");
        assert_eq!(message.parent_id(), Some(request.msg_id.as_str()), "another request's: {message:?}");
        message
    }

    /// The next message on iopub, which must be caused by the message of this header.
    pub(crate) fn expect_iopub_any(&mut self, header: &Value) -> Message {
        let message = self.next_iopub();
        assert_eq!(message.parent_id(), header["msg_id"].as_str(), "another request's: {message:?}");
        message
    }

    /// The next message on iopub must say that the kernel is busy with this request.
    pub(crate) fn expect_busy(&mut self, request: &Request) {
        let status = self.expect_iopub(request, "status");
        assert_eq!(status.content["execution_state"], "busy");
    }

    /// The next message on iopub must say that the kernel is done with this request.
    pub(crate) fn expect_idle(&mut self, request: &Request) {
        let status = self.expect_iopub(request, "status");
        assert_eq!(status.content["execution_state"], "idle");
    }

    /// The next message on iopub must repeat the code; returns its execution count.
    pub(crate) fn expect_execute_input(&mut self, request: &Request, code: &str) -> u64 {
        let input = self.expect_iopub(request, "execute_input");
        assert_eq!(input.content["code"], code);
        input.content["execution_count"].as_u64().expect("an execution count")
    }

    /// The next message on iopub must be output of this stream; returns its text.
    pub(crate) fn expect_stream(&mut self, request: &Request, name: &str) -> String {
        let stream = self.expect_iopub(request, "stream");
        assert_eq!(stream.content["name"], name);
        stream.content["text"].as_str().expect("text in a stream message").to_owned()
    }

    /// The next messages on iopub must be output of this stream which together is `text`; in how many
    /// messages it comes is the kernel's business.
    pub(crate) fn expect_stream_text(&mut self, request: &Request, name: &str, text: &str) {
        let mut got = String::new();
        while got.len() < text.len() {
            got += &self.expect_stream(request, name);
            assert!(text.starts_with(&got), "expected {text:?}, got {got:?}");
        }
    }

    /// The next reply on the request's channel, which must answer it and be of this kind.
    pub(crate) fn expect_reply(&mut self, request: &Request, kind: &str) -> Message {
        let reply = self.try_recv(request.channel, PATIENCE).expect("a reply");
        assert_eq!(reply.kind(), kind, "{reply:?}");
        assert_eq!(reply.parent_id(), Some(request.msg_id.as_str()), "another request's: {reply:?}");
        reply
    }

    /// The next message on stdin must be a question of this request.
    pub(crate) fn expect_input_request(&mut self, request: &Request) -> Message {
        let question = self.try_recv(Channel::Stdin, PATIENCE).expect("a question on stdin");
        assert_eq!(question.kind(), "input_request");
        assert_eq!(question.parent_id(), Some(request.msg_id.as_str()));
        question
    }

    /// Everything on iopub up to and with the request's idle; all of it must be the request's.
    pub(crate) fn collect_until_idle(&mut self, request: &Request) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.next_iopub();
            assert_eq!(message.parent_id(), Some(request.msg_id.as_str()), "another request's: {message:?}");
            let done = message.kind() == "status" && message.content["execution_state"] == "idle";
            messages.push(message);
            if done {
                return messages;
            }
        }
    }

    /// The heartbeat must answer with what it was sent.
    pub(crate) fn expect_heartbeat(&mut self) {
        let beat = uuid::Uuid::new_v4().as_bytes().to_vec();
        self.heartbeat.send(&[Vec::new(), beat.clone()]);
        let echo = self.heartbeat.recv(PATIENCE).expect("a heartbeat");
        assert_eq!(echo, [Vec::new(), beat]);
    }

    /// Nothing may come on any channel for so long.
    pub(crate) fn expect_silence(&mut self, duration: Duration) {
        let mut unasserted: Vec<Message> = self.kept.drain(..).collect();
        unasserted.extend(self.try_iopub(duration));
        while let Some(message) = self.try_iopub(Duration::ZERO) {
            unasserted.push(message);
        }
        for channel in [Channel::Shell, Channel::Control, Channel::Stdin] {
            while let Some(message) = self.try_recv(channel, Duration::ZERO) {
                unasserted.push(message);
            }
        }
        assert!(unasserted.is_empty(), "messages that nobody asserted: {unasserted:#?}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.expect_silence(STRAGGLERS);
        }
    }
}
