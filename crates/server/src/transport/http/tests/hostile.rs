//! What no honest client sends, against the real listener.

use super::*;

/// Bytes one at a time, until the other side has had enough; what it answered.
async fn drip(server: &Server, at_once: &[u8], slowly: &[u8]) -> (Reply, Duration) {
    let since = Instant::now();
    let stream = server.connect().await;
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(at_once).await.unwrap();
    let slowly = slowly.to_vec();
    let dripping = tokio::spawn(async move {
        for byte in slowly {
            if writer.write_all(&[byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::future::pending::<()>().await;
    });
    let mut bytes = Vec::new();
    let _ = timeout(WAIT, reader.read_to_end(&mut bytes)).await.expect("closed in time");
    dripping.abort();
    (Reply::parse(&bytes), since.elapsed())
}

#[tokio::test]
async fn slow_heads_and_bodies_have_their_time_in_all() {
    let server = Server::with(|settings| {
        settings.waits.head = Duration::from_millis(600);
        settings.waits.body = Duration::from_millis(600);
    })
    .await;
    let bytes = Request::list().bytes();
    let (reply, took) = drip(&server, b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n", &[b'X'; 1000]).await;
    assert!([0, 408].contains(&reply.status), "{reply:?}");
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
    let body_at = bytes.len() - Request::list().body.len();
    let (reply, took) = drip(&server, &bytes[..body_at], &bytes[body_at..]).await;
    assert_eq!(reply.status, 408, "{reply:?}");
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn heads_have_a_limit() {
    let server = Server::open().await;
    let many: String = (0..200).map(|n| format!("X-{n}: y\r\n")).collect();
    let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert_eq!(server.raw(head.as_bytes()).await.status, 431);
    let target = format!("/healthz?{}", "x".repeat(65_000));
    let reply = server.raw(format!("GET {target}{target} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
    assert!([0, 414, 431].contains(&reply.status), "{reply:?}");
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

#[tokio::test]
async fn one_address_has_only_so_many_connections() {
    let server = Server::with(|settings| settings.connections_per_address_max = Some(3)).await;
    let mut busy = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        stream.write_all(&Request::run("sleep 1500\nprint done").bytes()).await.unwrap();
        busy.push(stream);
    }
    server.until("all run", |fake| fake.programs() == 3).await;
    let refused = server.send(&Request::list()).await;
    assert_eq!((refused.status, refused.header("retry-after").as_deref()), (503, Some("1")));
    for stream in busy {
        assert_eq!(Reply::read(stream).await.message()["result"]["content"][0]["text"], "done\n");
    }
    // Idle ones make room for the next.
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.push(server.connect().await);
    }
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

/// As [`Request::run`], with the body rewritten.
fn spoilt(from: &str, to: &str) -> Request {
    let run = Request::run("print no");
    assert!(run.body.contains(from), "{}", run.body);
    Request { body: run.body.replace(from, to), ..run }
}

#[tokio::test]
async fn strange_json_runs_nothing() {
    let server = Server::open().await;
    let nested = |open: &str, close: &str| format!(r#""x":{}1{},"#, open.repeat(10_000), close.repeat(10_000));
    for (what, from, to) in [
        ("deep arrays", r#""jsonrpc""#, nested("[", "]") + r#""jsonrpc""#),
        ("deep objects", r#""jsonrpc""#, nested(r#"{"a":"#, "}") + r#""jsonrpc""#),
        ("deep arguments", r#""code""#, nested("[", "]") + r#""code""#),
        ("unclosed brackets", r#""jsonrpc""#, "[".repeat(10_000)),
        ("an id beyond all numbers", r#""id":1"#, r#""id":1e999"#.into()),
        ("an id beyond 64 bits", r#""id":1"#, r#""id":99999999999999999999999"#.into()),
        ("a list for an id", r#""id":1"#, r#""id":[1]"#.into()),
        ("two methods", r#""method":"tools/call""#, r#""method":"tools/list","method":"tools/call""#.into()),
        ("another version", r#""jsonrpc":"2.0""#, r#""jsonrpc":"1.0""#.into()),
        ("a lone surrogate", "print no", r"\ud800".into()),
    ] {
        let reply = server.send(&spoilt(from, &to)).await;
        assert_eq!(reply.status, 400, "{what}: {reply:?}");
        assert!(reply.message()["error"]["code"].is_i64(), "{what}: {reply:?}");
    }
    for (what, from, to) in [
        ("a tool named twice", r#""name":"run_code""#, r#""name":"list_files","name":"run_code""#),
        ("a number as code", r#""print no""#, "123456789012345678901234567890"),
        ("a timeout beyond all", r#""code""#, r#""timeout":1e308,"code""#),
        ("a timeout below all", r#""code""#, r#""timeout":-1e308,"code""#),
        ("a timeout of 64 bits", r#""code""#, r#""timeout":18446744073709551616,"code""#),
    ] {
        let reply = server.send(&spoilt(from, to)).await;
        let message = reply.message();
        let is_error = message.get("error").is_some() || message["result"]["isError"] == true;
        assert!(is_error, "{what}: {reply:?}");
    }
    let twice =
        spoilt(r#""name":"run_code""#, r#""name":"list_files","name":"run_code""#).set("Mcp-Name", "list_files");
    assert_eq!(server.send(&twice).await.status, 400);
    let mut bytes = Request::run("print no").bytes();
    let at = bytes.windows(8).position(|window| window == b"print no").unwrap();
    bytes[at] = 0xff;
    let reply = server.raw(&bytes).await;
    assert_eq!((reply.status, reply.message()["error"]["code"].as_i64()), (400, Some(-32700)), "{reply:?}");
    let batch = Request { body: format!("[{0},{0}]", Request::run("print no").body), ..Request::run("print no") };
    assert_eq!(server.send(&batch).await.status, 400);
    assert_eq!(server.send(&batch.set("MCP-Protocol-Version", "2025-06-18").without("Mcp-Method")).await.status, 400);
    assert_eq!(server.fake.started(), 0, "none of it ran");
    assert_eq!(server.send(&Request::run("print yes")).await.status, 200);
}

#[tokio::test]
async fn answers_of_one_id_are_never_mixed_up() {
    let server = Server::open().await;
    let session = server.send(&Request::initialize()).await.header("mcp-session-id").unwrap();
    let old = |code: &str| {
        let arguments = json!({"language": "python", "code": code});
        Request::old("tools/call", json!({"name": "run_code", "arguments": arguments})).set("Mcp-Session-Id", &session)
    };
    // Whichever is done first.
    for sleeps in [[400, 300, 200, 100], [100, 200, 300, 400]] {
        for (is_old, make) in [(false, &Request::run as &dyn Fn(&str) -> Request), (true, &old)] {
            let mut streams = Vec::new();
            for (n, sleep) in sleeps.iter().enumerate() {
                let mut stream = server.connect().await;
                stream.write_all(&make(&format!("sleep {sleep}\nprint mine {n}")).bytes()).await.unwrap();
                streams.push(stream);
            }
            let mut right = 0;
            for (n, stream) in streams.into_iter().enumerate() {
                let reply = Reply::read(stream).await;
                let text = &reply.body;
                for other in (0..4).filter(|other| *other != n) {
                    assert!(!text.contains(&format!("mine {other}")), "{n} got {text}");
                }
                let is_answered = text.contains(&format!("mine {n}"));
                assert!(is_answered || (is_old && reply.message()["error"]["code"] == -32600), "{n} got {reply:?}");
                right += usize::from(is_answered);
            }
            assert!(right > 0 && (is_old || right == 4), "{right} were answered");
        }
    }
}

#[tokio::test]
async fn an_id_in_a_session_is_one_requests() {
    let server = Server::open().await;
    let session = server.send(&Request::initialize()).await.header("mcp-session-id").unwrap();
    let in_session = |request: Request| request.set("Mcp-Session-Id", &session);
    let run = |code: &str| {
        let arguments = json!({"language": "python", "code": code});
        in_session(Request::old("tools/call", json!({"name": "run_code", "arguments": arguments})))
    };
    let mut first = server.connect().await;
    first.write_all(&run("sleep 60000").bytes()).await.unwrap();
    server.until("it runs", |fake| fake.programs() == 1).await;
    let second = server.send(&run("print second")).await;
    let error = &second.message()["error"];
    assert_eq!((second.status, second.message()["id"].as_i64(), error["code"].as_i64()), (400, Some(1), Some(-32600)));
    assert_eq!((server.fake.programs(), server.fake.started()), (1, 1), "the first goes on");
    let body = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string();
    let cancel = Request { body, ..in_session(Request::old("", json!({}))) };
    assert_eq!(server.send(&cancel).await.status, 202);
    server.until("it is killed", |fake| fake.programs() == 0).await;
    assert_eq!(server.send(&run("print too soon")).await.status, 400);
    let other = run("print other");
    let other = Request { body: other.body.replace("\"id\":1", "\"id\":2"), ..other };
    assert_eq!(server.send(&other).await.message()["result"]["content"][0]["text"], "other\n");
}

#[tokio::test]
async fn whoever_hung_up_may_send_the_same_again() {
    let server = Server::open().await;
    let session = server.send(&Request::initialize()).await.header("mcp-session-id").unwrap();
    let arguments = json!({"language": "python", "code": "sleep 1500\nprint back"});
    let run = Request::old("tools/call", json!({"name": "run_code", "arguments": arguments}));
    let run = run.set("Mcp-Session-Id", &session);
    let mut stream = server.connect().await;
    stream.write_all(&run.bytes()).await.unwrap();
    server.until("it runs", |fake| fake.programs() == 1).await;
    drop(stream);
    let again = server.send(&run).await;
    assert_eq!(again.message()["result"]["content"][0]["text"], "back\n", "{again:?}");
}

#[tokio::test]
async fn each_era_has_its_rules() {
    let server = Server::open().await;
    // Sessions mean nothing in the newest, whatever they say.
    assert_eq!(server.send(&Request::list().set("Mcp-Session-Id", "made-up")).await.status, 200);
    assert_eq!(server.send(&Request::old("tools/list", json!({})).set("Mcp-Session-Id", "made-up")).await.status, 404);
    for method in ["GET", "DELETE"] {
        let request = Request { method, ..Request::list() }.set("Accept", "text/event-stream");
        assert_eq!(server.send(&request).await.status, 405, "{method} of the newest");
        let old = request.set("MCP-Protocol-Version", "2025-11-25");
        let reply = server.send(&old).await;
        assert!((400..500).contains(&reply.status), "{method} without a session: {reply:?}");
    }
    for version in ["2099-01-01", "1999-01-01", "draft", "2026-07-28x"] {
        let list = Request::list();
        let body = list.body.replace("2026-07-28", version);
        let reply = server.send(&Request { body, ..list }.set("MCP-Protocol-Version", version)).await;
        assert_eq!(reply.status, 400, "{version}: {reply:?}");
        if version.starts_with("20") {
            let error = &reply.message()["error"];
            assert_eq!(error["code"], -32022, "{version}: {reply:?}");
            let supported = error["data"]["supported"].as_array().unwrap();
            assert!(supported.contains(&json!("2026-07-28")) && supported.contains(&json!("2025-11-25")), "{error}");
        }
    }
    let other = Request::list().set("MCP-Protocol-Version", "2025-11-25");
    let reply = server.send(&other).await;
    assert_eq!((reply.status, reply.message()["error"]["code"].as_i64()), (400, Some(-32020)), "{reply:?}");
    assert_eq!(server.fake.started(), 0);
}

#[tokio::test]
async fn other_methods_and_paths_lead_nowhere() {
    let server = Server::open().await;
    let run = Request::run("print no");
    for method in ["PUT", "PATCH", "TRACE", "OPTIONS", "HEAD", "CONNECT", "PROPFIND", "post", "BREW"] {
        for target in ["/mcp", "/sse", "/messages", "/healthz"] {
            let request = Request { method, target: target.into(), ..run.clone() };
            let reply = server.send(&request).await;
            let harmless = method == "HEAD" && target == "/healthz";
            assert!(harmless || (400..500).contains(&reply.status), "{method} {target}: {reply:?}");
            assert!(reply.header("access-control-allow-origin").is_none(), "{reply:?}");
        }
    }
    for target in [
        "/mcp/",
        "//mcp",
        "/mcp%00",
        "/%6dcp",
        "/mcp;x",
        "/./mcp",
        "/mcp/.",
        "/healthz/../mcp",
        "/MCP",
        "/mcp%2f",
        "*",
        "/mcp\u{0}",
        "mcp",
        "/sse/",
        "//sse",
        "/messages/",
        "\\mcp",
    ] {
        let request = Request { target: target.into(), ..run.clone() };
        let reply = server.send(&request).await;
        assert!(reply.status == 0 || (400..500).contains(&reply.status), "{target:?}: {reply:?}");
    }
    let absolute = |host: &str| Request { target: format!("http://{host}/mcp"), ..Request::list() };
    assert_eq!(server.send(&absolute("localhost")).await.status, 200);
    assert_eq!(server.send(&absolute("evil.test")).await.status, 403);
    assert_eq!(server.fake.started(), 0);
}

fn head(extra: &str) -> String {
    let list = Request { body: String::new(), ..Request::run("print no") }.set("Connection", "keep-alive");
    let text = String::from_utf8(list.bytes()).unwrap();
    text.replace("Content-Length: 0\r\n", extra)
}

#[tokio::test]
async fn what_could_be_two_requests_is_none_or_one() {
    let server = Server::open().await;
    let list = Request::list().body;
    let run = String::from_utf8(Request::run("print smuggled").bytes()).unwrap();
    let chunk = format!("{:x}\r\n{list}\r\n0\r\n\r\n", list.len());
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4, 5\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length : 4\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding:\u{b}chunked\r\n",
    ] {
        let reply = server.raw(format!("{}{chunk}{run}", head(framing)).as_bytes()).await;
        assert!(reply.head.matches("HTTP/1.1 ").count() + reply.body.matches("HTTP/1.1 ").count() <= 1, "{reply:?}");
    }
    for chunk in ["zz\r\nx", "-1\r\nx", "ffffffffffffffffff\r\nx", "1\r\nxx\r\n", "\r\n", "0x1\r\nx\r\n"] {
        let framing = "Transfer-Encoding: chunked\r\n";
        let reply = server.raw(format!("{}{chunk}\r\n0\r\n\r\n{run}", head(framing)).as_bytes()).await;
        assert!([0, 400].contains(&reply.status), "{chunk:?}: {reply:?}");
        assert!(!reply.body.contains("HTTP/1.1 "), "{chunk:?}: {reply:?}");
    }
    assert_eq!(server.fake.started(), 0, "what was hidden in another did not run");
}

#[tokio::test]
async fn requests_one_behind_the_other_are_answered_in_order() {
    let server = Server::open().await;
    let keep = |request: Request| request.set("Connection", "keep-alive").bytes();
    let bad = Request { body: "{".into(), ..Request::list() };
    let mut bytes = Vec::new();
    for n in 0..50 {
        bytes.extend(keep(Request::run(&format!("print turn {n}."))));
        bytes.extend(keep(bad.clone()));
    }
    bytes.extend(Request::run("print last.").bytes());
    let mut stream = server.connect().await;
    stream.write_all(&bytes).await.unwrap();
    let mut all = Vec::new();
    let _ = timeout(WAIT, stream.read_to_end(&mut all)).await.expect("all answered");
    let text = String::from_utf8_lossy(&all).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 51);
    assert_eq!(text.matches("HTTP/1.1 400").count(), 50);
    let mut at = 0;
    for wanted in (0..50).map(|n| format!("turn {n}.")).chain(["last.".to_owned()]) {
        at += text[at..].find(&wanted).unwrap_or_else(|| panic!("{wanted} out of turn"));
    }
}

#[tokio::test]
async fn other_versions_of_http_are_refused_cleanly() {
    let server = Server::open().await;
    for bytes in [
        &b"GET /mcp\r\n\r\n"[..],
        b"GET /mcp HTTP/0.9\r\n\r\n",
        b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"POST /mcp HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n: empty\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\r\n\r\n\r\n\xff\xfe\xfd\r\n\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings, close\r\n\r\n",
    ] {
        let reply = server.raw(bytes).await;
        assert!(reply.status == 0 || (400..506).contains(&reply.status), "{bytes:?} gave {reply:?}");
    }
    assert_eq!(server.send(&Request::list()).await.status, 200);
}

#[tokio::test]
async fn whoever_does_not_read_its_answers_is_closed() {
    let server = Server::with(|settings| settings.waits.write = Duration::from_secs(1)).await;
    let sandbox = created(&server, Request::call("create_sandbox", json!({}))).await;
    let content = "x".repeat(1_000_000);
    let write = Request::call("write_file", json!({"sandbox_id": sandbox, "path": "big", "content": content}));
    assert_eq!(server.send(&write).await.status, 200);
    let read =
        Request::call("read_file", json!({"sandbox_id": sandbox, "path": "big"})).set("Connection", "keep-alive");
    let mut stream = server.connect().await;
    let many = read.bytes().repeat(40);
    stream.write_all(&many).await.unwrap();
    // Longer than it is waited for; nothing else tells that the server has given up.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut all = Vec::new();
    let _ = timeout(WAIT, stream.read_to_end(&mut all)).await.expect("it is closed");
    let answered = String::from_utf8_lossy(&all).matches("HTTP/1.1 200").count();
    assert!(answered > 0 && answered < 40, "{answered} were answered");
    assert_eq!(server.send(&Request::list()).await.status, 200);
}
