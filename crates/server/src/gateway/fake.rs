//! Other servers that are not there, and a client that talks to a server which believes in them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belljar_core::Soon;
use belljar_engine::{Engine, Settings};
use belljar_gateway::approval::{Approvals, Pending, Subject, Verdict};
use belljar_gateway::audit::Decided;
use belljar_gateway::error::{CallError, ErrorKind};
use belljar_testkit::fake::{Fake, Manners};
use rmcp::model::{CallToolResult, ContentBlock, Tool};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{CodeMode, DirectCall, Search};
use crate::Surface;
use crate::transport::stdio::serve;

pub(crate) const NOTE: &str = "github: create_issue(title: str)";
pub(crate) const SECRET: &str = "ann@example.com";
pub(crate) const TOKEN: &str = "<EMAIL_1>";

#[derive(Debug, Default)]
pub(crate) struct FakeMode {
    pub(crate) approvals: Approvals,
    pub(crate) approves_code: bool,
    pub(crate) changes: watch::Sender<u64>,
    pub(crate) searched: Mutex<Vec<Search>>,
    pub(crate) decided: Mutex<Vec<Decided>>,
    pub(crate) accounts: Mutex<Vec<(String, u64, u64)>>,
}

pub(crate) fn subject(tool: &str) -> Subject {
    let arguments = json!({"title": format!("by {tool}")}).as_object().cloned().unwrap();
    Subject::Call { server: "github".into(), tool: tool.into(), arguments }
}

impl FakeMode {
    /// A program asks, as the broker would for it.
    pub(crate) fn request(&self, occasion: u64, tool: &str) -> JoinHandle<Option<Verdict>> {
        let (approvals, subject) = (self.approvals.clone(), subject(tool));
        tokio::spawn(async move { approvals.request(occasion, subject).await })
    }

    pub(crate) fn waiting(&self, occasion: u64) -> Vec<Pending> {
        self.approvals.waiting(occasion)
    }
}

impl CodeMode for FakeMode {
    fn has_servers(&self) -> bool {
        true
    }

    fn note<'a>(&'a self, _: &'a str) -> Soon<'a, String> {
        Box::pin(async { NOTE.to_owned() })
    }

    fn search<'a>(&'a self, _: &'a str, wanted: Search) -> Soon<'a, Result<String, CallError>> {
        let text = format!("found {:?}", wanted.query);
        self.searched.lock().unwrap().push(wanted);
        Box::pin(async { Ok(text) })
    }

    fn direct_tools<'a>(&'a self, _: &'a str) -> Soon<'a, Vec<Tool>> {
        let schema = json!({"type": "object", "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        let schema = schema.as_object().cloned().unwrap();
        let tools = ["github__ask", "github__echo", "github__fail"];
        Box::pin(async move { tools.map(|name| Tool::new(name, "theirs", schema.clone())).to_vec() })
    }

    fn direct_call<'a>(&'a self, call: DirectCall) -> Soon<'a, Option<Result<CallToolResult, CallError>>> {
        Box::pin(async move {
            Some(match call.name.as_str() {
                "github__echo" => {
                    let mut result = CallToolResult::success(vec![ContentBlock::text(format!("mail {SECRET}"))]);
                    result.structured_content = Some(json!({"got": call.arguments, "mail": SECRET}));
                    Ok(result)
                }
                "github__ask" => {
                    let verdict = match call.occasion {
                        Some(occasion) => self.approvals.request(occasion, subject("ask")).await,
                        None => None,
                    };
                    match verdict {
                        Some(Verdict::Deny) | None => Err(CallError::new(ErrorKind::ApprovalDenied, "not approved")),
                        Some(_) => Ok(CallToolResult::success(vec![ContentBlock::text("asked and done")])),
                    }
                }
                "github__fail" => Err(CallError {
                    problems: vec!["x must be a string".into()],
                    ..CallError::new(ErrorKind::InvalidArguments, "wrong arguments")
                }),
                _ => return None,
            })
        })
    }

    fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    fn approves_code(&self) -> bool {
        self.approves_code
    }

    fn decided(&self, decided: &Decided) {
        self.decided.lock().unwrap().push(decided.clone());
    }

    fn hide(&self, _: &str, text: &mut String) {
        *text = text.replace(SECRET, TOKEN);
    }

    fn account(&self, _: &str, run: &str, _: u64, entered: u64, direct: u64) {
        self.accounts.lock().unwrap().push((run.to_owned(), entered, direct));
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// A client at the other end of the two streams, of the older revisions or of the newest.
pub(crate) struct Client {
    pub(crate) fake: Arc<Fake>,
    pub(crate) mode: Arc<FakeMode>,
    to: WriteHalf<DuplexStream>,
    from: BufReader<ReadHalf<DuplexStream>>,
    _server: JoinHandle<()>,
    meta: Option<Value>,
}

/// Longer than the patience with a person, by the tests' own clock.
const WAIT: Duration = Duration::from_secs(3600);
const REAL_WAIT: Duration = Duration::from_secs(20);

impl Client {
    pub(crate) fn new(mode: FakeMode, surface: Surface) -> Client {
        let mode = Arc::new(mode);
        let fake = Fake::new(Manners::default());
        let engine = Engine::new(fake.clone(), Settings::default());
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = split(theirs);
        let (from, to) = split(ours);
        let surface = Surface { code_mode: Some(mode.clone()), ..surface };
        let server = tokio::spawn(serve(engine, surface, reader, writer));
        Client { fake, mode, to, from: BufReader::new(from), _server: server, meta: None }
    }

    pub(crate) async fn older(mode: FakeMode, surface: Surface, version: &str, capabilities: Value) -> Client {
        let mut client = Client::new(mode, surface);
        let params = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"}});
        client.ask(0, "initialize", params).await;
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    pub(crate) fn newest(mode: FakeMode, surface: Surface, capabilities: Value) -> Client {
        let mut client = Client::new(mode, surface);
        client.meta = Some(json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities}));
        client
    }

    pub(crate) async fn send(&mut self, message: Value) {
        let line = format!("{message}\n");
        timeout(WAIT, self.to.write_all(line.as_bytes())).await.expect("the server reads").unwrap();
    }

    pub(crate) async fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            timeout(WAIT, self.from.read_line(&mut line)).await.expect("a message in time").unwrap();
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            // A sandbox that comes or goes is told of at any time.
            if message["method"] != "notifications/resources/list_changed" {
                return message;
            }
        }
    }

    pub(crate) async fn request(&mut self, id: i64, method: &str, mut params: Value) {
        if let Some(meta) = &self.meta {
            params["_meta"] = meta.clone();
        }
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    pub(crate) async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) async fn call(&mut self, id: i64, tool: &str, arguments: Value) -> Value {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Begins a program that takes some seconds, and returns when it runs.
    pub(crate) async fn begin(&mut self, id: i64, code: &str) -> Value {
        let arguments = json!({"language": "python", "code": code});
        self.request(id, "tools/call", json!({"name": "run_code", "arguments": arguments.clone()})).await;
        self.until("it runs", |fake| fake.programs() > 0).await;
        arguments
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Fake) -> bool) {
        let since = Instant::now();
        while !holds(&self.fake) {
            assert!(since.elapsed() < REAL_WAIT, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The next message, which must be a form; answered so.
    pub(crate) async fn answer_form(&mut self, answer: Value) -> Value {
        let form = self.next().await;
        assert_eq!(form["method"], "elicitation/create", "{form}");
        self.send(json!({"jsonrpc": "2.0", "id": form["id"], "result": answer})).await;
        form["params"].clone()
    }
}

pub(crate) fn said(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}"))
}

pub(crate) fn refused(answer: &Value) -> &str {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    answer["error"]["message"].as_str().unwrap()
}
