//! One way to ask the server something, whatever the transport: a request in, a [`Pending`] answer out.

use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{HttpClient, Reply};
use super::stdio::StdioClient;

pub(crate) const STDIO_PROTOCOL: &str = "2025-11-25";

/// Why a case stopped early.
#[derive(Debug)]
pub(crate) enum Halt {
    Skip(String),
    Fail(String),
}

pub(crate) fn fail(reason: impl Into<String>) -> Halt {
    Halt::Fail(reason.into())
}

/// A poisoned lock only means that another thread of the driver panicked; its data is still the best we have.
pub(crate) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Timeout,
    Closed,
}

/// What came back, or that nothing did.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The JSON-RPC response; null when there was none.
    pub(crate) message: Value,
    pub(crate) bytes: usize,
    pub(crate) arrived: Instant,
    pub(crate) took: Duration,
    pub(crate) lost: Option<Lost>,
    pub(crate) http: Option<Reply>,
}

impl Answer {
    pub(crate) fn new(message: Value, bytes: usize) -> Self {
        let arrived = Instant::now();
        Answer { message, bytes, arrived, took: Duration::ZERO, lost: None, http: None }
    }

    pub(crate) fn lost(lost: Lost) -> Self {
        Answer { lost: Some(lost), ..Answer::new(Value::Null, 0) }
    }

    /// Everything that the client can read in the answer.
    pub(crate) fn text(&self) -> String {
        match self.lost {
            Some(Lost::Timeout) => return "ERROR no answer".into(),
            Some(Lost::Closed) => return "ERROR server closed the connection".into(),
            None => {}
        }
        if let Some(error) = self.message.get("error") {
            return format!("ERROR {error}");
        }
        let Some(result) = self.message.get("result") else {
            return self.http.as_ref().map(Reply::text).unwrap_or_default();
        };
        let mut parts: Vec<String> = Vec::new();
        for key in ["content", "contents"] {
            for block in result.get(key).and_then(Value::as_array).into_iter().flatten() {
                let own = block.get("text").and_then(Value::as_str);
                let inner = block.pointer("/resource/text").and_then(Value::as_str);
                parts.extend(own.or(inner).map(str::to_owned));
            }
        }
        // Not through JSON alone: there a newline or an escape code would hide behind a backslash.
        if let Some(structured) = result.get("structuredContent") {
            parts.push(structured.to_string());
            strings_in(structured, &mut parts);
        }
        parts.join("\n")
    }

    /// A field of the result by JSON pointer.
    pub(crate) fn field(&self, pointer: &str) -> Option<&Value> {
        self.message.get("result")?.pointer(pointer)
    }

    pub(crate) fn is_error(&self) -> bool {
        self.lost.is_some()
            || self.message.get("result").is_none()
            || self.field("/isError") == Some(&Value::Bool(true))
    }

    /// Whether a program was started for this request, however it ended.
    pub(crate) fn ran(&self) -> bool {
        self.field("/structuredContent/ending").is_some_and(|ending| !ending.is_null())
    }
}

pub(crate) fn strings_in(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| strings_in(item, into)),
        Value::Object(map) => map.values().for_each(|item| strings_in(item, into)),
        _ => {}
    }
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) started: Instant,
    pub(crate) answer: Receiver<Answer>,
    /// Over HTTP every request has a connection of its own.
    pub(crate) socket: Option<TcpStream>,
}

impl Pending {
    pub(crate) fn wait(&self, at_most: Duration) -> Answer {
        let mut answer = match self.answer.recv_timeout(at_most) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Answer::lost(Lost::Timeout),
            Err(RecvTimeoutError::Disconnected) => Answer::lost(Lost::Closed),
        };
        answer.took = answer.arrived.saturating_duration_since(self.started);
        answer
    }

    pub(crate) fn hang_up(&self) {
        if let Some(socket) = &self.socket {
            // Fails only when the other side was faster, which is as good.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Who asks: over stdio there is only one caller, over HTTP each token is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    Good,
    A,
    B,
}

#[derive(Debug)]
pub(crate) enum Link {
    Stdio(StdioClient),
    Http(HttpClient),
}

impl Link {
    pub(crate) fn start(&self, who: Caller, method: &str, params: Value) -> Result<Pending, Halt> {
        match self {
            Link::Stdio(client) => client.start(method, params).map_err(Halt::Fail),
            Link::Http(client) => client.start(who, method, params).map_err(Halt::Fail),
        }
    }

    pub(crate) fn ask(&self, who: Caller, method: &str, params: Value, at_most: Duration) -> Result<Answer, Halt> {
        Ok(self.start(who, method, params)?.wait(at_most))
    }

    pub(crate) fn stdio(&self) -> Result<&StdioClient, Halt> {
        match self {
            Link::Stdio(client) => Ok(client),
            Link::Http(_) => Err(Halt::Skip("a step for stdio in a case for HTTP".into())),
        }
    }

    pub(crate) fn http(&self) -> Result<&HttpClient, Halt> {
        match self {
            Link::Http(client) => Ok(client),
            Link::Stdio(_) => Err(Halt::Skip("a step for HTTP in a case for stdio".into())),
        }
    }

    pub(crate) fn cancel(&self, pending: &Pending) -> Result<(), Halt> {
        match self {
            Link::Stdio(client) => {
                let params = json!({"requestId": pending.id, "reason": "test"});
                client.notify("notifications/cancelled", params).map_err(Halt::Fail)
            }
            // In streamable HTTP closing the response stream is the way to cancel.
            Link::Http(_) => {
                pending.hang_up();
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_holds_content_errors_and_structured_strings() {
        let answer = Answer::new(
            json!({"result": {"content": [{"type": "text", "text": "one"},
                {"type": "resource", "resource": {"text": "two"}}],
                "structuredContent": {"stdout": "a\u{1b}[0m"}}}),
            0,
        );
        let text = answer.text();
        assert!(text.contains("one") && text.contains("two") && text.contains('\u{1b}'));
        assert!(!answer.is_error());
        let error = Answer::new(json!({"error": {"code": -1, "message": "no"}}), 0);
        assert!(error.text().starts_with("ERROR") && error.is_error());
        assert!(Answer::lost(Lost::Closed).is_error());
    }

    #[test]
    fn a_refusal_did_not_run() {
        let ran = json!({"result": {"isError": true, "structuredContent": {"ending": "timeout"}}});
        assert!(Answer::new(ran, 0).ran());
        let refused = json!({"result": {"isError": true, "content": []}});
        assert!(!Answer::new(refused, 0).ran());
    }
}
