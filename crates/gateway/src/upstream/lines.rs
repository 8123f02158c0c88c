//! Lines from a server, none of which can take more memory than it may.

use rmcp::model::{ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage, ServerNotification};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Stands in for an answer that was too large. No code of the protocol's own.
pub(super) const TOO_LARGE: ErrorCode = ErrorCode(-32_970);
/// Stands in for an answer that could not be read.
pub(super) const GARBLED: ErrorCode = ErrorCode(-32_971);

const ENDS: usize = 512;
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// Reads lines. Dropping the future of [`Lines::next`] loses nothing.
#[derive(Debug)]
pub(super) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    bytes_max: usize,
    over: Option<Over>,
}

/// A line that was too long: its two ends, where the number of the request stands.
#[derive(Debug, Default)]
pub(super) struct Over {
    pub(super) bytes: u64,
    head: Vec<u8>,
    tail: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum Line {
    Whole(Vec<u8>),
    Over(Over),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(read: R, bytes_max: usize) -> Lines<R> {
        Lines { read: BufReader::with_capacity(64 * 1024, read), line: Vec::new(), bytes_max, over: None }
    }

    /// The next line without its newline, or nothing at the end.
    pub(super) async fn next(&mut self) -> Option<Line> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..newline.unwrap_or(available.len())];
            match &mut self.over {
                Some(over) => over.add(piece),
                None if self.line.len() + piece.len() > self.bytes_max => {
                    let mut over = Over::of(&std::mem::take(&mut self.line));
                    over.add(piece);
                    self.over = Some(over);
                }
                None => self.line.extend_from_slice(piece),
            }
            let consumed = piece.len() + usize::from(newline.is_some());
            self.read.consume(consumed);
            if newline.is_some() {
                return Some(match self.over.take() {
                    Some(over) => Line::Over(over),
                    None if self.line.capacity() > KEPT_BYTES_MAX => Line::Whole(std::mem::take(&mut self.line)),
                    None => {
                        let line = self.line.clone();
                        self.line.clear();
                        Line::Whole(line)
                    }
                });
            }
        }
    }
}

impl Over {
    fn of(bytes: &[u8]) -> Over {
        let mut over = Over::default();
        over.add(bytes);
        over
    }

    fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let room = ENDS - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        self.tail.extend_from_slice(&piece[piece.len().saturating_sub(ENDS)..]);
        let extra = self.tail.len().saturating_sub(ENDS);
        self.tail.drain(..extra);
    }

    /// Whether it asks or tells rather than answers, so that nobody waits for it.
    pub(super) fn is_no_answer(&self) -> bool {
        let head = String::from_utf8_lossy(&self.head);
        head.contains("\"method\"") && !head.contains("\"result\"")
    }

    /// The request that it would have answered, by either end: some write the number first, some last.
    pub(super) fn request(&self) -> Option<RequestId> {
        let squeeze = |bytes: &[u8]| -> String {
            String::from_utf8_lossy(bytes).chars().filter(|letter| !letter.is_whitespace()).collect()
        };
        let head = squeeze(&self.head);
        let begin = ["\"result\":", "\"error\":"].iter().filter_map(|key| head.find(key)).min();
        let first = begin.map(|end| &head[..end]).and_then(|envelope| number(envelope.rsplit_once("\"id\":")?.1));
        let last = || {
            let tail = squeeze(&self.tail);
            let after = tail.rsplit_once("\"id\":")?.1;
            let rest = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
            matches!(rest, "}" | ",\"jsonrpc\":\"2.0\"}").then(|| number(after)).flatten()
        };
        first.or_else(last).map(RequestId::Number)
    }
}

fn number(text: &str) -> Option<i64> {
    text.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// What the caller of the request is told in place of an answer that was too large.
pub(super) fn too_large(bytes: u64, bytes_max: usize, id: Option<RequestId>) -> ServerJsonRpcMessage {
    let data = json!({ "bytes": bytes, "limit": bytes_max });
    ServerJsonRpcMessage::error(ErrorData::new(TOO_LARGE, "too large", Some(data)), id)
}

/// Whether anybody here listens to it. Servers may chatter as much as they like, and it costs no more than the reading.
pub(super) fn matters(message: &ServerJsonRpcMessage) -> bool {
    let ServerJsonRpcMessage::Notification(notification) = message else { return true };
    matches!(
        notification.notification,
        ServerNotification::ToolListChangedNotification(_)
            | ServerNotification::CancelledNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_)
    )
}

