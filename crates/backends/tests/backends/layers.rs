//! Layers of packages: what a sandbox sees of the store, what it cannot do to it, and what builds one.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::{
    Backend, Exit, Language, Layer, LayerKind, PackageKind, Program, Sandbox, Source, Spec, State, Stdin, Then,
};
use belljar_testkit::contract::{Ran, command, run};
use tempfile::TempDir;

struct Ground {
    backend: Arc<dyn Backend>,
    store: TempDir,
}

fn ground(preload: Preload) -> Ground {
    let store = TempDir::new().unwrap();
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        layers: Some(store.path().to_owned()),
        ..Host::default()
    };
    Ground { backend: choose(Choice::Native, &host, preload), store }
}

fn cell(code: &str) -> Program {
    let source = Source::Cell { language: Language::Python, code: code.to_owned(), then: Then::More };
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall: Duration::from_secs(20), changed_max: 0 }
}

async fn told(sandbox: &dyn Sandbox, line: &str) -> String {
    run(sandbox, command(line)).await.stdout.trim().to_owned()
}

/// The version of Python that the backend uses, as in the names of directories.
async fn python(backend: &dyn Backend) -> String {
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let ran: Ran = run(&*sandbox, cell("import sys\nprint('%d.%d' % sys.version_info[:2])")).await;
    ran.stdout.trim().to_owned()
}

/// A Python layer with one module that has one value. Its files belong to whoever runs the tests.
fn python_layer(store: &Path, id: &str, version: &str, module: &str, value: &str) -> Layer {
    let site = store.join(id).join(format!("lib/python{version}/site-packages"));
    fs::create_dir_all(&site).unwrap();
    fs::write(site.join(format!("{module}.py")), format!("value = {value}\n")).unwrap();
    // Python looks again into a directory whose time has changed; real ones are not made within one tick of the clock.
    let time = UNIX_EPOCH + Duration::from_secs(u64::from_str_radix(id, 16).unwrap());
    fs::File::open(&site).unwrap().set_modified(time).unwrap();
    fs::create_dir_all(store.join(id).join("bin")).unwrap();
    let tool = store.join(id).join(format!("bin/{module}-tool"));
    fs::write(&tool, "#!/bin/sh\necho tool\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    Layer { kind: LayerKind::Packages(PackageKind::Python), id: id.to_owned() }
}

fn node_layer(store: &Path, id: &str, package: &str) -> Layer {
    let directory = store.join(id).join(package);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("index.js"), "module.exports = 'from a layer'\n").unwrap();
    Layer { kind: LayerKind::Packages(PackageKind::Node), id: id.to_owned() }
}

fn with(layers: &[&Layer]) -> Spec {
    Spec { layers: layers.iter().map(|layer| (*layer).clone()).collect(), ..Spec::default() }
}

#[tokio::test]
async fn a_layer_is_seen_by_every_program() {
    let Ground { backend, store } = ground(Preload::No);
    assert!(backend.capabilities().layers);
    let version = python(&*backend).await;
    let packages = python_layer(store.path(), "a1", &version, "glass", "41");
    let modules = node_layer(store.path(), "b2", "bell");
    let sandbox = backend.open(&with(&[&packages, &modules])).await.unwrap();
    let ran = run(&*sandbox, cell("import glass\nprint(glass.value, glass.__file__)")).await;
    assert!(ran.stdout.starts_with("41 /belljar/packages/lib/python"), "{} {}", ran.stdout, ran.stderr);
    assert_eq!(told(&*sandbox, "python3 -c 'import glass; print(glass.value)'").await, "41");
    assert_eq!(told(&*sandbox, "glass-tool").await, "tool");
    if backend.capabilities().languages.contains(&Language::JavaScript) {
        assert_eq!(told(&*sandbox, "cd /tmp && node -e 'console.log(require(\"bell\"))'").await, "from a layer");
    }
    let plain = backend.open(&Spec::default()).await.unwrap();
    assert_eq!(
        told(&*plain, "ls -A /node_modules /belljar/build; find /belljar/packages -type f").await.lines().count(),
        3
    );
}

