//! Machines: the contract, and what is this wall's alone. Emulated, as `scripts/walls start microvm` prepares it: what is tried here is the
//! backend, not the processor's wall.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a check that fails is a panic of its test")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, MicrovmSettings, Preload, WallSettings, choose};
use belljar_core::{Backend, BackendError, Exit, Language, Layer, LayerKind, PackageKind, Sandbox, Source, Spec, Then};
use belljar_testkit::contract::{Stage, allow_for, code, command, run};

/// An emulated processor is that much slower, and two of these tests run at once.
const SLOWNESS: u32 = 12;

/// What `scripts/walls` has prepared, by its names.
fn prepared() -> &'static HashMap<String, PathBuf> {
    static PREPARED: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let made = project.join("target/walls/microvm.env");
        if !made.exists() {
            let done = Command::new(project.join("scripts/walls")).args(["start", "microvm"]).output();
            let done = done.expect("scripts/walls starts");
            assert!(done.status.success(), "scripts/walls: {}", String::from_utf8_lossy(&done.stderr));
        }
        let lines = std::fs::read_to_string(made).unwrap();
        lines.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.into())).collect()
    })
}

fn settings() -> MicrovmSettings {
    let path = |name: &str| Some(prepared()[name].clone());
    MicrovmSettings {
        vmm: path("BELLJAR_TEST_QEMU"),
        kernel: path("BELLJAR_TEST_KERNEL"),
        modules: path("BELLJAR_TEST_MODULES"),
        mkfs: path("BELLJAR_TEST_MKFS"),
        image: prepared()["BELLJAR_TEST_ROOT"].to_str().map(str::to_owned),
        emulation: true,
    }
}

fn host(settings: MicrovmSettings) -> Host {
    // One for all tests: snapshots are what makes them quick.
    let cache = prepared()["BELLJAR_TEST_ROOT"].with_file_name("cache");
    let walls = WallSettings { microvm: settings, ..WallSettings::default() };
    Host { path: std::env::var_os("PATH").unwrap_or_default(), cache: Some(cache), walls, ..Host::default() }
}

fn microvm() -> Arc<dyn Backend> {
    choose(Choice::Microvm, &host(settings()), Preload::No)
}

fn stage() -> Stage {
    allow_for(SLOWNESS);
    let layers = tempfile::tempdir().unwrap();
    let host = Host { layers: Some(layers.path().to_owned()), ..host(settings()) };
    Stage { backend: choose(Choice::Microvm, &host, Preload::No), layers: Some(layers) }
}

belljar_testkit::keeps_the_contract!(microvm, std::future::ready(stage()));

fn cell(text: &str) -> belljar_core::Program {
    let source = Source::Cell { language: Language::Python, code: text.to_owned(), then: Then::More };
    belljar_core::Program { source, wall: Duration::from_secs(60), ..code(Language::Python, "") }
}

/// Machines of ours that run: the descendants of this process, by their names.
fn monitors() -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let after = stat.rsplit_once(')').map(|(_, after)| after.to_owned()).unwrap_or_default();
        let parent: u32 = after.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
        let name = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if parent == std::process::id() && String::from_utf8_lossy(&name).contains("qemu") {
            found.push(pid);
        }
    }
    found
}

/// The monitor of a sandbox: which of those that run knows its machine by this word on its stream cannot be told, so each
/// test that needs one has a process of its own; here it is the one that was not there before.
async fn opened(backend: &dyn Backend, spec: &Spec) -> (Box<dyn Sandbox>, Vec<u32>) {
    let before = monitors();
    let sandbox = backend.open(spec).await.expect("opens");
    let new = monitors().into_iter().filter(|pid| !before.contains(pid)).collect();
    (sandbox, new)
}

