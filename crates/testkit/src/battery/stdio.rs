//! An MCP client over a server's standard streams, which also keeps book of everything the server should not have said.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, Lost, Pending, STDIO_PROTOCOL, hold};

/// A server that writes more than this without a newline has lost its mind, and must not take ours along.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Ids of the driver start here; smaller ones belong to the raw lines that cases send.
const FIRST_ID: u64 = 1_000_001;
/// A request of this size may be refused before its id was read, with a null id.
const LARGE_REQUEST_BYTES: usize = 1 << 20;
const WRITE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct StdioClient {
    shared: Arc<Shared>,
    /// The thread behind it owns the server's stdin: a server that stops reading blocks that thread, not the case.
    writer: Mutex<Option<Sender<Job>>>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    book: Mutex<Book>,
    paused: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Book {
    waiting: HashMap<u64, Sender<Answer>>,
    large: Vec<u64>,
    asked: HashSet<u64>,
    answered: HashMap<String, usize>,
    bad_lines: Vec<String>,
    unsolicited: Vec<String>,
    /// The case spoke for itself, so answers to ids that are not ours are not a surprise.
    raw_lines_sent: bool,
}

type Job = (Vec<u8>, Sender<std::io::Result<()>>);

impl StdioClient {
    pub(crate) fn new(stdin: ChildStdin, stdout: ChildStdout) -> Self {
        let shared = Arc::new(Shared::default());
        let reader = Arc::clone(&shared);
        thread::spawn(move || reader.read_all(stdout));
        let writer = Mutex::new(Some(spawn_writer(stdin)));
        StdioClient { shared, writer, next: AtomicU64::new(FIRST_ID) }
    }

    /// The handshake of the protocol; its answer may be that the server is gone.
    pub(crate) fn initialize(&self, at_most: Duration) -> Result<Answer, String> {
        let params = json!({"protocolVersion": STDIO_PROTOCOL, "capabilities": {},
            "clientInfo": {"name": "battery", "version": "1"}});
        let answer = self.start("initialize", params)?.wait(at_most);
        if !answer.is_error() {
            self.notify("notifications/initialized", json!({}))?;
        }
        Ok(answer)
    }

    pub(crate) fn start(&self, method: &str, params: Value) -> Result<Pending, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().into_bytes();
        line.push(b'\n');
        let (sender, answer) = mpsc::channel();
        {
            let mut book = hold(&self.shared.book);
            book.asked.insert(id);
            book.waiting.insert(id, sender);
            if line.len() > LARGE_REQUEST_BYTES {
                book.large.push(id);
            }
        }
        let started = Instant::now();
        self.write(line)?;
        if self.is_closed() {
            // The reader may have gone before this request was in the book.
            hold(&self.shared.book).waiting.remove(&id);
        }
        Ok(Pending { id, started, answer, socket: None })
    }

    pub(crate) fn notify(&self, method: &str, params: Value) -> Result<(), String> {
        let mut line = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        line.push('\n');
        self.write(line.into_bytes())
    }

    /// Bytes of the case's own making.
    pub(crate) fn raw(&self, bytes: Vec<u8>) -> Result<(), String> {
        hold(&self.shared.book).raw_lines_sent = true;
        self.write(bytes)
    }

    fn write(&self, bytes: Vec<u8>) -> Result<(), String> {
        let (done, written) = mpsc::channel();
        match &*hold(&self.writer) {
            Some(writer) => writer.send((bytes, done)).map_err(|_| "server closed its input")?,
            None => return Err("the driver had closed the server's input".into()),
        }
        match written.recv_timeout(WRITE_WITHIN) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => Err("server closed its input".into()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err("server stopped reading its input".into()),
        }
    }

    pub(crate) fn close_input(&self) {
        hold(&self.writer).take();
    }

    pub(crate) fn pause_reading(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::SeqCst) || hold(&self.writer).is_none()
    }

    /// Forgets what was noted so far; called between cases.
    pub(crate) fn turn_page(&self) {
        let mut book = hold(&self.shared.book);
        book.answered.clear();
        book.bad_lines.clear();
        book.unsolicited.clear();
        book.raw_lines_sent = false;
    }

    pub(crate) fn bad_lines(&self) -> Vec<String> {
        hold(&self.shared.book).bad_lines.clone()
    }

    /// But for word of sandboxes that come and go, which the server declares that it sends.
    pub(crate) fn unsolicited(&self) -> Vec<String> {
        let book = hold(&self.shared.book);
        let is_news = |message: &&String| !message.contains("\"notifications/resources/list_changed\"");
        book.unsolicited.iter().filter(is_news).cloned().collect()
    }

    /// Ids that were answered more than once, among those that the driver sent.
    pub(crate) fn answered_twice(&self) -> Vec<String> {
        let book = hold(&self.shared.book);
        book.answered.iter().filter(|(_, times)| **times > 1).map(|(id, _)| id.clone()).collect()
    }
}

