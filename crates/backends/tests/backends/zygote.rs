//! Kernels that are forked from a zygote: the same contract, the same walls, and nothing shared.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::collections::HashSet;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::{
    Backend, Capabilities, Exit, Language, Later, Limits, Probe, Program, Sandbox, Source, Spec, State, Stdin, Then,
};
use belljar_testkit::contract::{self, Ran, open, run};

/// A backend whose places all have a kernel waiting: Python's, unless another is asked for.
#[derive(Debug)]
struct Waiting(Arc<dyn Backend>);

impl Backend for Waiting {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn probe(&self) -> Probe {
        self.0.probe()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        let spec = Spec { waiting: spec.waiting.or(Some(Language::Python)), ..spec.clone() };
        Box::pin(async move { self.0.open(&spec).await })
    }
}

fn native(preload: Preload) -> Arc<dyn Backend> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    choose(Choice::Native, &Host { path, home: std::env::var_os("HOME").map(Into::into), ..Host::default() }, preload)
}

const RUNNER: &str = "import os\nprint(open(f'/proc/{os.getppid()}/cmdline').read().split('\\0')[0])";

fn cell(code: &str, then: Then) -> Program {
    let source = Source::Cell { language: Language::Python, code: code.to_owned(), then };
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall: Duration::from_secs(20), changed_max: 0 }
}

async fn first(backend: &dyn Backend, code: &str) -> Ran {
    let sandbox = open(backend, Limits::default()).await;
    let ran = run(&*sandbox, cell(code, Then::End)).await;
    sandbox.close().await.unwrap();
    ran
}

/// A backend that has its zygote.
async fn forking() -> Waiting {
    let backend = Waiting(native(Preload::Yes));
    let deadline = Instant::now() + Duration::from_secs(60);
    while first(&backend, RUNNER).await.stdout.trim() != "belljar-runner" {
        assert!(Instant::now() < deadline, "there is no zygote");
    }
    backend
}

belljar_testkit::keeps_the_contract!(keeps_the_contract, async { Arc::new(forking().await) as Arc<dyn Backend> });

/// What a process can tell of its own walls and surroundings, but for numbers that differ each time.
const WALLS: &str = r#"
import os, re, signal, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
for name in ["Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "SigBlk",
        "SigIgn", "SigCgt", "Threads", "Umask", "CoreDumping"]:
    print(name, status.get(name, "").strip())
print(open("/proc/self/limits").read())
print(re.sub(r"\d+", "N", open("/proc/self/mountinfo").read()))
print(re.sub(r"belljar[-\w/]*", "G", open("/proc/self/cgroup").read()))
print(sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}") or os.path.lexists(f"/proc/self/fd/{fd}"))[:3])
print(os.getcwd(), os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid(), sorted(os.environ.items()))
print(os.listdir("/"), os.access("/etc/passwd", os.W_OK), os.uname().nodename)
for call in [lambda: os.setuid(0), lambda: os.chroot("/"), lambda: os.kill(1, 9), lambda: open("/usr/x", "w"), lambda: open("/proc/1/mem")]:
    try: print("done", call())
    except OSError as error: print(error.errno)
import socket
for address in [("127.0.0.1", 9), ("10.0.0.1", 9)]:
    try: socket.create_connection(address, 0.2)
    except OSError as error: print(error.errno)
print(resource.getrlimit(resource.RLIMIT_NPROC), oct(os.stat("/workspace").st_mode), os.stat("/workspace").st_uid)
"#;

#[tokio::test]
async fn a_forked_kernel_has_the_walls_of_any_other() {
    let (forked, started) = (forking().await, native(Preload::No));
    let (forked, started) = (first(&forked, WALLS).await, first(&*started, WALLS).await);
    assert_eq!(started.finish.exit, Exit::Code(0), "{}", started.stderr);
    assert!(started.stdout.contains("NoNewPrivs 1") && started.stdout.contains("CapBnd 0000000000000000"));
    for (forked, started) in forked.stdout.lines().zip(started.stdout.lines()) {
        assert_eq!(forked, started);
    }
    assert_eq!(forked.stdout, started.stdout);
}

