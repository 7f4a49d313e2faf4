//! Private messages between `sockets` and the relays of the guard, carried by ZeroMQ itself so that they
//! stay in order with everything else. No client ever sees one or may send one.
//!
//! Imports nothing of ours. A mark's first frame is [`PREFIX`], a letter, and eight bytes.
//!
//! | mark | direction | meaning |
//! | --- | --- | --- |
//! | `Joined(id)` | relay to XPUB, as a subscription | the connection takes part in flushes from here on |
//! | `Subscribed(id)`, then the topic | relay to XPUB, as a subscription | the subscription before it is in force: welcome it |
//! | `Welcome(id)`, topic and message follow | XPUB to all relays | for that connection alone |
//! | `Flush(n)` | ZeroMQ to relays | all that was sent before has come out of ZeroMQ |

use bytes::{BufMut, Bytes, BytesMut};

/// No topic and no frame of the kernel's begins like this; subscriptions that do are refused.
pub(crate) const PREFIX: &[u8] = b"\0cb\0";

const LENGTH: usize = PREFIX.len() + 9;

/// One mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Joined(u64),
    Subscribed(u64),
    Welcome(u64),
    Flush(u64),
}

impl Mark {
    /// As bytes.
    pub(crate) fn encode(self) -> Bytes {
        let (letter, number) = match self {
            Mark::Joined(id) => (b'J', id),
            Mark::Subscribed(id) => (b'S', id),
            Mark::Welcome(id) => (b'W', id),
            Mark::Flush(n) => (b'F', n),
        };
        let mut bytes = BytesMut::with_capacity(LENGTH);
        bytes.put_slice(PREFIX);
        bytes.put_u8(letter);
        bytes.put_u64(number);
        bytes.freeze()
    }

    /// The mark at the beginning of a frame, and what follows it in the frame.
    pub(crate) fn decode(frame: &[u8]) -> Option<(Mark, &[u8])> {
        let (letter, rest) = frame.strip_prefix(PREFIX)?.split_first()?;
        let (number, rest) = rest.split_at_checked(8)?;
        let number = number.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let mark = match letter {
            b'J' => Mark::Joined(number),
            b'S' => Mark::Subscribed(number),
            b'W' => Mark::Welcome(number),
            b'F' => Mark::Flush(number),
            _ => return None,
        };
        Some((mark, rest))
    }
}

/// The prefix to which every relay subscribes so that flushes reach it.
pub(crate) fn flush_topic() -> Bytes {
    Bytes::from_static(b"\0cb\0F")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marks_come_back_with_what_follows_them() {
        for mark in [Mark::Joined(1), Mark::Subscribed(u64::MAX), Mark::Welcome(0), Mark::Flush(7)] {
            let bytes = [&mark.encode()[..], b"topic"].concat();
            assert_eq!(Mark::decode(&bytes), Some((mark, &b"topic"[..])));
        }
        assert!(Mark::Flush(3).encode().starts_with(&flush_topic()));
    }

    proptest! {
        #[test]
        fn nothing_else_is_a_mark(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            prop_assert!(Mark::decode(&bytes).is_none() || bytes.starts_with(PREFIX));
        }
    }
}
