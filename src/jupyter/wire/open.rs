//! Opening a client's message: authenticated before it is parsed, replays refused, total.
//!
//! Imports nothing of ours but its siblings. Whatever the frames hold, the answer is a [`Signed`] or a
//! [`Refused`]; the caller counts refusals and goes on.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::sign::{SIGNATURE_BYTES, Signer};
use super::{DELIMITER, Header};

/// More routing frames than this before the delimiter, and the message is refused.
const MAX_ROUTE: usize = 16;

/// How many signatures are remembered against replays, as many as clients remember of ours.
const REMEMBERED: usize = 1 << 16;

/// A client's message whose signature was right (or, without a key, none was asked for).
///
/// Only [`Opener::open`] makes one, so to hold it is the proof.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Signed {
    /// Who sends what.
    pub header: Header,
    /// The header of the message that this one answers; usually empty.
    pub parent_header: Value,
    /// Remarks beside the content.
    pub metadata: Map<String, Value>,
    /// The message's content.
    pub content: Value,
    /// Binary buffers; not covered by the signature.
    pub buffers: Vec<Bytes>,
    /// Routing frames that stood before the delimiter, to be put before the reply's.
    pub(crate) route: Vec<Bytes>,
}

/// Why a message was refused. Nothing of its text is repeated: it may be hostile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not the shape of a Jupyter message.
    #[error("the message has no delimiter or too few frames; it was not sent by a Jupyter client")]
    Shape,
    /// The signature is missing or wrong.
    #[error("the signature is missing or wrong: the sender does not know the key of the connection file")]
    Signature,
    /// A message with this signature was seen before.
    #[error("the message was received before: a replay")]
    Replay,
    /// The message is one of our own, sent back to us.
    #[error("the message is one that this kernel sent itself")]
    Reflection,
    /// The signature is right but a JSON frame is not what it must be.
    #[error("the {0} frame is not the JSON object that it must be")]
    Json(&'static str),
}

/// Opens messages and remembers their signatures; one per kernel, for all its channels.
#[derive(Debug)]
pub struct Opener {
    signer: Signer,
    seen: HashSet<[u8; SIGNATURE_BYTES]>,
    order: VecDeque<[u8; SIGNATURE_BYTES]>,
    capacity: usize,
}

impl Opener {
    /// Opens messages of clients that know this signer's key.
    pub fn new(signer: Signer) -> Self {
        Opener { signer, seen: HashSet::new(), order: VecDeque::new(), capacity: REMEMBERED }
    }

    /// Opens one message: routing frames, delimiter, signature, four JSON frames, buffers.
    ///
    /// # Errors
    /// [`Refused`]; never panics, whatever the frames hold.
    pub fn open(&mut self, mut frames: Vec<Bytes>) -> Result<Signed, Refused> {
        let delimiter = frames
            .iter()
            .take(MAX_ROUTE + 1)
            .position(|frame| frame.as_ref() == DELIMITER)
            .ok_or(Refused::Shape)?;
        let message = frames.split_off(delimiter);
        let [_, signature, header, parent, metadata, content, buffers @ ..] = message.as_slice() else {
            return Err(Refused::Shape);
        };

        let digest = self
            .signer
            .verify(signature, &[header, parent, metadata, content])
            .map_err(|_| Refused::Signature)?;
        if let Some(digest) = digest {
            self.remember(digest)?;
        }

        let header: Header = serde_json::from_slice(header).map_err(|_| Refused::Json("header"))?;
        // Everyone may read iopub, and what the kernel signs there carries a valid signature: sent back
        // to us (a comm message, say), it must not count as a client's.
        if header.session == self.signer.session() {
            return Err(Refused::Reflection);
        }
        let parent_header: Value =
            serde_json::from_slice(parent).map_err(|_| Refused::Json("parent header"))?;
        let metadata = serde_json::from_slice(metadata).map_err(|_| Refused::Json("metadata"))?;
        let content: Value = serde_json::from_slice(content).map_err(|_| Refused::Json("content"))?;
        if !content.is_object() {
            return Err(Refused::Json("content"));
        }
        Ok(Signed { header, parent_header, metadata, content, buffers: buffers.to_vec(), route: frames })
    }

    fn remember(&mut self, digest: [u8; SIGNATURE_BYTES]) -> Result<(), Refused> {
        if !self.seen.insert(digest) {
            return Err(Refused::Replay);
        }
        self.order.push_back(digest);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        Ok(())
    }
}
