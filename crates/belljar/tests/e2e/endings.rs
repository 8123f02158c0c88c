//! How programs end, and what their callers are told: each ending with its fields, and all that was printed before.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Caller, StdioClient};
use crate::host::{mark, sleepers, until, until_gone};
use crate::server::{Server, User};

/// The name and the code, beside the flag that a client shows.
#[track_caller]
fn ended(answer: &Answer, ending: &str, code: i64) {
    let got = (answer.field("ending"), answer.field("exit_code"), answer.is_error());
    let is_success = ending == "exited" && code == 0;
    assert_eq!(got, (&json!(ending), &json!(code), !is_success), "{}", answer.result);
}

#[test]
fn a_program_that_ends_by_itself() {
    let mut server = Server::start();
    let client = &mut server.client;
    for code in [0, 1, 2, 42, 124, 137, 255] {
        let answer = client.shell(&format!("echo out; echo err >&2; exit {code}"));
        ended(&answer, "exited", code);
        assert_eq!((answer.stdout(), answer.field("stderr")), ("out\n", &json!("err\n")));
        assert_eq!(answer.text().contains(&format!("[exit {code}]")), code != 0, "{}", answer.text());
        assert_eq!((answer.field("state"), answer.field("truncated")), (&json!("fresh"), &json!(false)));
        let isolation = answer.field("isolation");
        for wall in ["backend", "namespaces", "seccomp", "landlock", "cgroup", "network", "user"] {
            assert!(isolation[wall].as_str().is_some_and(|text| !text.is_empty()), "{wall} of {isolation}");
        }
    }
    let used = client.python("sum(range(3_000_000)); x = bytearray(50_000_000)");
    let usage = used.field("usage");
    assert!(usage["cpu_ms"].as_u64().unwrap() >= 20, "{usage}");
    assert!((50_000_000..200_000_000).contains(&usage["memory_peak_bytes"].as_u64().unwrap()), "{usage}");
}

#[test]
fn a_program_that_a_signal_ends() {
    let mut server = Server::start();
    for (name, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15), ("ABRT", 6), ("USR1", 10)] {
        let answer = server.client.shell(&format!("echo before; kill -{name} $$; echo after"));
        ended(&answer, "killed", 128 + number);
        assert_eq!(answer.stdout(), "before\n");
        assert!(answer.text().contains(&format!("[killed by signal {number}")), "{}", answer.text());
    }
    // A signal that only a child died of is the shell's to tell.
    let child = server.client.shell("sh -c 'kill -9 $$'; echo $?");
    child.printed("137\n");
}

/// Runs past its limit, and says whether it was stopped in time.
#[track_caller]
fn stopped_in_time(client: &mut StdioClient, language: &str, code: &str, mark: &str) {
    let limit = Duration::from_millis(1200);
    let sent = Instant::now();
    let timeout = limit.as_secs_f64();
    let answer = client.call("run_code", json!({"language": language, "code": code, "timeout": timeout}));
    let took = sent.elapsed();
    ended(&answer, "timeout", 124);
    assert_eq!(answer.stdout(), "before\n", "{}", answer.result);
    assert!(answer.text().contains("[timeout after 1.2 s; send a larger timeout"), "{}", answer.text());
    let ran = answer.number("duration_ms");
    assert!((1200..=1700).contains(&ran), "it ran for {ran} ms");
    // The rest is for the sandbox to be opened on a busy machine.
    assert!(took < limit + Duration::from_millis(2000), "the answer took {took:?}");
    until_gone(mark, Duration::from_secs(1));
}

/// Leaves children everywhere: in the background, in a session of their own, without a parent, and ever more.
const FORKS: &str = "
echo before
(trap '' TERM; sleep MARK) &
setsid sleep MARK &
(setsid nohup sleep MARK >/dev/null 2>&1 &)
(while :; do (sleep MARK &); sleep 0.05; done) &
wait
";

