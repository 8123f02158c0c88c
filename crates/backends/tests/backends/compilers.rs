//! Go and Rust on the native backend: what a program and its compiler say, and how much of the work is kept; and
//! interpreters chosen by name.
//!
//! A language that this host lacks is left out, which the test says; `scripts/toolchains` gets them.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do, and say what they skip"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, NotWarm, Preload, choose, warm_up};
use belljar_core::{
    Backend, BackendError, Changes, Event, Exit, Ground, Language, Limits, Program, Range, Sandbox, Spec, Stdin, Stream,
};
use belljar_testkit::contract::{Ran, code, command, open, run};

fn native() -> Arc<dyn Backend> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    choose(
        Choice::Native,
        &Host { path, home: std::env::var_os("HOME").map(Into::into), ..Host::default() },
        Preload::No,
    )
}

/// A sandbox for a language, if this host has it.
async fn sandbox_for(language: Language) -> Option<Box<dyn Sandbox>> {
    let backend = native();
    let capabilities = backend.capabilities();
    if !capabilities.languages.contains(&language) {
        let (_, fix) = capabilities.missing.iter().find(|(of, _)| *of == language).expect("says how to get it");
        eprintln!("skipped: no {language}: {fix}");
        return None;
    }
    Some(open(&*backend, Limits::default()).await)
}

async fn compile_and_run(sandbox: &dyn Sandbox, language: Language, text: &str) -> Ran {
    let program = Program { wall: Duration::from_secs(120), ..code(language, text) };
    let started = Instant::now();
    let ran = run_long(sandbox, program).await;
    eprintln!("{language}: {:?}, {:?}", started.elapsed(), ran.finish);
    ran
}

/// As [`run`], with time for a first compilation of Go's library on a busy machine.
async fn run_long(sandbox: &dyn Sandbox, program: Program) -> Ran {
    let mut running = sandbox.start(program).await.expect("the program starts");
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let finish = tokio::time::timeout(Duration::from_secs(120), async {
        loop {
            match running.next().await.expect("the sandbox stands") {
                Event::Output { stream: Stream::Stdout, bytes } => stdout.extend(bytes),
                Event::Output { stream: Stream::Stderr, bytes } => stderr.extend(bytes),
                Event::Record(_) | Event::Changed(_) => {}
                Event::Finished(finish) => return finish,
            }
        }
    })
    .await
    .expect("the program finishes in time");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { stdout: text(stdout), stderr: text(stderr), records: Vec::new(), changed: Changes::default(), finish }
}

fn told(ran: &Ran) -> (&str, &str, Exit) {
    (&ran.stdout, &ran.stderr, ran.finish.exit)
}

