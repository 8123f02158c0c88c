//! Bytes of a hostile guest, or of a hostile host: whatever they are, decoding ends, stays inside its input, and what it
//! understands is written back as something it understands the same way.
#![no_main]

use std::fmt::Debug;

use belljar_core::wire::{self, FromGuest, FromKeeper, JailReply, JailRequest, Setup, ToGuest, ToKeeper};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    frames::<FromGuest>(bytes);
    frames::<ToGuest>(bytes);
    frames::<FromKeeper>(bytes);
    frames::<ToKeeper>(bytes);
    let _ = wire::decode_body::<Setup>(bytes);
    let _ = wire::decode_body::<JailRequest>(bytes);
    let _ = wire::decode_body::<JailReply>(bytes);
});

fn frames<T: Serialize + DeserializeOwned + PartialEq + Debug>(mut bytes: &[u8]) {
    while let Ok(Some((frame, used))) = wire::decode::<T>(bytes) {
        assert!(used > 0 && used <= bytes.len());
        let mut again = Vec::new();
        wire::encode(&frame, &mut again).expect("what was read can be written");
        let (same, _) = wire::decode::<T>(&again).expect("well formed").expect("whole");
        assert_eq!(frame, same);
        bytes = &bytes[used..];
    }
}
