//! Two small MCP clients, of which nothing is clever: what they send is what the test says.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// What a tool answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Value,
}

impl Answer {
    #[track_caller]
    fn of(message: &Value) -> Answer {
        let result = message.get("result").unwrap_or_else(|| panic!("not a result: {message}"));
        Answer { result: result.clone() }
    }

    pub(crate) fn text(&self) -> &str {
        self.result["content"][0]["text"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_error(&self) -> bool {
        self.result["isError"] == true
    }

    /// A field of the structured content.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> &Value {
        let structured = &self.result["structuredContent"];
        structured.get(name).unwrap_or_else(|| panic!("no {name} in {}", self.result))
    }

    #[track_caller]
    pub(crate) fn stdout(&self) -> &str {
        self.field("stdout").as_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn number(&self, name: &str) -> u64 {
        self.field(name).as_u64().unwrap_or_else(|| panic!("{name} is {}", self.field(name)))
    }

    /// A program that did what it should.
    #[track_caller]
    pub(crate) fn printed(&self, expected: &str) {
        assert_eq!((self.stdout(), self.is_error()), (expected, false), "{}", self.result);
    }

    /// Our own failure: one sentence, with these words in it, and nothing that could pass for a run.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        let text = self.text();
        assert!(self.is_error() && self.result.get("structuredContent").is_none(), "not refused: {}", self.result);
        assert_sentence(text.strip_prefix("error: ").unwrap_or(text), words);
        assert!(text.starts_with("error: "), "{text}");
    }
}

/// Short, on one line, without a path of the host, and with these words.
#[track_caller]
pub(crate) fn assert_sentence(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    assert!(!text.contains('\n') && (10..400).contains(&text.len()), "not one sentence: {text}");
    for leak in ["/root", env!("CARGO_MANIFEST_DIR"), "/home/", "/sys/", "/proc/", ".rs:", "panicked", "os error"] {
        assert!(!text.contains(leak), "{leak} is in: {text}");
    }
}

/// The calls that both clients make alike.
pub(crate) trait Caller {
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Answer;

    #[track_caller]
    fn shell(&mut self, code: &str) -> Answer {
        self.call("run_code", json!({"language": "shell", "code": code}))
    }

    #[track_caller]
    fn python(&mut self, code: &str) -> Answer {
        self.call("run_code", json!({"language": "python", "code": code}))
    }

    /// The id of a new sandbox.
    #[track_caller]
    fn create(&mut self, limits: Value) -> String {
        let answer = self.call("create_sandbox", json!({"limits": limits}));
        answer.field("sandbox_id").as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn shell_in(&mut self, sandbox: &str, code: &str) -> Answer {
        self.call("run_code", json!({"language": "shell", "code": code, "sandbox_id": sandbox}))
    }

    /// The server goes on: whatever came before, a run works.
    #[track_caller]
    fn still_runs(&mut self) {
        self.shell("echo still here").printed("still here\n");
    }
}

/// One message a line. Every line that comes is checked to be a message of the protocol.
#[derive(Debug)]
pub(crate) struct StdioClient {
    stdin: Option<File>,
    messages: Receiver<Result<Value, String>>,
    next_id: u64,
}

impl StdioClient {
    /// On pipes, or on both halves of a socket.
    pub(crate) fn new(stdin: impl Into<OwnedFd>, stdout: impl Into<OwnedFd>) -> StdioClient {
        let (stdin, stdout) = (File::from(stdin.into()), File::from(stdout.into()));
        let (sender, messages) = mpsc::channel();
        // A thread, so that a test that writes much never waits for a server that does the same.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n') {
                let Ok(line) = line else { break };
                if sender.send(message(&line)).is_err() {
                    break;
                }
            }
        });
        StdioClient { stdin: Some(stdin), messages, next_id: 1000 }
    }

    pub(crate) fn initialize(&mut self) {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "e2e", "version": "1"}});
        let id = self.request("initialize", params);
        assert_eq!(self.answer(id)["result"]["serverInfo"]["name"], "belljar");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.flush()).unwrap();
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes());
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    pub(crate) fn start(&mut self, tool: &str, arguments: Value) -> u64 {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The next message, whatever it is.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("the server says something");
        message.unwrap_or_else(|line| panic!("a line that is no message: {line}"))
    }

    /// The next message that is more than word of sandboxes and tools that come and go.
    #[track_caller]
    pub(crate) fn next_answer(&mut self) -> Value {
        loop {
            let message = self.next();
            let method = message["method"].as_str().unwrap_or_default();
            if !["notifications/resources/list_changed", "notifications/tools/list_changed"].contains(&method) {
                return message;
            }
        }
    }

    /// The next message, which must be the answer to this request, but for word of what comes and goes.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        let message = self.next_answer();
        assert_eq!(message["id"], id, "another message came first: {message}");
        message
    }

    #[track_caller]
    pub(crate) fn tool_answer(&mut self, id: u64) -> Answer {
        Answer::of(&self.answer(id))
    }

    pub(crate) fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Everything until the server closed its output; each is a message.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        let mut rest = Vec::new();
        loop {
            match self.messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => rest.push(message.unwrap_or_else(|line| panic!("a line that is no message: {line}"))),
                Err(mpsc::RecvTimeoutError::Disconnected) => return rest,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the server keeps its output open"),
            }
        }
    }
}

