//! HTTP/1.1 on a bare socket: exact bytes out, a tolerant and bounded reader in.
//!
//! A library would refuse to send half of what the cases need: an empty Host, `..` in a path, a header byte a second.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

const REPLY_BYTES_MAX: usize = 64 << 20;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A response, whole or as much as came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body is known to be complete without the end of the connection.
    pub(crate) complete: bool,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("HTTP {}\n", self.status);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\n"));
        }
        text.push_str(&String::from_utf8_lossy(&self.body));
        text
    }

    /// The JSON-RPC messages of the body, which is one JSON text or a stream of server-sent events.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let is_events = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_events {
            return serde_json::from_slice(&self.body).into_iter().collect();
        }
        let text = String::from_utf8_lossy(&self.body).replace("\r\n", "\n");
        let events = text.split_inclusive("\n\n").filter(|event| event.ends_with("\n\n"));
        events
            .filter_map(|event| {
                let data: Vec<&str> = event
                    .lines()
                    .filter_map(|line| line.strip_prefix("data:"))
                    .map(|data| data.strip_prefix(' ').unwrap_or(data))
                    .collect();
                serde_json::from_str(&data.join("\n")).ok()
            })
            .collect()
    }

    /// The response to the request with this id. An error may carry no id, when the request was refused unread.
    pub(crate) fn answer_to(&self, id: u64) -> Option<Value> {
        self.messages().into_iter().find(|message| {
            let theirs = message.get("id");
            let is_error = message.get("error").is_some();
            let is_answer = is_error || message.get("result").is_some();
            is_answer && (theirs == Some(&Value::from(id)) || (is_error && theirs.is_none_or(Value::is_null)))
        })
    }

    /// Reads what there is; `None` while the head is not complete. `Err` is a response that no client should accept.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Reply>, String> {
        let Some(end) = find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "response head is not UTF-8")?;
        let mut lines = head.split("\r\n");
        let first = lines.next().unwrap_or_default();
        let mut words = first.split(' ');
        let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
        let status = words.next().and_then(|word| word.parse().ok());
        let (true, Some(status)) = (is_http, status) else {
            return Err(format!("not an HTTP response: {first}"));
        };
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("bad header line: {line}"))?;
            headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let mut reply = Reply { status, headers, ..Reply::default() };
        let rest = &bytes[end + 4..];
        if reply.header("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            (reply.body, reply.complete) = unchunk(rest)?;
        } else if let Some(length) = reply.header("content-length") {
            let length: usize = length.parse().map_err(|_| format!("bad content-length: {length}"))?;
            reply.body = rest[..rest.len().min(length)].to_vec();
            reply.complete = rest.len() >= length;
        } else {
            reply.body = rest.to_vec();
            reply.complete = matches!(status, 100..=199 | 204 | 304);
        }
        Ok(Some(reply))
    }
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

fn unchunk(mut bytes: &[u8]) -> Result<(Vec<u8>, bool), String> {
    let mut body = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
        let size = size.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| format!("bad chunk size: {size}"))?;
        if size == 0 {
            return Ok((body, true));
        }
        let data = &bytes[end + 2..];
        body.extend_from_slice(&data[..data.len().min(size)]);
        let Some(next) = data.get(size.saturating_add(2)..) else {
            break;
        };
        bytes = next;
    }
    Ok((body, false))
}

pub(crate) fn connect(to: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&to, CONNECT_WITHIN).map_err(|error| format!("connect: {error}"))?;
    // Without it a timeout could not be noticed while the other side is silent.
    let set = stream.set_read_timeout(Some(Duration::from_millis(200)));
    set.and_then(|()| stream.set_write_timeout(Some(Duration::from_secs(30)))).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// The bytes of a request. Headers go out exactly as given.
pub(crate) fn request_bytes(method: &str, target: &str, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    bytes.extend_from_slice(format!("Content-Length: {}\r\nConnection: close\r\n\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Sends a request and reads until the response is whole, holds the answer to `id`, or time is up.
pub(crate) fn exchange(
    mut stream: &TcpStream,
    request: &[u8],
    id: Option<u64>,
    at_most: Duration,
) -> Result<Reply, String> {
    let deadline = Instant::now() + at_most;
    // A server may refuse and close before it read everything; its answer is still there to be read.
    let written = stream.write_all(request);
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    let mut ended = false;
    loop {
        if let Some(reply) = Reply::parse(&bytes)? {
            let answered = id.is_some_and(|id| reply.answer_to(id).is_some());
            if reply.complete || ended || answered {
                return Ok(reply);
            }
        } else if ended {
            return Err(match written {
                Err(error) => format!("connection lost while sending: {error}"),
                Ok(()) => "connection closed without a response".into(),
            });
        }
        if Instant::now() > deadline {
            return Err(format!("no response in {}s", at_most.as_secs()));
        }
        if bytes.len() > REPLY_BYTES_MAX {
            return Err(format!("a response of more than {REPLY_BYTES_MAX} bytes"));
        }
        match stream.read(&mut chunk) {
            Ok(0) => ended = true,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => ended = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_with_a_length_is_complete_when_it_is_all_there() {
        let whole = b"HTTP/1.1 403 Forbidden\r\nX-A: b\r\nContent-Length: 5\r\n\r\nhello";
        let reply = Reply::parse(whole).unwrap().unwrap();
        assert_eq!((reply.status, reply.body.as_slice(), reply.complete), (403, &b"hello"[..], true));
        assert_eq!(reply.header("x-a"), Some("b"));
        let part = Reply::parse(&whole[..whole.len() - 2]).unwrap().unwrap();
        assert!(!part.complete);
        assert!(Reply::parse(b"HTTP/1.1 200 OK\r\nA:").unwrap().is_none());
    }

    #[test]
    fn chunks_are_joined() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reply = Reply::parse(format!("{head}3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").as_bytes());
        let reply = reply.unwrap().unwrap();
        assert_eq!((reply.body.as_slice(), reply.complete), (&b"abcde"[..], true));
        let part = Reply::parse(format!("{head}3\r\nabc\r\n9\r\nde").as_bytes()).unwrap().unwrap();
        assert_eq!((part.body.as_slice(), part.complete), (&b"abcde"[..], false));
        assert!(Reply::parse(format!("{head}zz\r\nabc").as_bytes()).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Reply::parse(b"SSH-2.0-OpenSSH\r\n\r\n").is_err());
        assert!(Reply::parse(b"HTTP/1.1 abc OK\r\n\r\n").is_err());
        assert!(Reply::parse(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(Reply::parse(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n").is_err());
    }

    #[test]
    fn events_give_their_messages() {
        let body = "id: 0\nretry: 3000\ndata:\n\n: ping\n\nevent: message\n\
            data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n\
            data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\ndata: {\"half\":";
        let reply = Reply {
            headers: vec![("Content-Type".into(), "text/event-stream".into())],
            body: body.into(),
            ..Reply::default()
        };
        assert_eq!(reply.messages().len(), 2);
        assert!(reply.answer_to(7).is_some());
        assert!(reply.answer_to(8).is_none());
    }

    #[test]
    fn an_error_without_id_answers_any_request() {
        let reply =
            Reply { body: br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020}}"#.to_vec(), ..Reply::default() };
        assert!(reply.answer_to(7).is_some());
        let reply = Reply { body: br#"{"jsonrpc":"2.0","id":null,"result":{}}"#.to_vec(), ..Reply::default() };
        assert!(reply.answer_to(7).is_none());
    }
}
