//! Sandboxes of the native backend on the root file system of an image: whose programs they run, and what they see.
//!
//! The image is a Debian of another release than the host's, which `scripts/image-root` makes.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::{
    Backend, BackendError, Exit, Ground as GroundOf, Language, Program, Sandbox, Source, Spec, Stdin, Then,
};
use belljar_images::{Source as From, Store};
use belljar_testkit::contract::{code, command, run};
use tempfile::TempDir;

struct Ground {
    backend: Arc<dyn Backend>,
    store: Store,
    directory: TempDir,
}

fn ground() -> Ground {
    let directory = TempDir::new().unwrap();
    let images = directory.path().join("images");
    let store = Store::open(&images).unwrap();
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        images: Some(images),
        ..Host::default()
    };
    Ground { backend: choose(Choice::Native, &host, Preload::Yes), store, directory }
}

fn debian() -> PathBuf {
    let tar = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/images/debian.tar");
    assert!(tar.is_file(), "there is no {}; scripts/image-root makes it", tar.display());
    tar
}

fn on(image: &str) -> Spec {
    on_with(image, &[])
}

fn on_with(image: &str, interpreters: &[String]) -> Spec {
    let ground = GroundOf { image: Some(image.to_owned()), interpreters: interpreters.to_vec(), wall: None };
    Spec { ground, ..Spec::default() }
}

fn cell(language: Language, code: &str) -> Program {
    let source = Source::Cell { language, code: code.to_owned(), then: Then::More };
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall: Duration::from_secs(20), changed_max: 0 }
}

async fn told(sandbox: &dyn Sandbox, line: &str) -> String {
    let ran = run(sandbox, command(line)).await;
    format!("{}{}", ran.stdout, ran.stderr).trim().to_owned()
}

impl Ground {
    async fn build(&self, name: &str, from: From) {
        self.store.build(name, from, Arc::new(|_| {})).await.unwrap();
    }