/// Tools and skills are directories as any other layer, of which there may be another at any time.
#[tokio::test]
async fn what_can_be_called_is_seen_as_files() {
    let Ground { backend, store } = ground(Preload::No);
    let layer = |kind, digit: &str, name: &str, text: &str| {
        let id = digit.repeat(40);
        fs::create_dir_all(store.path().join(&id).join("inner")).unwrap();
        fs::write(store.path().join(&id).join("inner").join(name), text).unwrap();
        fs::set_permissions(store.path().join(&id), fs::Permissions::from_mode(0o777)).unwrap();
        Layer { kind, id }
    };
    let tools = layer(LayerKind::Tools, "a", "tool.json", "one");
    let skills = layer(LayerKind::Skills, "b", "main.py", "print('a skill')");
    let sandbox = backend.open(&with(&[&tools, &skills])).await.unwrap();
    assert_eq!(told(&*sandbox, "cat /tools/inner/tool.json").await, "one");
    assert_eq!(told(&*sandbox, "python3 /skills/inner/main.py").await, "a skill");
    let attempts = "cd /tools && echo x > new; rm -r inner; mv inner other; chmod 000 inner; umount /tools; umount -l /skills; \
        echo x > /skills/inner/main.py; ls /tools /skills";
    assert_eq!(told(&*sandbox, attempts).await, "/skills:\ninner\n\n/tools:\ninner");
    let ran =
        run(&*sandbox, cell("print(open('/tools/inner/tool.json').read(), open('/skills/inner/main.py').read())"))
            .await;
    assert_eq!(ran.stdout, "one print('a skill')\n", "{}", ran.stderr);
    sandbox.add_layer(&layer(LayerKind::Tools, "c", "tool.json", "two")).await.unwrap();
    let ran = run(&*sandbox, cell("print(open('/tools/inner/tool.json').read())")).await;
    assert_eq!(ran.stdout, "two\n", "{}", ran.stderr);
    // Without them the places are there, and empty.
    let plain = backend.open(&Spec::default()).await.unwrap();
    assert_eq!(told(&*plain, "cd /tools && cd /skills && ls -A /tools /skills").await, "/skills:\n\n/tools:");
    assert_eq!(told(&*plain, "(echo x >/tools/x || echo x >/skills/x) 2>/dev/null || echo refused").await, "refused");
    plain.add_layer(&tools).await.unwrap();
    assert_eq!(told(&*plain, "cat /tools/inner/tool.json").await, "one");
}

