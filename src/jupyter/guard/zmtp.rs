//! Just enough ZMTP 3.0: greetings, the READY command, the boundaries of messages. Pure and total.
//!
//! Imports nothing of ours. Nothing here allocates by what a peer announces: the caller reads, a length
//! above the cap is refused when its header arrives, and memory grows with the bytes that are there.

use bytes::{BufMut, Bytes, BytesMut};

/// The length of a greeting.
pub(crate) const GREETING: usize = 64;

/// No command of the NULL mechanism is longer: two properties, an identity of at most 255 bytes.
pub(crate) const MAX_COMMAND: usize = 1024;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What one message may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    /// All frames together, with their headers.
    pub(crate) bytes: usize,
    /// How many frames.
    pub(crate) frames: usize,
}

/// What a peer did that ends its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("does not speak ZMTP 3")]
    Greeting,
    #[error("asks for a security mechanism; there is only NULL")]
    Mechanism,
    #[error("sent a frame with unknown flags")]
    Flags,
    #[error("announced a frame or message that is too long for this socket")]
    TooLong,
    #[error("sent a message with too many frames")]
    TooManyFrames,
    #[error("sent a command that cannot be read or has no place here")]
    Command,
    #[error("is of a socket type that does not fit this one")]
    SocketType,
    #[error("subscribed to too many topics, or to a private one")]
    Subscription,
}

/// Our greeting: version 3.0 (so that subscriptions come as messages, as in every version), NULL.
pub(crate) fn greeting() -> [u8; GREETING] {
    let mut greeting = [0; GREETING];
    greeting[0] = 0xff;
    greeting[9] = 0x7f;
    greeting[10] = 3;
    greeting[12..16].copy_from_slice(b"NULL");
    greeting
}

/// Checks as much of a greeting as is there, so that nonsense is refused at its first byte.
pub(crate) fn check_greeting(bytes: &[u8]) -> Result<(), Violation> {
    let at = |i: usize, ok: fn(u8) -> bool| bytes.get(i).is_none_or(|b| ok(*b));
    if !at(0, |b| b == 0xff) || !at(9, |b| b & 1 == 1) || !at(10, |b| b >= 3) {
        return Err(Violation::Greeting);
    }
    let mechanism = bytes.get(12..32).unwrap_or_default();
    if !mechanism.is_empty() && (&mechanism[..4] != b"NULL" || mechanism[4..].iter().any(|b| *b != 0)) {
        return Err(Violation::Mechanism);
    }
    Ok(())
}

/// A READY command as a frame.
pub(crate) fn ready(socket_type: &[u8], identity: &[u8]) -> BytesMut {
    let mut body = BytesMut::from(&b"\x05READY"[..]);
    for (name, value) in [(&b"Socket-Type"[..], socket_type), (b"Identity", identity)] {
        put_short(&mut body, name);
        body.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        body.put_slice(value);
    }
    command(&body)
}

/// An ERROR command as a frame; tells a peer why it is being disconnected.
pub(crate) fn error(reason: &str) -> BytesMut {
    let mut body = BytesMut::from(&b"\x05ERROR"[..]);
    put_short(&mut body, reason.as_bytes());
    command(&body)
}

/// The answer to a PING command, when this is one: its context comes back.
pub(crate) fn pong(ping: &[u8]) -> Option<BytesMut> {
    let context = ping.strip_prefix(b"\x04PING")?.get(2..)?;
    let mut body = BytesMut::from(&b"\x04PONG"[..]);
    body.put_slice(&context[..context.len().min(16)]);
    Some(command(&body))
}

fn put_short(into: &mut BytesMut, value: &[u8]) {
    let value = &value[..value.len().min(255)];
    into.put_u8(u8::try_from(value.len()).unwrap_or(u8::MAX));
    into.put_slice(value);
}

fn command(body: &[u8]) -> BytesMut {
    frame(COMMAND, body)
}

fn frame(flags: u8, body: &[u8]) -> BytesMut {
    let mut frame = BytesMut::with_capacity(body.len() + 9);
    if let Ok(length) = u8::try_from(body.len()) {
        frame.put_slice(&[flags, length]);
    } else {
        frame.put_u8(flags | LONG);
        frame.put_u64(body.len() as u64);
    }
    frame.put_slice(body);
    frame
}

