//! The HTTP server's doors: who may come in, from where, with how much, and who sees what.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::client::{Caller, Http, Reply, assert_sentence};
use crate::server::{Server, User, folder, private_file};

const ANN: &str = "ann-0123456789abcdef0123456789abcdef";
const BOB: &str = "bob-fedcba9876543210fedcba9876543210";

/// A server that knows Ann and Bob.
fn with_tokens() -> Server<Http> {
    let folder = folder(0o755);
    let file = private_file(folder.path(), "tokens", &format!("# who may call\nann:{ANN}\nbob:{BOB}\n"));
    User::same().serve_http(&["--token-file", file.to_str().unwrap()])
}

fn run() -> (Value, &'static str) {
    (json!({"language": "shell", "code": "echo ran"}), "run_code")
}

/// A refusal in one sentence of plain text.
#[track_caller]
fn assert_refused(reply: &Reply, status: u16, words: &[&str]) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_sentence(reply.body.trim_end(), words);
}

#[test]
fn health_is_for_everyone_and_says_nothing_else() {
    let server = with_tokens();
    let reply = server.client.get("/healthz", "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok"));
    assert_eq!(server.client.get("/", "").status, 404);
    assert_eq!(server.client.get("/mcp/../healthz", "").status, 404);
}

#[test]
fn an_address_that_others_reach_needs_tokens() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:8931"] {
        let mut command = User::same().command(&["serve", "--http", address]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        for word in ["error: ", address, "other machines", "--token-file", "127.0.0.1"] {
            assert!(said.contains(word), "{word:?} is not in: {said}");
        }
    }
}

/// With a token it may be served to others, who are still asked for it.
#[test]
fn an_address_that_others_reach_with_tokens() {
    let folder = folder(0o755);
    let file = private_file(folder.path(), "tokens", &format!("ann:{ANN}\n"));
    let user = User::same();
    let mut server = user.serve_http_at("0.0.0.0:0", &["--token-file", file.to_str().unwrap()]);
    let (arguments, tool) = run();
    let reply = server.client.raw(&server.client.call_bytes(tool, arguments, ""));
    assert_refused(&reply, 401, &["token"]);
    server.client.token = Some(ANN.to_owned());
    server.client.still_runs();
}

#[test]
fn foreign_names_and_pages_are_refused() {
    let server = User::same().serve_http(&["--allow-host", "bell.example"]);
    let client = &server.client;
    let ask = |headers: &str| {
        let (arguments, tool) = run();
        client.raw(&client.call_bytes(tool, arguments, headers))
    };
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::]"] {
        assert_refused(&ask(&format!("Host: {host}\r\n")), 403, &["Host", "--allow-host"]);
    }
    for host in ["a b", "localhost\r\nHost: evil.example"] {
        assert_eq!(ask(&format!("Host: {host}\r\n")).status, 400, "{host}");
    }
    for origin in ["http://evil.example", "null", "https://localhost.evil.example", "file://", "http://localhost@evil"]
    {
        assert_refused(&ask(&format!("Origin: {origin}\r\n")), 403, &["Origin"]);
    }
    let port = client.port;
    for good in [
        "Host: localhost\r\n".to_owned(),
        format!("Host: 127.0.0.1:{port}\r\nOrigin: http://localhost:6274\r\n"),
        format!("Host: [::1]:{port}\r\n"),
        "Host: bell.example\r\nOrigin: https://bell.example\r\n".to_owned(),
    ] {
        let reply = ask(&good);
        assert!(reply.status == 200 && reply.body.contains("ran\\n"), "{good}: {reply:?}");
    }
}

#[test]
fn without_a_good_token_nobody_comes_in() {
    let server = with_tokens();
    let client = &server.client;
    let (short, case) = (&ANN[..ANN.len() - 1], ANN.to_uppercase());
    for authorization in [
        String::new(),
        "Authorization: Bearer\r\n".to_owned(),
        format!("Authorization: Bearer {short}\r\n"),
        format!("Authorization: Bearer {case}\r\n"),
        format!("Authorization: Bearer {ANN} x\r\n"),
        format!("Authorization: Basic {ANN}\r\n"),
        format!("Authorization: {ANN}\r\n"),
        format!("Authorization: Bearer {ANN}\r\nAuthorization: Bearer wrong\r\n"),
        format!("Cookie: Authorization=Bearer {ANN}\r\n"),
    ] {
        for method in ["tools/call", "tools/list", "server/discover", "initialize", "no/such"] {
            let params = json!({"name": "run_code", "arguments": run().0});
            let reply = client.raw(&client.request_bytes(method, params, &authorization));
            assert_refused(&reply, 401, &["token", "Authorization: Bearer"]);
            assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
        }
        assert_eq!(client.get("/mcp", &authorization).status, 401);
    }
    client.with_token(ANN).still_runs();
    client.with_token(BOB).still_runs();
}

#[test]
fn a_body_has_its_bounds() {
    let mut server = User::same().serve_http(&[]);
    let client = &server.client;
    let code = format!("#{}", "x".repeat(20 << 20));
    let reply = client.raw(&client.call_bytes("run_code", json!({"language": "shell", "code": code}), ""));
    assert_refused(&reply, 413, &["longer than 16777216 bytes", "send less"]);
    // The same without a length that would give it away.
    let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let mut chunked = head.as_bytes().to_vec();
    let chunk = "x".repeat(1 << 20);
    for _ in 0..20 {
        chunked.extend_from_slice(format!("100000\r\n{chunk}\r\n").as_bytes());
    }
    let reply = client.raw(&chunked);
    assert!([0, 413].contains(&reply.status), "{reply:?}");
    // What fits the body is still too long for a program.
    let code = format!("#{}", "x".repeat(10 << 20));
    server
        .client
        .call("run_code", json!({"language": "shell", "code": code}))
        .refused(&["1048576 bytes", "write_file"]);
    server.client.still_runs();
}

