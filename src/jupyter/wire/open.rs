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
        let metadata = match serde_json::from_slice(metadata).map_err(|_| Refused::Json("metadata"))? {
            Value::Object(metadata) => metadata,
            // Nothing in it is needed to answer: whoever asked would wait for ever.
            _ => Map::new(),
        };
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::config::Secret;
    use crate::jupyter::wire::Frames;

    fn key() -> Secret {
        Secret::new("a key that both sides know")
    }

    /// A client's message and the kernel that opens it; they share the key, not the session.
    fn request(content: &Value, buffers: Vec<Bytes>) -> (Vec<Bytes>, Opener) {
        let client = Signer::new(&key());
        let Frames(frames) = client.seal(None, "echo", content, &Map::new(), buffers);
        (frames, Opener::new(Signer::new(&key())))
    }

    #[test]
    fn a_sealed_message_opens_as_it_was() {
        let content = json!({"code": "1 + 1", "silent": false});
        let (mut frames, mut opener) = request(&content, vec![Bytes::from_static(&[0, 255])]);
        frames.splice(0..0, [Bytes::from_static(b"route one"), Bytes::from_static(b"two")]);
        let signed = opener.open(frames).unwrap();
        assert_eq!(signed.header.msg_type, "echo");
        assert_eq!(signed.header.version, "5.5");
        assert_eq!(signed.content, content);
        assert_eq!(signed.buffers, [&[0, 255][..]]);
        assert_eq!(signed.route, [&b"route one"[..], b"two"]);
    }

    #[test]
    fn unknown_fields_of_a_header_come_back_in_the_parent_header() {
        let client = Signer::new(&key());
        let mut header = client.header("echo");
        header.subshell_id = Some("sub".to_owned());
        header.extra.insert("from_the_future".to_owned(), json!([1]));
        let sealed = client.seal_with(&header, None, &json!({}), &Map::new(), Vec::new());
        let mut kernel = Opener::new(Signer::new(&key()));
        let request = kernel.open(sealed.0).unwrap();
        assert_eq!(request.header, header);
        let reply = kernel.signer.seal(Some(&request.header), "r", &json!({}), &Map::new(), Vec::new());
        let parent: Value = serde_json::from_slice(&reply.as_slice()[3]).unwrap();
        assert_eq!(parent["from_the_future"], json!([1]));
        assert_eq!(parent["subshell_id"], "sub");
    }

    #[test]
    fn any_change_of_any_signed_frame_is_refused() {
        let (frames, mut opener) = request(&json!({"code": "1"}), Vec::new());
        for frame in 1..6 {
            for bit in 0..frames[frame].len() * 8 {
                let mut changed = frames.clone();
                let mut bytes = changed[frame].to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                changed[frame] = bytes.into();
                assert_eq!(opener.open(changed), Err(Refused::Signature), "frame {frame}, bit {bit}");
            }
        }
        assert!(opener.open(frames).is_ok());
    }

    #[test]
    fn truncated_messages_are_refused() {
        let (frames, mut opener) = request(&json!({}), Vec::new());
        for length in 0..frames.len() {
            assert_eq!(opener.open(frames[..length].to_vec()), Err(Refused::Shape));
        }
    }

    #[test]
    fn an_unsigned_message_is_refused_by_a_kernel_with_a_key_and_opened_by_one_without() {
        let unsigned = Signer::new(&Secret::new(""));
        let frames = unsigned.seal(None, "echo", &json!({}), &Map::new(), Vec::new());
        assert!(frames.as_slice()[1].is_empty());
        let mut with_key = Opener::new(Signer::new(&key()));
        assert_eq!(with_key.open(frames.0.clone()), Err(Refused::Signature));
        let mut without = Opener::new(Signer::new(&Secret::new("")));
        assert!(without.open(frames.0).is_ok());
    }

    #[test]
    fn a_replay_is_refused_even_with_other_buffers() {
        let (mut frames, mut opener) = request(&json!({}), Vec::new());
        assert!(opener.open(frames.clone()).is_ok());
        assert_eq!(opener.open(frames.clone()), Err(Refused::Replay));
        frames.push(Bytes::from_static(b"a buffer"));
        assert_eq!(opener.open(frames), Err(Refused::Replay));
    }

    #[test]
    fn the_memory_of_replays_is_bounded_and_forgets_the_oldest() {
        let client = Signer::new(&key());
        let mut opener = Opener::new(Signer::new(&key()));
        opener.capacity = 10;
        let messages: Vec<_> =
            (0..25).map(|_| client.seal(None, "echo", &json!({}), &Map::new(), Vec::new()).0).collect();
        for message in &messages {
            assert!(opener.open(message.clone()).is_ok());
        }
        assert_eq!((opener.seen.len(), opener.order.len()), (10, 10));
        assert_eq!(opener.open(messages[24].clone()), Err(Refused::Replay));
        assert_eq!(opener.open(messages[15].clone()), Err(Refused::Replay));
    }

    #[test]
    fn what_the_kernel_itself_signed_is_refused() {
        let kernel = Signer::new(&key());
        let said = kernel.seal(None, "comm_msg", &json!({}), &Map::new(), Vec::new());
        assert_eq!(Opener::new(kernel).open(said.0), Err(Refused::Reflection));
    }

    #[test]
    fn json_that_is_not_an_object_or_nested_too_deeply_is_refused() {
        let client = Signer::new(&key());
        let mut opener = Opener::new(Signer::new(&key()));
        for content in [json!([]), json!("text"), json!(null)] {
            let frames = client.seal(None, "echo", &content, &Map::new(), Vec::new());
            assert_eq!(opener.open(frames.0), Err(Refused::Json("content")));
        }
        // Deeper than the parser goes: refused, where recursion without end would overflow the stack.
        let deep = (0..120).fold(json!({}), |inner, _| json!({ "a": inner }));
        let (frames, mut kernel) = request(&deep, Vec::new());
        assert!(kernel.open(frames).is_ok());
        let deeper = (0..200).fold(json!({}), |inner, _| json!({ "a": inner }));
        let (frames, mut kernel) = request(&deeper, Vec::new());
        assert_eq!(kernel.open(frames), Err(Refused::Json("content")));
    }

    proptest! {
        #[test]
        fn arbitrary_frames_are_refused_and_never_panic(
            frames in prop::collection::vec(
                prop_oneof![
                    Just(DELIMITER.to_vec()),
                    Just(b"{}".to_vec()),
                    prop::collection::vec(any::<u8>(), 0..100),
                ],
                0..30,
            )
        ) {
            let frames: Vec<Bytes> = frames.into_iter().map(Bytes::from).collect();
            let mut opener = Opener::new(Signer::new(&key()));
            prop_assert!(opener.open(frames.clone()).is_err());
            // Without a key everything is parsed: nothing of it may panic.
            let _ = Opener::new(Signer::new(&Secret::new(""))).open(frames);
        }

        #[test]
        fn whatever_a_message_holds_it_comes_back(text in ".*", buffer in prop::collection::vec(any::<u8>(), 0..50)) {
            let content = json!({ "text": text });
            let (frames, mut opener) = request(&content, vec![Bytes::from(buffer.clone())]);
            let signed = opener.open(frames).unwrap();
            prop_assert_eq!(signed.content, content);
            prop_assert_eq!(&signed.buffers[0], &buffer);
        }
    }
}