/// A value of JSON takes far more memory than its two characters, and five million of them fit into a message.
const PARTS_MAX: usize = 1_000_000;

fn has_too_many_parts(bytes: &[u8]) -> bool {
    bytes.len() > PARTS_MAX && bytes.iter().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > PARTS_MAX
}

/// A message, or if it is none but answers a request, that it could not be read.
pub(super) fn message(bytes: &[u8]) -> Option<ServerJsonRpcMessage> {
    if has_too_many_parts(bytes) {
        return Some(too_large(bytes.len() as u64, bytes.len(), Some(Over::of(bytes).request()?)));
    }
    match serde_json::from_slice(bytes) {
        Ok(message) => Some(message),
        Err(error) => {
            let id = match serde_json::from_slice::<Value>(bytes) {
                Ok(value) => RequestId::Number(value.get("id")?.as_i64()?),
                // Nested too deeply, or not UTF-8.
                Err(_) => Over::of(bytes).request()?,
            };
            let data = json!(error.to_string().chars().take(200).collect::<String>());
            Some(ServerJsonRpcMessage::error(ErrorData::new(GARBLED, "could not be read", Some(data)), Some(id)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &str, bytes_max: usize) -> Vec<String> {
        let mut lines = Lines::new(text.as_bytes(), bytes_max);
        let mut out = Vec::new();
        while let Some(line) = lines.next().await {
            out.push(match line {
                Line::Whole(line) => String::from_utf8(line).unwrap(),
                Line::Over(over) => format!("over {} {:?}", over.bytes, over.request().map(|id| id.to_string())),
            });
        }
        out
    }

    #[tokio::test]
    async fn a_long_line_is_dropped_and_the_next_one_read() {
        let long = format!("{{\"jsonrpc\": \"2.0\", \"id\": 7, \"result\": \"{}\"}}", "x".repeat(200_000));
        let last = format!(
            "{{\"result\":{{\"id\":3,\"text\":\"{}\"}},\"jsonrpc\":\"2.0\",\"id\":41}}",
            "\"id\":9 ".repeat(40_000)
        );
        let text = format!("one\n{long}\ntwo\n{last}\nthree\n");
        assert_eq!(
            all(&text, 1000).await,
            [
                "one".to_owned(),
                format!("over {} Some(\"7\")", long.len()),
                "two".into(),
                format!("over {} Some(\"41\")", last.len()),
                "three".into()
            ]
        );
    }

    #[tokio::test]
    async fn a_number_inside_of_the_answer_is_not_taken_for_the_requests() {
        let inside = format!("{{\"result\":{{\"text\":\"{}\",\"id\":5}}}}", "x".repeat(5000));
        assert_eq!(all(&format!("{inside}\n"), 1000).await, [format!("over {} None", inside.len())]);
    }

    #[test]
    fn an_answer_that_cannot_be_read_still_reaches_its_caller() {
        assert!(message(b"hello, I am a log line").is_none());
        let ServerJsonRpcMessage::Error(error) = message(br#"{"jsonrpc":"2.0","id":4,"error":"oops"}"#).unwrap() else {
            panic!()
        };
        assert_eq!((error.id, error.error.code), (Some(RequestId::Number(4)), GARBLED));
        let deep = format!("{{\"id\":5,\"result\":{}{}}}", "[".repeat(500), "]".repeat(500));
        let latin = b"{\"jsonrpc\":\"2.0\",\"id\":6,\"result\":{\"content\":\"caf\xe9\"}}";
        for (bytes, id) in [(deep.as_bytes(), 5), (latin.as_slice(), 6)] {
            let ServerJsonRpcMessage::Error(error) = message(bytes).unwrap() else { panic!() };
            assert_eq!((error.id, error.error.code), (Some(RequestId::Number(id)), GARBLED));
        }
    }

    #[test]
    fn chatter_is_told_from_what_matters() {
        let chatter = br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
        let change = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert!(!matters(&message(chatter).unwrap()) && matters(&message(change).unwrap()));
    }
}
