//! The frames between host and supervisor (`docs/runner-protocol.md`), read without trust.
//!
//! Imports nothing of ours. A length is checked before anything is kept for it; JSON from guest code that
//! can't be read becomes [`Frame::Unreadable`], while nonsense under a supervisor's kind ends the channel.
//! To add a kind: a constant, a variant, an arm in [`Frame::from_supervisor`] or [`Frame::from_worker`].

use bytes::{Buf, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The most bytes in one frame's payload.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;
/// The most bytes of one message that came in parts.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
const HEADER: usize = 9;

/// Kinds that the host sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Order {
    Part = 0x00,
    Python = 0x01,
    Process = 0x02,
    Signal = 0x03,
    Kill = 0x04,
    InputReply = 0x05,
    Request = 0x06,
    Restart = 0x07,
    Stdin = 0x08,
}

/// One message to the supervisor, in as many frames as it takes.
pub(crate) fn encode(order: Order, run: u32, payload: &Value) -> Vec<u8> {
    encode_raw(order, run, payload.to_string().as_bytes())
}

/// The same for a payload that is not JSON.
pub(crate) fn encode_raw(order: Order, run: u32, payload: &[u8]) -> Vec<u8> {
    let mut frames = Vec::with_capacity(payload.len() + HEADER);
    let mut rest = payload;
    loop {
        let (now, later) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        let kind = if later.is_empty() { order } else { Order::Part };
        frames.push(kind as u8);
        frames.extend_from_slice(&run.to_le_bytes());
        // At most MAX_PAYLOAD, so the conversion always succeeds.
        frames.extend_from_slice(&u32::try_from(now.len()).unwrap_or(0).to_le_bytes());
        frames.extend_from_slice(now);
        rest = later;
        if rest.is_empty() {
            return frames;
        }
    }
}

