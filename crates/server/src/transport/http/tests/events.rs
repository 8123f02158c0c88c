//! Older clients: `/sse` and `/messages`.

use super::*;

/// An event stream, and where its messages go.
struct Events {
    stream: TcpStream,
    heard: String,
    target: String,
}

fn opening(token: Option<&str>) -> Request {
    let request = Request { method: "GET", target: "/sse".into(), headers: Vec::new(), body: String::new() }
        .set("Host", "localhost")
        .set("Accept", "text/event-stream");
    match token {
        Some(token) => request.token(token),
        None => request,
    }
}

impl Events {
    async fn open(server: &Server, token: Option<&str>) -> Events {
        let mut stream = server.connect().await;
        stream.write_all(&opening(token).bytes()).await.unwrap();
        let mut heard = String::new();
        hear(&mut stream, &mut heard, "data: /messages?sessionId=").await;
        // The end of the event, since it may come in pieces.
        hear(&mut stream, &mut heard, "\n\n").await;
        let target = heard.split_once("data: ").unwrap().1.lines().next().unwrap().to_owned();
        Events { stream, heard, target }
    }

    fn message(&self, message: &Value) -> Request {
        Request { method: "POST", target: self.target.clone(), headers: Vec::new(), body: message.to_string() }
            .set("Host", "localhost")
            .set("Connection", "close")
            .set("Content-Type", "application/json")
    }

    async fn hear(&mut self, wanted: &str) {
        hear(&mut self.stream, &mut self.heard, wanted).await;
    }

    async fn begin(&mut self, server: &Server, version: &str) {
        let client = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let reply = server.send(&self.message(&initialize)).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, "Accepted"));
        self.hear(&format!("\"protocolVersion\":\"{version}\"")).await;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(server.send(&self.message(&initialized)).await.status, 202);
    }
}

fn run(id: i64, code: &str) -> Value {
    call(id, "run_code", json!({"language": "python", "code": code}))
}

fn call(id: i64, name: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
}

#[tokio::test]
async fn older_clients_are_served_in_each_of_their_revisions() {
    let server = Server::open().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut events = Events::open(&server, None).await;
        assert!(events.heard.starts_with("HTTP/1.1 200"), "{}", events.heard);
        for header in ["content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"] {
            assert!(events.heard.contains(header), "{}", events.heard);
        }
        events.begin(&server, version).await;
        assert_eq!(server.send(&events.message(&run(1, &format!("print in {version}")))).await.status, 202);
        events.hear(&format!("in {version}\\n")).await;
        assert!(events.heard.contains("event: message\ndata: {"), "{}", events.heard);
    }
}