/// A message of one frame, on the wire.
pub(crate) fn single(body: &[u8]) -> BytesMut {
    frame(0, body)
}

/// What the guard needs of a client's READY command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) socket_type: Bytes,
    /// What the client claims to be; may be empty.
    pub(crate) identity: Bytes,
}

impl Ready {
    /// Reads the body of a READY command.
    pub(crate) fn parse(body: &Bytes) -> Result<Self, Violation> {
        let take = |at: &mut usize, n: usize| {
            let end = at.checked_add(n).filter(|end| *end <= body.len()).ok_or(Violation::Command)?;
            let part = body.slice(*at..end);
            *at = end;
            Ok(part)
        };
        let mut at = 0;
        if take(&mut at, 6)? != b"\x05READY"[..] {
            return Err(Violation::Command);
        }
        let mut found = Ready { socket_type: Bytes::new(), identity: Bytes::new() };
        while at < body.len() {
            let length = usize::from(take(&mut at, 1)?[0]);
            let name = take(&mut at, length)?;
            let length = take(&mut at, 4)?;
            let length = length.iter().fold(0usize, |n, b| n << 8 | usize::from(*b));
            let value = take(&mut at, length)?;
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                found.socket_type = value;
            } else if name.eq_ignore_ascii_case(b"Identity") {
                found.identity = value;
            }
        }
        if found.identity.len() > 255 {
            return Err(Violation::Command);
        }
        Ok(found)
    }
}

/// One complete thing that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unit {
    /// All frames of one message, exactly as they were on the wire.
    Message(Bytes),
    /// The body of a command.
    Command(Bytes),
}

/// Finds the ends of messages in a stream of bytes.
#[derive(Debug)]
pub(crate) struct Splitter {
    caps: Caps,
    /// How far the message in progress is known to be complete.
    complete: usize,
    frames: usize,
    /// How many bytes there must be before anything new can be said.
    wanted: usize,
}

impl Splitter {
    pub(crate) fn new(caps: Caps) -> Self {
        Splitter { caps, complete: 0, frames: 0, wanted: 0 }
    }

    /// For a stream that the kernel itself writes: no caps.
    pub(crate) fn trusting() -> Self {
        Splitter::new(Caps { bytes: usize::MAX, frames: usize::MAX })
    }

    /// How many bytes `buffer` must have in total before [`Splitter::next`] can go on.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Takes the next complete unit off the front of `buffer`; `None` when more bytes are needed.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Unit>, Violation> {
        loop {
            let start = self.complete;
            let rest = buffer.get(start..).unwrap_or_default();
            let Some(flags) = rest.first().copied() else {
                return Ok(self.more(start.saturating_add(2)));
            };
            if flags & !(MORE | LONG | COMMAND) != 0 {
                return Err(Violation::Flags);
            }
            let header = if flags & LONG == 0 { 2 } else { 9 };
            let Some(length) = rest.get(1..header) else {
                return Ok(self.more(start.saturating_add(header)));
            };
            let length = length.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
            let length = usize::try_from(length).map_err(|_| Violation::TooLong)?;
            let end = header.checked_add(length).and_then(|n| n.checked_add(start));
            let end = end.filter(|end| isize::try_from(*end).is_ok()).ok_or(Violation::TooLong)?;

            if flags & COMMAND != 0 {
                // A command inside a message would have to be cut out of it; no client sends one there.
                if flags & MORE != 0 || start != 0 {
                    return Err(Violation::Command);
                }
                if length > MAX_COMMAND {
                    return Err(Violation::TooLong);
                }
                if buffer.len() < end {
                    return Ok(self.more(end));
                }
                let body = buffer.split_to(end).freeze().slice(header..);
                return Ok(Some(Unit::Command(body)));
            }

            if end > self.caps.bytes {
                return Err(Violation::TooLong);
            }
            if self.frames >= self.caps.frames {
                return Err(Violation::TooManyFrames);
            }
            if buffer.len() < end {
                return Ok(self.more(end));
            }
            if flags & MORE == 0 {
                (self.complete, self.frames) = (0, 0);
                return Ok(Some(Unit::Message(buffer.split_to(end).freeze())));
            }
            self.complete = end;
            self.frames += 1;
        }
    }

    fn more(&mut self, wanted: usize) -> Option<Unit> {
        self.wanted = wanted;
        None
    }
}