#[tokio::test]
async fn go_says_what_its_program_and_its_compiler_say() {
    let Some(sandbox) = sandbox_for(Language::Go).await else { return };
    let hello = "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\") }\n";
    let first = Instant::now();
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Go, hello).await), ("hello\n", "", Exit::Code(0)));
    let first = first.elapsed();
    // The second time only the program itself is compiled, if it has changed.
    for text in [hello, &hello.replace("hello", "hullo")] {
        let again = Instant::now();
        assert_eq!(compile_and_run(&*sandbox, Language::Go, text).await.finish.exit, Exit::Code(0));
        assert!(again.elapsed() < first / 2, "first {first:?}, then {:?}", again.elapsed());
    }

    let wrong = "package main\nimport \"fmt\"\nfunc main() {\n\tx := 1\n\tfmt.Println(y)\n}\n";
    let ran = compile_and_run(&*sandbox, Language::Go, wrong).await;
    let errors = "main.go:4:2: declared and not used: x\nmain.go:5:14: undefined: y\n";
    assert_eq!(told(&ran), ("", errors, Exit::Code(1)));
    let ran = compile_and_run(&*sandbox, Language::Go, "package lib\n").await;
    assert_eq!(ran.finish.exit, Exit::Code(1));
    assert!(ran.stderr.contains("not package main"), "{ran:?}");

    let panics = "package main\nfunc main() {\n\tvar a []int\n\tprintln(a[3])\n}\n";
    let ran = compile_and_run(&*sandbox, Language::Go, panics).await;
    assert!(ran.stderr.contains("index out of range") && ran.stderr.contains("/workspace/main.go:4"), "{ran:?}");
    assert_eq!(ran.finish.exit, Exit::Code(2));
    let nothing = sandbox.list(".", 3, 100).await.expect("lists");
    assert_eq!(nothing.entries, [], "it left something in the workspace");
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn go_code_uses_the_module_that_it_is_in() {
    let Some(sandbox) = sandbox_for(Language::Go).await else { return };
    for (path, text) in [
        ("go.mod", "module example.com/shop\n\ngo 1.18\n"),
        ("shop.go", "package shop\nfunc Name() string { return \"shop\" }\n"),
        ("internal/price/price.go", "package price\nfunc Of() int { return 7 }\n"),
    ] {
        sandbox.write(path, text.as_bytes().to_vec()).await.expect("writes");
    }
    let text = "package main\nimport (\"fmt\"; \"example.com/shop\"; \"example.com/shop/internal/price\")\n\
                func main() { fmt.Println(shop.Name(), price.Of()) }\n";
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Go, text).await), ("shop 7\n", "", Exit::Code(0)));
    sandbox
        .write("internal/price/price.go", b"package price\nfunc Of() int { return 8 }\n".to_vec())
        .await
        .expect("writes");
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Go, text).await), ("shop 8\n", "", Exit::Code(0)));
    let ran = compile_and_run(&*sandbox, Language::Go, &text.replace("price.Of", "price.Off")).await;
    assert!(ran.stderr.starts_with("main.go:3:"), "{ran:?}");
    // What is not here is told at once, and not looked for on the network.
    let ran =
        compile_and_run(&*sandbox, Language::Go, "package main\nimport _ \"github.com/a/b\"\nfunc main() {}\n").await;
    assert!(ran.stderr.starts_with("main.go:2:8: no required module provides"), "{ran:?}");
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn rust_says_what_its_program_and_its_compiler_say() {
    let Some(sandbox) = sandbox_for(Language::Rust).await else { return };
    let hello = "use std::io;\nfn main() {\n    let unused = 1;\n    print!(\"{}\", io::read_to_string(io::stdin()).unwrap());\n}\n";
    for _ in 0..2 {
        let program = Program { stdin: Stdin::Whole(b"hello".to_vec()), ..code(Language::Rust, hello) };
        assert_eq!(told(&run(&*sandbox, program).await), ("hello", "", Exit::Code(0)));
    }
    let ran = compile_and_run(&*sandbox, Language::Rust, "fn main() {\n    let x: u32 = \"a\";\n}\n").await;
    assert!(ran.stderr.starts_with("error[E0308]: mismatched types\n --> main.rs:2:18\n"), "{ran:?}");
    assert_eq!((ran.stdout.as_str(), ran.finish.exit), ("", Exit::Code(1)));
    let ran = compile_and_run(&*sandbox, Language::Rust, "fn main() {\n    None::<u8>.unwrap();\n}\n").await;
    assert!(ran.stderr.contains("panicked at main.rs:2:16:"), "{ran:?}");
    assert_eq!(ran.finish.exit, Exit::Code(101));
    let ran = compile_and_run(&*sandbox, Language::Rust, "fn main() { std::process::abort() }").await;
    assert_eq!(told(&ran), ("", "", Exit::Signal(6)));
    let nothing = sandbox.list(".", 3, 100).await.expect("lists");
    assert_eq!(nothing.entries, [], "it left something in the workspace");
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn rust_code_uses_the_package_that_it_is_in() {
    let Some(sandbox) = sandbox_for(Language::Rust).await else { return };
    let has_cargo = run(&*sandbox, command("cargo --version")).await;
    if has_cargo.finish.exit != Exit::Code(0) {
        eprintln!("skipped: no cargo");
        return;
    }
    for (path, text) in [
        (
            "Cargo.toml",
            "[package]\nname = \"shop\"\nedition = \"2021\"\n[dependencies]\nprice = { path = \"price\" }\n",
        ),
        ("src/lib.rs", "pub fn twice() -> u32 { 2 * price::of() }\n"),
        ("price/Cargo.toml", "[package]\nname = \"price\"\nedition = \"2021\"\n"),
        ("price/src/lib.rs", "pub fn of() -> u32 { 7 }\n"),
    ] {
        let text = text.replace("edition =", "version = \"0.1.0\"\nedition =");
        sandbox.write(path, text.into_bytes()).await.expect("writes");
    }
    let text = "fn main() { println!(\"{} {}\", price::of(), shop::twice()); }";
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Rust, text).await), ("7 14\n", "", Exit::Code(0)));
    sandbox.write("price/src/lib.rs", b"pub fn of() -> u32 { 8 }\n".to_vec()).await.expect("writes");
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Rust, text).await), ("8 16\n", "", Exit::Code(0)));
    let ran = compile_and_run(&*sandbox, Language::Rust, &text.replace("shop::twice", "shop::thrice")).await;
    assert!(ran.stderr.contains("cannot find function `thrice`"), "{ran:?}");
    assert_eq!(ran.finish.exit, Exit::Code(1));
    let top = sandbox.list(".", 1, 100).await.expect("lists");
    let names: Vec<&str> = top.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(names, ["Cargo.toml", "price", "src"]);
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn compiled_programs_overlap() {
    let Some(sandbox) = sandbox_for(Language::Rust).await else { return };
    let texts: Vec<String> = (0..4).map(|number| format!("fn main() {{ println!(\"{number}\") }}")).collect();
    let ran = tokio::join!(
        compile_and_run(&*sandbox, Language::Rust, &texts[0]),
        compile_and_run(&*sandbox, Language::Rust, &texts[1]),
        compile_and_run(&*sandbox, Language::Rust, &texts[2]),
        compile_and_run(&*sandbox, Language::Rust, &texts[3]),
    );
    let printed = [&ran.0, &ran.1, &ran.2, &ran.3].map(|ran| ran.stdout.trim());
    assert_eq!(printed, ["0", "1", "2", "3"], "{ran:?}");
    // What the earlier ones were compiled to is gone with the next, but for what the compiler keeps.
    let left = "ls ~/.cache/belljar/run | wc -l";
    compile_and_run(&*sandbox, Language::Rust, &texts[0]).await;
    assert_eq!(run(&*sandbox, command(left)).await.stdout.trim(), "1");
    sandbox.close().await.expect("closes");
}

