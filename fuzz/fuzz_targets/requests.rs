//! Whatever a caller writes to us: lines are the same however they come in, reading one ends, and what is taken for a message
//! is one that we can write and read again. What is said of a tool's arguments is short, and has nothing in it for a terminal.
#![no_main]

use belljar_server::fuzzing::{Said, complaints, lines, message, values};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// So short that some lines of an input are longer.
const LINE_BYTES_MAX: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece, stream)) = bytes.split_first() else { return };
    let found = lines(stream, usize::from(*piece), LINE_BYTES_MAX);
    assert_eq!(found, model(stream), "in pieces of {piece}");
    for line in found.into_iter().flatten() {
        read(&line);
    }
});

/// By splitting all of it, as a reader with endless memory would.
fn model(stream: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut parts: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    // What follows the last newline is a line only if it is something.
    if parts.last().is_some_and(|last| last.is_empty()) {
        parts.pop();
    }
    parts.into_iter().map(|part| (part.len() <= LINE_BYTES_MAX).then(|| part.to_vec())).collect()
}

fn read(line: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(line) {
        // Of keys that are there twice one is lost here, and counted there.
        assert!(values(line) >= weight(&value), "more values than were counted");
    }
    match message(line) {
        Said::Message(written) => {
            let again = message(&written);
            assert!(matches!(again, Said::Message(_)), "{}", String::from_utf8_lossy(&written));
            for sentence in complaints(line) {
                let moves = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
                assert!(sentence.len() < 2000 && !sentence.contains(moves), "{sentence:?}");
            }
        }
        Said::Refused { id, sentence } => {
            // An id is given back only where it can be one, and nothing of the message is in the sentence but a position.
            let id: Value = serde_json::from_str(&id).expect("an id is JSON");
            assert!(id.is_null() || id.is_string() || id.is_i64(), "{id}");
            assert!(sentence.len() < 300 && !sentence.contains('\n'), "{sentence}");
        }
        Said::Nothing => {}
    }
}

fn weight(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len().max(1) + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => fields.len().max(1) + fields.values().map(weight).sum::<usize>(),
        _ => 0,
    }
}
