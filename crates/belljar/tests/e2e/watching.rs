//! Whoever watches the server: figures, readiness, spans, logs, and walls that test themselves.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Caller, Http};
use crate::host::{is_root, signal, until};
use crate::server::{User, folder, private_file};

const SOON: Duration = Duration::from_secs(20);

/// The value of a sample, by the beginning of its line.
fn figure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn ready(client: &Http) {
    until("the server is ready", SOON, || client.get("/readyz", "").status == 200);
}

#[test]
fn figures_tell_what_was_run() {
    let mut server = User::same().serve_http(&[]);
    server.client.python("print(1)").printed("1\n");
    server.client.shell("exit 3");
    let id = server.client.create(json!({}));
    assert_eq!(server.client.get("/metrics", "Host: evil.example\r\n").status, 403);
    let reply = server.client.get("/metrics", "");
    assert_eq!(reply.status, 200, "{reply:?}");
    let text = reply.body.as_str();
    assert_eq!(figure(text, "belljar_runs_total{language=\"python\",ending=\"exited\"}"), Some(1.0), "{text}");
    assert_eq!(figure(text, "belljar_runs_total{language=\"shell\",ending=\"exited\"}"), Some(1.0), "{text}");
    assert_eq!(figure(text, "belljar_runs_now"), Some(0.0), "{text}");
    assert_eq!(figure(text, "belljar_sandboxes"), Some(1.0), "{text}");
    assert_eq!(figure(text, "belljar_sandbox_open_seconds_count{backend=\"native\"}"), Some(1.0), "{text}");
    assert_eq!(figure(text, "belljar_requests_total{method=\"tools/call\",outcome=\"ok\"}"), Some(2.0), "{text}");
    assert_eq!(
        figure(text, "belljar_requests_total{method=\"tools/call\",outcome=\"tool_error\"}"),
        Some(1.0),
        "{text}"
    );
    assert_eq!(figure(text, "belljar_refused_total{why=\"forbidden\"}"), Some(1.0), "{text}");
    assert!(figure(text, "process_resident_memory_bytes").unwrap() > 1e6, "{text}");
    assert!(text.ends_with("# EOF\n") && !text.contains(&id), "{text}");
    server.client.request("made/up\" } 1", json!({}), "");
    let text = server.client.get("/metrics", "").body;
    assert!(!text.contains("made/up"), "what a caller writes is in no label: {text}");
}

#[test]
fn figures_need_a_token_where_everything_does_but_not_on_an_address_of_their_own() {
    const TOKEN: &str = "ann-0123456789abcdef0123456789abcdef";
    let folder = folder(0o755);
    let file = private_file(folder.path(), "tokens", &format!("ann:{TOKEN}\n"));
    // Found free, and let go again; nobody else asks for this one meanwhile.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let server = User::same().serve_http(&["--token-file", file.to_str().unwrap(), "--metrics", &address]);
    assert_eq!(server.client.get("/metrics", "").status, 401);
    let with_token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(server.client.get("/metrics", &with_token).status, 200);
    let figures = Http::new(port);
    until("figures are served", SOON, || TcpStream::connect(&address).is_ok());
    let text = figures.get("/metrics", "").body;
    assert!(figure(&text, "belljar_refused_total{why=\"no_token\"}").is_some_and(|count| count >= 1.0), "{text}");
    assert_eq!(figures.get("/metrics", "Host: evil.example\r\n").status, 403);
    assert_eq!(figures.get("/mcp", "").status, 404, "nothing else is there");
    ready(&figures);

    let output = User::same().command(&["serve", "--metrics", "0.0.0.0:0"]).stdin(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("loopback"), "{said}");
}

/// Alive at once, ready when the walls were tested, and not again while it ends.
#[test]
fn readiness_comes_with_the_self_test() {
    let mut server = User::same().serve_http(&[]);
    let first = server.client.get("/readyz", "");
    assert!(first.status == 200 || first.status == 503 && first.body.contains("tested"), "{first:?}");
    assert_eq!(server.client.get("/healthz", "").body, "ok");
    ready(&server.client);
    // It is only ever ready with walls that hold.
    server.client.still_runs();
    signal(server.pid(), "TERM");
    assert_eq!(server.wait_exit(SOON).code(), Some(0));
}

