//! Many callers at once, and the end of a server that has work.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::client::{Caller, Http};
use crate::host::{cgroups_of, descendants, mark, signal, sleepers, until};
use crate::server::{Server, User, folder, private_file};

const ANN: &str = "ann-0123456789abcdef0123456789abcdef";
const BOB: &str = "bob-fedcba9876543210fedcba9876543210";

/// A server that knows Ann and Bob, and the folder of its tokens, which it looks at again.
fn with_tokens(words: &[&str]) -> (Server<Http>, TempDir) {
    let folder = folder(0o755);
    let file = private_file(folder.path(), "tokens", &format!("ann:{ANN}\nbob:{BOB}\n"));
    let words: Vec<&str> = ["--token-file", file.to_str().unwrap()].into_iter().chain(words.iter().copied()).collect();
    (User::same().serve_http(&words), folder)
}

/// Sixty of Ann's at any time, and one after the other of Bob's.
#[test]
fn one_principals_flood_leaves_anothers_runs_quick() {
    let (server, _tokens) = with_tokens(&[]);
    let (ann, mut bob) = (server.client.with_token(ANN), server.client.with_token(BOB));
    let (over, ran) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| {
                let mut ann = ann.clone();
                while !over.load(Ordering::Relaxed) {
                    ann.shell("i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done; sleep 0.3; echo a").printed("a\n");
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        until("the flood has come", Duration::from_secs(60), || ran.load(Ordering::Relaxed) >= 8);
        for _ in 0..30 {
            let begun = Instant::now();
            bob.python("print(1)").printed("1\n");
            took.push(begun.elapsed());
        }
        over.store(true, Ordering::Relaxed);
    });
    took.sort();
    println!("Bob's: median {:?}, longest {:?}; Ann's: {}", took[15], took[29], ran.into_inner());
    assert!(took[29] < Duration::from_secs(2), "{took:?}");
}

