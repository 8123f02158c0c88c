//! What one message of a caller is, before anyone acts on it: JSON-RPC, or what is said in return to what is not.

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorCode};
use serde_json::{Value, json};

use super::has_too_many_values;
use super::lines::Trace;

/// Room for a file of 8 MiB in base64, with everything escaped that can be.
pub(super) const MESSAGE_BYTES_MAX: usize = 24 * 1024 * 1024;
/// An answer of the usual size.
const ANSWER_BYTES: usize = 64 * 1024;
/// An answer with a file in it: base64, as text and as structured content.
const FILE_ANSWER_BYTES: usize = 3 * 1024 * 1024;

/// There are too many requests at once; a code that JSON-RPC leaves to servers.
pub(super) const TOO_MANY: ErrorCode = ErrorCode(-32000);

pub(super) const STILL_OPEN: &str = "a request with this id is still open; use another id";

/// A message that goes no further, and the error that its sender gets.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) id: Value,
    pub(super) code: ErrorCode,
    pub(crate) sentence: String,
}

impl Refused {
    pub(super) fn new(id: Value, code: ErrorCode, sentence: impl Into<String>) -> Refused {
        Refused { id, code, sentence: sentence.into() }
    }

    pub(super) fn too_long(ends: &Trace) -> Refused {
        let sentence = format!("the message is longer than {MESSAGE_BYTES_MAX} bytes and was skipped");
        Refused::new(id_of_long(ends).unwrap_or(Value::Null), ErrorCode::INVALID_REQUEST, sentence)
    }

    /// For those who count.
    pub(super) fn why(&self) -> belljar_meters::Refused {
        if self.code == TOO_MANY { belljar_meters::Refused::TooMany } else { belljar_meters::Refused::Malformed }
    }

    /// As JSON-RPC.
    pub(super) fn message(&self) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "error": {"code": self.code, "message": self.sentence}})
    }
}

/// `None` for an empty line, or a notification that we do not know: neither is ever answered.
pub(crate) fn parse(line: &[u8]) -> Result<Option<Box<ClientJsonRpcMessage>>, Refused> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if has_too_many_values(line) {
        let sentence = "the message has too many values; send less at once";
        return Err(Refused::new(Value::Null, ErrorCode::INVALID_REQUEST, sentence));
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(Some(Box::new(message)));
    }
    let bad = |id, code, sentence: &str| Err(Refused::new(id, code, sentence));
    match serde_json::from_slice(line) {
        // The position helps; what serde_json says of the content does not echo it.
        Err(error) => bad(Value::Null, ErrorCode::PARSE_ERROR, &format!("not valid JSON: {error}")),
        Ok(Value::Array(_)) => {
            bad(Value::Null, ErrorCode::INVALID_REQUEST, "batches are not supported; send one message a line")
        }
        Ok(Value::Object(mut object)) => {
            let id = object.remove("id");
            if id.is_none() && object.get("method").is_some_and(Value::is_string) {
                return Ok(None);
            }
            let id = id.filter(|id| id.is_string() || id.is_i64()).unwrap_or_default();
            bad(id, ErrorCode::INVALID_REQUEST, "not a JSON-RPC 2.0 message; send jsonrpc, id, method and params")
        }
        Ok(_) => bad(Value::Null, ErrorCode::INVALID_REQUEST, "not a JSON-RPC 2.0 message; send an object"),
    }
}

/// The id of a message of which only the ends are known: where clients write it, and nowhere else, since what looks like one
/// elsewhere may be anything.
fn id_of_long(ends: &Trace) -> Option<Value> {
    let head = str::from_utf8(&ends.head).ok().and_then(|head| {
        let rest = head.strip_prefix(r#"{"jsonrpc":"2.0","id":"#)?;
        serde_json::from_str(&rest[..rest.find(',')?]).ok()
    });
    let id: Value = head.or_else(|| {
        let tail = String::from_utf8_lossy(&ends.tail);
        let (_, rest) = tail.trim_end().rsplit_once(r#""id":"#)?;
        serde_json::from_str(rest.strip_suffix('}')?).ok()
    })?;
    (id.is_i64() || id.is_u64() || id.is_string()).then_some(id)
}

/// Tools whose answers are files, ours and those of profiles.
const FILE_TOOLS: &[&str] = &["read_file", "file_download", "download_file"];

/// What the answer to a request may take, roughly: it decides how many are begun at once. What an answer that is there takes is
/// counted as it is.
pub(super) fn answer_bytes(request: &ClientRequest) -> usize {
    match request {
        ClientRequest::CallToolRequest(call) if FILE_TOOLS.contains(&&*call.params.name) => FILE_ANSWER_BYTES,
        ClientRequest::ReadResourceRequest(_) => FILE_ANSWER_BYTES,
        _ => ANSWER_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_long_message_is_found_where_clients_write_it() {
        let found = |head: &str, tail: &str| id_of_long(&Trace { head: head.into(), tail: tail.into() });
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":7,"method":"x"#, "xx\"}}"), Some(json!(7)));
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":"a","method":"x"#, "xx"), Some(json!("a")));
        assert_eq!(
            found(r#"{"method":"tools/call","params":{"x"#, r#"xx"}},"jsonrpc":"2.0","id":12}"#),
            Some(json!(12))
        );
        assert_eq!(found(r#"{"method":"x","params":{"id":1,"#, r#"x","id":5}}"#), None, "an id of something else");
        assert_eq!(found("xxxx", "xxxx"), None);
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":{"a":1},"#, r#""id":[1]}"#), None);
    }
}