/// A real hole: temporary files of this server are in a directory that sandboxes see.
#[test]
fn a_server_whose_walls_have_a_hole_refuses_to_serve() {
    if !is_root() {
        println!("skipped: only root can put a file where sandboxes see it");
        return;
    }
    let seen = tempfile::Builder::new().prefix("e2e-hole-").tempdir_in("/usr/local/share").unwrap();
    fs::set_permissions(seen.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let user = User::same();
    let mut child = user
        .command(&["serve"])
        .env("TMPDIR", seen.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The input stays open: it ends by itself.
    let _input = child.stdin.take().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(125), "{said}");
    for word in ["walls do not hold", "canary", "hint: ", "doctor"] {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert_eq!(fs::read_dir(seen.path()).unwrap().count(), 0, "the canary is gone");

    let doctor = user.command(&["doctor", "--backend", "native"]).env("TMPDIR", seen.path()).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains("FIRED") && told.contains("canary"), "{told}");
    let doctor = user.command(&["doctor", "--backend", "native"]).output().unwrap();
    let told = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.success() && !told.contains("FIRED"), "{told}");
    for probe in ["canary", "network", "processes", "seccomp", "memory"] {
        assert!(told.contains(&format!("  ok       {probe}")), "{probe}: {told}");
    }
}

/// A wall that only a template names is one of the server's, too: it is not ready without it, and serves what does without.
#[test]
fn a_server_is_not_ready_while_a_templates_wall_could_not_be_tested() {
    let folder = folder(0o755);
    let socket = folder.path().join("no-engine.sock");
    let text = format!("[docker]\nsocket = {:?}\n[templates.box]\nbackend = \"docker\"\n", socket.to_str().unwrap());
    let config = private_file(folder.path(), "belljar.toml", &text);
    let mut server = User::same().serve_http(&["--config", config.to_str().unwrap()]);
    server.client.still_runs();
    until("it is told why", SOON, || server.client.get("/readyz", "").body.contains("docker could not be tested"));
    assert_eq!(server.client.get("/readyz", "").status, 503);
    assert!(server.client.call("create_sandbox", json!({"template": "box"})).is_error());
    server.client.still_runs();
    let text = server.client.get("/metrics", "").body;
    assert_eq!(figure(&text, "belljar_refused_total{why=\"unavailable\"}"), Some(1.0), "{text}");
}

/// Nothing of a server that is killed runs any more that could remove its canary: the next one does.
#[test]
fn what_a_server_that_was_killed_in_its_self_test_left_goes_with_the_next() {
    let user = User::same();
    let folder = folder(0o755);
    let canaries = || -> Vec<_> {
        let entries = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path());
        entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("belljar-canary-")).collect()
    };
    let serve = || {
        let mut command = user.command(&["serve"]);
        command.env("TMPDIR", folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    // It is there for a moment only, and may be gone when the signal comes.
    let left = (0..20).find_map(|_| {
        let mut child = serve();
        until("there is a canary", SOON, || !canaries().is_empty());
        signal(child.id(), "KILL");
        child.wait().unwrap();
        canaries().pop()
    });
    let left = left.expect("it is killed in time, once of many times");
    let mut next = serve();
    until("it is gone", SOON, || !left.exists());
    drop(next.stdin.take());
    until("it ends", SOON, || next.try_wait().unwrap().is_some());
    assert_eq!(canaries(), [""; 0].map(std::path::PathBuf::from));
}

/// There is no answer of HTTP that would tell of it.
#[test]
fn who_is_refused_over_stdio_is_counted() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut user = User::same();
    user.env.push(("BELLJAR_QUOTA__SANDBOXES".into(), "1".into()));
    let mut server = user.serve_with(&["--metrics", &format!("127.0.0.1:{port}")]);
    server.client.create(json!({}));
    server.client.call("create_sandbox", json!({})).refused(&["quota is 1 sandboxes"]);
    server.client.raw(b"this is no message\n");
    server.client.next();
    let text = Http::new(port).get("/metrics", "").body;
    for why in ["over_quota", "malformed"] {
        assert_eq!(figure(&text, &format!("belljar_refused_total{{why={why:?}}}")), Some(1.0), "{why}: {text}");
    }
}

/// Those who want none say so in the configuration, and are told so in the log.
#[test]
fn a_self_test_can_be_turned_off_in_words() {
    let user = User::same();
    let output = user
        .command(&["serve", "--log-format", "json"])
        .env("BELLJAR_SELF_TEST__ENABLED", "false")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = lines.iter().any(|line| {
        line["level"] == "warn" && line["message"].as_str().is_some_and(|words| words.contains("not tested"))
    });
    assert!(warned && output.status.success(), "{said}");
}

/// A collector that takes what comes, and hands on what was in it.
struct Collector {
    port: u16,
    messages: Receiver<(String, String, Value)>,
}