#[tokio::test]
async fn nothing_changes_a_layer_and_nothing_takes_it_away() {
    let Ground { backend, store } = ground(Preload::No);
    let version = python(&*backend).await;
    let layer = python_layer(store.path(), "a1", &version, "glass", "41");
    // Even to whoever has the right to: the owner of the files is the sandbox's user where they share one, and here all may.
    for entry in ["a1", "a1/bin", "a1/bin/glass-tool"] {
        fs::set_permissions(store.path().join(entry), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let opened = backend.open(&with(&[&layer])).await.unwrap();
    let added = backend.open(&Spec::default()).await.unwrap();
    added.add_layer(&layer).await.unwrap();
    for sandbox in [opened, added] {
        let attempts = "cd /belljar/packages && echo x >> bin/glass-tool; echo x > new; rm bin/glass-tool; mv bin other; \
            chmod 000 bin; ln -s x y; touch bin/glass-tool; umount /belljar/packages; umount -l /belljar/packages; \
            mount -o remount,rw /belljar/packages; mount -t tmpfs x /belljar/packages; unshare -rm true; \
            grep ' /belljar/packages ' /proc/self/mountinfo | grep -o ' ro,nosuid,nodev'; ls";
        let ran = run(&*sandbox, command(attempts)).await;
        assert_eq!(ran.stdout, " ro,nosuid,nodev\nbin\nlib\n", "{}", ran.stderr);
        assert_eq!(told(&*sandbox, "glass-tool").await, "tool");
    }
    assert_eq!(fs::read_to_string(store.path().join("a1/bin/glass-tool")).unwrap(), "#!/bin/sh\necho tool\n");
    assert_eq!(fs::read_dir(store.path().join("a1")).unwrap().count(), 2);
}

#[tokio::test]
async fn a_layer_comes_to_a_kernel_that_lives() {
    let Ground { backend, store } = ground(Preload::No);
    let version = python(&*backend).await;
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let ran = run(&*sandbox, cell("kept = 7\ntry:\n    import glass\nexcept ImportError:\n    print('not yet')")).await;
    assert_eq!(ran.stdout, "not yet\n", "{}", ran.stderr);
    // One that is made after the backend was started, and then another over it.
    sandbox.add_layer(&python_layer(store.path(), "a1", &version, "glass", "41")).await.unwrap();
    let ran = run(&*sandbox, cell("import glass\nprint(kept, glass.value)")).await;
    assert_eq!((ran.stdout.as_str(), ran.finish.kernel), ("7 41\n", Some(State::Preserved)), "{}", ran.stderr);
    sandbox.add_layer(&python_layer(store.path(), "a2", &version, "jar", "42")).await.unwrap();
    let ran = run(&*sandbox, cell("import jar\nprint(kept, glass.value, jar.value)")).await;
    assert_eq!((ran.stdout.as_str(), ran.finish.kernel), ("7 41 42\n", Some(State::Preserved)), "{ran:?}");
    assert_eq!(told(&*sandbox, "jar-tool; glass-tool 2>/dev/null || echo covered").await, "tool\ncovered");
}

#[tokio::test]
async fn a_layer_goes_over_the_one_of_the_opening() {
    let Ground { backend, store } = ground(Preload::No);
    let version = python(&*backend).await;
    let first = python_layer(store.path(), "a1", &version, "glass", "41");
    let sandbox = backend.open(&with(&[&first])).await.unwrap();
    assert_eq!(run(&*sandbox, cell("import glass\nprint(glass.value)")).await.stdout, "41\n");
    sandbox.add_layer(&python_layer(store.path(), "a2", &version, "jar", "42")).await.unwrap();
    let ran = run(&*sandbox, cell("import jar\nprint(glass.value, jar.value)")).await;
    assert_eq!(ran.stdout, "41 42\n", "{}", ran.stderr);
}

#[tokio::test]
async fn a_layer_that_is_not_there_is_an_error_and_the_sandbox_stands() {
    let Ground { backend, store } = ground(Preload::No);
    std::os::unix::fs::symlink("/etc", store.path().join("c3")).unwrap();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    for id in ["a1", "c3", "..", ".", "", "../../etc", "building-", "A1"] {
        let layer = Layer { kind: LayerKind::Packages(PackageKind::Python), id: id.to_owned() };
        assert!(sandbox.add_layer(&layer).await.is_err(), "{id:?}");
        assert!(backend.open(&with(&[&layer])).await.is_err(), "{id:?}");
    }
    assert_eq!(told(&*sandbox, "ls /belljar/packages").await, "lib");
    let none = choose(
        Choice::Native,
        &Host { path: std::env::var_os("PATH").unwrap(), home: None, ..Host::default() },
        Preload::No,
    );
    assert!(!none.capabilities().layers);
    assert!(none.open(&Spec { build: Some("building-1".into()), ..Spec::default() }).await.is_err());
}

#[tokio::test]
async fn a_sandbox_that_builds_writes_there_and_nowhere_else() {
    let Ground { backend, store } = ground(Preload::No);
    for name in ["building-1", "building-2", "a1"] {
        fs::create_dir(store.path().join(name)).unwrap();
    }
    let sandbox = backend.open(&Spec { build: Some("building-1".into()), ..Spec::default() }).await.unwrap();
    let build = "cd /belljar/build && mkdir -p lib && echo hello > lib/file && printf '#!/bin/sh\\necho ran\\n' > tool && chmod +x tool \
        && ./tool && mv lib/file moved && ln moved lib/linked && cat lib/linked; echo x > /belljar/packages/x || echo refused; \
        echo x > /node_modules/x || echo refused; ls /belljar/build/..";
    let ran = run(&*sandbox, command(build)).await;
    assert_eq!(
        ran.stdout.lines().take(4).collect::<Vec<_>>(),
        ["ran", "hello", "refused", "refused"],
        "{}",
        ran.stderr
    );
    assert!(!ran.stdout.contains("building-2"), "{}", ran.stdout);
    sandbox.close().await.unwrap();
    assert_eq!(fs::read_to_string(store.path().join("building-1/moved")).unwrap(), "hello\n");
    assert_eq!(fs::read_dir(store.path().join("building-2")).unwrap().count(), 0);
    // What is built already, and what is no directory of the store, is nobody's to write.
    for name in ["a1", "..", "building-9", "building-1/lib"] {
        assert!(backend.open(&Spec { build: Some(name.into()), ..Spec::default() }).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn the_store_itself_is_nowhere_to_be_seen() {
    let Ground { backend, store } = ground(Preload::No);
    let marker = "00dead00beef";
    fs::create_dir(store.path().join(marker)).unwrap();
    fs::create_dir(store.path().join("building-1")).unwrap();
    let look = format!(
        "find / -name '{marker}' 2>/dev/null; ls /store {} 2>/dev/null; grep -c . /proc/self/mountinfo >/dev/null",
        store.path().display()
    );
    for build in [None, Some("building-1".to_owned())] {
        let sandbox = backend.open(&Spec { build, ..Spec::default() }).await.unwrap();
        let ran = run(&*sandbox, command(&look)).await;
        assert_eq!((ran.stdout.as_str(), ran.finish.exit), ("", Exit::Code(0)), "{}", ran.stderr);
    }
}

const RUNNER: &str = "import os\nprint(open(f'/proc/{os.getppid()}/cmdline').read().split('\\0')[0])";

/// Opens sandboxes with a layer until one has a kernel that was forked from a zygote.
async fn forked(backend: &dyn Backend, layer: &Layer) -> Box<dyn Sandbox> {
    let spec = Spec { waiting: Some(Language::Python), ..with(&[layer]) };
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let sandbox = backend.open(&spec).await.unwrap();
        if run(&*sandbox, cell(RUNNER)).await.stdout.trim() == "belljar-runner" {
            return sandbox;
        }
        assert!(Instant::now() < deadline, "there is no zygote for {layer:?}");
        backend.settled().await;
    }
}

/// Whether this host can hold what a layer's packages do when they are loaded ahead: without that there is no zygote.
fn holds(sandbox: &dyn Sandbox) -> bool {
    let cgroup = &sandbox.isolation().cgroup;
    cgroup.contains("memory") && cgroup.contains("pids")
}

#[tokio::test]
async fn a_layer_that_is_used_again_has_a_zygote_that_has_loaded_it() {
    let Ground { backend, store } = ground(Preload::Yes);
    let version = python(&*backend).await;
    // One of the names that a zygote loads, which says where it was loaded.
    let layer = python_layer(store.path(), "a1", &version, "plotly", "__import__('os').uname().nodename");
    let other = python_layer(store.path(), "a2", &version, "plotly", "'other'");
    let spec = Spec { waiting: Some(Language::Python), ..with(&[&layer]) };
    let first = backend.open(&spec).await.unwrap();
    if !holds(&*first) {
        return;
    }
    // Not the plain zygote's, which may have loaded something else by the same name; and none for a first use.
    backend.settled().await;
    assert_eq!(run(&*first, cell(RUNNER)).await.stdout.trim(), "belljar-guest");
    let sandbox = forked(&*backend, &layer).await;
    let ran =
        run(&*sandbox, cell("import sys\nprint('plotly' in sys.modules)\nimport plotly\nprint(plotly.__file__)")).await;
    assert!(ran.stdout.starts_with("True\n/belljar/packages/lib/python"), "{} {}", ran.stdout, ran.stderr);
    let another = forked(&*backend, &other).await;
    assert_eq!(run(&*another, cell("import plotly\nprint(plotly.value)")).await.stdout, "other\n");
    // It is a sandbox as any other: another layer can be put over this one.
    sandbox.add_layer(&python_layer(store.path(), "a3", &version, "jar", "42")).await.unwrap();
    assert_eq!(run(&*sandbox, cell("import jar\nprint(jar.value)")).await.stdout, "42\n");
}

/// What a package can try from within a zygote. It tells by the exit code of a process that it leaves in each sandbox that it
/// gets into, and by names that a sandbox can look at.
const HOSTILE: &str = r#"
import os, ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = {"entered": 0, "processes": 0, "mounted": 0, "network": [], "store": os.path.exists("/store"), "uid": os.getuid()}
# Every process that it can name, here and in the host's numbers.
for pid in range(1, 60000):
    try: fd = os.pidfd_open(pid)
    except OSError: continue
    found["processes"] += 1
    if pid != os.getpid():
        child = os.fork()
        if not child:
            # Users, mounts, processes, network.
            os._exit(0 if libc.setns(fd, 0x10000000 | 0x20000) == 0 else 1)
        if os.waitpid(child, 0)[1] == 0: found["entered"] += 1
    os.close(fd)
for source, kind in ((b"tmpfs", b"tmpfs"), (b"proc", b"proc")):
    if libc.mount(source, b"/mnt", kind, 0, None) == 0: found["mounted"] += 1
try:
    with open("/belljar/packages/left", "w") as file: file.write("left")
    found["written"] = True
except OSError: found["written"] = False
value = found
"#;

#[tokio::test]
async fn a_layers_zygote_reaches_no_sandbox_of_another_jail() {
    let Ground { backend, store } = ground(Preload::Yes);
    let version = python(&*backend).await;
    // These stand while the hostile one is loaded.
    let plain = backend.open(&Spec { waiting: Some(Language::Python), ..Spec::default() }).await.unwrap();
    if !holds(&*plain) {
        return;
    }
    let other = python_layer(store.path(), "b1", &version, "glass", "41");
    let other = forked(&*backend, &other).await;
    let layer = python_layer(store.path(), "a1", &version, "plotly", "None");
    let site = store.path().join(format!("a1/lib/python{version}/site-packages"));
    fs::write(site.join("plotly.py"), HOSTILE).unwrap();
    let sandbox = forked(&*backend, &layer).await;
    let ran = run(&*sandbox, cell("import plotly\nprint(plotly.value)")).await;
    // The jail's own process, and itself: nothing else can even be named. As the layer's first sandboxes are in the plain jail.
    assert!(
        ran.stdout.contains("'entered': 0") && ran.stdout.contains("'mounted': 0"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    assert!(ran.stdout.contains("'processes': 2"), "{}", ran.stdout);
    assert!(ran.stdout.contains("'written': False") && ran.stdout.contains("'store': False"), "{}", ran.stdout);
    for standing in [plain, other] {
        assert_eq!(told(&*standing, "echo stands").await, "stands");
    }
}

#[tokio::test]
async fn a_package_that_eats_all_while_it_is_loaded_costs_its_zygote_and_nothing_else() {
    let Ground { backend, store } = ground(Preload::Yes);
    let version = python(&*backend).await;
    let layer = python_layer(store.path(), "a1", &version, "plotly", "None");
    let site = store.path().join(format!("a1/lib/python{version}/site-packages"));
    let eat = "import os\nall = []\nwhile len(all) < 4000: all.append(bytearray(1 << 20))\nvalue = 1\n";
    fs::write(site.join("plotly.py"), eat).unwrap();
    let spec = Spec { waiting: Some(Language::Python), ..with(&[&layer]) };
    for _ in 0..3 {
        let sandbox = backend.open(&spec).await.unwrap();
        if !holds(&*sandbox) {
            return;
        }
        backend.settled().await;
        // Killed for it, or stopped before it came so far: in neither case is it there.
        assert_eq!(run(&*sandbox, cell("import sys\nprint('plotly' in sys.modules)")).await.stdout, "False\n");
    }
}

/// What a package can leave in a zygote's jail: a process that goes into every sandbox that it can, and leaves a file there.
const LURKING: &str = r#"
import os, ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
def visit(fd):
    # Users and mounts.
    if libc.setns(fd, 0x10000000 | 0x20000): return
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    open("/tmp/entered", "w").close()
def lurk():
    while True:
        for pid in range(2, 2000):
            try: fd = os.pidfd_open(pid)
            except OSError: continue
            child = os.fork()
            if not child:
                try: visit(fd)
                finally: os._exit(0)
            os.waitpid(child, 0)
            os.close(fd)
        time.sleep(0.05)
if not os.fork():
    try: lurk()
    finally: os._exit(0)
"#;

#[tokio::test]
async fn what_a_hostile_layer_can_enter_are_sandboxes_with_that_layer() {
    let Ground { backend, store } = ground(Preload::Yes);
    let version = python(&*backend).await;
    let plain = backend.open(&Spec { waiting: Some(Language::Python), ..Spec::default() }).await.unwrap();
    if !holds(&*plain) {
        return;
    }
    let other = python_layer(store.path(), "b1", &version, "glass", "41");
    let other = forked(&*backend, &other).await;
    let layer = python_layer(store.path(), "a1", &version, "plotly", "None");
    let site = store.path().join(format!("a1/lib/python{version}/site-packages"));
    fs::write(site.join("plotly.py"), LURKING).unwrap();
    let own = forked(&*backend, &layer).await;
    // Its own: so the attempt is one, and what docs/security.md says of it is so.
    let wait = "for _ in $(seq 200); do test -e /tmp/entered && break; sleep 0.1; done; ls /tmp/entered";
    assert_eq!(told(&*own, wait).await, "/tmp/entered");
    for standing in [plain, other] {
        assert_eq!(told(&*standing, "ls /tmp/entered 2>/dev/null || echo none").await, "none");
    }
}
