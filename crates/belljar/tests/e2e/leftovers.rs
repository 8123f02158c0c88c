//! What is left on the host when something has ended: nothing, however it ended.
//!
//! Processes are known by a mark, cgroups by the number of their server, so that these tests can run beside others.
//! Mounts and files of the whole host are compared; what belongs to sandboxes never shows there.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Caller;
use crate::host::{
    Process, cgroups_of, descendants, mark, mounts, open_files, sandbox_cgroups_of, signal, sleepers, strewn, until,
    until_gone,
};
use crate::server::{Server, User};

const SOON: Duration = Duration::from_secs(2);
/// A caller that hung up may come back for its answer; then a kernel is asked to stop before it is made to.
const HUNG_UP: Duration = Duration::from_secs(6);

/// How the host looks, apart from processes and cgroups.
struct Before {
    mounts: BTreeSet<String>,
    strewn: BTreeSet<PathBuf>,
}

impl Before {
    fn look() -> Before {
        Before { mounts: mounts(), strewn: strewn() }
    }

    #[track_caller]
    fn is_unchanged(&self, user: &User) {
        // A neighbour's mount may come and go.
        until("the mounts are as before", Duration::from_secs(5), || mounts() == self.mounts);
        assert_eq!(strewn().difference(&self.strewn).collect::<Vec<_>>(), Vec::<&PathBuf>::new());
        let temporary: Vec<_> = fs::read_dir(user.temporary.path()).unwrap().flatten().collect();
        assert!(temporary.is_empty(), "in TMPDIR: {temporary:?}");
    }
}

/// A program that leaves something of every kind behind: three processes, files, and a lock that nobody holds.
fn litterer(mark: &str) -> String {
    format!(
        "setsid nohup sleep {mark} >/dev/null 2>&1 &\n(setsid sleep {mark} >/dev/null 2>&1 &)\nsleep {mark} &\n\
         mkdir -p /tmp/litter ~/litter && echo x > /tmp/litter/x && echo x > /dev/shm/litter-{mark}\n\
         mkfifo /tmp/fifo; until [ $(pgrep -c sleep) -ge 3 ]; do :; done; echo littered"
    )
}

/// The server, once it has everything that it has for good, and how much that is. One without a pool: prepared sandboxes
/// come and go by themselves.
#[track_caller]
fn settle<C: Caller>(server: &mut Server<C>) -> (usize, usize) {
    server.client.still_runs();
    let pid = server.pid();
    until("the first sandbox is gone", SOON, || sandbox_cgroups_of(pid).is_empty());
    let mut last = (0, 0);
    until("the server has come to rest", Duration::from_secs(5), || {
        let now = (descendants(pid).len(), open_files(pid));
        let rests = now == last;
        last = now;
        std::thread::sleep(Duration::from_millis(100));
        rests
    });
    last
}

#[test]
fn after_a_run() {
    for user in User::all() {
        let before = Before::look();
        let mut server = user.serve_with(&["--no-pool"]);
        let (pid, rest) = (server.pid(), settle(&mut server));
        let mark = mark();
        for _ in 0..5 {
            server.client.shell(&litterer(&mark)).printed("littered\n");
            until_gone(&mark, SOON);
        }
        let timeout = json!({"language": "shell", "code": format!("sleep {mark}"), "timeout": 0.3});
        assert_eq!(server.client.call("run_code", timeout).field("ending"), "timeout");
        until_gone(&mark, SOON);
        until("the cgroups of the sandboxes are gone", SOON, || sandbox_cgroups_of(pid).is_empty());
        until("as many processes and open files as before", SOON, || (descendants(pid).len(), open_files(pid)) == rest);
        assert!(!PathBuf::from(format!("/dev/shm/litter-{mark}")).exists());
        before.is_unchanged(&user);
    }
}