#[tokio::test]
async fn two_copies_of_a_machine_differ() {
    let backend = microvm();
    let spec = Spec { ground: belljar_core::Ground::default(), waiting: Some(Language::Python), ..Spec::default() };
    let ask = "import os, random, time, uuid\nprint(os.urandom(16).hex(), random.random(), uuid.uuid4(), \
               open('/proc/sys/kernel/random/boot_id').read().strip(), open('/etc/machine-id').read().strip(), \
               __import__('ssl').RAND_bytes(16).hex(), int(time.time()), preloaded)";
    // Modules that the kernel had loaded before the cell.
    let ask = format!("import sys; preloaded = 'decimal' in sys.modules\n{ask}");
    // The first time there may be no snapshot with a kernel in it yet; it comes behind our backs.
    backend.open(&spec).await.expect("opens").close().await.expect("closes");
    let until = Instant::now() + Duration::from_secs(180);
    loop {
        let began = Instant::now();
        let one = backend.open(&spec).await.expect("opens");
        let other = backend.open(&spec).await.expect("opens");
        let took = began.elapsed();
        let mut told = Vec::new();
        for sandbox in [&one, &other] {
            let ran = run(&**sandbox, cell(&ask)).await;
            assert_eq!(ran.finish.exit, Exit::Code(0), "{ran:?}");
            told.push(ran.stdout.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        }
        one.close().await.expect("closes");
        other.close().await.expect("closes");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        for (number, (mine, others)) in told[0].iter().zip(&told[1]).enumerate().take(6) {
            assert_ne!(mine, others, "number {number}: {told:?}");
        }
        for each in &told {
            let clock: u64 = each[6].parse().unwrap();
            assert!(now.abs_diff(clock) < 60, "the clock is {clock}, and it is {now}");
        }
        if told.iter().all(|each| each[7] == "True") {
            println!("two were open after {took:?}");
            break;
        }
        assert!(Instant::now() < until, "no kernel was ever copied that has loaded anything: {told:?}");
    }
}

/// What a set of packages is there for is loaded in the copies, once the set has been used more than once.
#[tokio::test]
async fn packages_of_a_layer_are_loaded_in_the_copies() {
    let Stage { backend, layers: Some(store) } = stage() else { panic!("there is a store") };
    let asked = "import sys; was = 'heavy' in sys.modules\nimport heavy\nprint(was, heavy.value, '%d.%d' % sys.version_info[:2])";
    let plain = backend.open(&Spec::default()).await.expect("opens");
    let version = run(&*plain, cell("import sys; print('%d.%d' % sys.version_info[:2])")).await.stdout;
    plain.close().await.expect("closes");
    let root = store.path().join("feed1");
    let site = root.join(format!("lib/python{}/site-packages", version.trim()));
    std::fs::create_dir_all(&site).unwrap();
    std::fs::write(site.join("heavy.py"), "value = 42\n").unwrap();
    std::fs::write(root.join("preload"), "heavy\n").unwrap();
    let layer = Layer { kind: LayerKind::Packages(PackageKind::Python), id: "feed1".to_owned() };
    let spec = Spec { layers: vec![layer], waiting: Some(Language::Python), ..Spec::default() };
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        let sandbox = backend.open(&spec).await.expect("opens");
        let ran = run(&*sandbox, cell(asked)).await;
        // Those that come later are put over it, also in a copy.
        let over = store.path().join("feed2");
        std::fs::create_dir_all(over.join(site.strip_prefix(&root).unwrap())).unwrap();
        std::fs::write(over.join(site.strip_prefix(&root).unwrap()).join("later.py"), "value = 43\n").unwrap();
        let over = Layer { kind: LayerKind::Packages(PackageKind::Python), id: "feed2".to_owned() };
        sandbox.add_layer(&over).await.expect("a layer is added");
        let later = run(&*sandbox, cell("import later; print(later.value)")).await;
        sandbox.close().await.expect("closes");
        assert_eq!(later.stdout, "43\n", "{later:?}");
        match ran.stdout.split_once(' ') {
            Some(("True", rest)) => break assert!(rest.starts_with("42 "), "{ran:?}"),
            Some(("False", rest)) => assert!(rest.starts_with("42 "), "{ran:?}"),
            _ => panic!("{ran:?}"),
        }
        assert!(Instant::now() < until, "no copy had it loaded");
    }
}