/// Which file is run, by its number.
async fn compiled_to(sandbox: &dyn Sandbox) -> String {
    run(sandbox, command("stat -c %i ~/.cache/belljar/run/*/main")).await.stdout
}

#[tokio::test]
async fn what_has_not_changed_is_not_compiled_again() {
    for (language, text, other) in [
        (
            Language::Rust,
            "fn main() { println!(\"{}\", std::process::id() > 1); }",
            "fn main() { println!(\"{}\", std::process::id() > 2); }",
        ),
        (
            Language::Go,
            "package main\nimport \"os\"\nfunc main() { println(os.Getpid() > 1) }",
            "package main\nimport \"os\"\nfunc main() { println(os.Getpid() > 2) }",
        ),
    ] {
        let Some(sandbox) = sandbox_for(language).await else { continue };
        let mut files = Vec::new();
        for text in [text, text, other, text] {
            let ran = compile_and_run(&*sandbox, language, text).await;
            assert_eq!((ran.stdout + &ran.stderr, ran.finish.exit), ("true\n".to_owned(), Exit::Code(0)));
            files.push(compiled_to(&*sandbox).await);
        }
        assert_eq!(files[0], files[1], "{language}");
        assert!(files[1] != files[2] && files[2] != files[3] && files.iter().all(|file| file.lines().count() == 1));
        sandbox.close().await.expect("closes");
    }
}