impl Collector {
    fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while let Some(message) = take_one(&mut reader) {
                        let _ = reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
                        if sender.send(message).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Collector { port, messages }
    }

    /// Every span until one of this name has come, by its name.
    fn spans_until(&self, name: &str) -> Vec<Value> {
        let mut spans = Vec::new();
        while !spans.iter().any(|span: &Value| span["name"] == name) {
            let (path, key, message) = self.messages.recv_timeout(SOON).expect("spans are sent");
            assert_eq!(key, "a key");
            if path == "/v1/traces" {
                let all = &message["resourceSpans"][0];
                let service = json!({"key": "service.name", "value": {"stringValue": "glass"}});
                assert_eq!(all["resource"]["attributes"][0], service);
                spans.extend(all["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
            }
        }
        spans
    }
}

/// The path, the header that was asked for, and the body of the next request.
fn take_one(reader: &mut impl BufRead) -> Option<(String, String, Value)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim_end();
        if header.is_empty() {
            break;
        }
        let (name, value) = header.split_once(": ")?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().ok()?,
            "api-key" => key = value.to_owned(),
            "content-type" => assert_eq!(value, "application/json"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, key, serde_json::from_slice(&body).ok()?))
}

#[test]
fn spans_go_to_a_collector_with_their_parents() {
    let collector = Collector::start();
    let mut user = User::same();
    let endpoint = format!("http://127.0.0.1:{}", collector.port);
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20key"),
        ("OTEL_SERVICE_NAME", "glass"),
    ] {
        user.env.push((name.to_owned(), value.to_owned()));
    }
    let mut server = user.serve();
    let call = |parent: &str| {
        json!({"name": "run_code", "arguments": {"language": "shell", "code": "echo a secret; exit 3"},
            "_meta": {"traceparent": parent}})
    };
    // One that nobody wants kept, one that is none, and a good one.
    for parent in [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        "nonsense",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        let id = server.client.request("tools/call", call(parent));
        server.client.answer(id);
    }
    server.client.create(json!({}));
    let spans = collector.spans_until("tools/call create_sandbox");
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let calls = named("tools/call run_code");
    assert_eq!(calls.len(), 2, "{spans:#?}");
    assert!(calls[0].get("parentSpanId").is_none() && calls[0]["traceId"] != calls[1]["traceId"], "{calls:#?}");
    let call = calls[1];
    assert_eq!(call["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!((&call["parentSpanId"], &call["kind"]), (&json!("b7ad6b7169203331"), &json!(2)));
    let run = named("run").into_iter().find(|run| run["parentSpanId"] == call["spanId"]).expect("a run below it");
    assert_eq!(run["traceId"], call["traceId"]);
    assert!(named("wait").iter().any(|wait| wait["parentSpanId"] == run["spanId"]), "{spans:#?}");
    assert_eq!(named("open sandbox").len(), 1, "{spans:#?}");
    for attribute in [
        json!({"key": "mcp.method.name", "value": {"stringValue": "tools/call"}}),
        json!({"key": "gen_ai.tool.name", "value": {"stringValue": "run_code"}}),
        json!({"key": "network.transport", "value": {"stringValue": "pipe"}}),
        json!({"key": "mcp.protocol.version", "value": {"stringValue": "2025-11-25"}}),
    ] {
        assert!(call["attributes"].as_array().unwrap().contains(&attribute), "{attribute}: {call:#}");
    }
    assert!(!spans.iter().any(|span| span.to_string().contains("a secret")), "no argument is in a span");
    // What is left goes at the end, figures too.
    server.client.shell("true");
    server.client.hang_up();
    assert_eq!(server.wait_exit(SOON).code(), Some(0));
    let rest: Vec<(String, String, Value)> = collector.messages.try_iter().collect();
    let figures = rest.iter().find(|(path, ..)| path == "/v1/metrics").expect("figures at the end");
    assert!(figures.2.to_string().contains("mcp.server.operation.duration"), "{figures:?}");
    assert!(rest.iter().any(|(path, ..)| path == "/v1/traces"), "the last span: {rest:?}");
}

/// A collector that takes nothing costs no request, and does not hold the end.
#[test]
fn a_collector_that_hangs_is_in_nobodys_way() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut user = User::same();
    let endpoint = format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port());
    user.env.push(("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint));
    let mut server = user.serve();
    server.client.still_runs();
    let (stream, _) = listener.accept().unwrap();
    server.client.still_runs();
    server.client.hang_up();
    assert_eq!(server.wait_exit(Duration::from_secs(10)).code(), Some(0));
    drop(stream);
}