#[test]
fn after_a_sandbox_is_destroyed() {
    for user in User::all() {
        let before = Before::look();
        let mut server = user.serve_with(&["--no-pool"]);
        let (pid, rest) = (server.pid(), settle(&mut server));
        let (one, other) = (server.client.create(json!({})), server.client.create(json!({})));
        let (mark, spared, litter) = (mark(), mark(), mark());
        server.client.shell_in(&one, &litterer(&litter)).printed("littered\n");
        // Destroyed under a program that runs.
        let code = format!("sleep {mark}");
        let running = server.client.start("exec", json!({"sandbox_id": one, "command": code}));
        let code = format!("sleep {spared}");
        let goes_on = server.client.start("exec", json!({"sandbox_id": other, "command": code, "timeout": 5}));
        until("both run", Duration::from_secs(10), || sleepers(&mark).len() + sleepers(&spared).len() == 2);
        let destroyed = server.client.start("destroy_sandbox", json!({"sandbox_id": one}));
        let mut answers = [server.client.next_answer(), server.client.next_answer()];
        answers.sort_by_key(|answer| answer["id"].as_u64());
        assert_eq!([&answers[0]["id"], &answers[1]["id"]], [&json!(running), &json!(destroyed)]);
        assert_eq!(answers[0]["result"]["isError"], true, "{}", answers[0]);
        assert_eq!(answers[1]["result"]["structuredContent"], json!({"sandbox_id": one}));
        let left = sleepers(&mark).len() + sleepers(&litter).len();
        assert_eq!(left, 0, "it was called destroyed, and a process of it lives");
        assert_eq!(sleepers(&spared).len(), 1, "another sandbox was hit");
        assert_eq!(server.client.tool_answer(goes_on).field("ending"), "timeout");

        assert!(!server.client.call("destroy_sandbox", json!({"sandbox_id": other})).is_error());
        until("the cgroups of the sandboxes are gone", SOON, || sandbox_cgroups_of(pid).is_empty());
        until("as many processes and open files as before", SOON, || (descendants(pid).len(), open_files(pid)) == rest);
        before.is_unchanged(&user);
    }
}

#[test]
fn of_what_was_prepared_for_nobody() {
    for user in User::all() {
        let before = Before::look();
        let mut server = user.serve();
        let pid = server.pid();
        // The jail is two processes, and its zygote a third.
        until("a sandbox is prepared, beside the jail", Duration::from_secs(10), || descendants(pid).len() > 3);
        let family = descendants(pid);
        // Code whose imports are read in a sandbox, which is kept for the next.
        server.client.python("if True: import json, os\nprint(1)").printed("1\n");
        server.client.hang_up();
        let status = server.wait_exit(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "{status}");
        until("every process of the server is gone", SOON, || !family.iter().any(|process| process.lives()));
        assert_eq!(cgroups_of(pid), BTreeSet::new());

        let mut server = user.serve_with(&["--no-pool", "--no-zygote"]);
        assert_eq!(settle(&mut server).0, 2, "the jail alone");
        before.is_unchanged(&user);
    }
}

#[test]
fn after_a_client_closed_its_pipe() {
    for user in User::all() {
        let before = Before::look();
        let mut server = user.serve();
        let pid = server.pid();
        let sandbox = server.client.create(json!({}));
        let mark = mark();
        for place in [json!(null), json!(sandbox)] {
            let code = format!("setsid sleep {mark} & sleep {mark}");
            server.client.start("run_code", json!({"language": "shell", "code": code, "sandbox_id": place}));
        }
        until("both run", Duration::from_secs(10), || sleepers(&mark).len() == 4);
        let family = descendants(pid);
        server.client.hang_up();
        let status = server.wait_exit(Duration::from_secs(5));
        assert_eq!(status.code(), Some(0), "{status}");
        all_dead(&family, &mark, SOON);
        assert_eq!(cgroups_of(pid), BTreeSet::new());
        // What it said until then was said in whole lines.
        server.client.rest();
        before.is_unchanged(&user);
    }
}

#[test]
fn after_a_connection_was_dropped() {
    for user in User::all() {
        let before = Before::look();
        let mut server = user.serve_http(&["--no-pool"]);
        let (pid, rest) = (server.pid(), settle(&mut server));
        let sandbox = server.client.create(json!({}));
        server.client.shell_in(&sandbox, "echo kept > kept").printed("");
        let (mark, spared) = (mark(), mark());
        let run = |mark: &str, sandbox: Option<&str>| {
            let mut arguments = json!({"language": "shell", "code": format!("setsid sleep {mark} & sleep {mark}")});
            if let Some(sandbox) = sandbox {
                arguments["sandbox_id"] = sandbox.into();
            }
            server.client.begin("run_code", arguments)
        };
        let dropped = [run(&mark, None), run(&mark, Some(&sandbox))];
        let kept = run(&spared, None);
        until("all run", Duration::from_secs(10), || sleepers(&mark).len() + sleepers(&spared).len() == 6);
        drop(dropped);
        until_gone(&mark, HUNG_UP);
        assert_eq!(sleepers(&spared).len(), 2, "another caller's program was hit");
        drop(kept);
        until_gone(&spared, HUNG_UP);
        // The sandbox is its owner's, not the connection's.
        server.client.shell_in(&sandbox, "cat kept").printed("kept\n");
        assert!(!server.client.call("destroy_sandbox", json!({"sandbox_id": sandbox})).is_error());
        until("the cgroups of the sandboxes are gone", SOON, || sandbox_cgroups_of(pid).is_empty());
        until("as many processes and open files as before", SOON, || (descendants(pid).len(), open_files(pid)) == rest);
        before.is_unchanged(&user);
    }
}

