//! What becomes of sandboxes in containers when something goes wrong with the engine, the image or the container. On the real
//! engine that `scripts/engines docker start` has started, one test at a time: some of them stop it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a check that fails is a panic of its test, and the engine is told by the environment"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, DockerSettings, Host, Preload, WallSettings, choose};
use belljar_core::{Backend, BackendError, Event, Ground, Language, Running, Sandbox, Spec};
use belljar_testkit::contract::{code, command, run, skipped};

static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

fn socket() -> Option<String> {
    let socket = std::env::var("BELLJAR_TEST_DOCKER").ok();
    if socket.is_none() {
        skipped("docker", "no engine: start one and name it, BELLJAR_TEST_DOCKER=$(scripts/engines docker start)");
    }
    socket
}

fn start(socket: &str, change: impl FnOnce(&mut Host)) -> Arc<dyn Backend> {
    let docker = DockerSettings {
        socket: Some(socket.to_owned()),
        image: Some("belljar-test:latest".to_owned()),
        ..DockerSettings::default()
    };
    let mut host = Host { walls: WallSettings { docker, ..WallSettings::default() }, ..Host::default() };
    host.cache = Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
    change(&mut host);
    choose(Choice::Docker, &host, Preload::No)
}

fn docker(socket: &str, words: &[&str]) -> String {
    let output = Command::new("docker").args(["-H", socket]).args(words).output().expect("the docker command");
    assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The containers of this test's own server.
fn own_containers(socket: &str) -> String {
    let label = format!("label=belljar.server={}", server(std::process::id(), None));
    docker(socket, &["ps", "-aq", "--filter", &label])
}

/// The label of a server's containers, as the backend writes it.
fn server(pid: u32, since: Option<u64>) -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().replace('-', "");
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let since = since.unwrap_or_else(|| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
    });
    format!("{boot}.{namespace}.{pid}.{since}")
}

fn engines(action: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/engines");
    let status = Command::new(script).args(["docker", action]).stdout(std::process::Stdio::null()).status();
    assert!(status.expect("the script").success(), "scripts/engines docker {action}");
}

/// The pid of the engine, if it is the one that the script started: only that one is stopped here.
fn engine_pid(socket: &str) -> Option<i32> {
    let own: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines/docker").canonicalize().ok()?;
    let is_own = socket.trim_start_matches("unix://") == own.join("docker.sock").to_str()?;
    if !is_own {
        skipped("docker", &format!("the engine at {socket} was not started by scripts/engines"));
        return None;
    }
    std::fs::read_to_string(own.join("pid")).ok()?.trim().parse().ok()
}

fn words(error: &BackendError) -> String {
    match error {
        BackendError::Unavailable { why, fix } => format!("{why} | {fix}"),
        // Of an image that a template names.
        BackendError::Lacks { what, instead } => format!("{what} | {instead}"),
        other => panic!("expected an unavailable engine or image, got {other:?}"),
    }
}

async fn open(backend: &dyn Backend) -> Box<dyn Sandbox> {
    backend.open(&Spec::default()).await.expect("a sandbox opens")
}

async fn lost(mut running: Box<dyn Running>) -> String {
    let ending = async {
        loop {
            match running.next().await {
                Ok(Event::Finished(finish)) => panic!("it finished: {finish:?}"),
                Ok(_) => {}
                Err(BackendError::Lost { why }) => return why,
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ending).await.expect("it is told in time")
}

#[tokio::test]
async fn the_walls_stand_from_inside() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let backend = start(&socket, |_| ());
    let sandbox = open(&*backend).await;
    let look = "id -u; id -un; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; ls /sys/class/net; \
        cat /etc/resolv.conf; hostname; touch /planted; touch /usr/planted; unshare -U true; mount -t tmpfs x /mnt; \
        cat /proc/kcore | head -c 1 | wc -c; cat /proc/cmdline | wc -c; ls -d /sys/fs/cgroup/memory/docker 2>&1";
    let seen = run(&*sandbox, command(look)).await;
    let lines: Vec<&str> = seen.stdout.lines().collect();
    assert_eq!(lines[..2], ["1000", "agent"], "{seen:?}");
    for part in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(lines.contains(&part), "{part}: {seen:?}");
    }
    assert!(lines.contains(&"lo") && !seen.stdout.contains("eth0"), "{seen:?}");
    assert!(seen.stdout.contains("nameserver 127.0.0.1") && lines.contains(&"belljar"), "{seen:?}");
    assert_eq!(
        seen.stderr.matches("Read-only file system").count() + seen.stderr.matches("Permission denied").count(),
        2,
        "{seen:?}"
    );
    assert!(seen.stderr.contains("unshare") && seen.stderr.contains("mount"), "{seen:?}");
    sandbox.close().await.expect("closes");
    assert_eq!(own_containers(&socket), "");
}