#[tokio::test]
async fn a_machine_that_is_killed_is_lost_and_nothing_is_left() {
    let backend = microvm();
    // Others run at the same time: this one is told by its size.
    let mut spec = Spec::default();
    spec.limits.memory_bytes = 333 << 20;
    let sandbox = backend.open(&spec).await.expect("opens");
    let mine: Vec<u32> =
        monitors().into_iter().filter(|pid| has_word(*pid, "1024M") || has_word(*pid, "1056M")).collect();
    let [mine] = mine.as_slice() else {
        panic!("{mine:?}: {:?}", monitors().iter().map(|pid| words(*pid)).collect::<Vec<_>>())
    };
    let mut running = sandbox.start(command("echo up; sleep 1000")).await.expect("starts");
    running.next().await.expect("it is up");
    let pid = rustix::process::Pid::from_raw(*mine as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let error = loop {
        match tokio::time::timeout(Duration::from_secs(20), running.next()).await.expect("it is told") {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let BackendError::Lost { why } = error else { panic!("{error:?}") };
    println!("{why}");
    assert!(why.contains("monitor ended"), "{why}");
    assert!(!sandbox.is_alive());
    drop(running);
    sandbox.close().await.expect("closes");
    assert!(!Path::new("/proc").join(mine.to_string()).exists());
    // The server lives on.
    let next = backend.open(&Spec::default()).await.expect("opens");
    assert_eq!(run(&*next, command("echo on")).await.stdout, "on\n");
    next.close().await.expect("closes");
}

fn words(pid: u32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

fn has_word(pid: u32, word: &str) -> bool {
    words(pid).split(' ').any(|other| other == word)
}

#[tokio::test]
async fn what_is_missing_is_told_with_how_to_get_it() {
    let missing = |change: fn(&mut MicrovmSettings)| {
        let mut settings = settings();
        change(&mut settings);
        async move {
            let error = choose(Choice::Microvm, &host(settings), Preload::No).open(&Spec::default()).await.unwrap_err();
            let BackendError::Unavailable { why, fix } = error else { panic!("{error:?}") };
            (why, fix)
        }
    };
    let (why, fix) = missing(|settings| settings.kernel = Some("/no/such/kernel".into())).await;
    assert!(why.contains("/no/such/kernel") && fix.contains("linux-image"), "{why}: {fix}");
    let (why, fix) = missing(|settings| settings.vmm = Some("/no/such/qemu".into())).await;
    assert!(why.contains("/no/such/qemu") && fix.contains("install"), "{why}: {fix}");
    let (why, _) = missing(|settings| settings.image = None).await;
    assert!(why.contains("no image"), "{why}");
    // Emulation is never what an operator gets without having said so.
    if !Path::new("/dev/kvm").exists() || Path::new("/sys/module/kvm_pvm").exists() {
        let (why, fix) = missing(|settings| settings.emulation = false).await;
        assert!(why.contains("do not run here") && fix.contains("no wall"), "{why}: {fix}");
    }
}

/// A kernel that is none boots to nothing: the deadline ends it, or QEMU does, and what it said is told.
#[tokio::test]
async fn a_machine_that_never_comes_up_is_told_with_its_last_words() {
    let cache = tempfile::tempdir().unwrap();
    let modules = tempfile::tempdir().unwrap();
    std::fs::create_dir(modules.path().join("kernel")).unwrap();
    let all = "virtio_mmio virtio_blk virtio_console overlay erofs";
    let builtin: String = all.split(' ').map(|name| format!("kernel/{name}.ko\n")).collect();
    std::fs::write(modules.path().join("modules.builtin"), builtin).unwrap();
    // Without its modules this kernel finds no stream to us, and the keeper gives up.
    let settings = MicrovmSettings { modules: Some(modules.path().to_owned()), ..settings() };
    let host = Host { cache: Some(cache.path().to_owned()), ..host(settings) };
    let before = monitors();
    let backend = choose(Choice::Microvm, &host, Preload::No);
    let error = tokio::time::timeout(Duration::from_secs(120), backend.open(&Spec::default())).await;
    let error = error.expect("there is a deadline").unwrap_err().to_string();
    println!("{error}");
    assert!(error.contains("the last it said") && error.contains("streams to the host"), "{error}");
    let left: Vec<u32> =
        monitors().into_iter().filter(|pid| !before.contains(pid) && words(*pid).contains("none")).collect();
    assert!(left.is_empty(), "{left:?}");
    let snapshots = std::fs::read_dir(cache.path().join("microvm/snapshots")).unwrap().count();
    assert_eq!(snapshots, 0, "nothing unfinished is left");
}

#[tokio::test]
async fn the_isolation_says_that_it_is_emulated() {
    let backend = microvm();
    let (sandbox, new) = opened(&*backend, &Spec::default()).await;
    assert!(!new.is_empty());
    assert!(sandbox.isolation().namespaces.contains("no security boundary"), "{:?}", sandbox.isolation());
    // The host's own kernel is not the sandbox's.
    let told = run(&*sandbox, command("uname -r; cat /proc/version")).await.stdout;
    let hosts = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(!told.contains(hosts.trim()), "{told}");
    sandbox.close().await.expect("closes");
}

/// What a fresh run costs against a bare machine, printed. By hand: `cargo test --test backends figures -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "prints figures, and takes a while"]
async fn figures() {
    let host = host(settings());
    let floor = tokio::task::spawn_blocking({
        let host = host.clone();
        move || belljar_backends::floor(Choice::Microvm, &host).unwrap().unwrap()
    });
    let floor = floor.await.unwrap();
    let backend = choose(Choice::Microvm, &host, Preload::No);
    let spec = Spec { waiting: Some(Language::Python), ..Spec::default() };
    let (mut bare, mut made, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        let began = Instant::now();
        let ran = Command::new(&floor.program).args(&floor.arguments).output().unwrap();
        bare.push(began.elapsed());
        assert_eq!(String::from_utf8_lossy(&ran.stdout), floor.output);

        let began = Instant::now();
        let sandbox = backend.open(&spec).await.unwrap();
        assert_eq!(run(&*sandbox, cell("print(1 + 1)")).await.stdout, "2\n");
        made.push(began.elapsed());
        sandbox.close().await.unwrap();

        let sandbox = backend.open(&spec).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        assert_eq!(run(&*sandbox, cell("print(1 + 1)")).await.stdout, "2\n");
        ready.push(began.elapsed());
        sandbox.close().await.unwrap();
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    let (bare, made, ready) = (median(&mut bare), median(&mut made), median(&mut ready));
    let ratio = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
    println!(
        "bare machine {bare:?}; fresh {made:?} ({:.2} x); prepared {ready:?} ({:.2} x)",
        ratio(made),
        ratio(ready)
    );
}

/// For the test below, in a process of its own.
#[tokio::test]
#[ignore = "the server of `machines_end_with_their_server`"]
async fn a_server_that_is_killed() {
    let backend = microvm();
    let (_sandbox, mine) = opened(&*backend, &Spec::default()).await;
    println!("\nmonitor {}", mine[0]);
    tokio::time::sleep(Duration::from_secs(300)).await;
}

#[test]
fn machines_end_with_their_server() {
    use std::io::{BufRead, BufReader};
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["microvm::a_server_that_is_killed", "--exact", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let monitor = lines.find_map(|line| line.ok()?.strip_prefix("monitor ").map(str::to_owned)).expect("it opens one");
    let place = Path::new("/proc").join(monitor.trim());
    assert!(place.exists());
    server.kill().unwrap();
    server.wait().unwrap();
    let killed = Instant::now();
    // Whoever inherits it may take a while to bury it.
    let lives = || std::fs::read_to_string(place.join("stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while lives() {
        assert!(killed.elapsed() < Duration::from_secs(20), "it lives on");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("gone after {:?}", killed.elapsed());
}

/// Where there is no `mkfs.erofs`, what every distribution has will do.
#[tokio::test]
async fn images_of_the_other_kind_do_too() {
    let mke2fs = ["/usr/sbin/mke2fs", "/sbin/mke2fs"].map(PathBuf::from).into_iter().find(|path| path.is_file());
    let settings = MicrovmSettings { mkfs: Some(mke2fs.expect("e2fsprogs are installed")), ..settings() };
    let backend = choose(Choice::Microvm, &host(settings), Preload::No);
    let sandbox = backend.open(&Spec::default()).await.expect("opens");
    let ran = run(&*sandbox, code(Language::Python, "import json; print(json.dumps([6 * 7]))")).await;
    assert_eq!(ran.stdout, "[42]\n", "{ran:?}");
    sandbox.close().await.expect("closes");
}
