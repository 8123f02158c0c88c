//! gVisor beyond the contract, with the real runsc (scripts/runsc): its ends, its layers, its memory, and an ordinary user's.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, GvisorSettings, Host, Preload, WallSettings, choose};
use belljar_core::{
    Backend, BackendError, Exit, Language, Layer, LayerKind, Limits, PackageKind, Running, Sandbox, Spec,
};
use belljar_testkit::contract::{code, command, run};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

struct Ground {
    backend: Arc<dyn Backend>,
    /// The cache, and the store of layers in it.
    directory: PathBuf,
    _own: Option<TempDir>,
}

/// A backend at `directory`, with the runsc that was fetched, or the one in PATH.
fn at(directory: &Path) -> Arc<dyn Backend> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines/runsc/usr/bin/runsc");
    let runsc = std::env::var_os("BELLJAR_TEST_RUNSC").map(PathBuf::from).or_else(|| fetched.canonicalize().ok());
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        cache: Some(directory.to_owned()),
        layers: Some(directory.join("layers")),
        images: Some(directory.join("images")),
        walls: WallSettings { gvisor: GvisorSettings { runsc }, ..WallSettings::default() },
        ..Host::default()
    };
    choose(Choice::Gvisor, &host, Preload::No)
}

fn ground() -> Ground {
    let own = TempDir::new().unwrap();
    let directory = own.path().to_owned();
    Ground { backend: at(&directory), directory, _own: Some(own) }
}

/// Processes of the host whose arguments name something below a directory.
fn processes_of(directory: &Path) -> Vec<(i32, String)> {
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let arguments = String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).ok()?).replace('\0', " ");
        let is_runsc = arguments.contains("runsc") && arguments.contains(directory.to_str()?);
        is_runsc.then_some((pid, arguments))
    });
    processes.collect()
}