fn spawn_writer(mut stdin: ChildStdin) -> Sender<Job> {
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (bytes, done) in jobs {
            let result = stdin.write_all(&bytes);
            // Nobody waits any more when the write took too long.
            let _ = done.send(result);
        }
    });
    sender
}

impl Shared {
    fn read_all(&self, mut stdout: ChildStdout) {
        let mut line: Vec<u8> = Vec::new();
        let mut chunk = vec![0; 1 << 16];
        loop {
            while self.paused.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            let count = match stdout.read(&mut chunk) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            let mut rest = &chunk[..count];
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&rest[..end]);
                hold(&self.book).take_line(&line);
                line.clear();
                rest = &rest[end + 1..];
            }
            line.extend_from_slice(rest);
            if line.len() > LINE_BYTES_MAX {
                hold(&self.book).bad_lines.push(format!("a line of more than {LINE_BYTES_MAX} bytes"));
                line.clear();
            }
        }
        let mut book = hold(&self.book);
        if !line.is_empty() {
            book.bad_lines.push(excerpt(&line));
        }
        self.closed.store(true, Ordering::SeqCst);
        for (_, waiter) in book.waiting.drain() {
            let _ = waiter.send(Answer::lost(Lost::Closed));
        }
    }
}

impl Book {
    fn take_line(&mut self, line: &[u8]) {
        let message = match serde_json::from_slice::<Value>(line) {
            Ok(message) if message.get("jsonrpc").and_then(Value::as_str) == Some("2.0") => message,
            _ => return self.bad_lines.push(excerpt(line)),
        };
        let is_answer = message.get("result").is_some() || message.get("error").is_some();
        match message.get("id") {
            Some(id) if is_answer => self.take_answer(id.clone(), message, line),
            _ => match message.get("method").and_then(Value::as_str) {
                Some("notifications/progress" | "notifications/message") => {}
                _ => self.unsolicited.push(excerpt(line)),
            },
        }
    }

    fn take_answer(&mut self, id: Value, message: Value, line: &[u8]) {
        let ours = id.as_u64().filter(|id| self.asked.contains(id));
        match ours {
            Some(number) => {
                *self.answered.entry(id.to_string()).or_default() += 1;
                if let Some(waiter) = self.waiting.remove(&number) {
                    self.large.retain(|large| *large != number);
                    let _ = waiter.send(Answer::new(message, line.len()));
                }
            }
            None if id.is_null() => {
                let large = self.large.pop().and_then(|number| self.waiting.remove(&number));
                if let Some(waiter) = large {
                    let _ = waiter.send(Answer::new(message, line.len()));
                }
            }
            None if self.raw_lines_sent => {}
            None => self.unsolicited.push(excerpt(line)),
        }
    }
}

fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book_with(id: u64) -> (Book, mpsc::Receiver<Answer>) {
        let (sender, receiver) = mpsc::channel();
        let mut book = Book::default();
        book.asked.insert(id);
        book.waiting.insert(id, sender);
        (book, receiver)
    }

    #[test]
    fn an_answer_reaches_its_waiter_once() {
        let (mut book, answers) = book_with(7);
        book.take_line(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert!(!answers.try_recv().unwrap().is_error());
        book.take_line(br#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert_eq!(book.answered["7"], 2);
    }

    #[test]
    fn what_nobody_asked_for_is_noted() {
        let (mut book, _answers) = book_with(7);
        book.take_line(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        book.take_line(br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
        book.take_line(br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#);
        assert_eq!(book.unsolicited.len(), 2);
        book.raw_lines_sent = true;
        book.take_line(br#"{"jsonrpc":"2.0","id":1,"error":{}}"#);
        assert_eq!(book.unsolicited.len(), 2);
    }

    #[test]
    fn lines_that_are_not_json_rpc_are_bad() {
        let mut book = Book::default();
        for line in [&b"hello"[..], b"{}", b"", b"[1]", b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}"] {
            book.take_line(line);
        }
        assert_eq!(book.bad_lines.len(), 5);
    }

    #[test]
    fn a_null_id_error_answers_the_large_request() {
        let (mut book, answers) = book_with(7);
        book.take_line(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#);
        assert!(answers.try_recv().is_err());
        book.large.push(7);
        book.take_line(br#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}"#);
        assert!(answers.try_recv().unwrap().is_error());
    }
}
