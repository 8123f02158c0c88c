//! How requests come in: framing and authentication, nothing else.

mod connections;
mod conversation;
mod gate;
pub(crate) mod http;
mod ids;
pub(crate) mod lines;
pub(crate) mod messages;
mod older;
pub(crate) mod patience;
mod sessions;
mod sse;
pub(crate) mod stdio;
mod talk;
pub(crate) mod unix;
pub(crate) mod watch;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;

/// More values than any message of ours has. A value takes much more memory than the two bytes it can be written in, so
/// that some megabytes of brackets would become a gigabyte.
const VALUES_MAX: usize = 100_000;

/// Whether a message, read as JSON, has too many values to be read at all.
fn has_too_many_values(message: &[u8]) -> bool {
    values(message) > VALUES_MAX
}

/// How many values a message has besides its first, read as JSON; of a list or an object one more. Counts without allocating;
/// of what is no JSON it may say anything.
pub fn values(message: &[u8]) -> usize {
    let mut values = 0;
    let mut in_string = false;
    let mut bytes = message.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

/// Whether a request says that its body is JSON.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_are_counted() {
        let commas = ",".repeat(200_000);
        assert!(!has_too_many_values(format!(r#"{{"code":"{commas}\"{commas}\\"}}"#).as_bytes()));
        assert!(has_too_many_values(format!(r#"{{"code":"\\\\",[{}0]}}"#, "0,".repeat(100_000)).as_bytes()));
        assert!(has_too_many_values("[".repeat(100_001).as_bytes()));
        assert!(!has_too_many_values(br#"{"a":[1,2,{"b":3}]}"#));
    }
}