#[tokio::test]
async fn what_a_rust_program_is_compiled_with_counts_too() {
    let Some(sandbox) = sandbox_for(Language::Rust).await else { return };
    for value in ["one", "two"] {
        let text = "fn main() { println!(\"{}\", env!(\"A\")); }";
        let env = vec![("A".to_owned(), value.to_owned())];
        let ran = run(&*sandbox, Program { env, ..code(Language::Rust, text) }).await;
        assert_eq!(told(&ran), (format!("{value}\n").as_str(), "", Exit::Code(0)));
        sandbox.write("data", value.as_bytes().to_vec()).await.expect("writes");
        let text = "fn main() { println!(\"{}\", include_str!(\"/workspace/data\")); }";
        let ran = compile_and_run(&*sandbox, Language::Rust, text).await;
        assert_eq!(told(&ran), (format!("{value}\n").as_str(), "", Exit::Code(0)));
    }
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn a_rust_program_is_what_it_is_without_a_sandbox() {
    let Some(sandbox) = sandbox_for(Language::Rust).await else { return };
    let allocator = "use std::alloc::{GlobalAlloc, Layout, System};\nuse std::sync::atomic::{AtomicUsize, Ordering::Relaxed};\n\
        static COUNT: AtomicUsize = AtomicUsize::new(0);\nstruct Counting;\nunsafe impl GlobalAlloc for Counting {\n\
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 { COUNT.fetch_add(1, Relaxed); unsafe { System.alloc(layout) } }\n\
        unsafe fn dealloc(&self, at: *mut u8, layout: Layout) { unsafe { System.dealloc(at, layout) } }\n}\n\
        #[global_allocator]\nstatic OURS: Counting = Counting;\n\
        fn main() { let text = format!(\"{}\", 1); println!(\"{text} {}\", COUNT.load(Relaxed) > 0); }";
    assert_eq!(told(&compile_and_run(&*sandbox, Language::Rust, allocator).await), ("1 true\n", "", Exit::Code(0)));
    // A copy of it runs elsewhere; threads, panics and their places are what they are.
    let copied = "use std::{env, fs, process::Command, thread};\nfn main() {\n    \
        if env::args().len() > 1 { return println!(\"copy\"); }\n    fs::copy(env::current_exe().unwrap(), \"/tmp/copy\").unwrap();\n    \
        assert!(Command::new(\"/tmp/copy\").arg(\"x\").status().unwrap().success());\n    \
        println!(\"{}\", thread::spawn(|| panic!(\"in a thread\")).join().is_err());\n}\n";
    let env = vec![("RUST_BACKTRACE".to_owned(), "1".to_owned())];
    let ran = run(&*sandbox, Program { env, ..code(Language::Rust, copied) }).await;
    assert_eq!((ran.stdout.as_str(), ran.finish.exit), ("copy\ntrue\n", Exit::Code(0)), "{ran:?}");
    assert!(ran.stderr.contains("panicked at main.rs:6:") && ran.stderr.contains("main::main"), "{}", ran.stderr);
    assert!(ran.stderr.contains("library/std/src/panicking.rs:"), "{}", ran.stderr);
    sandbox.close().await.expect("closes");
}

#[tokio::test]
async fn an_interpreter_is_chosen_by_name() {
    let backend = native();
    let names = backend.capabilities().interpreters;
    let pythons: Vec<&String> =
        names.iter().filter(|(language, _)| *language == Language::Python).map(|(_, name)| name).collect();
    let which = "python3 -c 'import sys; print(\"python-%d.%d\" % sys.version_info[:2])'";
    for name in &pythons {
        let spec = Spec { ground: Ground::of(&[(*name).clone()]), ..Spec::default() };
        let sandbox = backend.open(&spec).await.expect("opens");
        let text = "import sys, json, ssl\nprint('python-%d.%d' % sys.version_info[:2])";
        let by_code = run(&*sandbox, code(Language::Python, text)).await;
        assert_eq!(told(&by_code), (format!("{name}\n").as_str(), "", Exit::Code(0)));
        for line in [which, &which.replace("python3", "python")] {
            assert_eq!(told(&run(&*sandbox, command(line)).await).0, format!("{name}\n"), "{line}");
        }
        let venv = "python3 -m venv --without-pip /tmp/v && /tmp/v/bin/python3 -c 'import json; print(1)'";
        let ran = run(&*sandbox, command(venv)).await;
        assert_eq!(ran.stdout, "1\n", "{name}: {ran:?}");
        sandbox.close().await.expect("closes");
    }
    if pythons.len() < 2 {
        eprintln!("only one Python here");
    }
    let spec = Spec { ground: Ground::of(&["python-2.7".to_owned()]), ..Spec::default() };
    let refusal = backend.open(&spec).await.err();
    let Some(BackendError::Unavailable { why, fix }) = refusal else { panic!("{refusal:?}") };
    assert_eq!(why, "this host has no interpreter \"python-2.7\"");
    assert!(fix.contains(pythons[0].as_str()), "{fix}");
}

#[tokio::test]
async fn our_own_program_is_there_and_cannot_be_changed() {
    let backend = native();
    let sandbox = open(&*backend, Limits::default()).await;
    let line = "stat -c '%a %F' /belljar/transpile; test -x /belljar/transpile && test ! -w /belljar/transpile && \
                { : > /belljar/transpile; rm -f /belljar/transpile; mv /belljar /b; touch /belljar/x; \
                  chmod 777 /belljar/transpile; ls /belljar/transpile; } 2>/dev/null";
    assert_eq!(run(&*sandbox, command(line)).await.stdout, "555 regular file\n/belljar/transpile\n");
    let head = sandbox.read("/belljar/transpile", Range { offset: 0, length: 4 }).await.expect("reads");
    assert_eq!(head.bytes, b"\x7fELF");
    let ran = run(&*sandbox, Program { stdin: Stdin::empty(), ..command("/belljar/transpile; echo $?") }).await;
    assert!(!ran.stdout.contains("126") && !ran.stdout.contains("127"), "it does not start: {ran:?}");
    sandbox.close().await.expect("closes");
}

/// With a Go that compiles nothing, since the real one takes a minute.
#[tokio::test]
async fn what_was_compiled_ahead_is_shown_read_only() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().expect("a directory");
    let goroot = home.path().join("sdk/go1.99.1");
    for directory in ["bin", "src/runtime"] {
        std::fs::create_dir_all(goroot.join(directory)).expect("makes");
    }
    std::fs::write(goroot.join("VERSION"), "go1.99.1\n").expect("writes");
    let script =
        "#!/bin/sh\numask 077\nmkdir -p $GOCACHE/00 && echo $* >> $GOCACHE/00/count && env >> $GOCACHE/00/env\n";
    std::fs::write(goroot.join("bin/go"), script).expect("writes");
    std::fs::set_permissions(goroot.join("bin/go"), std::fs::Permissions::from_mode(0o755)).expect("sets");
    let path = std::env::join_paths([goroot.join("bin"), "/usr/bin".into(), "/bin".into()]).expect("joins");
    let host = Host { path, home: Some(home.path().to_owned()), ..Host::default() };

    let kept = home.path().join(".cache/belljar/go-1.99.1");
    for _ in 0..2 {
        assert_eq!(warm_up(&host).expect("warms"), kept);
        assert_eq!(std::fs::read_to_string(kept.join("00/count")).expect("reads"), "build std\n", "once is enough");
    }
    let env = std::fs::read_to_string(kept.join("00/env")).expect("reads");
    assert!(env.contains("CGO_ENABLED=0") && !env.contains("HOME="), "{env}");

    let backend = choose(Choice::Native, &host, Preload::No);
    let sandbox = open(&*backend, Limits::default()).await;
    let ran =
        run(&*sandbox, command("cat /belljar/go-cache/00/count; touch /belljar/go-cache/00/x 2>/dev/null || echo no"))
            .await;
    assert_eq!(ran.stdout, "build std\nno\n");
    sandbox.close().await.expect("closes");

    // One that others may write to is not ours to trust.
    std::fs::set_permissions(&kept, std::fs::Permissions::from_mode(0o777)).expect("sets");
    let sandbox = open(&*choose(Choice::Native, &host, Preload::No), Limits::default()).await;
    assert_eq!(run(&*sandbox, command("test -e /belljar/go-cache || echo none")).await.stdout, "none\n");
    sandbox.close().await.expect("closes");

    let nowhere = Host { path: home.path().into(), home: Some(home.path().join("none")), ..Host::default() };
    if !std::path::Path::new("/usr/local/go").exists() {
        let refusal = warm_up(&nowhere).expect_err("there is no Go");
        assert!(matches!(&refusal, NotWarm::NoGo { fix } if fix.contains("apt install golang-go")), "{refusal}");
    }
}