/// Directories of sandboxes below the cache, of whichever server.
fn directories_of(directory: &Path) -> usize {
    let servers = fs::read_dir(directory.join("gvisor")).unwrap().flatten().filter(|entry| entry.path().is_dir());
    servers
        .map(|server| {
            let entries = fs::read_dir(server.path()).unwrap().flatten();
            entries.filter(|entry| !["root", "lock"].contains(&entry.file_name().to_str().unwrap())).count()
        })
        .sum()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn told(sandbox: &dyn Sandbox, line: &str) -> String {
    let ran = run(sandbox, command(line)).await;
    format!("{}{}", ran.stdout, ran.stderr).trim().to_owned()
}

#[tokio::test]
async fn nothing_is_left_of_a_sandbox_that_was_closed_or_dropped() {
    let Ground { backend, directory, _own } = ground();
    let closed = backend.open(&Spec::default()).await.unwrap();
    assert!(processes_of(&directory).len() >= 3 && directories_of(&directory) == 1);
    closed.close().await.unwrap();
    assert_eq!((processes_of(&directory), directories_of(&directory)), (Vec::new(), 0));
    let dropped = backend.open(&Spec::default()).await.unwrap();
    drop(dropped);
    // A caller that goes away while it opens.
    let _ = tokio::time::timeout(Duration::from_millis(40), backend.open(&Spec::default())).await;
    let end = Instant::now() + PATIENCE;
    while !processes_of(&directory).is_empty() || directories_of(&directory) > 0 {
        assert!(Instant::now() < end, "{:?}", processes_of(&directory));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(backend);
    assert_eq!(fs::read_dir(directory.join("gvisor")).unwrap().count(), 1, "its lock");
}

async fn next_error(running: &mut dyn Running) -> BackendError {
    loop {
        if let Err(error) = tokio::time::timeout(PATIENCE, running.next()).await.unwrap() {
            return error;
        }
    }
}

#[tokio::test]
async fn a_kernel_that_was_killed_is_told_as_such() {
    let Ground { backend, directory, _own } = ground();
    for victim in ["runsc-sandbox", " run "] {
        let sandbox = backend.open(&Spec::default()).await.unwrap();
        let mut running = sandbox.start(command("echo up; sleep 1000")).await.unwrap();
        running.next().await.unwrap();
        let found = processes_of(&directory).into_iter().find(|(_, arguments)| match victim {
            " run " => !arguments.starts_with("runsc-") && arguments.contains(victim),
            name => arguments.starts_with(name),
        });
        let pid = rustix::process::Pid::from_raw(found.unwrap().0).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        match next_error(&mut *running).await {
            BackendError::Lost { why } => assert!(why.contains("killed"), "{victim}: {why}"),
            other => panic!("{other:?}"),
        }
        assert!(!sandbox.is_alive());
        assert!(matches!(sandbox.start(command("true")).await, Err(BackendError::Lost { .. })));
        sandbox.close().await.unwrap();
        assert_eq!((processes_of(&directory), directories_of(&directory)), (Vec::new(), 0));
    }
    let again = backend.open(&Spec::default()).await.unwrap();
    assert_eq!(told(&*again, "echo fine").await, "fine");
}

/// Layers that the sandbox was opened with, and those that come later, over them.
#[tokio::test]
async fn layers_come_and_are_turned_while_a_sandbox_lives() {
    let Ground { backend, directory, _own } = ground();
    let layer = |kind, id: &str, name: &str, text: &str| {
        let path = directory.join("layers").join(id).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        Layer { kind, id: id.to_owned() }
    };
    let python = LayerKind::Packages(PackageKind::Python);
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let version = told(&*sandbox, "python3 -c 'import sys; print(\"%d.%d\" % sys.version_info[:2])'").await;
    let module = format!("lib/python{version}/site-packages/glass.py");
    assert_eq!(told(&*sandbox, "find /tools/ /skills/ /node_modules/ -type f; ls /belljar/packages").await, "lib");
    sandbox.close().await.unwrap();

    let first = layer(python, "a1", &module, "value = 1");
    let tools = layer(LayerKind::Tools, "b1", "inner/tool.json", "one");
    let spec = Spec { layers: vec![first, tools], waiting: Some(Language::Python), ..Spec::default() };
    let sandbox = backend.open(&spec).await.unwrap();
    let import = "python3 -c 'import glass; print(glass.value, glass.__file__)'";
    assert_eq!(told(&*sandbox, import).await, format!("1 /belljar/packages/{module}"));
    assert_eq!(
        told(&*sandbox, "cat /tools/inner/tool.json; touch /tools/x /belljar/layers/x").await.lines().count(),
        3
    );
    for (id, value) in [("a2", "2"), ("a3", "3")] {
        let next = layer(python, id, &module, &format!("value = {value}"));
        sandbox.add_layer(&next).await.unwrap();
        assert!(told(&*sandbox, import).await.starts_with(value), "{value}");
    }
    sandbox.add_layer(&layer(LayerKind::Skills, "c1", "s/main.py", "print('skilled')")).await.unwrap();
    assert_eq!(told(&*sandbox, "python3 /skills/s/main.py; cat /tools/inner/tool.json").await, "skilled\none");
    assert!(
        told(&*sandbox, "ls /belljar/layers/held/python/.. / ; ls -d /belljar/layers/a1").await.contains("No such")
    );
    sandbox.close().await.unwrap();
    assert_eq!(fs::read_to_string(directory.join("layers/a1").join(&module)).unwrap(), "value = 1\n");
}

/// A root with a shell of this host's and little else, and links that would lead out of it.
fn small_image(at: &Path) {
    for program in ["/usr/bin/bash", "/usr/bin/cat", "/usr/bin/ls", "/usr/bin/touch"] {
        let told = Command::new("ldd").arg(program).output().unwrap();
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        let needed = told.split_whitespace().filter(|word| word.starts_with('/'));
        for file in needed.chain([program]) {
            let to = at.join(file.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(file, to).unwrap();
        }
    }
    fs::create_dir_all(at.join("etc/deep")).unwrap();
    fs::write(at.join("etc/motd"), "of the image\n").unwrap();
    for (link, target) in [("bin", "usr/bin"), ("etc/deep/out", "/etc/shadow"), ("out", "/etc")] {
        std::os::unix::fs::symlink(target, at.join(link)).unwrap();
    }
}

#[tokio::test]
async fn an_image_is_the_root_of_a_sandbox() {
    let Ground { backend, directory, _own } = ground();
    assert!(backend.capabilities().images);
    small_image(&directory.join("tree"));
    let store = belljar_images::Store::open(&directory.join("images")).unwrap();
    let source = belljar_images::Source::Dir(directory.join("tree"));
    store.build("small", source, Arc::new(|_| {})).await.unwrap();
    let on = |image: &str| Spec {
        ground: belljar_core::Ground { image: Some(image.to_owned()), ..belljar_core::Ground::default() },
        ..Spec::default()
    };
    for _ in 0..2 {
        let sandbox = backend.open(&on("small")).await.unwrap();
        assert_eq!(
            told(&*sandbox, "cat /etc/motd; ls /usr/bin; echo x >f; cat f").await,
            "of the image\nbash\ncat\nls\ntouch\nx"
        );
        assert!(told(&*sandbox, "cat /etc/deep/out").await.contains("No such file"));
        assert!(told(&*sandbox, "touch /usr/bin/x /etc/x /x").await.lines().count() >= 3);
        assert!(matches!(sandbox.start(code(Language::Python, "1")).await, Err(BackendError::Lacks { .. })));
        sandbox.close().await.unwrap();
    }
    match backend.open(&on("none")).await {
        Err(BackendError::Lacks { what, .. }) => assert!(what.contains("none"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_layer_is_built_where_it_may_be_written() {
    let Ground { backend, directory, _own } = ground();
    let building = directory.join("layers/building-a1");
    fs::create_dir_all(&building).unwrap();
    let spec = Spec { build: Some("building-a1".to_owned()), ..Spec::default() };
    let sandbox = backend.open(&spec).await.unwrap();
    let line = "mkdir -p /belljar/build/lib/deep && echo made >/belljar/build/lib/deep/file && ln -s deep /belljar/build/lib/link \
        && mv /belljar/build/lib/deep/file /belljar/build/lib/moved && chmod 755 /belljar/build/lib/moved && touch here && id -u";
    assert!(told(&*sandbox, line).await.parse::<u32>().is_ok());
    sandbox.close().await.unwrap();
    assert_eq!(fs::read_to_string(building.join("lib/moved")).unwrap(), "made\n");
    let plain = backend.open(&Spec::default()).await.unwrap();
    assert!(told(&*plain, "touch /belljar/build/x").await.contains("touch:"));
}

/// Faster than anybody can look: by one process at once, in a memory file, and by many empty files.
#[tokio::test]
async fn memory_is_held_however_it_is_taken() {
    let Ground { backend, _own, .. } = ground();
    let limits = Limits { memory_bytes: 96 << 20, ..Limits::default() };
    for eat in [
        "b = bytearray(3 << 30)\nfor i in range(0, len(b), 4096): b[i] = 1",
        "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, b'x' * (1 << 22))",
        "import os\nwhile True:\n    if os.fork() == 0:\n        b = b'x' * (16 << 20)\n        import time; time.sleep(60)",
    ] {
        let sandbox = backend.open(&Spec { limits, ..Spec::default() }).await.unwrap();
        let ran = run(&*sandbox, code(Language::Python, eat)).await;
        assert_eq!(ran.finish.exit, Exit::OutOfMemory, "{eat}: {ran:?}");
        sandbox.close().await.unwrap();
    }
    let sandbox = backend.open(&Spec { limits, ..Spec::default() }).await.unwrap();
    assert_eq!(told(&*sandbox, "echo fine").await, "fine");
}

#[tokio::test]
async fn what_is_inside_is_gvisors_and_little_of_it() {
    let Ground { backend, _own, .. } = ground();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let isolation = sandbox.isolation();
    assert!(isolation.namespaces.contains("systrap") && isolation.backend == "gvisor", "{isolation:?}");
    assert_eq!(
        told(&*sandbox, "ls /sys; ls /dev | sort | tr '\\n' ' '").await,
        "fd full net null pts random shm stderr stdin stdout urandom zero"
    );
    assert_eq!(told(&*sandbox, "grep Cap /proc/self/status | grep -vc 0000000000000000").await, "0");
    assert_eq!(told(&*sandbox, "ls -l /bin >/dev/null; cat /proc/net/dev | tail -n +3 | wc -l").await, "1");
    // The list holds inside as it does behind every other wall.
    let calls = "import ctypes\nc = ctypes.CDLL(None, use_errno=True)\nfor n in (272, 101, 165, 321, 425, 248):\n    \
        c.syscall(n, 0, 0, 0, 0, 0, 0); print(ctypes.get_errno())";
    assert_eq!(
        run(&*sandbox, code(Language::Python, calls)).await.stdout.split_whitespace().collect::<Vec<_>>(),
        ["1", "1", "1", "1", "38", "1"]
    );
}

/// What a test process is to be when another test has started it.
const ROLE: &str = "BELLJAR_TEST_GVISOR";

/// This very program with one test and a role, as `who`.
fn again(role: &str, who: &[&str], directory: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut words: Vec<std::ffi::OsString> = who.iter().map(Into::into).collect();
    words.push(own.into());
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .args(["--exact", "gvisor::a_role", "--nocapture"])
        .env(ROLE, role)
        .env("BELLJAR_TEST_AT", directory);
    command
}

/// No test by itself.
#[tokio::test]
async fn a_role() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let directory = PathBuf::from(std::env::var_os("BELLJAR_TEST_AT").unwrap());
    let backend = at(&directory);
    let spec = Spec { waiting: Some(Language::Python), ..Spec::default() };
    let sandbox = backend.open(&spec).await.unwrap();
    match role.to_str() {
        Some("hold") => {
            println!("held");
            std::future::pending::<()>().await;
        }
        _ => {
            assert_eq!(told(&*sandbox, "id -u; echo x >f; cat f").await, "1000\nx");
            assert_eq!(run(&*sandbox, code(Language::Python, "print(6 * 7)")).await.stdout, "42\n");
            sandbox.close().await.unwrap();
            fs::create_dir_all(directory.join("layers/building-b")).unwrap();
            let spec = Spec { build: Some("building-b".to_owned()), ..Spec::default() };
            let sandbox = backend.open(&spec).await.unwrap();
            assert_eq!(told(&*sandbox, "echo y >/belljar/build/f; echo z >z; cat z").await, "z");
            sandbox.close().await.unwrap();
            assert_eq!(fs::read_to_string(directory.join("layers/building-b/f")).unwrap(), "y\n");
            assert_eq!((processes_of(&directory), directories_of(&directory)), (Vec::new(), 0));
            println!("played");
        }
    }
}

#[test]
fn sandboxes_die_with_their_server_and_the_next_one_tidies() {
    let own = TempDir::new().unwrap();
    let mut server = again("hold", &["env"], own.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("held")));
    assert!(!processes_of(own.path()).is_empty());
    server.kill().unwrap();
    server.wait().unwrap();
    until("they live on", || processes_of(own.path()).is_empty());
    assert_eq!(directories_of(own.path()), 1);
    let next = at(own.path());
    assert_eq!(directories_of(own.path()), 0);
    drop(next);
}

#[test]
fn an_ordinary_user_has_it_too() {
    if !rustix::process::geteuid().is_root() {
        // The tests above were it.
        return;
    }
    let own = TempDir::new().unwrap();
    std::os::unix::fs::chown(own.path(), Some(65534), Some(65534)).unwrap();
    let who = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "env",
        "HOME=/nonexistent",
        "PATH=/usr/bin:/bin",
    ];
    let played = again("play", &who, own.path()).output().unwrap();
    assert!(played.status.success() && String::from_utf8_lossy(&played.stdout).contains("played"), "{played:?}");
}
