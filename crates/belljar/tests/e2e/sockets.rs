//! The other ways in: a unix socket for programs of the same user, and the event streams of older clients.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Caller, Http};
use crate::host::{mark, signal, sleepers, until, until_gone};
use crate::server::{User, connect, folder};

/// A caller that hung up may come back for its answer.
const HUNG_UP: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(10);

#[test]
fn programs_of_the_same_user_speak_on_a_socket() {
    let folder = folder(0o700);
    let path = folder.path().join("mcp.sock");
    let user = User::same();
    let mut server = user.serve_socket(&path, &[]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    server.client.still_runs();
    let mut other = connect(&path);
    other.still_runs();
    // The sandboxes of one are the other's: they are of one user.
    let sandbox = server.client.create(json!({}));
    other.shell_in(&sandbox, "echo shared > note").printed("");
    server.client.shell_in(&sandbox, "cat note").printed("shared\n");

    let words = ["serve", "--socket", path.to_str().unwrap()];
    let second = user.command(&words).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(125), "{said}");
    assert!(said.contains("another server serves on") && said.contains("hint: "), "{said}");
    other.still_runs();

    signal(server.pid(), "TERM");
    assert!(server.wait_exit(SOON).success());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the socket is gone");
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over() {
    let folder = folder(0o700);
    let path = folder.path().join("mcp.sock");
    let user = User::same();
    let mut server = user.serve_socket(&path, &[]);
    signal(server.pid(), "KILL");
    server.wait_exit(SOON);
    assert!(path.exists());
    user.serve_socket(&path, &[]).client.still_runs();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let words = ["serve", "--socket", path.to_str().unwrap()];
    let open = user.command(&words).stdin(Stdio::null()).output().unwrap();
    assert_eq!(open.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&open.stderr).contains("other users can write to the directory"));
}

#[test]
fn a_socket_stands_beside_http_and_speaks_it_too() {
    let folder = folder(0o700);
    let path = folder.path().join("mcp.sock");
    let mut server = User::same().serve_http(&["--socket", path.to_str().unwrap()]);
    let sandbox = server.client.create(json!({}));
    connect(&path).shell_in(&sandbox, "echo by socket > note").printed("");
    server.client.shell_in(&sandbox, "cat note").printed("by socket\n");
    let mut stream = UnixStream::connect(&path).unwrap();
    let read = json!({"sandbox_id": sandbox, "path": "note"});
    stream.write_all(&server.client.call_bytes("read_file", read, "")).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("by socket"), "{answer}");
}

#[test]
fn hanging_up_on_a_socket_ends_what_ran() {
    let folder = folder(0o700);
    let path = folder.path().join("mcp.sock");
    let server = User::same().serve_socket(&path, &[]);
    let mark = mark();
    let stream = UnixStream::connect(&path).unwrap();
    let mut leaver = crate::client::StdioClient::new(stream.try_clone().unwrap(), stream.try_clone().unwrap());
    leaver.initialize();
    leaver.start("run_code", json!({"language": "shell", "code": format!("sleep {mark}")}));
    until("it runs", SOON, || !sleepers(&mark).is_empty());
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    until_gone(&mark, HUNG_UP);
    drop(server);
}

/// An event stream of an older client.
struct Events {
    http: Http,
    stream: TcpStream,
    heard: String,
    target: String,
}

impl Events {
    fn open(http: &Http) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", http.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"GET /sse HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n").unwrap();
        let mut events = Events { http: http.clone(), stream, heard: String::new(), target: String::new() };
        events.hear("\n\n");
        let (_, rest) = events.heard.split_once("event: endpoint\ndata: ").expect("where to send");
        events.target = rest.lines().next().unwrap().to_owned();
        events
    }

    #[track_caller]
    fn hear(&mut self, wanted: &str) {
        while !self.heard.contains(wanted) {
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the stream ended: {}", self.heard);
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    #[track_caller]
    fn send(&self, message: &Value) {
        let body = message.to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.target,
            body.len()
        );
        assert_eq!(self.http.raw(request.as_bytes()).status, 202);
    }
}

#[test]
fn an_older_client_is_served_by_events() {
    let server = User::same().serve_http(&[]);
    let mut events = Events::open(&server.client);
    let client = json!({"name": "old", "version": "1"});
    let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client});
    events.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    events.hear("\"protocolVersion\":\"2024-11-05\"");
    events.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let run = |id: u64, code: &str| {
        let arguments = json!({"language": "shell", "code": code});
        let params = json!({"name": "run_code", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    events.send(&run(2, "echo $((6 * 7)) by events"));
    events.hear("42 by events");
    let mark = mark();
    events.send(&run(3, &format!("sleep {mark}")));
    until("it runs", SOON, || !sleepers(&mark).is_empty());
    drop(events);
    until_gone(&mark, HUNG_UP);
}