impl Caller for StdioClient {
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let id = self.start(tool, arguments);
        self.tool_answer(id)
    }
}

fn message(line: &[u8]) -> Result<Value, String> {
    let shown = || String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
    let value: Value = serde_json::from_slice(line).map_err(|error| format!("{error}: {}", shown()))?;
    let is_answer = value.get("id").is_some() && (value.get("result").is_some() != value.get("error").is_some());
    let is_notification = value.get("id").is_none() && value["method"].is_string();
    if value["jsonrpc"] == "2.0" && (is_answer || is_notification) { Ok(value) } else { Err(shown()) }
}

/// The stateless form of 2026-07-28: each request on a connection of its own, its headers saying what its body says.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    pub(crate) port: u16,
    pub(crate) token: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Http {
    pub(crate) fn new(port: u16) -> Http {
        Http { port, token: None }
    }

    pub(crate) fn with_token(&self, token: &str) -> Http {
        Http { port: self.port, token: Some(token.to_owned()) }
    }

    /// A request just as it is written, `Connection: close` included; its answer is all that comes.
    pub(crate) fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A server that refuses early may stop to read.
        let _ = stream.write_all(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text.as_str(), ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// `path` with these headers more.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Reply {
        let host = if headers.to_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
        self.raw(format!("GET {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n").as_bytes())
    }

    /// The bytes of a call, with these headers more.
    pub(crate) fn call_bytes(&self, tool: &str, arguments: Value, headers: &str) -> Vec<u8> {
        let mut headers = format!("Mcp-Name: {tool}\r\n{headers}");
        if let Some(sandbox) = arguments["sandbox_id"].as_str() {
            headers += &format!("Mcp-Param-Sandbox: {sandbox}\r\n");
        }
        self.request_bytes("tools/call", json!({"name": tool, "arguments": arguments}), &headers)
    }

    pub(crate) fn request_bytes(&self, method: &str, mut params: Value, headers: &str) -> Vec<u8> {
        let meta = |name: &str| format!("io.modelcontextprotocol/{name}");
        params["_meta"] = json!({
            meta("protocolVersion"): "2026-07-28",
            meta("clientInfo"): {"name": "e2e", "version": "1"},
            meta("clientCapabilities"): {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let host = if headers.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let token = match &self.token {
            Some(token) => format!("Authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        format!(
            "POST /mcp HTTP/1.1\r\n{host}{token}{headers}Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    #[track_caller]
    pub(crate) fn request(&self, method: &str, params: Value, headers: &str) -> Value {
        let reply = self.raw(&self.request_bytes(method, params, headers));
        serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
    }

    /// A call whose answer nobody waits for; dropped, the connection is gone.
    pub(crate) fn begin(&self, tool: &str, arguments: Value) -> Begun {
        let mut stream = self.connect();
        stream.write_all(&self.call_bytes(tool, arguments, "")).unwrap();
        Begun(stream)
    }
}

impl Caller for Http {
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        let reply = self.raw(&self.call_bytes(tool, arguments, ""));
        assert_eq!(reply.status, 200, "{reply:?}");
        Answer::of(&serde_json::from_str(&reply.body).unwrap())
    }
}

#[derive(Debug)]
pub(crate) struct Begun(TcpStream);

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
