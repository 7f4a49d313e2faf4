//! Frames that are whole, cut, hostile.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn frame(kind: u8, run: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(run.to_le_bytes());
    bytes.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    bytes.extend(payload);
    bytes
}

fn decode(bytes: &[u8]) -> Result<Vec<Incoming>, FrameError> {
    let (mut decoder, mut bytes, mut found) = (Decoder::default(), BytesMut::from(bytes), Vec::new());
    while let Some(incoming) = decoder.next(&mut bytes)? {
        found.push(incoming);
    }
    Ok(found)
}

#[test]
fn a_hostile_length_is_refused_before_anything_is_kept_for_it() {
    let mut bytes = BytesMut::from(&[0xa0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..]);
    let capacity = bytes.capacity();
    assert_eq!(Decoder::default().next(&mut bytes), Err(FrameError::TooLong(u32::MAX as usize)));
    assert_eq!(bytes.capacity(), capacity);
}

#[test]
fn a_message_in_parts_is_joined_and_an_unfinished_one_is_forgotten() {
    let mut bytes = frame(0xaf, 1, b"lost");
    bytes.extend(frame(0xa1, 1, b"!"));
    bytes.extend(frame(0xaf, 1, br#"{"data":"#));
    bytes.extend(frame(0x81, 1, b"between"));
    bytes.extend(frame(0xae, 1, b"\xa3{\"text/plain\":\"x\"}}"));
    let frames: Vec<_> = decode(&bytes).unwrap().into_iter().map(|i| i.frame).collect();
    let [Frame::Stderr(first), Frame::Stdout(second), Frame::Result(result)] = frames.as_slice() else {
        panic!("{frames:?}")
    };
    assert_eq!((&first[..], &second[..]), (&b"!"[..], &b"between"[..]));
    assert_eq!(result.data["text/plain"], "x");
}

#[test]
fn a_message_above_the_limit_costs_no_more_memory_than_the_limit_and_still_ends_its_run() {
    let part = frame(0xaf, 1, &vec![b' '; MAX_PAYLOAD]);
    let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::new());
    for _ in 0..(MAX_MESSAGE / MAX_PAYLOAD + 8) {
        bytes.extend_from_slice(&part);
        assert_eq!(decoder.next(&mut bytes), Ok(None));
        assert!(decoder.parts.len() <= MAX_MESSAGE);
    }
    bytes.extend_from_slice(&frame(0xae, 1, b"\xa7{}"));
    let Ok(Some(Incoming { frame: Frame::Done(done), .. })) = decoder.next(&mut bytes) else { panic!() };
    assert_eq!(done.status, "error");
}

#[test]
fn nonsense_from_guest_code_is_said_and_nonsense_from_the_supervisor_ends_the_channel() {
    assert!(matches!(decode(&frame(0xa2, 1, b"{")).unwrap()[0].frame, Frame::Unreadable(_)));
    let deep = "[".repeat(100_000);
    assert!(matches!(decode(&frame(0xa2, 1, deep.as_bytes())).unwrap()[0].frame, Frame::Unreadable(_)));
    assert!(matches!(decode(&frame(0x83, 1, b"{")), Err(FrameError::Malformed(0x83, _))));
    assert_eq!(decode(&frame(0x70, 1, b"")), Err(FrameError::UnknownKind(0x70)));
}

#[test]
fn an_order_longer_than_a_frame_is_sent_in_parts() {
    let code = "x".repeat(2 * MAX_PAYLOAD);
    let bytes = encode(Order::Python, 7, &json!({ "code": code }));
    assert_eq!((bytes[0], bytes[HEADER + MAX_PAYLOAD]), (0, 0));
    assert_eq!(bytes[2 * (HEADER + MAX_PAYLOAD)], Order::Python as u8);
    let whole = [&bytes[9..9 + MAX_PAYLOAD], &bytes[18 + MAX_PAYLOAD..18 + 2 * MAX_PAYLOAD]].concat();
    assert!(whole.starts_with(b"{\"code\":\"xxx"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn nor_do_frames_of_known_kinds_with_any_payload(
        frames in proptest::collection::vec(
            (prop_oneof![0x80u8..=0x86, 0xa0u8..=0xaf], proptest::collection::vec(any::<u8>(), 0..64)), 0..16)
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, payload)| frame(*kind, 3, payload)).collect();
        let _ = decode(&bytes);
    }

    #[test]
    fn frames_come_out_the_same_however_the_bytes_are_cut(
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8),
        cut in 1usize..40,
    ) {
        let bytes: Vec<u8> = payloads.iter().flat_map(|payload| frame(0xa0, 5, payload)).collect();
        let whole = decode(&bytes).unwrap();
        let (mut decoder, mut buffer, mut found) = (Decoder::default(), BytesMut::new(), Vec::new());
        for piece in bytes.chunks(cut) {
            buffer.extend_from_slice(piece);
            while let Some(incoming) = decoder.next(&mut buffer).unwrap() {
                found.push(incoming);
            }
        }
        prop_assert_eq!(&found, &whole);
        prop_assert_eq!(found.len(), payloads.len());
    }
}