#[tokio::test]
async fn both_requests_need_the_token_and_a_session_is_its_openers() {
    let server = Server::with_tokens().await;
    assert_eq!(server.send(&opening(None).set("Connection", "close")).await.status, 401);
    assert_eq!(server.send(&opening(Some("wrong-0123456789abcdef")).set("Connection", "close")).await.status, 401);
    let mut events = Events::open(&server, Some(ANN)).await;
    let list = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/list"});
    assert_eq!(server.send(&events.message(&list)).await.status, 401, "the id is no token");
    let foreign = server.send(&events.message(&list).token(BOB)).await;
    let unknown = Request { target: "/messages?sessionId=0123".into(), ..events.message(&list).token(BOB) };
    let unknown = server.send(&unknown).await;
    assert_eq!((foreign.status, &foreign.body), (404, &unknown.body));
    assert_eq!(foreign.status, unknown.status);
    for target in ["/messages".to_owned(), "/messages?sessionId=".to_owned(), format!("{}&sessionId=x", events.target)]
    {
        let request = Request { target, ..events.message(&list).token(ANN) };
        assert_eq!(server.send(&request).await.status, 404, "{}", request.target);
    }
    let message = |message: &Value| events.message(message).token(ANN);
    let client = json!({"name": "t", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    assert_eq!(server.send(&message(&initialize)).await.status, 202);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(server.send(&message(&initialized)).await.status, 202);
    // Its sandboxes are Ann's, in whatever way she comes.
    assert_eq!(server.send(&message(&call(1, "create_sandbox", json!({})))).await.status, 202);
    events.hear("structuredContent").await;
    let resources = Request::new("resources/list", None, json!({}));
    let of_ann = server.send(&resources.clone().token(ANN)).await.message();
    assert_eq!(of_ann["result"]["resources"].as_array().unwrap().len(), 1, "{of_ann}");
    let of_bob = server.send(&resources.token(BOB)).await.message();
    assert_eq!(of_bob["result"]["resources"], json!([]));
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_end_of_all() {
    let server = Server::open().await;
    let mut events = Events::open(&server, None).await;
    events.begin(&server, "2024-11-05").await;
    assert_eq!(server.send(&events.message(&run(1, "sleep 60000"))).await.status, 202);
    server.until("it runs", |fake| fake.programs() == 1).await;
    let late = events.message(&run(2, "print no"));
    drop(events);
    server.until("it is killed", |fake| fake.programs() == 0).await;
    assert_eq!(server.send(&late).await.status, 404);
    assert_eq!(server.fake.started(), 1);
}

#[tokio::test]
async fn stopping_closes_the_streams() {
    let server = Server::open().await;
    let mut events = Events::open(&server, None).await;
    events.begin(&server, "2025-06-18").await;
    server.stop.cancel();
    let mut rest = Vec::new();
    let _ = timeout(WAIT, events.stream.read_to_end(&mut rest)).await.expect("the stream ends");
    timeout(WAIT, server.ended).await.expect("and so does the server").unwrap().unwrap();
}

#[tokio::test]
async fn bad_messages_are_refused_where_they_come() {
    let server = Server::open().await;
    let mut events = Events::open(&server, None).await;
    events.begin(&server, "2025-06-18").await;
    let post = |body: &str| Request { body: body.into(), ..events.message(&json!({})) };
    let deep = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}}"#, "[".repeat(10_000));
    for (body, code) in [("{", -32700), ("[]", -32600), ("7", -32600), (r#"{"jsonrpc":"2.0","id":4}"#, -32600)] {
        let reply = server.send(&post(body)).await;
        assert_eq!((reply.status, reply.message()["error"]["code"].as_i64()), (400, Some(code)), "{body}");
    }
    assert_eq!(server.send(&post(&deep)).await.status, 400);
    assert_eq!(server.send(&post("{}").set("Content-Type", "text/plain")).await.status, 415);
    assert_eq!(server.send(&post("{}").set("Origin", "http://evil.test")).await.status, 403);
    assert_eq!(server.send(&post("{}").set("Host", "evil.test")).await.status, 403);
    let opening = || opening(None).set("Connection", "close");
    assert_eq!(server.send(&opening().set("Origin", "http://evil.test")).await.status, 403);
    assert_eq!(server.send(&opening().set("Host", "evil.test")).await.status, 403);
    for (method, target) in [("POST", "/sse"), ("HEAD", "/sse"), ("PUT", "/sse"), ("GET", "/messages")] {
        let reply = server.send(&Request { method, target: target.into(), ..opening() }).await;
        assert_eq!(reply.status, 405, "{method} {target}");
    }
    // Two at once with one id: the second is told so, and the first is answered.
    assert_eq!(server.send(&events.message(&run(5, "sleep 400\nprint first"))).await.status, 202);
    let second = server.send(&events.message(&run(5, "print second"))).await;
    assert_eq!((second.status, second.message()["id"].as_i64()), (400, Some(5)), "{second:?}");
    events.hear("first\\n").await;
    assert!(!events.heard.contains("second"), "{}", events.heard);
}

#[tokio::test]
async fn whoever_never_reads_its_stream_is_closed_within_bounds() {
    let server = Server::with(|settings| settings.waits.write = Duration::from_secs(1)).await;
    let sandbox = created(&server, Request::call("create_sandbox", json!({}))).await;
    let content = "x".repeat(1_000_000);
    let write = Request::call("write_file", json!({"sandbox_id": sandbox, "path": "big", "content": content}));
    assert_eq!(server.send(&write).await.status, 200);
    let mut events = Events::open(&server, None).await;
    events.begin(&server, "2025-06-18").await;
    let read = |id| call(id, "read_file", json!({"sandbox_id": sandbox, "path": "big"}));
    let mut last = 202;
    let since = Instant::now();
    for id in 1.. {
        last = server.send(&events.message(&read(id))).await.status;
        if last == 404 || since.elapsed() > WAIT {
            break;
        }
        assert!([202, 400, 503].contains(&last), "{last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(last, 404, "the session ends though nobody closed it");
    assert_eq!(server.send(&Request::list()).await.status, 200);
}