    async fn refused(&self, spec: &Spec) -> (String, String) {
        match self.backend.open(spec).await {
            Err(BackendError::Lacks { what, instead }) => (what, instead),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn programs_are_the_images_and_walls_are_ours() {
    let ground = ground();
    assert!(ground.backend.capabilities().images);
    ground.build("debian", From::Tar(debian())).await;
    let began = Instant::now();
    let sandbox = ground.backend.open(&on("debian")).await.unwrap();
    println!("first sandbox on the image: {:?}", began.elapsed());
    let began = Instant::now();
    let second = ground.backend.open(&on("debian")).await.unwrap();
    println!("second: {:?}", began.elapsed());
    second.close().await.unwrap();

    let release = told(&*sandbox, ". /etc/os-release; echo $VERSION_CODENAME").await;
    assert_eq!(release, "trixie");
    let version = run(&*sandbox, code(Language::Python, "import sys; print('%d.%d' % sys.version_info[:2])")).await;
    assert_eq!(version.stdout.trim(), "3.13", "{}", version.stderr);
    let kernel = run(&*sandbox, cell(Language::Python, "import ssl, ctypes, os\nos.getuid()")).await;
    assert_eq!(kernel.finish.exit, Exit::Code(0), "{}", kernel.stderr);
    let script = run(&*sandbox, code(Language::TypeScript, "const n: number = 41; console.log(n + 1)")).await;
    assert_eq!(script.stdout.trim(), "42", "{}", script.stderr);
    assert_eq!(told(&*sandbox, "node -e 'console.log(process.version.split(\".\")[0])'").await, "v20");

    // The host's tree is not there, the image's cannot be written, and what is ours is.
    assert_eq!(told(&*sandbox, "ls -d /work /root/.cargo /usr/local/cargo 2>/dev/null").await, "");
    assert!(
        told(&*sandbox, "touch /usr/x; touch /etc/x; touch /var/x; touch /root/x; touch /x").await.lines().count() == 5
    );
    assert_eq!(
        told(&*sandbox, "id -un; cat /etc/hostname; echo $HOME $SHELL").await,
        "agent\nbelljar\n/home/agent /usr/bin/bash"
    );
    assert_eq!(
        told(&*sandbox, "echo a > /workspace/a && echo b > /tmp/b && echo c > /var/tmp/c && cat ~/../../workspace/a")
            .await,
        "a"
    );
    assert_eq!(told(&*sandbox, "find / -xdev -perm /6000 -type f 2>/dev/null | head -1").await, "");
    assert!(
        told(&*sandbox, "ls /var/lib/dpkg/status /etc/ssl /etc/alternatives/awk")
            .await
            .contains("/var/lib/dpkg/status")
    );
    assert!(!told(&*sandbox, "ps -e -o comm=").await.is_empty());

    // A language that only the host has is told as missing.
    let missing = sandbox.start(code(Language::Go, "package main")).await;
    assert!(matches!(missing, Err(BackendError::Lacks { .. })), "{missing:?}");

    // Its files stay while it stands, whatever becomes of the name.
    ground.store.remove("debian").unwrap();
    assert_eq!(told(&*sandbox, "ls /usr/bin/python3.13").await, "/usr/bin/python3.13");
    sandbox.close().await.unwrap();
    let (why, fix) = ground.refused(&on("debian")).await;
    assert!(why.contains("no image \"debian\"") && fix.contains("belljar template build debian"), "{why}; {fix}");
}

/// A root with the host's own bash and what it is linked with: small, so that several can be made.
fn small(directory: &Path, name: &str) -> PathBuf {
    let root = directory.join(name);
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/bash", root.join("bin/bash")).unwrap();
    let linked = std::process::Command::new("ldd").arg("/bin/bash").output().unwrap();
    for word in String::from_utf8(linked.stdout).unwrap().split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(word.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(word, place).unwrap();
    }
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/name"), format!("{name}\n")).unwrap();
    root
}

#[tokio::test]
async fn many_images_take_turns() {
    let ground = ground();
    for number in 0..6 {
        let name = format!("small{number}");
        let root = small(ground.directory.path(), &name);
        ground.build(&name, From::Dir(root)).await;
    }
    let mut open = Vec::new();
    for round in 0..2 {
        for number in 0..6 {
            let name = format!("small{number}");
            let sandbox = ground.backend.open(&on(&name)).await.unwrap();
            assert_eq!(told(&*sandbox, "echo $(</etc/name)").await, name);
            if round == 0 {
                open.push((name, sandbox));
            }
        }
    }
    // Those whose jail is not kept any more stand as long as they are wanted.
    for (name, sandbox) in open {
        assert_eq!(told(&*sandbox, "echo $(</etc/name)").await, name);
        sandbox.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_run_on_is_said() {
    let ground = ground();
    let empty = ground.directory.path().join("empty");
    fs::create_dir_all(empty.join("etc")).unwrap();
    ground.build("empty", From::Dir(empty)).await;
    let (why, fix) = ground.refused(&on("empty")).await;
    assert!(why.contains("no shell and no interpreter") && fix.contains("Python"), "{why}; {fix}");
    let (why, _) = ground.refused(&on("../../etc")).await;
    assert!(why.contains("no name"), "{why}");
    ground.build("small", From::Dir(small(ground.directory.path(), "small"))).await;
    let (why, fix) = ground.refused(&on_with("small", &["python-3.12".to_owned()])).await;
    assert!(why.contains("no interpreter \"python-3.12\"") && fix.contains("bash"), "{why}; {fix}");
    // A program that is none: the image says it is a shell, and it is text.
    let text = ground.directory.path().join("text");
    fs::create_dir_all(text.join("bin")).unwrap();
    fs::write(text.join("bin/sh"), "no program").unwrap();
    fs::set_permissions(text.join("bin/sh"), fs::Permissions::from_mode(0o755)).unwrap();
    ground.build("text", From::Dir(text)).await;
    let sandbox = ground.backend.open(&on("text")).await.unwrap();
    let mut running = sandbox.start(command("true")).await.unwrap();
    assert!(running.next().await.is_err() && sandbox.is_alive());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn links_of_an_image_lead_nothing_of_ours_elsewhere() {
    let ground = ground();
    let root = small(ground.directory.path(), "hostile");
    let victim = ground.directory.path().join("victim");
    fs::create_dir(&victim).unwrap();
    fs::rename(root.join("etc"), root.join("real")).unwrap();
    for name in ["etc", "var", "home", "belljar", "workspace", "tmp", "dev", "proc", "run", "mnt", "tools", "srv"] {
        symlink(&victim, root.join(name)).unwrap();
    }
    ground.build("hostile", From::Dir(root)).await;
    let sandbox = ground.backend.open(&on("hostile")).await.unwrap();
    assert_eq!(
        told(&*sandbox, "echo $(</etc/hostname); echo x > /workspace/x; echo x > /var/tmp/x; echo $(</workspace/x)")
            .await,
        "belljar\nx"
    );
    sandbox.close().await.unwrap();
    assert_eq!(fs::read_dir(victim).unwrap().count(), 0);
}