#[test]
fn after_sigterm() {
    for user in User::all() {
        for name in ["TERM", "INT"] {
            let before = Before::look();
            let mark = mark();
            let code = format!("trap '' TERM INT; echo busy; setsid sleep {mark} & sleep {mark}");

            // Long enough to see that what does not end by itself is ended.
            let soon = ["--shutdown-timeout", "0.5"];
            let mut stdio = user.serve_with(&soon);
            let sandbox = stdio.client.create(json!({}));
            stdio.client.start("exec", json!({"sandbox_id": sandbox, "command": code}));
            stdio.client.start("run_code", json!({"language": "shell", "code": code}));

            let mut http = user.serve_http(&soon);
            let _connection = http.client.begin("run_code", json!({"language": "shell", "code": code}));
            until("all run", Duration::from_secs(10), || sleepers(&mark).len() == 6);

            ends_well(&mut stdio, name, &mark);
            ends_well(&mut http, name, &mark);
            assert!(sleepers(&mark).is_empty());
            stdio.client.rest();
            before.is_unchanged(&user);
        }
    }
}

#[track_caller]
fn ends_well<C>(server: &mut Server<C>, name: &str, mark: &str) {
    let pid = server.pid();
    let family = descendants(pid);
    assert!(family.len() >= 2, "a jail and a sandbox at least: {family:?}");
    signal(pid, name);
    let status = server.wait_exit(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "after SIG{name}: {status}");
    until("every process of the server is gone", SOON, || !family.iter().any(|process| process.lives()));
    assert!(!sleepers(mark).iter().any(|pid| family.iter().any(|process| process.pid == *pid)));
    assert_eq!(cgroups_of(pid), BTreeSet::new(), "cgroups of a server that ended in order");
}

/// Nothing of ours runs any more then that could clean up; it must be in the nature of the processes to die.
#[test]
fn after_the_server_was_killed() {
    for user in User::all() {
        let before = Before::look();
        let mark = mark();
        let mut server = user.serve();
        let pid = server.pid();
        let sandbox = server.client.create(json!({}));
        let code = format!("trap '' TERM HUP; setsid nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}");
        server.client.start("exec", json!({"sandbox_id": sandbox, "command": code}));
        for _ in 0..50 {
            server.client.start("run_code", json!({"language": "shell", "code": code}));
        }
        // As many at once as there is room for, the others waiting; eight on the smallest machine.
        until("many run", Duration::from_secs(20), || sleepers(&mark).len() >= 16);
        let family = descendants(pid);
        let had_cgroups = !sandbox_cgroups_of(pid).is_empty();
        signal(pid, "KILL");
        all_dead(&family, &mark, SOON);
        assert!(server.wait_exit(SOON).code().is_none());
        before.is_unchanged(&user);

        let isolation = {
            let mut next = user.serve();
            let answer = next.client.shell("echo on");
            answer.printed("on\n");
            until("the dead server's cgroups are gone", SOON, || cgroups_of(pid).is_empty());
            answer.field("isolation")["cgroup"].as_str().unwrap().to_owned()
        };
        assert_eq!(had_cgroups, isolation.starts_with('v'), "as {}: {isolation}", user.name);
    }
}

#[track_caller]
fn all_dead(family: &BTreeSet<Process>, mark: &str, at_most: Duration) {
    let deadline = Instant::now() + at_most;
    until_gone(mark, at_most);
    until("every process of the server is gone", deadline.saturating_duration_since(Instant::now()), || {
        !family.iter().any(|process| process.lives())
    });
}

/// What `run` and `doctor` open is theirs to close.
#[test]
fn after_a_command() {
    for user in User::all() {
        let before = Before::look();
        let mark = mark();
        let mut running = user.command(&["run", "-l", "shell", "-c", &litterer(&mark)]);
        let output = running.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "littered\n", "{output:?}");
        until_gone(&mark, SOON);
        assert!(user.command(&["doctor"]).output().unwrap().status.success());

        for name in ["KILL", "TERM", "INT"] {
            let code = format!("setsid sleep {mark} & sleep {mark}");
            let mut command = user.command(&["run", "-l", "shell", "-c", &code]);
            let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            until("it runs", Duration::from_secs(10), || sleepers(&mark).len() == 2);
            signal(child.id(), name);
            until("it ends", Duration::from_secs(10), || child.try_wait().unwrap().is_some());
            until_gone(&mark, SOON);
            if name != "KILL" {
                assert_eq!(cgroups_of(child.id()), BTreeSet::new(), "after SIG{name}");
            }
        }
        before.is_unchanged(&user);
    }
}
