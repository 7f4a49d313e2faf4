//! The least ZMTP 3.0 that a client needs, written apart from the kernel's so that neither hides the
//! other's mistakes. A thread per socket reads whole messages, so a timeout never splits one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long a handshake may take before the test fails.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// A message's frames.
pub(crate) type Frames = Vec<Vec<u8>>;

/// Either kind of connected stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects to `tcp://host:port` or `ipc://path`.
    pub(crate) fn connect(address: &str) -> std::io::Result<Self> {
        if let Some(path) = address.strip_prefix("ipc://") {
            return UnixStream::connect(path).map(Stream::Unix);
        }
        let stream = TcpStream::connect(address.strip_prefix("tcp://").expect("a tcp:// or ipc:// address"))?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    pub(crate) fn try_clone(&self) -> std::io::Result<Self> {
        match self {
            Stream::Tcp(s) => s.try_clone().map(Stream::Tcp),
            Stream::Unix(s) => s.try_clone().map(Stream::Unix),
        }
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> std::io::Result<()> {
        match self {
            Stream::Tcp(s) => s.set_read_timeout(timeout),
            Stream::Unix(s) => s.set_read_timeout(timeout),
        }
    }

    pub(crate) fn shutdown(&self) {
        // A connection that is gone already is as closed as it can be.
        let _ = match self {
            Stream::Tcp(s) => s.shutdown(std::net::Shutdown::Both),
            Stream::Unix(s) => s.shutdown(std::net::Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(buffer),
            Stream::Unix(s) => s.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.write(bytes),
            Stream::Unix(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Stream::Tcp(s) => s.flush(),
            Stream::Unix(s) => s.flush(),
        }
    }
}

/// The 64 bytes with which every connection begins.
pub(crate) fn greeting() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// One frame: `flags` without the "long" bit, which its length decides.
pub(crate) fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(length) => vec![flags, length],
        Err(_) => [&[flags | 2], &(body.len() as u64).to_be_bytes()[..]].concat(),
    };
    bytes.extend_from_slice(body);
    bytes
}

/// The READY command.
pub(crate) fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type.as_bytes()), ("Identity", identity)] {
        body.push(u8::try_from(name.len()).expect("a short name"));
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&u32::try_from(value.len()).expect("a short value").to_be_bytes());
        body.extend_from_slice(value);
    }
    frame(4, &body)
}

/// All frames of a message.
pub(crate) fn message<F: AsRef<[u8]>>(frames: &[F]) -> Vec<u8> {
    let last = frames.len() - 1;
    frames.iter().enumerate().flat_map(|(i, f)| frame(u8::from(i < last), f.as_ref())).collect()
}

/// Does a client's side of the handshake.
pub(crate) fn handshake(stream: &mut Stream, socket_type: &str, identity: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(HANDSHAKE))?;
    stream.write_all(&greeting())?;
    let mut theirs = [0; 64];
    stream.read_exact(&mut theirs)?;
    stream.write_all(&ready(socket_type, identity))?;
    let (flags, body) = read_frame(stream)?;
    if flags & 4 == 0 || !body.starts_with(b"\x05READY") {
        return Err(std::io::Error::other(format!("not READY: {:?}", String::from_utf8_lossy(&body))));
    }
    stream.set_read_timeout(None)
}

fn read_frame(stream: &mut Stream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let length = if head[0] & 2 == 0 {
        usize::from(head[1])
    } else {
        let mut rest = [0; 8];
        rest[0] = head[1];
        stream.read_exact(&mut rest[1..])?;
        usize::try_from(u64::from_be_bytes(rest)).expect("a length that fits")
    };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok((head[0], body))
}

/// Reads one message; commands are skipped.
pub(crate) fn read_message(stream: &mut Stream) -> std::io::Result<Frames> {
    let mut frames = Vec::new();
    loop {
        let (flags, body) = read_frame(stream)?;
        if flags & 4 != 0 {
            continue;
        }
        frames.push(body);
        if flags & 1 == 0 {
            return Ok(frames);
        }
    }
}

/// A connected socket: sends at once, receives through a thread.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    received: Receiver<Frames>,
}

impl Socket {
    /// Connects and shakes hands, or fails the test.
    pub(crate) fn connect(address: &str, socket_type: &str, identity: &[u8]) -> Self {
        let mut stream =
            Stream::connect(address).unwrap_or_else(|e| panic!("cannot connect to {address}: {e}"));
        handshake(&mut stream, socket_type, identity)
            .unwrap_or_else(|e| panic!("no handshake with {address}: {e}"));
        let mut reader = stream.try_clone().expect("a second handle of a stream");
        let (sender, received) = channel();
        std::thread::spawn(move || {
            while let Ok(frames) = read_message(&mut reader) {
                if sender.send(frames).is_err() {
                    break;
                }
            }
        });
        Socket { stream, received }
    }

    /// Sends one message.
    pub(crate) fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) {
        self.stream.write_all(&message(frames)).expect("a message that can be sent");
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next message; `None` after `timeout` or when the connection has ended.
    pub(crate) fn recv(&self, timeout: Duration) -> Option<Frames> {
        self.received.recv_timeout(timeout).ok()
    }

    /// Whether the other side ends the connection within `timeout`; messages until then are thrown away.
    pub(crate) fn ends_within(&self, timeout: Duration) -> bool {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.received.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}
