//! Signatures, and sealing: turning what the kernel says into signed frames.
//!
//! Imports `config` for the secret key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{DELIMITER, Frames, Header, PROTOCOL_VERSION};
use crate::config::Secret;

/// The length of a signature in bytes; it travels as twice as many hexadecimal digits.
pub const SIGNATURE_BYTES: usize = 32;

/// Signs what the kernel sends and checks what it receives; cheap to clone.
///
/// All clones are one *session*: they share the session id and the message counter.
#[derive(Clone)]
pub struct Signer {
    shared: Arc<Shared>,
}

struct Shared {
    /// `None`: the connection file has an empty key, messages are unsigned.
    mac: Option<Hmac<Sha256>>,
    session: String,
    sent: AtomicU64,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = if self.is_signing() { "***" } else { "none" };
        f.debug_struct("Signer").field("key", &key).field("session", &self.shared.session).finish()
    }
}

impl Signer {
    /// A session of its own with this key; the empty key means unsigned messages.
    pub fn new(key: &Secret) -> Self {
        let key = key.reveal().as_bytes();
        let mac = (!key.is_empty()).then(|| Hmac::new(&block(key).into()));
        let session = uuid::Uuid::new_v4().to_string();
        Signer { shared: Arc::new(Shared { mac, session, sent: AtomicU64::new(0) }) }
    }

    /// Whether there is a key at all.
    pub fn is_signing(&self) -> bool {
        self.shared.mac.is_some()
    }

    /// The `session` of every header that this signer seals.
    pub fn session(&self) -> &str {
        &self.shared.session
    }

    /// A fresh header of this session.
    pub fn header(&self, msg_type: &str) -> Header {
        let number = self.shared.sent.fetch_add(1, Ordering::Relaxed);
        Header {
            msg_id: format!("{}_{number}", self.shared.session),
            session: self.shared.session.clone(),
            username: "kernel".to_owned(),
            date: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
            msg_type: msg_type.to_owned(),
            version: PROTOCOL_VERSION.to_owned(),
            ..Header::default()
        }
    }

    /// Seals one message; `parent` is the header of the request that caused it.
    pub fn seal(
        &self,
        parent: Option<&Header>,
        msg_type: &str,
        content: &Value,
        metadata: &Map<String, Value>,
        buffers: Vec<Bytes>,
    ) -> Frames {
        self.seal_with(&self.header(msg_type), parent, content, metadata, buffers)
    }

    /// Seals one message under a header that the caller made.
    pub fn seal_with(
        &self,
        header: &Header,
        parent: Option<&Header>,
        content: &Value,
        metadata: &Map<String, Value>,
        buffers: Vec<Bytes>,
    ) -> Frames {
        let header = json(header);
        let parent = parent.map_or_else(|| Bytes::from_static(b"{}"), json);
        let metadata = if metadata.is_empty() { Bytes::from_static(b"{}") } else { json(metadata) };
        let content = json(content);
        let signature = self.signature(&[&header, &parent, &metadata, &content]);
        let mut frames = Vec::with_capacity(6 + buffers.len());
        frames.extend([Bytes::from_static(DELIMITER), signature, header, parent, metadata, content]);
        frames.extend(buffers);
        Frames(frames)
    }

    /// The signature frame over the four JSON frames: hexadecimal digits, or empty without a key.
    fn signature(&self, parts: &[&[u8]; 4]) -> Bytes {
        let Some(mac) = &self.shared.mac else { return Bytes::new() };
        let mut mac = mac.clone();
        for part in parts {
            mac.update(part);
        }
        let digest = mac.finalize().into_bytes();
        let mut hex = Vec::with_capacity(2 * SIGNATURE_BYTES);
        for byte in digest {
            hex.push(HEX[usize::from(byte >> 4)]);
            hex.push(HEX[usize::from(byte & 15)]);
        }
        hex.into()
    }