/// The body of a message's first frame, and the message without that frame.
///
/// `message` is what a [`Splitter`] returned; of anything else nothing is found.
pub(crate) fn split_first(message: &Bytes) -> Option<(Bytes, Bytes)> {
    let flags = *message.first()?;
    let header = if flags & LONG == 0 { 2 } else { 9 };
    let length = message.get(1..header)?.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let end = header.checked_add(usize::try_from(length).ok()?)?;
    (end <= message.len()).then(|| (message.slice(header..end), message.slice(end..)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use proptest::prelude::*;

    use super::*;

    const CAPS: Caps = Caps { bytes: 2000, frames: 4 };

    /// Feeds bytes in pieces cut at these lengths, as a connection would; what came out, and the most memory
    /// that the buffer ever had.
    fn feed(bytes: &[u8], cuts: &[usize]) -> (Vec<Unit>, Option<Violation>, usize) {
        let mut splitter = Splitter::new(CAPS);
        let (mut units, mut buffer, mut most) = (Vec::new(), BytesMut::new(), 0);
        let mut rest = bytes;
        let mut cuts = cuts.iter().copied().chain(std::iter::repeat(usize::MAX));
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cuts.next().unwrap().clamp(1, rest.len()));
            rest = after;
            buffer.extend_from_slice(piece);
            most = most.max(buffer.len());
            loop {
                match splitter.next(&mut buffer) {
                    Ok(Some(unit)) => units.push(unit),
                    Ok(None) => break,
                    Err(violation) => return (units, Some(violation), most),
                }
            }
        }
        (units, None, most)
    }

    fn wire(frames: &[Vec<u8>]) -> BytesMut {
        let mut bytes = BytesMut::new();
        for (i, body) in frames.iter().enumerate() {
            bytes.unsplit(frame(u8::from(i + 1 < frames.len()), body));
        }
        bytes
    }

    #[test]
    fn a_ready_command_is_read_and_written() {
        let bytes = ready(b"DEALER", b"someone");
        let (units, violation, _) = feed(&bytes, &[]);
        assert_eq!(violation, None);
        let [Unit::Command(body)] = units.as_slice() else { panic!("{units:?}") };
        let expected = Ready { socket_type: "DEALER".into(), identity: "someone".into() };
        assert_eq!(Ready::parse(body), Ok(expected));
    }

    #[test]
    fn a_long_identity_makes_a_long_command_that_is_still_read() {
        let (units, ..) = feed(&ready(b"DEALER", &[7; 255]), &[1; 400]);
        let [Unit::Command(body)] = units.as_slice() else { panic!("{units:?}") };
        assert_eq!(Ready::parse(body).unwrap().identity.len(), 255);
        let (units, ..) = feed(&ready(b"DEALER", &[7; 256]), &[]);
        let [Unit::Command(body)] = units.as_slice() else { panic!("{units:?}") };
        assert_eq!(Ready::parse(body), Err(Violation::Command));
    }

    #[test]
    fn lengths_above_the_cap_are_refused_when_their_header_arrives() {
        for length in [2000, 1 << 31, 1 << 61, u64::MAX >> 1, u64::MAX] {
            let header = [&[LONG][..], &u64::to_be_bytes(length)].concat();
            assert_eq!(feed(&header, &[1; 9]).1, Some(Violation::TooLong), "{length}");
            let command = [&[LONG | COMMAND][..], &u64::to_be_bytes(length)].concat();
            assert_eq!(feed(&command, &[]).1, Some(Violation::TooLong), "{length}");
        }
        // Frames that are short enough one by one, but not together.
        let many = wire(&[vec![1; 900], vec![2; 900], vec![3; 900]]);
        assert_eq!(feed(&many, &[]).1, Some(Violation::TooLong));
    }

    #[test]
    fn too_many_frames_unknown_flags_and_misplaced_commands_are_refused() {
        assert_eq!(feed(&wire(&vec![Vec::new(); 5]), &[]).1, Some(Violation::TooManyFrames));
        assert_eq!(feed(&wire(&vec![Vec::new(); 4]), &[]).1, None);
        assert_eq!(feed(&[8, 0], &[]).1, Some(Violation::Flags));
        assert_eq!(feed(&[COMMAND | MORE, 0], &[]).1, Some(Violation::Command));
        assert_eq!(feed(&[MORE, 1, b'x', COMMAND, 0], &[]).1, Some(Violation::Command));
    }

    #[test]
    fn nonsense_is_refused_at_the_byte_that_shows_it() {
        let good = greeting();
        for length in 0..=GREETING {
            assert_eq!(check_greeting(&good[..length]), Ok(()));
        }
        assert_eq!(check_greeting(b"G"), Err(Violation::Greeting));
        let mut version_two = good;
        version_two[10] = 2;
        assert_eq!(check_greeting(&version_two[..11]), Err(Violation::Greeting));
        let mut curve = good;
        curve[12..17].copy_from_slice(b"CURVE");
        assert_eq!(check_greeting(&curve), Err(Violation::Mechanism));
        let mut longer = good;
        longer[16] = b'2';
        assert_eq!(check_greeting(&longer), Err(Violation::Mechanism));
    }

    #[test]
    fn a_ping_is_answered_with_its_context() {
        let pong = pong(b"\x04PING\0\x0acontext").unwrap();
        assert_eq!(&pong[..], b"\x04\x0c\x04PONGcontext");
        for other in [&b""[..], b"\x04PING", b"\x04PING\0", b"\x05READY\0\0"] {
            assert_eq!(super::pong(other), None);
        }
    }

    #[test]
    fn the_first_frame_is_split_off() {
        let long = vec![7; 300];
        let message = wire(&[long.clone(), b"rest".to_vec()]).freeze();
        let (first, rest) = split_first(&message).unwrap();
        assert_eq!(first, long);
        assert_eq!(rest, b"\0\x04rest"[..]);
        assert_eq!(split_first(&Bytes::from_static(&[LONG, 255, 255, 255, 255, 255, 255, 255, 255])), None);
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_they_are_cut(
            messages in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4), 0..6),
            cuts in prop::collection::vec(1usize..50, 0..200),
        ) {
            let expected: Vec<Bytes> = messages.iter().map(|m| wire(m).freeze()).collect();
            let (units, violation, _) = feed(&expected.concat(), &cuts);
            prop_assert_eq!(violation, None);
            let got: Vec<Bytes> = units.into_iter().map(|unit| match unit {
                Unit::Message(bytes) | Unit::Command(bytes) => bytes,
            }).collect();
            prop_assert_eq!(got, expected);
        }

    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn arbitrary_bytes_never_panic_and_nothing_above_the_cap_is_held(
            bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..3000),
            cuts in prop::collection::vec(1usize..50, 0..200),
        ) {
            let mut splitter = Splitter::new(CAPS);
            let mut buffer = BytesMut::new();
            let mut rest = &bytes[..];
            let mut cuts = cuts.into_iter().chain(std::iter::repeat(50));
            'connection: while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                rest = after;
                buffer.extend_from_slice(piece);
                loop {
                    match splitter.next(&mut buffer) {
                        Ok(Some(Unit::Message(message))) => {
                            prop_assert!(message.len() <= CAPS.bytes);
                            let _ = split_first(&message);
                        }
                        Ok(Some(Unit::Command(body))) => {
                            let _ = (Ready::parse(&body), pong(&body));
                        }
                        Ok(None) => break,
                        Err(_) => break 'connection,
                    }
                }
                // What waits is one incomplete message and at most one piece beyond it.
                prop_assert!(buffer.len() <= CAPS.bytes + 50, "{}", buffer.len());
                prop_assert!(splitter.wanted() <= CAPS.bytes.max(MAX_COMMAND) + 9);
            }
        }

        #[test]
        fn arbitrary_greetings_and_commands_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = check_greeting(&bytes);
            let body = Bytes::from([&b"\x05READY"[..], &bytes].concat());
            let _ = Ready::parse(&body);
            let _ = split_first(&Bytes::from(bytes));
        }
    }
}
