use super::*;
use crate::{Exit, Finish, Stream, Usage};

fn output(length: usize) -> FromGuest {
    FromGuest::Output { id: 7, stream: Stream::Stderr, bytes: vec![0xff; length] }
}

#[test]
fn a_frame_comes_back_as_it_went() {
    let finish = Finish { exit: Exit::Signal(9), usage: Usage { cpu_ms: 3, memory_peak_bytes: 4096 }, kernel: None };
    let mut bytes = Vec::new();
    encode(&output(CHUNK_MAX), &mut bytes).unwrap();
    encode(&FromGuest::Finished { id: 7, finish }, &mut bytes).unwrap();
    let (first, used) = decode::<FromGuest>(&bytes).unwrap().unwrap();
    assert_eq!(first, output(CHUNK_MAX));
    let (second, rest) = decode::<FromGuest>(&bytes[used..]).unwrap().unwrap();
    assert_eq!(second, FromGuest::Finished { id: 7, finish });
    assert_eq!(used + rest, bytes.len());
}

#[test]
fn every_prefix_of_a_frame_is_incomplete() {
    let mut bytes = Vec::new();
    encode(&output(40), &mut bytes).unwrap();
    for end in 0..bytes.len() {
        assert_eq!(decode::<FromGuest>(&bytes[..end]), Ok(None), "prefix of {end} bytes");
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_its_body_comes() {
    let header = (FRAME_MAX as u32 + 1).to_le_bytes();
    assert_eq!(decode::<FromGuest>(&header), Err(WireError::TooLong(FRAME_MAX + 1)));
}

#[test]
fn a_message_over_the_limit_is_not_sent_and_what_was_there_stays() {
    let mut bytes = Vec::new();
    encode(&output(1), &mut bytes).unwrap();
    let before = bytes.clone();
    assert!(matches!(encode(&output(FRAME_MAX + 1), &mut bytes), Err(WireError::TooLong(_))));
    assert_eq!(bytes, before);
}

#[test]
fn bytes_left_over_in_a_body_are_malformed() {
    let mut bytes = Vec::new();
    encode(&FromGuest::Done { id: 1 }, &mut bytes).unwrap();
    bytes[0] += 1;
    bytes.push(0);
    assert_eq!(decode::<FromGuest>(&bytes), Err(WireError::Malformed));
}

#[test]
fn a_count_that_its_body_cannot_hold_is_malformed() {
    // An Output frame (variant 2) that claims 2^32 bytes and brings none.
    let body = [2, 7, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&body);
    assert_eq!(decode::<FromGuest>(&bytes), Err(WireError::Malformed));
}

#[test]
fn a_name_of_the_store_leads_nowhere_else() {
    for name in ["0", "a3f9", "building-7", "building-py-3-11"] {
        assert!(is_store_name(name), "{name:?}");
    }
    let long = "a".repeat(129);
    for name in
        ["", ".", "..", "a/b", "/", "A3", "xyz", "building-", "building-A", "building-../x", "a\0", long.as_str()]
    {
        assert!(!is_store_name(name), "{name:?}");
    }
}