/// Long programs of one shut nobody out either.
#[test]
fn a_server_full_of_one_principals_programs_has_room_for_another() {
    let (server, _tokens) = with_tokens(&["--shutdown-timeout", "0.2"]);
    let (ann, mut bob) = (server.client.with_token(ANN), server.client.with_token(BOB));
    let mark = mark();
    let code = format!("sleep {mark}");
    let waiting: Vec<_> = (0..60).map(|_| ann.begin("run_code", json!({"language": "shell", "code": code}))).collect();
    until("as many run as may", Duration::from_secs(30), || sleepers(&mark).len() >= 8);
    for _ in 0..5 {
        let begun = Instant::now();
        bob.shell("echo b").printed("b\n");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    drop(waiting);
}

#[test]
fn a_quota_is_kept_and_told() {
    let folder = folder(0o755);
    let file = private_file(folder.path(), "belljar.toml", "[quota]\nsandboxes = 1\nmemory_mb = 1536\n");
    let mut user = User::same();
    user.env.push(("BELLJAR_QUOTA__CPU_SECONDS".into(), "1".into()));
    let mut server = user.serve_with(&["--config", file.to_str().unwrap()]);
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    client.call("create_sandbox", json!({})).refused(&["quota is 1 sandboxes", "destroy"]);
    client.shell("echo a").refused(&["quota is 1536 MB of memory", "destroy a sandbox"]);
    client.shell_in(&sandbox, "echo in its own").printed("in its own\n");
    assert!(!client.call("destroy_sandbox", json!({"sandbox_id": sandbox})).is_error());
    client.python("while __import__('time').process_time() < 1.2: pass").printed("");
    client.shell("echo a").refused(&["quota of 1 CPU seconds an hour is used up", "try again in about"]);
}

/// What ends in time is answered with what it came to, and what does not is stopped and answered too.
#[test]
fn sigterm_lets_runs_finish_and_stops_the_rest() {
    let server_of = |words: &[&str]| User::same().serve_http(words);
    let mut server = server_of(&["--shutdown-timeout", "4"]);
    let (pid, port) = (server.pid(), server.client.port);
    let (short, long) = (mark(), mark());
    let ends = format!("(sleep {short} & p=$!; sleep 2; kill $p); echo finished");
    let goes_on = format!("echo begun; sleep {long}");
    let idle = {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        assert!(stream.read(&mut answer).unwrap() > 0);
        stream
    };
    let call = |code: &str| {
        let mut client = server.client.clone();
        let arguments = json!({"language": "shell", "code": code});
        std::thread::spawn(move || client.call("run_code", arguments))
    };
    let (finishes, is_stopped) = (call(&ends), call(&goes_on));
    until("both run", Duration::from_secs(20), || sleepers(&short).len() + sleepers(&long).len() == 2);
    let family = descendants(pid);
    let begun = Instant::now();
    signal(pid, "TERM");
    until("nobody is let in", Duration::from_secs(2), || TcpStream::connect(("127.0.0.1", port)).is_err());
    // An idle connection is closed, or told; never left without an answer.
    let mut idle = idle;
    let _ = idle.write_all(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut rest = String::new();
    let _ = idle.read_to_string(&mut rest);
    assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 503"), "{rest}");

    finishes.join().unwrap().printed("finished\n");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let stopped = is_stopped.join().unwrap();
    assert_eq!((stopped.field("ending"), stopped.stdout()), (&json!("cancelled"), "begun\n"), "{stopped:?}");
    let status = server.wait_exit(Duration::from_secs(7).saturating_sub(begun.elapsed()));
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(begun.elapsed() >= Duration::from_secs(4), "it had all its time: {:?}", begun.elapsed());
    until("nothing is left", Duration::from_secs(2), || !family.iter().any(|process| process.lives()));
    assert!(cgroups_of(pid).is_empty() && sleepers(&long).is_empty());
}

#[test]
fn a_second_signal_waits_for_nothing() {
    for over_http in [true, false] {
        let mark = mark();
        let arguments = json!({"language": "shell", "code": format!("sleep {mark}")});
        let user = User::same();
        let words = ["--shutdown-timeout", "120"];
        let end = |pid: u32| {
            until("it runs", Duration::from_secs(20), || sleepers(&mark).len() == 1);
            signal(pid, "TERM");
            // It is at its end when it takes nothing new any more; that takes a moment.
            std::thread::sleep(Duration::from_millis(500));
            assert_eq!(sleepers(&mark).len(), 1, "one signal lets it run");
            signal(pid, "INT");
        };
        if over_http {
            let mut server = user.serve_http(&words);
            let (mut client, arguments) = (server.client.clone(), arguments.clone());
            let call = std::thread::spawn(move || client.call("run_code", arguments));
            end(server.pid());
            assert_eq!(call.join().unwrap().field("ending"), "cancelled");
            assert_eq!(server.wait_exit(Duration::from_secs(5)).code(), Some(0));
        } else {
            let mut server = user.serve_with(&words);
            let call = server.client.start("run_code", arguments.clone());
            end(server.pid());
            assert_eq!(server.client.tool_answer(call).field("ending"), "cancelled");
            assert_eq!(server.wait_exit(Duration::from_secs(5)).code(), Some(0));
        }
        assert!(sleepers(&mark).is_empty());
    }
}

/// Over stdio a signal lets runs finish as well; what comes after it is told that nothing more is taken.
#[test]
fn sigterm_over_stdio() {
    let mut server = User::same().serve();
    let mark = mark();
    let code = format!("(sleep {mark} & p=$!; sleep 1.5; kill $p); echo finished");
    let first = server.client.start("run_code", json!({"language": "shell", "code": code}));
    until("it runs", Duration::from_secs(20), || sleepers(&mark).len() == 1);
    let begun = Instant::now();
    signal(server.pid(), "TERM");
    std::thread::sleep(Duration::from_millis(300));
    let second = server.client.start("run_code", json!({"language": "shell", "code": "echo late"}));
    server.client.tool_answer(second).refused(&["shutting down"]);
    server.client.tool_answer(first).printed("finished\n");
    assert_eq!(server.wait_exit(Duration::from_secs(5)).code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    server.client.rest();
}