#[tokio::test]
async fn processes_are_held_for_each_sandbox_by_itself() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let backend = start(&socket, |_| ());
    let mut spec = Spec::default();
    spec.limits.processes = 20;
    let one = backend.open(&spec).await.expect("opens");
    let other = backend.open(&spec).await.expect("opens");
    let bomb = "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0: time.sleep(8); os._exit(0)\n        made += 1\nexcept OSError as e:\n    print(made, e.errno)\ntime.sleep(3)";
    let bombing = one.start(code(Language::Python, bomb)).await.expect("starts");
    let mut bombing = bombing;
    let Event::Output { bytes, .. } = bombing.next().await.expect("stands") else { panic!("no output") };
    let told = String::from_utf8_lossy(&bytes).into_owned();
    let (made, errno) = told.trim().split_once(' ').expect("two numbers");
    assert!(made.parse::<u32>().expect("a number") <= 20 && errno == "11", "{told}");
    // The other one has as many as before: the limit is not the user's.
    let beside = run(&*other, command("for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1 & done; wait; echo all")).await;
    assert_eq!(beside.stdout.trim(), "all", "{beside:?}");
    drop(bombing);
    one.close().await.expect("closes");
    other.close().await.expect("closes");
}

#[tokio::test]
async fn an_image_without_a_shell_says_so() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let backend = start(&socket, |_| ());
    let ground = Ground { image: Some("belljar-test:noshell".to_owned()), ..Ground::default() };
    let sandbox =
        backend.open(&Spec { ground, ..Spec::default() }).await.expect("it opens: the guest needs nothing of an image");
    for program in [command("echo hi"), code(Language::Python, "print(1)")] {
        let error = sandbox.start(program).await.expect_err("there is nothing to run it with");
        assert!(matches!(&error, BackendError::Lacks { what, .. } if what.contains("has no")), "{error:?}");
    }
    sandbox.write("a.txt", b"files work".to_vec()).await.expect("writes");
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn a_missing_image_says_how_to_get_it() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let ground =
        |image: &str| Spec { ground: Ground { image: Some(image.to_owned()), ..Ground::default() }, ..Spec::default() };
    let backend = start(&socket, |_| ());
    let error = backend.open(&ground("belljar-test:no-such")).await.expect_err("there is none");
    assert!(words(&error).contains("docker pull belljar-test:no-such"), "{error:?}");
    let error = backend.open(&ground("bad name")).await.expect_err("it is no name");
    assert!(words(&error).contains("no name of an image"), "{error:?}");
    let pulling = start(&socket, |host| host.walls.docker.pull = true);
    // Nobody listens at that port.
    let error = pulling.open(&ground("127.0.0.1:9/belljar/nothing:1")).await.expect_err("there is no registry");
    assert!(words(&error).contains("fetching it failed"), "{error:?}");
    let without = start(&socket, |host| host.walls.docker.image = Some("belljar-test:no-such".to_owned()));
    assert!(without.capabilities().languages.is_empty());
    assert!(without.probe().why_unusable().is_some_and(|why| why.contains("no image belljar-test:no-such")));
}

#[tokio::test]
async fn a_container_that_is_removed_from_outside_is_lost() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let backend = start(&socket, |_| ());
    let sandbox = open(&*backend).await;
    let running = sandbox.start(command("sleep 60")).await.expect("starts");
    let id = own_containers(&socket);
    assert!(!id.is_empty() && !id.contains('\n'), "{id}");
    docker(&socket, &["rm", "-f", &id]);
    let why = lost(running).await;
    assert!(why.contains("removed"), "{why}");
    assert!(!sandbox.is_alive());
    sandbox.close().await.expect("there is nothing left to close");
}

#[tokio::test]
async fn what_a_dead_server_left_is_removed_and_a_live_ones_is_not() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let make = |label: String| {
        docker(
            &socket,
            &[
                "create",
                "--network",
                "none",
                "--label",
                &format!("belljar.server={label}"),
                "belljar-test:latest",
                "sleep",
                "60",
            ],
        )
    };
    let mut child = Command::new("sleep").arg("60").spawn().expect("a process");
    let alive = make(server(child.id(), None));
    // The same process, had it been started at another time.
    let dead = make(server(child.id(), Some(1)));
    docker(&socket, &["start", &dead]);
    let strange = make("another.machine.1.2".to_owned());
    start(&socket, |_| ()).capabilities();
    let left = docker(&socket, &["ps", "-aq", "--no-trunc", "--filter", "label=belljar.server"]);
    assert!(left.contains(&alive) && left.contains(&strange) && !left.contains(&dead), "{left}");
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    start(&socket, |_| ()).capabilities();
    let left = docker(&socket, &["ps", "-aq", "--no-trunc", "--filter", "label=belljar.server"]);
    assert!(!left.contains(&alive), "{left}");
    docker(&socket, &["rm", "-f", &strange]);
}