/// A server that was started by `nohup` ignores a signal, and so would all that it starts.
#[test]
fn a_forked_kernel_ignores_no_signal_that_the_server_ignores() {
    let test = "zygote::a_forked_kernel_has_the_walls_of_any_other";
    let ran = Command::new("sh")
        .args(["-c", "trap '' HUP USR1; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && told.contains("1 passed"), "{told} {}", String::from_utf8_lossy(&ran.stderr));
}

#[tokio::test]
async fn a_forked_kernel_is_in_the_namespaces_of_its_sandbox_alone() {
    let backend = forking().await;
    let tell = "import os\nprint([os.readlink(f'/proc/self/ns/{n}') for n in ('user','pid','mnt','net','ipc','uts','cgroup','time')])";
    let sandbox = open(&backend, Limits::default()).await;
    let kernel = run(&*sandbox, cell(tell, Then::More)).await.stdout;
    let program = run(&*sandbox, contract::code(Language::Python, tell)).await.stdout;
    assert_eq!(kernel, program, "the kernel and what the guest starts are in one place");
    let other = first(&backend, tell).await.stdout;
    let parse = |text: &str| text.split(", ").map(str::to_owned).collect::<Vec<_>>();
    for (one, two) in parse(&kernel).iter().zip(parse(&other)) {
        // The clock is the jail's, and nobody can set it.
        assert_eq!(one == &two, one.contains("time:"), "{one} {two}");
    }
}

/// Everything that would tell one fork from another, or that one could leave for the next.
const STATE: &str = r#"
import random, uuid, os, tempfile, secrets, string, json
print(random.random(), random.Random().random(), uuid.uuid4(), uuid.uuid1(), os.urandom(8).hex(), secrets.token_hex(8))
print(next(tempfile._get_candidate_names()), tempfile.mktemp(dir="/tmp"))
try:
    import ssl
    print(ssl.RAND_bytes(8).hex())
except ImportError: pass
try:
    import numpy
    print(numpy.random.random(), numpy.random.default_rng().random(), numpy.random.bytes(4))
except ImportError: pass
"#;

#[tokio::test]
async fn forks_share_no_random_state() {
    let backend = forking().await;
    let mut seen = HashSet::new();
    for _ in 0..20 {
        let ran = first(&backend, STATE).await;
        assert_eq!(ran.finish.exit, Exit::Code(0), "{}", ran.stderr);
        let words: Vec<_> = ran.stdout.split_whitespace().map(str::to_owned).collect();
        assert!(words.len() >= 8, "{}", ran.stdout);
        for word in words {
            assert!(seen.insert(word.clone()), "{word} was seen before");
        }
    }
}

#[tokio::test]
async fn what_one_fork_writes_no_other_sees() {
    let backend = forking().await;
    let leave = r#"
import os, sys, json, builtins, string
found = [getattr(string, "left", None), getattr(builtins, "left", None), os.environ.get("LEFT"), sys.path.count("/left"),
    json.dumps is print, *("left" in os.listdir(place) for place in ("/tmp", "/workspace", "/dev/shm", "/home/agent"))]
string.left = builtins.left = os.environ["LEFT"] = "left"
sys.path.append("/left"); json.dumps = print
for place in "/tmp/left", "/workspace/left", "/dev/shm/left", "/home/agent/left": open(place, "w").write("left")
for fd in range(3, 3000):
    try: os.write(fd, b"left")
    except OSError: pass
print(found)
"#;
    let clean = "[None, None, None, 0, False, False, False, False, False]";
    let mut standing = Vec::new();
    for _ in 0..3 {
        let sandbox = open(&backend, Limits::default()).await;
        // The last lines write to whatever is open, which may break the kernel's own conversation; what was printed counts.
        let ran = run(&*sandbox, cell(&leave.replace("range(3, 3000)", "range(3, 900)"), Then::More)).await;
        assert_eq!(ran.stdout.trim(), clean, "{}", ran.stderr);
        standing.push(sandbox);
    }
}

#[tokio::test]
async fn no_descriptor_of_the_zygote_is_left() {
    let backend = forking().await;
    let tell = "import os\nprint(sorted(os.readlink(f'/proc/self/fd/{fd}').split(':')[0] for fd in os.listdir('/proc/self/fd') if os.path.lexists(f'/proc/self/fd/{fd}')))";
    let ran = first(&backend, tell).await;
    let names = ran.stdout;
    // Standard streams and their copies, the control socket, and the directory that is being listed.
    assert_eq!(names.matches("'pipe'").count(), 4, "{names}");
    assert_eq!(names.matches("'socket'").count(), 1, "{names}");
    assert_eq!(names.matches("memfd").count(), 2, "{names}");
    assert_eq!(names.matches('\'').count() / 2, 7, "{names}");
}

#[tokio::test]
async fn what_a_cell_leaves_running_stays_with_its_kernel() {
    let backend = forking().await;
    let sandbox = open(&backend, Limits::default()).await;
    let start =
        "import subprocess\nsubprocess.run('setsid sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid', shell=True)";
    run(&*sandbox, cell(start, Then::More)).await;
    // Another program that ends has all strays killed.
    let ran = run(&*sandbox, contract::command("kill -0 $(cat /tmp/pid) && echo alive")).await;
    assert_eq!(ran.stdout.trim(), "alive");
    let ran =
        run(&*sandbox, cell("import os\nos.kill(int(open('/tmp/pid').read()), 0)\nprint('alive')", Then::More)).await;
    assert_eq!((ran.stdout.trim(), ran.finish.kernel), ("alive", Some(State::Preserved)), "{}", ran.stderr);
    // And goes with it.
    let ran = run(&*sandbox, cell("import os\nos._exit(7)", Then::More)).await;
    assert_eq!((ran.finish.exit, ran.finish.kernel), (Exit::Code(7), Some(State::Lost)));
    let ran = run(&*sandbox, contract::command("kill -0 $(cat /tmp/pid) || echo gone")).await;
    assert_eq!(ran.stdout.trim(), "gone");
    // The next kernel is one that the guest starts.
    let ran = run(&*sandbox, cell(RUNNER, Then::More)).await;
    assert_eq!(ran.stdout.trim(), "belljar-guest");
}

#[tokio::test]
async fn an_environment_of_its_own_holds_in_a_fork() {
    let backend = forking().await.0;
    let told = async |name: &str, code: &str| {
        let env = vec![(name.to_owned(), "7".to_owned())];
        let spec = Spec { env, waiting: Some(Language::Python), ..Spec::default() };
        let sandbox = backend.open(&spec).await.unwrap();
        let tell = format!("{RUNNER}\nprint(os.environ.get('{name}'))\n{code}");
        let ran = run(&*sandbox, cell(&tell, Then::More)).await;
        let told = ran.stdout.strip_prefix("belljar-runner\n7\n");
        told.unwrap_or_else(|| panic!("{name}: {} {}", ran.stdout, ran.stderr)).to_owned()
    };
    assert_eq!(told("API_KEY", "").await, "");
    // What an interpreter reads when it starts is read: such a fork starts anew.
    let hash = told("PYTHONHASHSEED", "print(hash('a'))").await;
    assert!(!hash.is_empty() && hash == told("PYTHONHASHSEED", "print(hash('a'))").await, "{hash}");
}