/// A frame from the container, and the run that the supervisor says it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Incoming {
    pub(crate) run: u32,
    /// Bytes that it took, for accounts.
    pub(crate) size: usize,
    pub(crate) frame: Frame,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Frame {
    Hello(Hello),
    Stdout(Bytes),
    Stderr(Bytes),
    Exit(Exit),
    Worker(WorkerNews),
    Fault(String),
    /// The process took so many bytes of its standard input; 0: it reads no more.
    Taken(u32),
    /// What a piped process wrote, apart from all that code may write beside it.
    PipeOut(Bytes),
    PipeErr(Bytes),
    Display(DisplayFrame),
    Result(BundleFrame),
    Error(ErrorFrame),
    Clear {
        wait: bool,
    },
    Input(InputFrame),
    Done(Done),
    Reply(Value),
    /// Guest code sent what can't be read or is too large; says which and why.
    Unreadable(String),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) python: String,
    pub(crate) pid: i64,
    pub(crate) undumpable: bool,
    pub(crate) filtered: bool,
    pub(crate) uid: i64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Exit {
    pub(crate) code: Option<i64>,
    pub(crate) signal: Option<i64>,
    pub(crate) stage: String,
    #[serde(default)]
    pub(crate) oom: bool,
    #[serde(default)]
    pub(crate) memory: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub(crate) enum WorkerNews {
    Ready { python: String, ipython: Option<String> },
    Lost(Lost),
}

/// How the Python session ended.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools, reason = "facts of a message, independent of each other")]
pub(crate) struct Lost {
    pub(crate) code: Option<i64>,
    pub(crate) signal: Option<i64>,
    pub(crate) oom: bool,
    pub(crate) restart: bool,
    pub(crate) ready: bool,
    pub(crate) broken: bool,
    /// The last line that a session wrote which did not come up.
    pub(crate) why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BundleFrame {
    pub(crate) data: Map<String, Value>,
    pub(crate) metadata: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DisplayFrame {
    #[serde(flatten)]
    pub(crate) bundle: BundleFrame,
    pub(crate) display_id: Option<String>,
    pub(crate) update: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ErrorFrame {
    pub(crate) ename: String,
    pub(crate) evalue: String,
    pub(crate) traceback: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct InputFrame {
    pub(crate) prompt: String,
    pub(crate) password: bool,
    pub(crate) seq: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Done {
    pub(crate) status: String,
    pub(crate) error: Option<ErrorFrame>,
    pub(crate) payload: Vec<Value>,
    pub(crate) user_expressions: Map<String, Value>,
    pub(crate) memory: Option<u64>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ClearFrame {
    wait: bool,
}

/// The channel can't be followed any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame announces {0} bytes; at most {MAX_PAYLOAD} are allowed")]
    TooLong(usize),
    #[error("there is no frame of kind 0x{0:02x}")]
    UnknownKind(u8),
    #[error("the supervisor's frame of kind 0x{0:02x} can't be read: {1}")]
    Malformed(u8, String),
}

/// Takes frames from a stream of bytes.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// What came of a message in parts.
    parts: Vec<u8>,
    /// Bytes of that message that were too many to keep.
    dropped: usize,
}

impl Decoder {
    /// The next message in `bytes`, when it is all there.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<Incoming>, FrameError> {
        loop {
            let Some(header) = bytes.get(..HEADER) else { return Ok(None) };
            let kind = header[0];
            let number =
                |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
            let (run, length) = (number(1), number(5) as usize);
            if length > MAX_PAYLOAD {
                return Err(FrameError::TooLong(length));
            }
            if bytes.len() < HEADER + length {
                bytes.reserve(HEADER + length - bytes.len());
                return Ok(None);
            }
            bytes.advance(HEADER);
            let payload = bytes.split_to(length).freeze();
            if let Some(frame) = self.take(kind, payload)? {
                return Ok(Some(Incoming { run, size: HEADER + length, frame }));
            }
        }
    }

    fn take(&mut self, kind: u8, payload: Bytes) -> Result<Option<Frame>, FrameError> {
        match kind {
            0x80..=0x88 => Frame::from_supervisor(kind, payload).map(Some),
            0xaf => {
                if self.parts.len() + payload.len() > MAX_MESSAGE {
                    self.dropped += payload.len();
                } else {
                    self.parts.extend_from_slice(&payload);
                }
                Ok(None)
            }
            0xae => {
                let mut message = std::mem::take(&mut self.parts);
                let dropped = std::mem::take(&mut self.dropped);
                let Some((&kind, end)) = payload.split_first() else {
                    return Ok(Some(Frame::Unreadable("a message without a kind".into())));
                };
                if dropped == 0 {
                    message.extend_from_slice(end);
                    return Ok(Some(Frame::from_worker(kind, message.into())));
                }
                let size = message.len() + dropped + end.len();
                Ok(Some(Frame::too_large(kind, size)))
            }
            0xa0..=0xa8 => {
                // An exception cut a message in parts short: it is not continued by this one.
                self.parts = Vec::new();
                self.dropped = 0;
                Ok(Some(Frame::from_worker(kind, payload)))
            }
            _ => Err(FrameError::UnknownKind(kind)),
        }
    }
}

impl Frame {
    fn from_supervisor(kind: u8, payload: Bytes) -> Result<Frame, FrameError> {
        #[derive(Deserialize)]
        struct Fault {
            message: String,
        }
        let bad = |e: serde_json::Error| FrameError::Malformed(kind, e.to_string());
        Ok(match kind {
            0x80 => Frame::Hello(serde_json::from_slice(&payload).map_err(bad)?),
            0x81 => Frame::Stdout(payload),
            0x82 => Frame::Stderr(payload),
            0x83 => Frame::Exit(serde_json::from_slice(&payload).map_err(bad)?),
            // The worker words this one, so a session that talks nonsense counts as one without a version.
            0x84 => Frame::Worker(
                serde_json::from_slice(&payload)
                    .unwrap_or_else(|_| WorkerNews::Ready { python: String::new(), ipython: None }),
            ),
            0x85 => Frame::Fault(serde_json::from_slice::<Fault>(&payload).map_err(bad)?.message),
            0x86 => match <[u8; 4]>::try_from(payload.as_ref()) {
                Ok(count) => Frame::Taken(u32::from_le_bytes(count)),
                Err(_) => return Err(FrameError::Malformed(kind, format!("{} bytes", payload.len()))),
            },
            0x87 => Frame::PipeOut(payload),
            0x88 => Frame::PipeErr(payload),
            _ => return Err(FrameError::UnknownKind(kind)),
        })
    }

    fn from_worker(kind: u8, payload: Bytes) -> Frame {
        fn json<T: serde::de::DeserializeOwned>(payload: &[u8], make: impl Fn(T) -> Frame) -> Frame {
            match serde_json::from_slice(payload) {
                Ok(value) => make(value),
                Err(e) => Frame::Unreadable(format!("something to show that is not valid JSON ({e})")),
            }
        }
        match kind {
            0xa0 => Frame::Stdout(payload),
            0xa1 => Frame::Stderr(payload),
            0xa2 => json(&payload, Frame::Display),
            0xa3 => json(&payload, Frame::Result),
            0xa4 => json(&payload, Frame::Error),
            0xa5 => json(&payload, |clear: ClearFrame| Frame::Clear { wait: clear.wait }),
            0xa6 => json(&payload, Frame::Input),
            0xa7 => Frame::Done(serde_json::from_slice(&payload).unwrap_or_else(|e| Done::unreadable(&e))),
            0xa8 => Frame::Reply(serde_json::from_slice(&payload).unwrap_or(Value::Null)),
            _ => Frame::Unreadable(format!("a message of the unknown kind 0x{kind:02x}")),
        }
    }

    /// A message that was too large to keep still ends what it ends.
    fn too_large(kind: u8, size: usize) -> Frame {
        let why = format!("{} MB at once; at most {} MB are taken", size >> 20, MAX_MESSAGE >> 20);
        match kind {
            0xa7 => Frame::Done(Done::unreadable(&why)),
            0xa8 => Frame::Reply(Value::Null),
            _ => Frame::Unreadable(why),
        }
    }
}

impl Done {
    fn unreadable(why: &dyn std::fmt::Display) -> Self {
        let error = ErrorFrame {
            ename: "SandboxError".into(),
            evalue: format!("the Python session's report of how the code ended can't be read: {why}"),
            traceback: Vec::new(),
        };
        Done { status: "error".into(), error: Some(error), ..Done::default() }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