/// Ignores every signal that can be ignored, and makes a daemon in the old way.
const DAEMON: &str = "
import os, signal, time
print('before', flush=True)
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', 'MARK'])
    os._exit(0)
while True:
    time.sleep(1)
";

#[test]
fn a_program_that_takes_too_long() {
    for user in User::all() {
        let mut server = user.serve();
        let client = &mut server.client;
        let mark = &mark();
        stopped_in_time(client, "shell", &format!("echo before; sleep {mark}"), mark);
        stopped_in_time(client, "python", "print('before', flush=True)\nwhile True: pass", mark);
        stopped_in_time(client, "javascript", "console.log('before'); setInterval(() => {}, 1000)", mark);
        // Ignores every signal that it can.
        let deaf = format!("echo before; trap '' TERM INT HUP QUIT; while :; do sleep {mark}; done");
        stopped_in_time(client, "shell", &deaf, mark);
        stopped_in_time(client, "shell", &FORKS.replace("MARK", mark), mark);
        stopped_in_time(client, "python", &DAEMON.replace("MARK", mark), mark);
        client.still_runs();
    }
}

#[test]
fn a_timeout_in_a_kept_sandbox_keeps_its_files() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    let mark = mark();
    let code = format!("echo kept > kept; sleep {mark} & sleep {mark}");
    let run = json!({"language": "shell", "code": code, "sandbox_id": sandbox, "timeout": 0.5});
    ended(&client.call("run_code", run), "timeout", 124);
    until_gone(&mark, Duration::from_secs(1));
    let after = client.shell_in(&sandbox, "cat kept");
    after.printed("kept\n");
    assert_eq!(after.field("state"), "preserved");
}

/// Allocates until somebody ends it.
const GLUTTON: &str = "print('before', flush=True)\nx = []\nwhile True: x.append(b'x' * 1048576)";

/// Six processes, none of which takes too much alone.
const CROWD: &str = "
import os, subprocess, time
print('before', flush=True)
subprocess.Popen(['sleep', 'MARK'])
for _ in range(6):
    if os.fork() == 0:
        x = b'x' * (30 << 20)
        time.sleep(60)
        os._exit(0)
for _ in range(6):
    pid, status = os.wait()
    if status:
        os.kill(os.getpid(), 9)
";

#[test]
fn a_program_that_takes_too_much_memory() {
    for user in User::all() {
        let mut server = user.serve();
        let client = &mut server.client;
        let sandbox = client.create(json!({"memory_mb": 96}));
        let run = json!({"language": "python", "code": GLUTTON, "sandbox_id": sandbox});
        let answer = client.call("run_code", run);
        let cgroup = answer.field("isolation")["cgroup"].as_str().unwrap().to_owned();
        assert_eq!(answer.stdout(), "before\n", "{}", answer.result);
        if cgroup.starts_with('v') {
            ended(&answer, "memory", 137);
            let text = answer.text();
            assert!(text.contains("[out of memory: limit 96 MiB; use less, or create_sandbox with"), "{text}");
        } else {
            // Without a cgroup one process alone is told by the kernel, and may still say so itself.
            println!("as {}: {cgroup}", user.name);
            assert!(answer.is_error(), "{}", answer.result);
            let said_so = answer.text().ends_with("MemoryError");
            assert!(answer.field("ending") == "memory" || said_so, "{}", answer.result);
        }
        // Together they are too many, though none is alone. In a sandbox of its own: what was told may have kept what it has.
        let sandbox = client.create(json!({"memory_mb": 96}));
        let mark = mark();
        let many = CROWD.replace("MARK", &mark);
        let run = json!({"language": "python", "code": many, "sandbox_id": sandbox, "timeout": 30});
        let answer = client.call("run_code", run);
        ended(&answer, "memory", 137);
        assert_eq!(answer.stdout(), "before\n", "{}", answer.result);
        until_gone(&mark, Duration::from_secs(1));
        // The sandbox is still there, with its memory to use.
        let small = json!({"language": "python", "code": "print(len(b'x' * (20 << 20)))", "sandbox_id": sandbox});
        client.call("run_code", small).printed("20971520\n");
    }
}

