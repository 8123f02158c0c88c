use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_engine::Settings;
use belljar_testkit::fake::{Fake, Manners};
use rmcp::model::{ErrorCode, RequestId};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::transport::conversation::Open;

/// A client at the other end of the two streams.
struct Client {
    fake: Arc<Fake>,
    to: WriteHalf<DuplexStream>,
    from: BufReader<ReadHalf<DuplexStream>>,
    server: JoinHandle<()>,
}

const WAIT: Duration = Duration::from_secs(10);

impl Client {
    fn new() -> Client {
        let fake = Fake::new(Manners::default());
        let engine = Engine::new(fake.clone(), Settings::default());
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = split(theirs);
        let (from, to) = split(ours);
        Client {
            fake,
            to,
            from: BufReader::new(from),
            server: tokio::spawn(serve(engine, Surface::default(), reader, writer)),
        }
    }

    async fn started() -> Client {
        let mut client = Client::new();
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer = client.ask(0, "initialize", params).await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
        client.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        client
    }

    async fn raw(&mut self, bytes: &[u8]) {
        timeout(WAIT, self.to.write_all(bytes)).await.expect("the server reads").unwrap();
    }

    async fn send(&mut self, message: Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    /// The next line, which must be JSON-RPC.
    async fn next(&mut self) -> Value {
        let mut line = String::new();
        timeout(WAIT, self.from.read_line(&mut line)).await.expect("an answer in time").unwrap();
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    async fn request(&mut self, id: i64, method: &str, params: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
    }

    async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.request(id, method, params).await;
        let mut answer = self.next().await;
        // A sandbox that comes or goes is told of at any time.
        while answer["method"] == "notifications/resources/list_changed" {
            answer = self.next().await;
        }
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    async fn run(&mut self, id: i64, code: &str) {
        let arguments = json!({"language": "python", "code": code});
        self.request(id, "tools/call", json!({"name": "run_code", "arguments": arguments})).await;
    }

    async fn until(&self, what: &str, holds: impl Fn(&Fake) -> bool) {
        let since = Instant::now();
        while !holds(&self.fake) {
            assert!(since.elapsed() < WAIT, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
}

#[tokio::test]
async fn a_program_is_run() {
    let mut client = Client::started().await;
    client.run(7, "print hello").await;
    let answer = client.next().await;
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(7), &json!("hello\n")));
    assert_eq!(answer["result"]["structuredContent"]["exit_code"], 0);
}

#[tokio::test]
async fn the_stateless_revision_needs_no_handshake() {
    let mut client = Client::new();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let answer = client.ask(1, "server/discover", json!({"_meta": meta})).await;
    assert_eq!(
        answer["result"]["serverInfo"]["name"]
            .as_str()
            .or(answer["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"].as_str()),
        Some("belljar"),
        "{answer}"
    );
    let arguments = json!({"language": "python", "code": "print hi"});
    let params = json!({"name": "run_code", "arguments": arguments, "_meta": meta});
    let answer = client.ask(2, "tools/call", params).await;
    assert_eq!(answer["result"]["content"][0]["text"], "hi\n");
    assert_eq!(answer["result"]["resultType"], "complete");
}

#[tokio::test]
async fn what_is_no_message_is_answered_and_the_server_goes_on() {
    let mut client = Client::started().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_request = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{deep}}}"#);
    let cases: &[(&[u8], i64)] = &[
        (b"{", -32700),
        (b"hello", -32700),
        (b"null", -32600),
        (b"[]", -32600),
        (b"[[]]", -32600),
        (b"\"x\"", -32600),
        (b"42", -32600),
        (b"{}", -32600),
        (br#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":[],"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1e400,"method":"tools/list"}"#, -32700),
        (br#"{"jsonrpc":"2.0","id":true,"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":99999999999999999999,"method":"tools/list"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":3,"method":5}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":3}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":3,"method":"a","method":"b"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":3,"method":"no/such"}"#, -32601),
        (br#"{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"no_such"}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"tools/call"}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":[]}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":5}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"run_code","arguments":[]}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"no_such"}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#, -32602),
        (br#"{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"belljar://sb_1/x"}}"#, -32002),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\xfe\",\"method\":\"tools/list\"}", -32700),
        (b"\0\0\0", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"\0\",\"method\":\"tools/list\"}", -32700),
        (br#"{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}"#, -32700),
        (deep.as_bytes(), -32700),
        (deep_request.as_bytes(), -32700),
    ];
    for (line, expected) in cases {
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        client.raw(&[line, &b"\n"[..]].concat()).await;
        let answer = client.next().await;
        assert_eq!(code(&answer), *expected, "{shown} gave {answer}");
        assert!(answer.get("id").is_some(), "an id, or null: {answer}");
    }
    let answer = client.ask(1000, "ping", json!({})).await;
    assert!(answer.get("result").is_some());
}

#[tokio::test]
async fn what_needs_no_answer_gets_none() {
    let mut client = Client::started().await;
    for line in [
        &b""[..],
        b"   ",
        b"\r",
        br#"{"jsonrpc":"2.0","method":"no/such"}"#,
        br#"{"jsonrpc":"2.0","method":"tools/list"}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}"#,
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#,
        br#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        br#"{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}"#,
    ] {
        client.raw(&[line, b"\n"].concat()).await;
    }
    client.raw(b"\xef\xbb\xbf").await;
    assert!(client.ask(2, "ping", json!({})).await.get("result").is_some(), "a byte order mark is skipped");
}

#[tokio::test]
async fn hostile_lines_before_the_handshake_do_not_end_it() {
    let mut client = Client::new();
    client.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await;
    client.raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n").await;
    client.raw(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n[]\n").await;
    assert_eq!(code(&client.next().await), -32600);
    assert_eq!(code(&client.ask(3, "tools/list", json!({})).await), -32602, "not without a handshake");
    assert_eq!(code(&client.ask(4, "initialize", json!({})).await), -32602);
    let params =
        json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    assert_eq!(client.ask(5, "initialize", params).await["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(client.ask(6, "tools/list", json!({})).await["result"]["tools"].as_array().unwrap().len(), 8);
}

#[tokio::test]
async fn a_giant_line_is_answered_once_and_skipped() {
    let mut client = Client::started().await;
    let chunk = vec![b'x'; 1024 * 1024];
    client.raw(br#"{"jsonrpc":"2.0","id":1,"method":""#).await;
    for _ in 0..40 {
        client.raw(&chunk).await;
    }
    client.raw(b"\"}\n").await;
    let answer = client.next().await;
    assert_eq!((code(&answer), &answer["id"]), (-32600, &json!(1)));
    assert!(answer["error"]["message"].as_str().unwrap().contains("25165824"), "{answer}");
    assert!(client.ask(2, "ping", json!({})).await.get("result").is_some());
}

#[tokio::test]
async fn a_big_message_within_the_limit_is_taken() {
    let mut client = Client::started().await;
    let created = client.ask(1, "tools/call", json!({"name": "create_sandbox", "arguments": {}})).await;
    let sandbox = created["result"]["structuredContent"]["sandbox_id"].clone();
    let content = STANDARD.encode(vec![7u8; 8 * 1024 * 1024]);
    let arguments = json!({"sandbox_id": sandbox, "path": "big", "content": content, "encoding": "base64"});
    let answer = client.ask(2, "tools/call", json!({"name": "write_file", "arguments": arguments})).await;
    assert_eq!(answer["result"]["structuredContent"]["size"], 8 * 1024 * 1024, "{answer}");
}

#[tokio::test]
async fn an_id_in_use_is_refused() {
    let mut client = Client::started().await;
    client.run(5, "sleep 300").await;
    client.until("it runs", |fake| fake.programs() == 1).await;
    client.run(5, "print second").await;
    assert_eq!(code(&client.next().await), -32600);
    let first = client.next().await;
    assert_eq!(first["result"]["content"][0]["text"], "(no output)");
}

#[tokio::test]
async fn cancelling_kills_the_program_and_nothing_more_is_said() {
    let mut client = Client::started().await;
    client.run(5, "sleep 60000").await;
    client.until("it runs", |fake| fake.programs() == 1).await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})).await;
    client.until("it is killed", |fake| fake.programs() == 0).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let answer = client.ask(6, "ping", json!({})).await;
    assert!(answer.get("result").is_some(), "nothing came in between");
}

#[tokio::test]
async fn the_end_of_input_kills_what_runs_and_ends_the_server() {
    let mut client = Client::started().await;
    client.run(5, "sleep 60000").await;
    client.until("it runs", |fake| fake.programs() == 1).await;
    let since = Instant::now();
    client.to.shutdown().await.unwrap();
    let Client { fake, server, mut from, .. } = client;
    timeout(Duration::from_secs(5), server).await.expect("it ends").unwrap();
    assert!(since.elapsed() < Duration::from_secs(4));
    assert_eq!((fake.programs(), fake.sandboxes()), (0, 0));
    let mut rest = String::new();
    from.read_to_string(&mut rest).await.unwrap();
    assert!(rest.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{rest}");
}

#[tokio::test]
async fn requests_sent_before_the_end_of_input_are_answered() {
    let mut client = Client::started().await;
    client.run(5, "sleep 100\nprint late").await;
    // Not even a newline.
    client.raw(br#"{"jsonrpc":"2.0","id":6,"method":"ping"}"#).await;
    client.to.shutdown().await.unwrap();
    let answers = [client.next().await, client.next().await];
    assert!(answers.iter().any(|answer| answer["result"]["content"][0]["text"] == "late\n"), "{answers:?}");
    timeout(WAIT, client.server).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn an_end_of_input_before_anything_ends_the_server() {
    let mut client = Client::new();
    client.to.shutdown().await.unwrap();
    timeout(WAIT, client.server).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_closed_output_ends_the_server() {
    let mut client = Client::started().await;
    client.run(5, "sleep 60000").await;
    client.run(6, "print x").await;
    client.until("it runs", |fake| fake.programs() >= 1).await;
    let Client { fake, to, from, server } = client;
    drop((to, from));
    timeout(WAIT, server).await.expect("it ends").unwrap();
    assert_eq!(fake.programs(), 0);
}

#[tokio::test]
async fn progress_is_told_at_once_and_never_after_the_answer() {
    let mut client = Client::started().await;
    for (id, sleep) in [(5, 0), (6, 2600)] {
        let params = json!({"name": "run_code", "arguments": {"language": "python", "code": format!("sleep {sleep}")},
            "_meta": {"progressToken": format!("p{id}")}});
        client.request(id, "tools/call", params).await;
        let mut told = Vec::new();
        loop {
            let message = client.next().await;
            if message.get("id").is_some() {
                assert_eq!(message["id"], id);
                break;
            }
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], format!("p{id}"));
            assert_eq!(message["params"]["total"], 30.0);
            told.push(message["params"]["progress"].as_f64().unwrap());
        }
        assert_eq!(told.first(), Some(&0.0));
        assert!(told.is_sorted() && (sleep == 0 || told.len() == 2), "{told:?}");
    }
    assert!(client.ask(7, "ping", json!({})).await.get("result").is_some(), "no progress after the answers");
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_all_answered() {
    let client = Client::started().await;
    let lines: String = (0..1000)
        .map(|id| {
            let arguments = json!({"language": "python", "code": format!("print r{id}")});
            let params = json!({"name": "run_code", "arguments": arguments});
            format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
        })
        .collect();
    let Client { mut to, from, .. } = client;
    let sending = tokio::spawn(async move {
        to.write_all(lines.as_bytes()).await.unwrap();
        to
    });
    let mut answers = from.lines();
    let mut right = 0;
    for _ in 0..1000 {
        let line = timeout(Duration::from_secs(30), answers.next_line()).await.expect("all answered").unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        right += usize::from(answer["result"]["content"][0]["text"] == format!("r{}\n", answer["id"]));
    }
    assert_eq!(right, 1000);
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_caller_that_does_not_read_is_refused_more_before_memory_runs_out() {
    let open = Open::new(BOUNDS);
    for id in 0..BOUNDS.requests as i64 {
        open.begin(&RequestId::Number(id), 10).unwrap();
    }
    assert_eq!(open.begin(&RequestId::Number(-1), 10).unwrap_err().0, ErrorCode(-32000));
    open.end(&RequestId::Number(0));
    open.begin(&RequestId::Number(-1), 10).unwrap();
    let large = Open::new(BOUNDS);
    large.begin(&RequestId::Number(1), BOUNDS.bytes + 1).unwrap();
    assert!(large.begin(&RequestId::Number(2), 1).is_err(), "one may be large, not two");
}

impl Client {
    /// What is told until an answer comes, and the answer.
    async fn until_answer(&mut self, id: i64) -> (Vec<Value>, Value) {
        let mut told = Vec::new();
        loop {
            let message = self.next().await;
            if message["id"] == id {
                return (told, message);
            }
            told.push(message);
            assert!(told.len() < 100, "{told:?}");
        }
    }

    /// Waits until something is told, past whatever else is.
    async fn until_told(&mut self, wanted: &str) -> Value {
        for _ in 0..100 {
            let message = self.next().await;
            if message["method"] == wanted {
                return message;
            }
        }
        panic!("{wanted} was not told");
    }
}

#[tokio::test]
async fn a_subscriber_is_told_of_changes_and_of_the_end() {
    let mut client = Client::started().await;
    client.request(1, "tools/call", json!({"name": "create_sandbox", "arguments": {}})).await;
    let (told, answer) = client.until_answer(1).await;
    let sandbox = answer["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned();
    if told.is_empty() {
        client.until_told("notifications/resources/list_changed").await;
    }
    let uri = format!("belljar://{sandbox}/a/b.txt");
    let directory = format!("belljar://{sandbox}/");
    for (id, uri) in [(2, &uri), (3, &directory)] {
        let answer = client.ask(id, "resources/subscribe", json!({"uri": uri})).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    let write =
        |path: &str| json!({"name": "write_file", "arguments": {"sandbox_id": sandbox, "path": path, "content": "x"}});
    // Told of the directory only, and then of both.
    client.request(4, "tools/call", write("other.txt")).await;
    let told = client.until_told("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], *directory);
    client.request(5, "tools/call", write("./a/b.txt")).await;
    assert_eq!(client.until_told("notifications/resources/updated").await["params"]["uri"], *uri);
    assert_eq!(client.until_told("notifications/resources/updated").await["params"]["uri"], *directory);

    client.request(6, "resources/unsubscribe", json!({"uri": directory})).await;
    let (_, answer) = client.until_answer(6).await;
    assert!(answer["result"].is_object(), "{answer}");
    client.request(7, "tools/call", json!({"name": "destroy_sandbox", "arguments": {"sandbox_id": sandbox}})).await;
    assert_eq!(client.until_told("notifications/resources/updated").await["params"]["uri"], *uri);
    client.until_told("notifications/resources/list_changed").await;

    for uri in [&*uri, "belljar://sb_other/x", "belljar://runs/run_1/stdout", "nonsense"] {
        client.request(8, "resources/subscribe", json!({"uri": uri})).await;
        let (_, answer) = client.until_answer(8).await;
        assert!(answer["error"].is_object(), "{uri}: {answer}");
    }
}

#[tokio::test]
async fn subscriptions_have_a_bound() {
    let mut client = Client::started().await;
    client.request(1, "tools/call", json!({"name": "create_sandbox", "arguments": {}})).await;
    let (_, answer) = client.until_answer(1).await;
    let sandbox = answer["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned();
    let mut refused = 0;
    for n in 0..105 {
        client.request(10 + n, "resources/subscribe", json!({"uri": format!("belljar://{sandbox}/{n}")})).await;
        let (_, answer) = client.until_answer(10 + n).await;
        refused += usize::from(answer["error"].is_object());
    }
    assert_eq!(refused, 5);
}

#[tokio::test]
async fn a_listener_of_the_stateless_revision_is_told() {
    let mut client = Client::new();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let create = json!({"name": "create_sandbox", "arguments": {}, "_meta": meta});
    let answer = client.ask(1, "tools/call", create).await;
    let sandbox = answer["result"]["structuredContent"]["sandbox_id"].as_str().unwrap().to_owned();
    let uri = format!("belljar://{sandbox}/a.txt");
    let wanted = json!({"resourcesListChanged": true, "toolsListChanged": true,
        "resourceSubscriptions": [uri, "belljar://sb_other/x", "nonsense"]});
    client.request(2, "subscriptions/listen", json!({"notifications": wanted, "_meta": meta})).await;
    let accepted = client.next().await;
    assert_eq!(accepted["method"], "notifications/subscriptions/acknowledged", "{accepted}");
    let expected = json!({"resourcesListChanged": true, "resourceSubscriptions": [uri, "belljar://sb_other/x"]});
    assert_eq!(accepted["params"]["notifications"], expected, "{accepted}");
    let write = json!({"name": "write_file", "_meta": meta,
        "arguments": {"sandbox_id": sandbox, "path": "/workspace/a.txt", "content": "x"}});
    client.request(3, "tools/call", write).await;
    let told = client.until_told("notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], *uri);
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 2, "{told}");
    let destroy = json!({"name": "destroy_sandbox", "arguments": {"sandbox_id": sandbox}, "_meta": meta});
    client.request(4, "tools/call", destroy).await;
    client.until_told("notifications/resources/updated").await;
    client.until_told("notifications/resources/list_changed").await;
}