#[tokio::test]
async fn a_caller_who_goes_away_leaves_nothing() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let backend = start(&socket, |_| ());
    for patience in [1, 40, 120, 300] {
        let spec = Spec::default();
        let _ = tokio::time::timeout(Duration::from_millis(patience), backend.open(&spec)).await;
    }
    let until = Instant::now() + Duration::from_secs(60);
    while !own_containers(&socket).is_empty() {
        assert!(Instant::now() < until, "left: {}", own_containers(&socket));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_paused_engine_is_told_within_a_deadline() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let Some(pid) = engine_pid(&socket) else { return };
    let backend = start(&socket, |_| ());
    let sandbox = open(&*backend).await;
    let signal =
        |name: &str| assert!(Command::new("kill").args([name, &pid.to_string()]).status().expect("kill").success());
    signal("-STOP");
    let began = Instant::now();
    let opened = backend.open(&Spec::default()).await;
    let closed = sandbox.close().await;
    let took = began.elapsed();
    signal("-CONT");
    let error = opened.expect_err("nobody answers");
    assert!(words(&error).contains("does not answer"), "{error:?}");
    assert!(words(&closed.expect_err("nobody answers")).contains("does not answer"));
    assert!(took < Duration::from_secs(30), "took {took:?}");
    // What could not be removed goes by itself: its guest has lost its stream.
    let until = Instant::now() + Duration::from_secs(60);
    while !own_containers(&socket).is_empty() {
        assert!(Instant::now() < until, "left: {}", own_containers(&socket));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    open(&*backend).await.close().await.expect("all is well again");
}

#[tokio::test]
async fn an_engine_that_goes_down_in_mid_run_is_told_and_comes_back() {
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    if engine_pid(&socket).is_none() {
        return;
    }
    let backend = start(&socket, |_| ());
    let sandbox = open(&*backend).await;
    let running = sandbox.start(command("sleep 60")).await.expect("starts");
    let stopping = tokio::task::spawn_blocking(|| engines("stop"));
    let why = lost(running).await;
    assert!(why.contains("engine went away") || why.contains("stream broke"), "{why}");
    stopping.await.expect("it stops");
    let error = sandbox.close().await.expect_err("there is nobody to remove it");
    words(&error);
    let error = backend.open(&Spec::default()).await.expect_err("there is no engine");
    assert!(words(&error).contains("no container engine") || words(&error).contains("stopped"), "{error:?}");
    tokio::task::spawn_blocking(|| engines("start")).await.expect("it starts");
    open(&*backend).await.close().await.expect("the same server works again");
    assert_eq!(own_containers(&socket), "");
}

/// How long a fresh run takes against the engine's own `docker run`, side by side; run it on a quiet machine, with
/// `cargo test -p belljar-backends --test docker -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn measure_a_fresh_run_against_docker_run() {
    const ROUNDS: usize = 9;
    let Some(socket) = socket() else { return };
    let _alone = ONE_AT_A_TIME.lock().await;
    let runtime = std::env::var("BELLJAR_TEST_RUNTIME").ok();
    let backend = start(&socket, |host| host.walls.docker.runtime.clone_from(&runtime));
    let spec = Spec { waiting: Some(Language::Python), ..Spec::default() };
    let (mut floor, mut fresh, mut pooled) = (Vec::new(), Vec::new(), Vec::new());
    backend.open(&spec).await.expect("opens").close().await.expect("closes");
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let runtime = runtime.as_deref().unwrap_or("runc");
        let run_it = [
            "run",
            "--rm",
            "--network",
            "none",
            "--runtime",
            runtime,
            "belljar-test:latest",
            "python3",
            "-c",
            "print(1)",
        ];
        assert_eq!(docker(&socket, &run_it), "1");
        floor.push(began.elapsed());

        let began = Instant::now();
        let sandbox = backend.open(&Spec::default()).await.expect("opens");
        let ran = run(&*sandbox, code(Language::Python, "print(1)")).await;
        fresh.push(began.elapsed());
        assert_eq!(ran.stdout, "1\n");
        sandbox.close().await.expect("closes");

        let sandbox = backend.open(&spec).await.expect("opens");
        let source = || belljar_core::Source::Cell {
            language: Language::Python,
            code: "print(1)".to_owned(),
            then: belljar_core::Then::End,
        };
        // As the engine's pool has it: prepared a while ago, and its kernel with it.
        run(&*sandbox, command("sleep 0.5")).await;
        let began = Instant::now();
        let ran = run(&*sandbox, belljar_core::Program { source: source(), ..command("") }).await;
        pooled.push(began.elapsed());
        assert_eq!(ran.stdout, "1\n");
        sandbox.close().await.expect("closes");
    }
    let p50 = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (floor, fresh, pooled) = (p50(&mut floor), p50(&mut fresh), p50(&mut pooled));
    let ratio = |time: Duration| time.as_secs_f64() / floor.as_secs_f64();
    eprintln!(
        "docker run {floor:?}; fresh {fresh:?} = {:.2} x; prepared {pooled:?} = {:.3} x",
        ratio(fresh),
        ratio(pooled)
    );
}
