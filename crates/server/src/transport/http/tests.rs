mod events;
mod hostile;
mod scopes;
mod shares;

use std::time::Instant;

use belljar_access::Tokens;
use belljar_engine::Settings;
use belljar_testkit::fake::{Fake, Manners};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const ANN: &str = "ann-0123456789abcdef";
const BOB: &str = "bob-0123456789abcdef";
const WAIT: Duration = Duration::from_secs(20);

struct Server {
    fake: Arc<Fake>,
    address: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), ServeError>>,
}

impl Server {
    async fn with(change: impl FnOnce(&mut HttpSettings)) -> Server {
        let fake = Fake::new(Manners::default());
        let engine = Engine::new(fake.clone(), Settings::default());
        let mut settings = HttpSettings::new("127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        let (ready, address) = oneshot::channel();
        let stop = CancellationToken::new();
        let serving = serve_http(engine, settings, move |address| ready.send(address).unwrap(), stop.clone());
        let ended = tokio::spawn(serving);
        Server { fake, address: address.await.unwrap(), stop, ended }
    }

    async fn open() -> Server {
        Server::with(|_| {}).await
    }

    async fn with_tokens() -> Server {
        let tokens = Tokens::parse(&format!("ann:{ANN}\nbob:{BOB}")).unwrap();
        Server::with(|settings| settings.access = Some(Arc::new(tokens.into()))).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends exactly these bytes and reads until the server closes.
    async fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        let _ = stream.write_all(bytes).await;
        Reply::read(stream).await
    }

    async fn send(&self, request: &Request) -> Reply {
        self.raw(&request.bytes()).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&Fake) -> bool) {
        let since = Instant::now();
        while !holds(&self.fake) {
            assert!(since.elapsed() < WAIT, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    async fn read(mut stream: TcpStream) -> Reply {
        let mut bytes = Vec::new();
        let _ = timeout(WAIT, stream.read_to_end(&mut bytes)).await.expect("an answer in time");
        Reply::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Reply {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Reply { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// The JSON-RPC answer, from JSON or from the last event of a stream, chunked or not.
    fn message(&self) -> Value {
        let line = self.body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let mut answers = line
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|message| message.get("result").is_some() || message.get("error").is_some());
        answers.next_back().unwrap_or_else(|| panic!("no message in {self:?}"))
    }

    fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

/// A request as a well-behaved client of 2026-07-28 sends it, to be spoilt by tests.
#[derive(Clone)]
struct Request {
    method: &'static str,
    target: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn new(method: &str, name: Option<&str>, mut params: Value) -> Request {
        params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = Request { method: "POST", target: "/mcp".into(), headers: Vec::new(), body }
            .set("Host", "localhost")
            .set("Connection", "close")
            .set("Content-Type", "application/json")
            .set("Accept", "application/json, text/event-stream")
            .set("MCP-Protocol-Version", "2026-07-28")
            .set("Mcp-Method", method);
        match name {
            Some(name) => request.set("Mcp-Name", name),
            None => request,
        }
    }

    fn list() -> Request {
        Request::new("tools/list", None, json!({}))
    }

    fn call(tool: &str, arguments: Value) -> Request {
        let sandbox = arguments.get("sandbox_id").and_then(Value::as_str).map(str::to_owned);
        let request = Request::new("tools/call", Some(tool), json!({"name": tool, "arguments": arguments}));
        match sandbox {
            Some(sandbox) => request.set("Mcp-Param-Sandbox", &sandbox),
            None => request,
        }
    }

    fn run(code: &str) -> Request {
        Request::call("run_code", json!({"language": "python", "code": code}))
    }

    /// A request of the older revisions.
    fn old(method: &str, params: Value) -> Request {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        Request { body, ..Request::list() }.without("Mcp-Method").set("MCP-Protocol-Version", "2025-11-25")
    }

    fn initialize() -> Request {
        let client = json!({"name": "t", "version": "1"});
        Request::old("initialize", json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}))
    }

    fn set(mut self, name: &str, value: &str) -> Request {
        self.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self.headers.push((name.into(), value.into()));
        self
    }

    fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        self
    }

    fn token(self, token: &str) -> Request {
        self.set("Authorization", &format!("Bearer {token}"))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if self.method == "POST" {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        [text.as_bytes(), b"\r\n", self.body.as_bytes()].concat()
    }
}

#[tokio::test]
async fn both_revisions_are_served() {
    let server = Server::open().await;
    let reply = server.send(&Request::run("print hi")).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.message()["result"]["content"][0]["text"], "hi\n");

    let reply = server.send(&Request::initialize()).await;
    assert_eq!(reply.message()["result"]["protocolVersion"], "2025-11-25");
    let session = reply.header("mcp-session-id").expect("a session");
    let old = Request::old(
        "tools/call",
        json!({"name": "run_code", "arguments": {"language": "python", "code": "print old"}}),
    );
    let reply = server.send(&old.set("Mcp-Session-Id", &session)).await;
    assert_eq!(reply.message()["result"]["content"][0]["text"], "old\n", "{reply:?}");
}

#[tokio::test]
async fn health_needs_nothing_and_tells_nothing_and_there_is_no_more() {
    let server = Server::with_tokens().await;
    let reply = server.raw(b"GET /healthz HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n").await;
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok"));
    let metrics = server.raw(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!(metrics.status, 401, "figures are for those who may call");
    for path in ["/", "/health", "/debug/pprof/", "/.env", "/mcp/", "/mcp/x", "/MCP", "/healthz/", "//mcp"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let reply = server.raw(request.as_bytes()).await;
        assert_eq!((reply.status, reply.body.as_str()), (404, ""), "{path}");
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let server = Server::with(|settings| settings.allowed_hosts = vec!["bell.example".into()]).await;
    for (host, status) in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("bell.example", 200),
        ("evil.test", 403),
        ("localhost.evil.test", 403),
        ("169.254.169.254", 403),
        ("", 400),
    ] {
        assert_eq!(server.send(&Request::list().set("Host", host)).await.status, status, "Host: {host}");
    }
    assert_eq!(server.send(&Request::list().without("Host")).await.status, 400);
    for (origin, status) in [
        ("http://localhost:5173", 200),
        ("https://bell.example", 200),
        ("http://evil.test", 403),
        ("null", 403),
        ("https://localhost.evil.test", 403),
        ("http://127.0.0.1.evil.test", 403),
        ("file://", 403),
        ("", 403),
    ] {
        assert_eq!(server.send(&Request::list().set("Origin", origin)).await.status, status, "Origin: {origin}");
    }
}

#[tokio::test]
async fn a_token_is_needed_and_only_in_its_header() {
    let server = Server::with_tokens().await;
    assert_eq!(server.send(&Request::list().token(ANN)).await.status, 200);
    assert_eq!(server.send(&Request::list().set("Authorization", &format!("bEARER {BOB}"))).await.status, 200);
    for query in ["access_token", "token"] {
        let in_query = Request { target: format!("/mcp?{query}={ANN}"), ..Request::list().token(ANN) };
        let reply = server.send(&in_query).await;
        assert!(reply.status == 400 && !reply.body.contains(ANN), "{reply:?}");
    }
    let wrong = server.send(&Request::list().token("wrong-0123456789abcdef")).await;
    assert_eq!(wrong.status, 401);
    assert!(wrong.header("www-authenticate").unwrap().contains("error=\"invalid_token\""), "{wrong:?}");
    let bad = [
        Request::list(),
        Request::list().set("Authorization", "Basic dTpw"),
        Request::list().set("Authorization", &format!("bearer  {ANN} x")),
        Request::list().set("Cookie", &format!("token={ANN}")),
        Request::list().set("Authorization", ANN),
        Request { method: "GET", ..Request::list() },
        Request { method: "DELETE", ..Request::list() },
    ];
    for request in bad {
        let reply = server.send(&request).await;
        assert_eq!(reply.status, 401, "{:?}", request.headers);
        assert_eq!(reply.header("www-authenticate").as_deref(), Some("Bearer"));
        assert!(!reply.body.contains(ANN));
    }
}

#[tokio::test]
async fn without_tokens_only_loopback_is_listened_on() {
    let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
    let settings = HttpSettings::new("0.0.0.0:0".parse().unwrap());
    let refused = serve_http(engine, settings, |_| panic!("listening"), CancellationToken::new()).await.unwrap_err();
    assert!(matches!(refused, ServeError::NeedsToken(_)));
    assert!(refused.next_step().contains("--token-file"));
}

#[tokio::test]
async fn one_principal_does_not_see_another() {
    let server = Server::with_tokens().await;
    let created = server.send(&Request::call("create_sandbox", json!({})).token(ANN)).await.message();
    let sandbox = created["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned();
    let write = json!({"sandbox_id": sandbox, "path": "secret", "content": "ann's"});
    assert_eq!(server.send(&Request::call("write_file", write).token(ANN)).await.message()["result"]["isError"], false);
    let uri = format!("belljar://{sandbox}/secret");
    let resource = Request::new("resources/read", Some(&uri), json!({"uri": uri}));
    let own = server.send(&resource.clone().token(ANN)).await.message();
    assert_eq!(own["result"]["contents"][0]["text"], "ann's", "{own}");

    let read = Request::call("read_file", json!({"sandbox_id": sandbox, "path": "secret"}));
    let destroy = Request::call("destroy_sandbox", json!({"sandbox_id": sandbox}));
    for request in [read, destroy] {
        let answer = server.send(&request.token(BOB)).await.message();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().starts_with("error: no such sandbox"));
    }
    assert_eq!(server.send(&resource.token(BOB)).await.message()["error"]["code"], -32602);
    let list = Request::new("resources/list", None, json!({}));
    assert_eq!(server.send(&list.clone().token(BOB)).await.message()["result"]["resources"], json!([]));
    let mine = server.send(&list.token(ANN)).await.message();
    assert_eq!(mine["result"]["resources"][0]["uri"], format!("belljar://{sandbox}/"));
}

#[tokio::test]
async fn a_session_is_bound_to_its_principal() {
    let server = Server::with_tokens().await;
    let session = server.send(&Request::initialize().token(ANN)).await.header("mcp-session-id").unwrap();
    let list = Request::old("tools/list", json!({})).set("Mcp-Session-Id", &session);
    assert_eq!(server.send(&list.clone().token(ANN)).await.status, 200);
    assert_eq!(server.send(&list.clone().token(BOB)).await.status, 404);
    assert_eq!(server.send(&Request::initialize().set("Mcp-Session-Id", &session).token(BOB)).await.status, 404);
    for method in ["GET", "DELETE"] {
        assert_eq!(server.send(&Request { method, ..list.clone() }.token(BOB)).await.status, 404, "{method}");
    }
    let modern = Request::initialize().set("Mcp-Session-Id", &session).set("MCP-Protocol-Version", "2026-07-28");
    let reply = server.send(&modern.token(BOB)).await;
    assert_ne!(reply.header("mcp-session-id"), Some(session.clone()), "{reply:?}");
    assert_eq!(server.send(&list.clone().token(ANN)).await.status, 200, "still there");
    let ended = server.send(&Request { method: "DELETE", ..list.clone() }.token(ANN)).await;
    assert_eq!((ended.status, ended.body.as_str()), (204, ""), "clients look for 200 or 204");
    assert_eq!(server.send(&list.token(ANN)).await.status, 404);
}

#[tokio::test]
async fn header_and_body_must_agree() {
    let server = Server::open().await;
    let run = Request::run("print no");
    let sandbox = Request::call("exec", json!({"sandbox_id": "sb_1", "command": "x"}));
    for request in [
        run.clone().set("Mcp-Method", "tools/list").set("Mcp-Name", ""),
        run.clone().set("Mcp-Name", "harmless"),
        run.clone().set("MCP-Protocol-Version", "2025-03-26"),
        run.clone().set("Mcp-Name", "=?base64?!!!?="),
        run.clone().without("Mcp-Method"),
        run.set("Mcp-Param-Sandbox", "sb_2"),
        sandbox.clone().set("Mcp-Param-Sandbox", "sb_2"),
        sandbox.without("Mcp-Param-Sandbox"),
    ] {
        let reply = server.send(&request).await;
        assert_eq!(reply.status, 400, "{:?} gave {reply:?}", request.headers);
        assert_eq!(reply.message()["error"]["code"], -32020, "{reply:?}");
    }
    assert_eq!(server.fake.started(), 0);
}

#[tokio::test]
async fn bad_bodies_are_told_as_json_rpc() {
    let server = Server::open().await;
    for (body, code) in
        [("{", -32700), ("", -32700), ("[]", -32600), ("null", -32600), (r#"{"jsonrpc":"2.0"}"#, -32600)]
    {
        let reply = server.send(&Request { body: body.into(), ..Request::list() }).await;
        assert_eq!((reply.status, reply.message()["error"]["code"].as_i64()), (400, Some(code)), "{body:?}");
    }
    assert_eq!(server.send(&Request::list().set("Content-Type", "text/plain")).await.status, 415);
    assert_eq!(server.send(&Request::list().set("Accept", "text/html")).await.status, 406);
    let unknown = Request::new("no/such", None, json!({}));
    let reply = server.send(&unknown).await;
    assert_eq!((reply.status, reply.message()["error"]["code"].as_i64()), (404, Some(-32601)));
    let gone = server.send(&Request::new("initialize", None, json!({}))).await;
    assert_eq!((gone.status, gone.message()["error"]["code"].as_i64()), (404, Some(-32601)), "no handshake there");
    let level = server.send(&Request::new("logging/setLevel", None, json!({"level": "info"}))).await;
    assert_eq!(level.message()["error"]["code"], -32601, "each request says for itself what it wants to hear");
}

#[tokio::test]
async fn a_body_has_a_limit_declared_or_not() {
    let server = Server::with(|settings| settings.body_bytes_max = 10_000).await;
    let big = Request { body: " ".repeat(10_001), ..Request::list() };
    assert_eq!(server.send(&big).await.status, 413);
    let head = String::from_utf8(Request { body: String::new(), ..Request::list() }.bytes()).unwrap();
    let mut chunked = head.replace("Content-Length: 0", "Transfer-Encoding: chunked").into_bytes();
    for _ in 0..20 {
        chunked.extend_from_slice(b"3e8\r\n");
        chunked.extend_from_slice(&[b' '; 1000]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(server.raw(&chunked).await.status, 413);
    let fits = Request { body: format!("{}{}", Request::list().body, " ".repeat(5000)), ..Request::list() };
    assert_eq!(server.send(&fits).await.status, 200);
}

#[tokio::test]
async fn an_eight_mebibyte_file_fits() {
    use base64::Engine as _;
    let server = Server::open().await;
    let created = server.send(&Request::call("create_sandbox", json!({}))).await.message();
    let sandbox = created["result"]["structuredContent"]["sandbox_id"].clone();
    let content = base64::engine::general_purpose::STANDARD.encode(vec![1; 8 * 1024 * 1024]);
    let write = json!({"sandbox_id": sandbox, "path": "big", "content": content, "encoding": "base64"});
    let answer = server.send(&Request::call("write_file", write)).await.message();
    assert_eq!(answer["result"]["structuredContent"]["size"], 8 * 1024 * 1024, "{answer}");
}

#[tokio::test]
async fn hanging_up_kills_the_program_in_every_revision() {
    let server = Server::open().await;
    let session = server.send(&Request::initialize()).await.header("mcp-session-id").unwrap();
    let arguments = json!({"language": "python", "code": "sleep 60000"});
    let old = Request::old("tools/call", json!({"name": "run_code", "arguments": arguments}));
    let mut with_progress = Request::run("sleep 60000");
    with_progress.body = with_progress.body.replace("\"_meta\":{", "\"_meta\":{\"progressToken\":\"p\",");
    for request in [Request::run("sleep 60000"), with_progress, old.set("Mcp-Session-Id", &session)] {
        let mut stream = server.connect().await;
        stream.write_all(&request.bytes()).await.unwrap();
        server.until("it runs", |fake| fake.programs() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let since = Instant::now();
        drop(stream);
        server.until("it is killed", |fake| fake.programs() == 0).await;
        assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    }
}

#[tokio::test]
async fn a_session_cancels_by_notification() {
    let server = Server::open().await;
    for closes_first in [false, true] {
        let session = server.send(&Request::initialize()).await.header("mcp-session-id").unwrap();
        let arguments = json!({"language": "python", "code": "sleep 60000"});
        let run = Request::old("tools/call", json!({"name": "run_code", "arguments": arguments}));
        let mut stream = server.connect().await;
        stream.write_all(&run.set("Mcp-Session-Id", &session).bytes()).await.unwrap();
        server.until("it runs", |fake| fake.programs() == 1).await;
        let since = Instant::now();
        let stream = (!closes_first).then_some(stream);
        if closes_first {
            // The server knows of the hang-up by now, and keeps the program for a caller that might come back.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let body =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string();
        let cancel = Request { body, ..Request::old("", json!({})).set("Mcp-Session-Id", &session) };
        assert_eq!(server.send(&cancel).await.status, 202);
        server.until("it is killed", |fake| fake.programs() == 0).await;
        assert!(since.elapsed() < Duration::from_millis(2500), "{closes_first}: {:?}", since.elapsed());
        drop(stream);
    }
}

#[tokio::test]
async fn a_word_of_another_session_cancels_nothing() {
    let server = Server::open().await;
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(server.send(&Request::initialize()).await.header("mcp-session-id").unwrap());
    }
    let arguments = json!({"language": "python", "code": "sleep 60000"});
    let run = Request::old("tools/call", json!({"name": "run_code", "arguments": arguments}));
    let mut stream = server.connect().await;
    stream.write_all(&run.set("Mcp-Session-Id", &sessions[0]).bytes()).await.unwrap();
    server.until("it runs", |fake| fake.programs() == 1).await;
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string();
    let cancel = Request { body, ..Request::old("", json!({})).set("Mcp-Session-Id", &sessions[1]) };
    assert_eq!(server.send(&cancel).await.status, 202);
    // Its caller only hangs up, and so might come back.
    let since = Instant::now();
    drop(stream);
    server.until("it is killed", |fake| fake.programs() == 0).await;
    assert!(since.elapsed() > Duration::from_secs(2), "{:?}", since.elapsed());
}

#[tokio::test]
async fn progress_streams_before_the_answer() {
    let server = Server::open().await;
    let mut request = Request::run("sleep 2300\nprint done");
    request.body = request.body.replace("\"_meta\":{", "\"_meta\":{\"progressToken\":\"p\",");
    let reply = server.send(&request).await;
    assert_eq!(reply.body.matches("notifications/progress").count(), 2, "{reply:?}");
    assert!(reply.body.rfind("notifications/progress") < reply.body.find("\"result\""), "{reply:?}");
}

#[tokio::test]
async fn slow_headers_keep_nobody_out() {
    let server = Server::with(|settings| settings.connections_max = 32).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        let mut stream = server.connect().await;
        stream.write_all(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Slow: a").await.unwrap();
        slow.push(stream);
    }
    let since = Instant::now();
    for _ in 0..10 {
        assert_eq!(server.send(&Request::run("print in")).await.message()["result"]["isError"], false);
    }
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
}

#[tokio::test]
async fn slow_bodies_keep_nobody_out_either() {
    let server = Server::with(|settings| settings.connections_max = 16).await;
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = server.connect().await;
        let bytes = Request::list().bytes();
        stream.write_all(&bytes[..bytes.len() - 5]).await.unwrap();
        slow.push(stream);
    }
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

#[tokio::test]
async fn work_is_not_pushed_out_by_newcomers() {
    let server = Server::with(|settings| settings.connections_max = 4).await;
    let mut busy = Vec::new();
    for _ in 0..4 {
        let mut stream = server.connect().await;
        stream.write_all(&Request::run("sleep 1500\nprint done").bytes()).await.unwrap();
        busy.push(stream);
    }
    server.until("all run", |fake| fake.programs() == 4).await;
    assert_eq!(server.send(&Request::list()).await.status, 503);
    for stream in busy {
        assert_eq!(Reply::read(stream).await.message()["result"]["content"][0]["text"], "done\n");
    }
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let server = Server::open().await;
    let mut stream = server.connect().await;
    stream.write_all(b"POST /mcp HTT").await.unwrap();
    let mut idle = server.connect().await;
    let keep = Request::list().set("Connection", "keep-alive");
    idle.write_all(&keep.bytes()).await.unwrap();
    let since = Instant::now();
    let reading = async {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        let _ = idle.read_to_end(&mut rest).await;
        rest
    };
    let rest = timeout(Duration::from_secs(15), reading).await.expect("closed");
    assert!(since.elapsed() > Duration::from_secs(5));
    assert!(String::from_utf8_lossy(&rest).contains("run_code"), "the idle one was answered first");
}

#[tokio::test]
async fn stopping_ends_what_runs_and_returns() {
    let server = Server::open().await;
    let mut streams = Vec::new();
    for request in [Request::run("sleep 60000"), Request::run("sleep 60000")] {
        let mut stream = server.connect().await;
        stream.write_all(&request.bytes()).await.unwrap();
        streams.push(stream);
    }
    let idle = server.connect().await;
    server.until("both run", |fake| fake.programs() == 2).await;
    let since = Instant::now();
    server.stop.cancel();
    timeout(Duration::from_secs(8), server.ended).await.expect("it ends").unwrap().unwrap();
    assert!(since.elapsed() < Duration::from_secs(7), "{:?}", since.elapsed());
    assert_eq!((server.fake.programs(), server.fake.sandboxes()), (0, 0));
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn garbage_does_not_end_the_server() {
    let server = Server::open().await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
    ] {
        let reply = server.raw(&[bytes, b"\r\n\r\n"].concat()).await;
        assert!(reply.status == 0 || (400..500).contains(&reply.status), "{bytes:?} gave {reply:?}");
    }
    let long = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(200_000));
    assert!([0, 431].contains(&server.raw(long.as_bytes()).await.status));
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

/// Reads what an open answer tells, until one of `wanted` is in it.
async fn hear_one(stream: &mut TcpStream, heard: &mut String, wanted: &[&str]) {
    let hearing = async {
        while !wanted.iter().any(|wanted| heard.contains(wanted)) {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            assert!(count > 0, "{wanted:?} was not told in {heard}");
            heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    };
    assert!(timeout(WAIT, hearing).await.is_ok(), "{wanted:?} was not told in time in {heard}");
}

async fn hear(stream: &mut TcpStream, heard: &mut String, wanted: &str) {
    hear_one(stream, heard, &[wanted]).await;
}

async fn created(server: &Server, request: Request) -> String {
    let answer = server.send(&request).await.message();
    answer["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_listener_is_told_of_its_own_sandboxes_only_and_goes_when_it_hangs_up() {
    let server = Server::with_tokens().await;
    let of_ann = created(&server, Request::call("create_sandbox", json!({})).token(ANN)).await;
    let of_bob = created(&server, Request::call("create_sandbox", json!({})).token(BOB)).await;
    let wanted = json!({"resourcesListChanged": true,
        "resourceSubscriptions": [format!("belljar://{of_ann}/"), format!("belljar://{of_bob}/")]});
    let listen = Request::new("subscriptions/listen", None, json!({"notifications": wanted})).token(ANN);
    let mut stream = server.connect().await;
    stream.write_all(&listen.bytes()).await.unwrap();
    let mut heard = String::new();
    hear(&mut stream, &mut heard, "notifications/subscriptions/acknowledged").await;
    assert!(heard.starts_with("HTTP/1.1 200") && heard.contains("text/event-stream"), "{heard}");
    let acknowledged = heard.len();

    let write =
        |sandbox: &str| Request::call("write_file", json!({"sandbox_id": sandbox, "path": "a.txt", "content": "x"}));
    assert_eq!(server.send(&write(&of_bob).token(BOB)).await.status, 200);
    assert_eq!(server.send(&write(&of_ann).token(ANN)).await.status, 200);
    hear(&mut stream, &mut heard, "notifications/resources/updated").await;
    hear(&mut stream, &mut heard, &format!("\"belljar://{of_ann}/\"")).await;
    created(&server, Request::call("create_sandbox", json!({})).token(ANN)).await;
    hear(&mut stream, &mut heard, "notifications/resources/list_changed").await;
    assert!(!heard[acknowledged..].contains(&of_bob), "{heard}");
    drop(stream);
    server.stop.cancel();
    timeout(WAIT, server.ended).await.expect("nobody holds up the end").unwrap().unwrap();
}

#[tokio::test]
async fn a_session_is_told_on_its_own_stream() {
    let server = Server::with_tokens().await;
    let opened = server.send(&Request::initialize().token(ANN)).await;
    let session = opened.header("mcp-session-id").unwrap();
    let in_session = |request: Request| request.set("Mcp-Session-Id", &session).token(ANN);
    let initialized = Request {
        body: json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string(),
        ..in_session(Request::old("x", json!({})))
    };
    assert_eq!(server.send(&initialized).await.status, 202);
    let call = |name: &str, arguments: Value| {
        in_session(Request::old("tools/call", json!({"name": name, "arguments": arguments})))
    };
    let sandbox = created(&server, call("create_sandbox", json!({}))).await;
    let uri = format!("belljar://{sandbox}/a.txt");
    let subscribe = |uri: &str| in_session(Request::old("resources/subscribe", json!({"uri": uri})));
    let answer = server.send(&subscribe(&uri)).await.message();
    assert!(answer["result"].is_object(), "{answer}");
    let of_bob = created(&server, Request::call("create_sandbox", json!({})).token(BOB)).await;
    let answer = server.send(&subscribe(&format!("belljar://{of_bob}/"))).await.message();
    assert!(answer["error"].is_object(), "{answer}");

    let mut stream = server.connect().await;
    let listen = format!(
        "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\
         MCP-Protocol-Version: 2025-11-25\r\nAuthorization: Bearer {ANN}\r\n\r\n"
    );
    stream.write_all(listen.as_bytes()).await.unwrap();
    let mut heard = String::new();
    hear(&mut stream, &mut heard, "HTTP/1.1 200").await;
    let write = call("write_file", json!({"sandbox_id": sandbox, "path": "a.txt", "content": "x"}));
    assert_eq!(server.send(&write).await.status, 200);
    hear(&mut stream, &mut heard, "notifications/resources/updated").await;
    hear(&mut stream, &mut heard, &uri).await;
    assert!(!heard.contains(&of_bob), "{heard}");
}

#[tokio::test]
async fn listeners_have_a_bound_and_leave_their_place() {
    // Half of them may stay open.
    let server = Server::with(|settings| settings.connections_max = 32).await;
    let listen = Request::new("subscriptions/listen", None, json!({"notifications": {"resourcesListChanged": true}}));
    let told = async |wanted: &str| {
        let mut stream = server.connect().await;
        stream.write_all(&listen.bytes()).await.unwrap();
        let mut heard = String::new();
        hear(&mut stream, &mut heard, wanted).await;
        (stream, heard)
    };
    let mut listening = Vec::new();
    for _ in 0..16 {
        listening.push(told("notifications/subscriptions/acknowledged").await);
    }
    // A listener has its place a moment after it is acknowledged.
    created(&server, Request::call("create_sandbox", json!({}))).await;
    for (stream, heard) in &mut listening {
        hear(stream, heard, "notifications/resources/list_changed").await;
    }
    told("too many streams open").await;
    drop(listening);
    // The places of those who hung up come free, one after the other.
    for _ in 0..100 {
        let (mut stream, mut heard) = told("notifications/subscriptions/acknowledged").await;
        created(&server, Request::call("create_sandbox", json!({}))).await;
        hear_one(&mut stream, &mut heard, &["notifications/resources/list_changed", "too many streams open"]).await;
        if !heard.contains("too many streams open") {
            return;
        }
    }
    panic!("the places of those who hung up are not free");
}

#[tokio::test]
async fn codemode_false_gives_the_other_servers_tools_as_they_are() {
    let server = Server::with(|settings| {
        settings.surface.code_mode = Some(Arc::new(crate::gateway::fake::FakeMode::default()));
    })
    .await;
    let names = |reply: &Reply| -> Vec<String> {
        let tools = reply.message()["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let there = |request: Request| Request { target: "/mcp?codemode=false".into(), ..request };
    assert_eq!(names(&server.send(&there(Request::list())).await), ["github__ask", "github__echo", "github__fail"]);
    let echoed = server.send(&there(Request::call("github__echo", json!({"x": "y"})))).await.message();
    assert_eq!(echoed["result"]["structuredContent"]["got"], json!({"x": "y"}), "{echoed}");
    let own = server.send(&there(Request::run("print x"))).await.message();
    assert_eq!(own["error"]["code"], -32602, "{own}");
    // Whoever does not ask for it has programs, and no direct calls.
    assert_eq!(names(&server.send(&Request::list()).await)[..2], ["run_code", "search_tools"]);
    let direct = server.send(&Request::call("github__echo", json!({}))).await.message();
    assert_eq!(direct["error"]["code"], -32602, "{direct}");
}

#[tokio::test]
async fn a_question_is_answered_by_whom_it_was_asked() {
    let mode = Arc::new(crate::gateway::fake::FakeMode::default());
    let given = mode.clone();
    let server = Server::with(move |settings| {
        settings.access = Some(Arc::new(Tokens::parse(&format!("ann:{ANN}\nbob:{BOB}")).unwrap().into()));
        settings.surface.code_mode = Some(given);
        settings.surface.direct = true;
    })
    .await;
    let call = |extra: Value, token: &str| {
        let mut params = json!({"name": "github__ask", "arguments": {}});
        params.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
        let mut request = Request::new("tools/call", Some("github__ask"), params).token(token);
        let capable = r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#;
        request.body = request.body.replace(r#""io.modelcontextprotocol/clientCapabilities":{}"#, capable);
        request
    };
    let asked = server.send(&call(json!({}), ANN)).await.message();
    let state = asked["result"]["requestState"].clone();
    assert!(state.is_string(), "{asked}");
    let approval = json!({"action": "accept", "content": {"decision": "approve"}});
    let answer = json!({"requestState": state, "inputResponses": {"approval": approval}});
    let stranger = server.send(&call(answer.clone(), BOB)).await.message();
    assert!(stranger["error"]["message"].as_str().unwrap().contains("not given to you"), "{stranger}");
    assert_eq!(mode.waiting(1).len(), 1);
    let done = server.send(&call(answer, ANN)).await.message();
    assert_eq!(done["result"]["content"][0]["text"], "asked and done", "{done}");
}

#[tokio::test]
async fn a_form_comes_on_the_stream_of_its_request() {
    let mode = Arc::new(crate::gateway::fake::FakeMode::default());
    let server = Server::with(move |settings| {
        settings.surface.code_mode = Some(mode);
        settings.surface.direct = true;
    })
    .await;
    let client = json!({"name": "t", "version": "1"});
    let begin = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": client});
    let begun = server.send(&Request::old("initialize", begin)).await;
    let session = begun.header("mcp-session-id").expect("a session");
    let said = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    let said = Request { body: said, ..Request::old("x", json!({})) }.set("Mcp-Session-Id", &session);
    assert_eq!(server.send(&said).await.status, 202);

    let call = Request::old("tools/call", json!({"name": "github__ask", "arguments": {}}));
    let mut stream = server.connect().await;
    stream.write_all(&call.set("Mcp-Session-Id", &session).bytes()).await.unwrap();
    let mut read = Vec::new();
    let form = loop {
        let mut piece = [0; 4096];
        let length = timeout(WAIT, stream.read(&mut piece)).await.expect("a form in time").unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&read).into_owned();
        let data = text.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok());
        if let Some(form) = data.into_iter().find(|message| message["method"] == "elicitation/create") {
            break form;
        }
    };
    let approved = json!({"action": "accept", "content": {"decision": "approve"}});
    let body = json!({"jsonrpc": "2.0", "id": form["id"], "result": approved}).to_string();
    let answer = Request { body, ..Request::old("x", json!({})) }.set("Mcp-Session-Id", &session);
    assert_eq!(server.send(&answer).await.status, 202);
    let done = Reply::read(stream).await;
    assert!(done.body.contains("asked and done") || done.head.contains("asked and done"), "{done:?}");
}
