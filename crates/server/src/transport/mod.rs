//! How requests come in: framing and authentication, nothing else.

mod connections;
mod gate;
pub(crate) mod http;
mod lines;
mod sessions;
pub(crate) mod stdio;

/// More values than any message of ours has. A value takes much more memory than the two bytes it can be written in, so
/// that some megabytes of brackets would become a gigabyte.
const VALUES_MAX: usize = 100_000;

/// Whether a message, read as JSON, has too many values to be read at all. Counts without allocating; what is no JSON may
/// get either answer.
fn has_too_many_values(message: &[u8]) -> bool {
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
    values > VALUES_MAX
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