/// Where no cgroup holds the memory, a kernel that has too much is killed at a look, which may come when its cell is over and the
/// next begins: that one gets a new kernel, or is told why it ended.
#[test]
fn a_kernel_that_is_killed_for_memory_between_two_cells() {
    let Some(user) = User::nobody() else { return };
    let mut server = user.serve();
    let client = &mut server.client;
    let mut fell = 0;
    for round in 0..60 {
        let sandbox = client.create(json!({"memory_mb": 96}));
        let run = |code: &str| json!({"language": "python", "code": code, "sandbox_id": sandbox});
        client.call("run_code", run("x = [b'x' * (40 << 20) for _ in range(3)]"));
        // Looks come twenty times a second.
        std::thread::sleep(Duration::from_millis(round));
        let answer = client.call("run_code", run("print('next')"));
        match answer.field("ending").as_str() {
            Some("exited") => answer.printed("next\n"),
            ending => assert_eq!(ending, Some("memory"), "{}", answer.result),
        }
        fell += usize::from(answer.field("state") != "preserved");
        client.call("destroy_sandbox", json!({"sandbox_id": sandbox}));
    }
    assert!(fell > 0, "none had too much");
}

/// The whole of a stream whose result was shortened.
#[track_caller]
fn whole(client: &mut StdioClient, answer: &Answer, stream: &str) -> String {
    let id = client.request("resources/read", json!({"uri": answer.field("output_uris")[stream]}));
    let read = client.answer(id);
    read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}")).to_owned()
}

#[test]
fn a_program_that_prints_too_much() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({"output_kb": 64}));
    let mark = mark();
    let started = Instant::now();
    let answer = client.shell_in(&sandbox, &format!("sleep {mark} & yes 0123456789abcde"));
    ended(&answer, "output", 137);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(answer.field("truncated"), true);
    assert!(answer.text().contains("[stopped for too much output: limit 64 KiB; print less"), "{}", answer.text());
    assert_eq!(whole(client, &answer, "stdout"), "0123456789abcde\n".repeat(64 * 1024 / 16));
    until_gone(&mark, Duration::from_secs(1));

    // Both streams share the limit, and neither waits for the other.
    let both = "import sys, threading\ndef flood(f):\n  while True: f.write('x' * 999 + '\\n')\n\
                for f in (sys.stdout, sys.stderr): threading.Thread(target=flood, args=(f,)).start()";
    let run = json!({"language": "python", "code": both, "sandbox_id": sandbox});
    let answer = client.call("run_code", run);
    ended(&answer, "output", 137);

    // The shell tells what became of its background job when it is next asked.
    client.shell_in(&sandbox, "true");
    // Exactly the limit is not too much, one byte more is.
    let exactly = client.shell_in(&sandbox, "head -c 65536 /dev/zero | tr '\\0' x");
    ended(&exactly, "exited", 0);
    assert_eq!(whole(client, &exactly, "stdout"), "x".repeat(65536));
    let more = client.shell_in(&sandbox, "head -c 65537 /dev/zero | tr '\\0' x; sleep 60");
    ended(&more, "output", 137);
    // What it printed is kept when it fails by itself, too.
    let fails = client.shell_in(&sandbox, "seq 5000; exit 9");
    ended(&fails, "exited", 9);
    assert!(fails.stdout().starts_with("1\n2\n") && fails.stdout().ends_with("4999\n5000\n"), "{}", fails.stdout());
    assert_eq!(whole(client, &fails, "stdout"), (1..=5000).map(|number| format!("{number}\n")).collect::<String>());
}

