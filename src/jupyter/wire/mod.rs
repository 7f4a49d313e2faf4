//! What travels between a front end and the kernel: the connection file, signed multipart messages,
//! their headers.
//!
//! May import `config` (for [`crate::config::Secret`]) only. Knows nothing of sockets: a message is a
//! list of byte frames. To support another signature scheme, extend `connection::Scheme` and
//! [`sign::Signer`].
//!
//! | file | what |
//! | --- | --- |
//! | [`connection`] | the connection file, validated |
//! | [`header`] | the header of a message |
//! | [`sign`] | HMAC, sealing what the kernel says |
//! | [`open`] | authenticating what a client says, replays refused |

pub mod connection;
pub mod header;
pub mod open;
pub mod sign;

use bytes::Bytes;

pub use connection::{ConnectionError, ConnectionInfo, Port, Transport};
pub use header::Header;
pub use open::{Opener, Refused, Signed};
pub use sign::Signer;

/// The version of the messaging protocol that every header and `kernel_info_reply` declares.
pub const PROTOCOL_VERSION: &str = "5.5";

/// Separates routing identities from the message proper.
pub const DELIMITER: &[u8] = b"<IDS|MSG>";

/// A sealed message: delimiter, signature, header, parent header, metadata, content, buffers.
///
/// Made by [`Signer::seal`] alone, so an unsigned message cannot reach a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frames(pub(crate) Vec<Bytes>);

impl Frames {
    /// The frames, the delimiter first.
    pub fn as_slice(&self) -> &[Bytes] {
        &self.0
    }

    /// How many bytes the message has on the wire, framing aside.
    pub fn size(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}
