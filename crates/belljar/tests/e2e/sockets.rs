//! The other ways in: a unix socket for programs of the same user, and the event streams of older clients.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;

use crate::client::Caller;
use crate::events::Events;
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

#[test]
fn an_older_client_is_served_by_events() {
    let server = User::same().serve_http(&[]);
    let mut events = Events::begin(&server.client, "/sse");
    let run = |id: u64, code: &str| {
        let arguments = json!({"language": "shell", "code": code});
        let params = json!({"name": "run_code", "arguments": arguments});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    events.send(&run(20, "echo $((6 * 7)) by events"));
    events.hear("42 by events");
    let mark = mark();
    events.send(&run(30, &format!("sleep {mark}")));
    until("it runs", SOON, || !sleepers(&mark).is_empty());
    drop(events);
    until_gone(&mark, HUNG_UP);
}