#[test]
fn a_program_that_starts_too_many_processes() {
    for user in User::all() {
        let mut server = user.serve();
        let client = &mut server.client;
        let sandbox = client.create(json!({"processes": 16}));
        let mark = mark();
        let count = format!(
            "import subprocess\nn = 0\ntry:\n  while n < 100:\n    subprocess.Popen(['sleep', '{mark}'])\n    n += 1\n\
             except OSError as error: print(n, type(error).__name__)"
        );
        // As a program: what a cell starts in the background would live on with its kernel.
        let command = format!("python3 - <<'END'\n{count}\nEND");
        let answer = client.call("exec", json!({"command": command, "sandbox_id": sandbox, "timeout": 20}));
        ended(&answer, "exited", 0);
        let (number, error) = answer.stdout().trim().split_once(' ').unwrap_or_else(|| panic!("{}", answer.result));
        let number: u32 = number.parse().unwrap();
        assert!((8..=15).contains(&number) && error == "BlockingIOError", "{}", answer.stdout());
        until_gone(&mark, Duration::from_secs(1));

        let bomb = format!("sleep {mark} & f() {{ f | f & }}; f; sleep {mark}");
        let run = json!({"language": "shell", "code": bomb, "sandbox_id": sandbox, "timeout": 2});
        let answer = client.call("run_code", run);
        assert!(answer.is_error(), "{}", answer.result);
        until_gone(&mark, Duration::from_secs(2));
        client.still_runs();
        client.shell_in(&sandbox, "echo on").printed("on\n");
    }
}

const MANY_FILES: &str = "
import os
try:
    for number in range(1_000_000):
        os.close(os.open(f'f{number}', os.O_CREAT | os.O_WRONLY))
except OSError as error:
    print(error.strerror)
";

#[test]
fn a_program_that_fills_the_disk() {
    for user in User::all() {
        let mut server = user.serve();
        let client = &mut server.client;
        let sandbox = client.create(json!({"disk_mb": 8}));
        for folder in ["/workspace", "/tmp", "/home/agent"] {
            let fill = format!("head -c 20000000 /dev/zero > {folder}/big; echo $?; stat -c %s {folder}/big");
            let answer = client.shell_in(&sandbox, &fill);
            assert!(answer.field("stderr").as_str().unwrap().contains("No space left on device"), "{}", answer.result);
            let lines: Vec<u64> = answer.stdout().lines().map(|line| line.parse().unwrap()).collect();
            assert!(lines[0] != 0 && lines[1] <= 8 << 20, "{folder}: {lines:?}");
            let write = json!({"sandbox_id": sandbox, "path": "more", "content": "x".repeat(100_000)});
            client.call("write_file", write).refused(&["no space left", "remove files", "disk_mb"]);
            client.shell_in(&sandbox, &format!("rm {folder}/big; echo ok > more; cat more; rm more")).printed("ok\n");
        }
        // Many empty files are a way to fill it, too.
        let run = json!({"language": "python", "code": MANY_FILES, "sandbox_id": sandbox});
        let answer = client.call("run_code", run);
        answer.printed("No space left on device\n");
    }
}

/// The protocol says that a cancelled request is not answered.
#[test]
fn a_program_that_is_cancelled() {
    for user in User::all() {
        let mut server = user.serve();
        let client = &mut server.client;
        let sandbox = client.create(json!({}));
        for place in [Value::Null, json!(sandbox)] {
            let mark = mark();
            let code = format!("sleep {mark} & setsid sleep {mark} & sleep {mark}");
            let id = client.start("run_code", json!({"language": "shell", "code": code, "sandbox_id": place}));
            until("the program runs", Duration::from_secs(10), || sleepers(&mark).len() == 3);
            let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": {"requestId": id, "reason": "nobody wants it"}});
            client.send(&cancelled);
            until_gone(&mark, Duration::from_secs(2));
            client.send(&cancelled);
            // An answer to the cancelled one would come before this one's.
            client.still_runs();
        }
        client.shell_in(&sandbox, "echo on").printed("on\n");
    }
}