#[test]
fn bodies_that_are_no_messages() {
    let mut server = User::same().serve_http(&[]);
    let client = &server.client;
    let post = |body: &str, kind: &str| {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n\
             Accept: application/json, text/event-stream\r\n\
             Mcp-Protocol-Version: 2026-07-28\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        client.raw(head.as_bytes())
    };
    for (body, code) in [
        ("", -32700),
        ("{", -32700),
        ("nonsense", -32700),
        ("1", -32600),
        ("[]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, -32600),
    ] {
        let reply = post(body, "application/json");
        let answer: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{body}: {reply:?}"));
        assert_eq!((reply.status, &answer["error"]["code"]), (400, &json!(code)), "{body}: {reply:?}");
        assert_sentence(answer["error"]["message"].as_str().unwrap(), &[" "]);
    }
    assert_eq!(post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "text/plain").status, 415);
    assert!(client.raw(b"PUT /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status == 405);
    assert_eq!(client.raw(b"nonsense\r\n\r\n").status, 400);
    server.client.still_runs();
}

#[test]
fn two_principals_share_nothing() {
    let server = with_tokens();
    let (mut ann, mut bob) = (server.client.with_token(ANN), server.client.with_token(BOB));
    let sandbox = ann.create(json!({}));
    ann.shell_in(&sandbox, "echo 'for ann only' > note").printed("");
    for (tool, arguments) in [
        ("run_code", json!({"language": "shell", "code": "cat note"})),
        ("exec", json!({"command": "cat note"})),
        ("read_file", json!({"path": "note"})),
        ("write_file", json!({"path": "note", "content": "bob was here"})),
        ("list_files", json!({})),
        ("destroy_sandbox", json!({})),
    ] {
        let mut foreign = arguments.clone();
        foreign["sandbox_id"] = sandbox.as_str().into();
        let mut unknown = arguments;
        unknown["sandbox_id"] = "sb_0123456789abcdef0123456789abcdef".into();
        let (foreign, unknown) = (bob.call(tool, foreign), bob.call(tool, unknown));
        foreign.refused(&["no such sandbox"]);
        assert_eq!(foreign.text(), unknown.text(), "the answer tells that the sandbox is there");
    }
    let listed = |who: &Http| who.request("resources/list", json!({}), "")["result"]["resources"].clone();
    assert_eq!(listed(&bob), json!([]));
    assert_eq!(listed(&ann)[0]["uri"], format!("belljar://{sandbox}/"));

    let output = ann.shell("seq 10000").field("output_uris")["stdout"].as_str().unwrap().to_owned();
    for uri in [format!("belljar://{sandbox}/note"), format!("belljar://{sandbox}/"), output] {
        let read = |who: &Http| who.request("resources/read", json!({"uri": uri}), &format!("Mcp-Name: {uri}\r\n"));
        let refused = read(&bob);
        assert!(refused["error"]["code"].is_i64(), "bob read {uri}: {refused}");
        assert!(read(&ann)["result"]["contents"][0]["text"].is_string(), "ann cannot read {uri}");
    }
    ann.shell_in(&sandbox, "cat note").printed("for ann only\n");
}

/// A body that says one sandbox and a header that says another would be routed to the wrong machine.
#[test]
fn a_header_that_contradicts_its_body_is_refused() {
    let mut server = User::same().serve_http(&[]);
    let (one, other) = (server.client.create(json!({})), server.client.create(json!({})));
    let arguments = json!({"language": "shell", "code": "echo ran > ran", "sandbox_id": one});
    let bytes = server.client.call_bytes("run_code", arguments, "");
    let text = String::from_utf8(bytes).unwrap();
    let header = format!("Mcp-Param-Sandbox: {one}\r\n");
    assert!(text.contains(&header));
    let forged = text.replace(&header, &format!("Mcp-Param-Sandbox: {other}\r\n"));
    let reply = server.client.raw(forged.as_bytes());
    assert!(reply.status == 400 && reply.body.contains("error"), "{reply:?}");
    for sandbox in [&one, &other] {
        server.client.shell_in(sandbox, "ls").printed("");
    }
}

#[test]
fn token_files_that_cannot_be_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder(0o755);
    let secret = "ann-tiny";
    for (name, text, words) in [
        ("short", format!("ann:{secret}\n"), vec!["line 1", "fewer than 16", "openssl rand"]),
        ("empty", "# nobody\n\n".to_owned(), vec!["no token", "NAME:TOKEN"]),
        ("twice", format!("ann:{ANN}\nbob:{ANN}\n"), vec!["line 2", "given before"]),
    ] {
        let file = private_file(folder.path(), name, &text);
        refuses(&file, &words, &[secret, ANN]);
    }
    let open = private_file(folder.path(), "open", &format!("ann:{ANN}\n"));
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    refuses(&open, &["can be read by other users", "hint: chmod 600"], &[ANN]);
    refuses(&folder.path().join("none"), &["cannot read the token file", "none", "No such file", "hint: "], &[]);
}

#[track_caller]
fn refuses(file: &std::path::Path, words: &[&str], secrets: &[&str]) {
    let words_of_command = ["serve", "--http", "127.0.0.1:0", "--token-file", file.to_str().unwrap()];
    let output = User::same().command(&words_of_command).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert!(!secrets.iter().any(|secret| said.contains(secret)), "a token is in: {said}");
}