    /// Checks a signature frame in constant time. `Ok(None)`: there is no key, nothing was checked.
    pub(super) fn verify(
        &self,
        signature: &[u8],
        parts: &[&[u8]; 4],
    ) -> Result<Option<[u8; SIGNATURE_BYTES]>, BadSignature> {
        let Some(mac) = &self.shared.mac else { return Ok(None) };
        let given = unhex(signature).ok_or(BadSignature)?;
        let mut mac = mac.clone();
        for part in parts {
            mac.update(part);
        }
        mac.verify_slice(&given).map_err(|_| BadSignature)?;
        Ok(Some(given))
    }
}

/// The key as HMAC's definition wants it: one block, longer keys hashed, shorter ones filled with zeros.
/// With a block the constructor cannot fail.
fn block(key: &[u8]) -> [u8; 64] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        let digest = Sha256::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    block
}

/// The signature is missing, malformed or wrong; which of these is nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadSignature;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Lower-case hexadecimal digits only: a signature has one spelling.
fn unhex(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    fn digit(c: u8) -> Option<u8> {
        match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        }
    }
    if text.len() != 2 * SIGNATURE_BYTES {
        return None;
    }
    let mut bytes = [0; SIGNATURE_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// JSON text of what always has one: headers, maps and values have string keys and no foreign types.
fn json(value: &impl serde::Serialize) -> Bytes {
    // `to_vec` fails only for maps with keys that are not strings and for failing writers.
    serde_json::to_vec(value).map_or_else(|_| Bytes::from_static(b"{}"), Bytes::from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn hex(signer: &Signer, parts: [&[u8]; 4]) -> String {
        String::from_utf8(signer.signature(&parts).to_vec()).unwrap()
    }

    #[test]
    fn signatures_are_those_of_the_standard() {
        // RFC 4231, test cases 1 (a short key) and 6 (a key longer than a block), as far as the keys are text.
        let signer = Signer::new(&Secret::new("Jefe"));
        assert_eq!(
            hex(&signer, [b"what do ya want ", b"for ", b"nothing", b"?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = "k".repeat(131);
        let mut plain = Hmac::<Sha256>::new_from_slice(long.as_bytes()).unwrap();
        plain.update(b"text");
        let expected = plain.finalize().into_bytes();
        let got = hex(&Signer::new(&Secret::new(long)), [b"te", b"", b"x", b"t"]);
        assert_eq!(unhex(got.as_bytes()), Some(expected.into()));
    }

    #[test]
    fn a_signature_has_one_spelling() {
        let signer = Signer::new(&Secret::new("key"));
        let parts: [&[u8]; 4] = [b"{}"; 4];
        let signature = signer.signature(&parts);
        assert!(signer.verify(&signature, &parts).is_ok());
        assert!(signer.verify(&signature.to_ascii_uppercase(), &parts).is_err());
        assert!(signer.verify(&signature[1..], &parts).is_err());
        assert!(signer.verify(b"", &parts).is_err());
    }

    #[test]
    fn message_ids_are_unique_within_a_session_and_sessions_differ() {
        let signer = Signer::new(&Secret::new(""));
        let again = signer.clone();
        let ids = [signer.header("a").msg_id, again.header("a").msg_id, signer.header("b").msg_id];
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        assert_ne!(Signer::new(&Secret::new("")).session(), signer.session());
    }

    #[test]
    fn the_key_is_never_printed() {
        let signer = Signer::new(&Secret::new("hush"));
        assert!(!format!("{signer:?}").contains("hush"));
    }

    #[test]
    fn a_message_without_parent_has_an_empty_parent_header() {
        let frames = Signer::new(&Secret::new("")).seal(None, "t", &json!({}), &Map::new(), Vec::new());
        assert_eq!(frames.as_slice()[3], "{}");
        assert_eq!(frames.as_slice()[4], "{}");
        assert!(frames.size() > 100);
    }
}
