//! What every backend must do, whatever its walls: one suite, the same reports.
//!
//! Each check is a function of its own, so that a backend's test can name the one that fails. They use only the
//! contract of `belljar-core`; what an attacker may try is the battery's business.

#![expect(clippy::expect_used, reason = "a check that fails is a panic of the test that called it")]

mod jobs;
mod layers;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use belljar_core::wire::Part;
use belljar_core::{
    Asked, Backend, BackendError, Changes, Doors, Event, Exit, FileErrorKind, FileKind, Finish, Knock, Language,
    Limits, Network, Program, Range, Relay, Running, Sandbox, Source, Spec, State, Stdin, Stream, Then,
};

pub use jobs::{a_signal_arrives, input_comes_live, processes_are_held};
pub use layers::{a_layer_comes_to_a_live_sandbox, a_layer_is_built, layers_are_seen_and_kept};

/// Makes a module with a test for each check, on the backend, or the [`Stage`], that `$backend`, an async expression, comes to.
#[macro_export]
macro_rules! keeps_the_contract {
    ($module:ident, $backend:expr) => {
        $crate::keeps_the_contract! { $module, where Ok::<(), String>(()), $backend }
    };
    // Only where `$there` is no error; else each test says loudly that it was skipped, and why.
    ($module:ident, where $there:expr, $backend:expr) => {
        $crate::keeps_the_contract! { $module, $there, $backend,
            languages_run
            streams_are_kept_apart
            a_signal_is_told
            files_stay_in_their_sandbox
            nothing_outlives_its_program
            a_stopped_program_is_gone
            a_dropped_program_is_gone
            memory_is_held
            the_disk_is_held
            programs_overlap
            a_missing_directory_is_told
            a_kernel_remembers
            an_interrupt_keeps_the_kernel
            a_dead_kernel_is_told
            changed_files_are_told
            a_waiting_kernel_answers
            a_waiting_kernel_takes_an_only_cell
            a_waiting_kernel_gives_way_to_an_environment
            a_waiting_kernel_changes_nothing
            a_kernel_that_cannot_wait_is_none
            a_question_is_answered
            every_question_has_its_asker
            a_network_is_its_doors
            |
            layers_are_seen_and_kept
            a_layer_comes_to_a_live_sandbox
            a_layer_is_built
            input_comes_live
            a_signal_arrives
            processes_are_held
        }
    };
    ($module:ident, $there:expr, $backend:expr, $($check:ident)* | $($staged:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $check() {
                    if let Err(why) = $there {
                        $crate::contract::skipped(concat!(stringify!($module), "::", stringify!($check)), &why);
                        return;
                    }
                    let stage = $crate::contract::Stage::from($backend.await);
                    $crate::contract::$check(&*stage.backend).await;
                }
            )*
            $(
                #[tokio::test]
                async fn $staged() {
                    if let Err(why) = $there {
                        $crate::contract::skipped(concat!(stringify!($module), "::", stringify!($staged)), &why);
                        return;
                    }
                    let stage = $crate::contract::Stage::from($backend.await);
                    $crate::contract::$staged(&stage).await;
                }
            )*
        }
    };
}

/// A backend, and what of the host a check can reach beside it.
#[derive(Debug)]
pub struct Stage {
    pub backend: Arc<dyn Backend>,
    /// The backend's store of layers, empty and for this test alone.
    pub layers: Option<tempfile::TempDir>,
}

impl From<Arc<dyn Backend>> for Stage {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Stage { backend, layers: None }
    }
}

impl Stage {
    /// The store, if the backend has layers.
    fn store(&self) -> Option<&Path> {
        if !self.backend.capabilities().layers {
            skip(&*self.backend, "it has no layers");
            return None;
        }
        Some(self.layers.as_ref().expect("a backend with layers is tested with a store of them").path())
    }
}

fn skip(backend: &dyn Backend, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped on {}: {why}", backend.name());
}

/// Tells of a test that was not given what it needs, which is a failure where all of it has to be there.
pub fn skipped(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{what} was not given what it needs: {why}");
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}: {why}");
}

fn lacks_processes(backend: &dyn Backend) -> bool {
    let lacks = !backend.capabilities().processes;
    if lacks {
        skip(backend, "it has no processes");
    }
    lacks
}

static SLOWNESS: AtomicU32 = AtomicU32::new(1);

/// Bounds in time are this many times as long from here on, for every check of this process: for a backend that is emulated.
pub fn allow_for(slowness: u32) {
    SLOWNESS.store(slowness.max(1), Ordering::Relaxed);
}

/// So long, on a host of ordinary speed.
fn about(time: Duration) -> Duration {
    time * SLOWNESS.load(Ordering::Relaxed)
}

/// How much longer than its limit anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(240);

const WHOLE: Range = Range { offset: 0, length: 1 << 20 };

/// What a program came to.
#[derive(Debug)]
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub records: Vec<String>,
    pub changed: Changes,
    pub finish: Finish,
}

pub async fn open(backend: &dyn Backend, limits: Limits) -> Box<dyn Sandbox> {
    backend.open(&Spec { limits, ..Spec::default() }).await.expect("a sandbox opens")
}

pub fn code(language: Language, code: &str) -> Program {
    let code = code.to_owned();
    let source = match language {
        // Its types go in the kernel; it has no other way to be run.
        Language::TypeScript => Source::Cell { language, code, then: Then::End },
        _ => Source::Code { language, code },
    };
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall: Duration::from_secs(10), changed_max: 0 }
}

pub fn command(line: &str) -> Program {
    Program { source: Source::Command(line.to_owned()), ..code(Language::Shell, "") }
}

pub async fn run(sandbox: &dyn Sandbox, program: Program) -> Ran {
    let running = tokio::time::timeout(PATIENCE, sandbox.start(program)).await.expect("in time");
    finish(running.expect("the program starts")).await
}

/// Listens to a program until its end.
pub async fn finish(mut running: Box<dyn Running>) -> Ran {
    tokio::time::timeout(PATIENCE, async {
        let (mut stdout, mut stderr, mut records, mut changed) =
            (Vec::new(), Vec::new(), Vec::new(), Changes::default());
        loop {
            match running.next().await.expect("the sandbox stands") {
                Event::Output { stream: Stream::Stdout, bytes } => stdout.extend(bytes),
                Event::Output { stream: Stream::Stderr, bytes } => stderr.extend(bytes),
                Event::Record(record) => records.push(String::from_utf8_lossy(&record).into_owned()),
                Event::Changed(changes) => changed = changes,
                Event::Finished(finish) => {
                    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
                    return Ran { stdout: text(stdout), stderr: text(stderr), records, changed, finish };
                }
            }
        }
    })
    .await
    .expect("the program finishes in time")
}

/// Every language that the backend says it has prints, reads its input, and fails as it should.
pub async fn languages_run(backend: &dyn Backend) {
    let sandbox = open(backend, Limits::default()).await;
    let languages = backend.capabilities().languages;
    assert!(!languages.is_empty(), "a backend without languages runs nothing");
    for language in languages {
        let (echo, fail) = match language {
            Language::Python => ("import sys\nprint(sys.stdin.read().upper())", "import sys\nsys.exit(3)"),
            Language::JavaScript | Language::TypeScript => {
                ("console.log(require('fs').readFileSync(0,'utf8').toUpperCase())", "process.exit(3)")
            }
            Language::Shell => ("tr a-z A-Z", "exit 3"),
            Language::Go => (
                "package main\nimport (\"fmt\"; \"io\"; \"os\"; \"strings\")\n\
                 func main() { all, _ := io.ReadAll(os.Stdin); fmt.Println(strings.ToUpper(string(all))) }",
                "package main\nimport \"os\"\nfunc main() { os.Exit(3) }",
            ),
            Language::Rust => (
                "fn main() { println!(\"{}\", std::io::read_to_string(std::io::stdin()).unwrap().to_uppercase()) }",
                "fn main() { std::process::exit(3) }",
            ),
        };
        let echoed = run(&*sandbox, Program { stdin: Stdin::Whole(b"hello".to_vec()), ..code(language, echo) }).await;
        assert_eq!((echoed.stdout.trim(), echoed.finish.exit), ("HELLO", Exit::Code(0)), "{language}: {echoed:?}");
        let failed = run(&*sandbox, code(language, fail)).await;
        assert_eq!(failed.finish.exit, Exit::Code(3), "{language}");
    }
    sandbox.close().await.expect("closes");
}

/// Both streams arrive, whole and apart.
pub async fn streams_are_kept_apart(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let ran = run(&*sandbox, command("for i in $(seq 5000); do echo out $i; echo err $i >&2; done")).await;
    assert_eq!(ran.stdout.lines().count(), 5000);
    assert_eq!(ran.stderr.lines().count(), 5000);
    assert!(ran.stdout.ends_with("out 5000\n") && ran.stderr.ends_with("err 5000\n"));
    // By their names they can be written to, and not read: that would be to wait for one's own output.
    let line = "echo a > /dev/stdout; cat /dev/stdout 2>/dev/null; echo $?; cat /dev/stderr; echo b > /dev/stderr";
    let ran = run(&*sandbox, command(line)).await;
    assert_eq!(ran.stdout, "a\n1\n", "{ran:?}");
    assert!(ran.stderr.ends_with("\nb\n"), "{ran:?}");
    sandbox.close().await.expect("closes");
}

pub async fn a_signal_is_told(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let ran = run(&*sandbox, command("kill -SEGV $$")).await;
    assert_eq!(ran.finish.exit, Exit::Signal(11));
    sandbox.close().await.expect("closes");
}

/// What a run leaves in the workspace is there for the next, and in no other sandbox.
pub async fn files_stay_in_their_sandbox(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let (one, other) = (open(backend, Limits::default()).await, open(backend, Limits::default()).await);
    let made = run(&*one, command("mkdir -p a/b && echo mine > a/b/c && ln -s /etc/passwd link && mkfifo pipe")).await;
    assert_eq!(made.finish.exit, Exit::Code(0), "{made:?}");
    assert_eq!(one.read("a/b/c", WHOLE).await.expect("reads").bytes, b"mine\n");
    assert_eq!(refused(other.read("a/b/c", WHOLE).await), FileErrorKind::NotFound);

    one.write("new/deep/file", vec![7; 300_000]).await.expect("writes");
    let seen = run(&*one, command("wc -c < new/deep/file")).await;
    assert_eq!(seen.stdout.trim(), "300000");
    let part = one.read("new/deep/file", Range { offset: 299_990, length: 100 }).await.expect("reads");
    assert_eq!((part.bytes.len(), part.size), (10, 300_000));

    let listing = one.list(".", 3, 100).await.expect("lists");
    let kind = |path: &str| listing.entries.iter().find(|entry| entry.path == path).map(|entry| entry.metadata.kind);
    assert_eq!(kind("a/b/c"), Some(FileKind::File));
    assert_eq!(kind("link"), Some(FileKind::Symlink));
    assert_eq!(kind("pipe"), Some(FileKind::Other));
    assert_eq!(refused(one.read("pipe", WHOLE).await), FileErrorKind::NotRegular);
    assert_eq!(refused(one.read("a", WHOLE).await), FileErrorKind::IsDirectory);
    assert_eq!(refused(one.write("/usr/planted", vec![1]).await), FileErrorKind::Denied);
    one.close().await.expect("closes");
    other.close().await.expect("closes");
}

/// When a program ends, so does everything it started, however it hid.
pub async fn nothing_outlives_its_program(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let hide = "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 4321.5' >/dev/null 2>&1 &) ; sleep 4321.5 & echo started";
    let ran = run(&*sandbox, command(hide)).await;
    assert_eq!((ran.stdout.trim(), ran.finish.exit), ("started", Exit::Code(0)));
    // By its arguments, which the shell that looks does not have among its own.
    let left = run(&*sandbox, command("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 4321.[5]'")).await;
    assert_eq!(left.stdout.trim(), "0", "{left:?}");
    sandbox.close().await.expect("closes");
}

/// `stop` ends a program that ignores signals and forks, at once, and what it printed is told.
pub async fn a_stopped_program_is_gone(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let stubborn = "trap '' TERM INT HUP; echo up; (while :; do sleep 0.01; done) & while :; do :; done";
    let mut running = sandbox.start(command(stubborn)).await.expect("starts");
    let first = running.next().await.expect("the sandbox stands");
    assert_eq!(first, Event::Output { stream: Stream::Stdout, bytes: b"up\n".to_vec() });
    let asked = Instant::now();
    running.stop();
    let finish = tokio::time::timeout(PATIENCE, running.next()).await.expect("finishes").expect("the sandbox stands");
    assert!(matches!(finish, Event::Finished(Finish { exit: Exit::Signal(9), .. })), "{finish:?}");
    assert!(asked.elapsed() < about(Duration::from_millis(500)), "took {:?}", asked.elapsed());
    drop(running);
    let after = run(&*sandbox, command("echo still here")).await;
    assert_eq!(after.stdout, "still here\n");
    sandbox.close().await.expect("closes");
}

/// Dropping a running program stops it, and the sandbox goes on.
pub async fn a_dropped_program_is_gone(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let mut running = sandbox.start(command("echo up; sleep 4321.5")).await.expect("starts");
    running.next().await.expect("the sandbox stands");
    drop(running);
    // The stop is on its way; it has arrived when no such process is seen any more.
    let until = Instant::now() + PATIENCE;
    loop {
        let left = run(&*sandbox, command("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 4321.[5]'")).await;
        if left.stdout.trim() == "0" {
            break;
        }
        assert!(Instant::now() < until, "it lives on");
    }
    sandbox.close().await.expect("closes");
}

/// Memory past the limit is told as such, and the sandbox survives it.
pub async fn memory_is_held(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let sandbox = open(backend, limits).await;
    // Several processes, so that no limit of a single one is met before the sum is; the first is the largest.
    let eat = "import os, time\n\
        def eat(mib):\n    b = bytearray(mib << 20)\n    for i in range(0, len(b), 4096): b[i] = 1\n    time.sleep(8)\n\
        for _ in range(3):\n    if os.fork() == 0: eat(12)\n\
        eat(36)";
    let ran = run(&*sandbox, code(Language::Python, eat)).await;
    assert_eq!(ran.finish.exit, Exit::OutOfMemory, "{ran:?}");
    let after = run(&*sandbox, command("echo still here")).await;
    assert_eq!(after.stdout, "still here\n");
    sandbox.close().await.expect("closes");
}

pub async fn the_disk_is_held(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let limits = Limits { disk_bytes: 4 << 20, ..Limits::default() };
    let sandbox = open(backend, limits).await;
    let ran =
        run(&*sandbox, command("head -c 8M /dev/zero > a; head -c 8M /dev/zero > /tmp/b; cat a /tmp/b | wc -c")).await;
    let bytes: u64 = ran.stdout.trim().parse().expect("a number");
    assert!(bytes <= 4 << 20, "{bytes} bytes fit");
    assert_eq!(refused(sandbox.write("c", vec![1; 1 << 20]).await), FileErrorKind::NoSpace);
    sandbox.close().await.expect("closes");
}

/// Programs of one sandbox may run at once, each with its own output.
pub async fn programs_overlap(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let pause = about(Duration::from_millis(200)).as_secs_f64();
    let runs = (0..8).map(|number| {
        let sandbox = &sandbox;
        async move {
            let ran = run(&**sandbox, command(&format!("echo {number}; sleep {pause}; echo {number}"))).await;
            assert_eq!(ran.stdout, format!("{number}\n{number}\n"));
        }
    });
    let started = Instant::now();
    futures_join(runs).await;
    assert!(started.elapsed() < about(Duration::from_millis(1400)), "one after the other: {:?}", started.elapsed());
    sandbox.close().await.expect("closes");
}

async fn futures_join(runs: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut runs: Vec<_> = runs.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        runs.retain_mut(|run| run.as_mut().poll(context).is_pending());
        if runs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// A program that cannot be started is refused, with the reason.
pub async fn a_missing_directory_is_told(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let program = Program { cwd: Some("no/such/place".to_owned()), ..command("true") };
    let refusal = match sandbox.start(program).await {
        Ok(mut running) => running.next().await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert_eq!(refused(refusal), FileErrorKind::NotFound);
    sandbox.close().await.expect("closes");
}

fn refused<T: std::fmt::Debug>(answer: Result<T, BackendError>) -> FileErrorKind {
    match answer {
        Err(BackendError::File(error)) => error.kind,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn cell(language: Language, text: &str) -> Program {
    let source = Source::Cell { language, code: text.to_owned(), then: Then::More };
    Program { source, ..code(language, "") }
}

/// A value kept in each language's kernel, and the way to print it.
fn memories(backend: &dyn Backend) -> Vec<(Language, &'static str, &'static str)> {
    let languages = backend.capabilities().languages;
    let known = [
        (Language::Python, "kept = 40 + 2", "print(kept)"),
        (Language::JavaScript, "const kept = 40 + 2", "console.log(kept)"),
        (Language::TypeScript, "const typed: number = kept", "console.log(typed as number)"),
        (Language::Shell, "kept=$((40 + 2))", "echo $kept"),
    ];
    known.into_iter().filter(|(language, ..)| languages.contains(language)).collect()
}

/// What a cell leaves in its kernel is there for the next, and for no program.
pub async fn a_kernel_remembers(backend: &dyn Backend) {
    let sandbox = open(backend, Limits::default()).await;
    for (language, keep, print) in memories(backend) {
        let first = run(&*sandbox, cell(language, keep)).await;
        // TypeScript lives in JavaScript's kernel.
        let expected = if language == Language::TypeScript { State::Preserved } else { State::Fresh };
        assert_eq!((first.finish.exit, first.finish.kernel), (Exit::Code(0), Some(expected)), "{language}: {first:?}");
        let second = run(&*sandbox, cell(language, print)).await;
        assert_eq!((second.stdout.trim(), second.finish.kernel), ("42", Some(State::Preserved)), "{second:?}");
    }
    let program = run(&*sandbox, code(Language::Python, "print('kept' in globals())")).await;
    assert_eq!((program.stdout.trim(), program.finish.kernel), ("False", None));
    sandbox.close().await.expect("closes");
}

/// A cell that is asked to stop does, and its kernel remembers what was before.
pub async fn an_interrupt_keeps_the_kernel(backend: &dyn Backend) {
    let sandbox = open(backend, Limits::default()).await;
    let busy = |language| match language {
        Language::Python => "print('up', flush=True)\nwhile True: pass",
        Language::Shell => "echo up; while :; do sleep 1; done",
        _ => "console.log('up'); for (;;) {}",
    };
    for (language, keep, print) in memories(backend) {
        run(&*sandbox, cell(language, keep)).await;
        let mut running = sandbox.start(cell(language, busy(language))).await.expect("the cell starts");
        let told = tokio::time::timeout(PATIENCE, async {
            loop {
                match running.next().await.expect("the sandbox stands") {
                    Event::Output { .. } => running.signal(2),
                    Event::Finished(finish) => return finish,
                    _ => {}
                }
            }
        });
        let finish = told.await.expect("it stops in time");
        assert_eq!((finish.exit, finish.kernel), (Exit::Code(130), Some(State::Preserved)), "{language}");
        assert_eq!(run(&*sandbox, cell(language, print)).await.stdout.trim(), "42", "{language}");
    }
    sandbox.close().await.expect("closes");
}

/// A kernel that ends is told to be lost, and the next one to be new.
pub async fn a_dead_kernel_is_told(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    run(&*sandbox, cell(Language::Python, "kept = 1")).await;
    let dies =
        run(&*sandbox, cell(Language::Python, "import os; print('last', flush=True); os.kill(os.getpid(), 11)")).await;
    assert_eq!((dies.finish.exit, dies.finish.kernel), (Exit::Signal(11), Some(State::Lost)));
    assert_eq!(dies.stdout.trim(), "last");
    let next = run(&*sandbox, cell(Language::Python, "print('kept' in globals())")).await;
    assert_eq!((next.stdout.trim(), next.finish.kernel), ("False", Some(State::Reset)));
    sandbox.close().await.expect("closes");
}

/// What a run made or changed in the workspace is told with its end.
pub async fn changed_files_are_told(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    sandbox.write("before.txt", b"x".to_vec()).await.expect("writes");
    let program =
        Program { changed_max: 2, ..command("mkdir d; echo 1 > d/a; echo 22 > b; echo 3 > c; cat before.txt") };
    let ran = run(&*sandbox, program).await;
    let paths: Vec<&str> = ran.changed.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!((paths, ran.changed.more), (vec!["b", "c"], 1));
    assert_eq!(ran.changed.entries[0].metadata.size, 3);
    let program = Program { changed_max: 2, ..cell(Language::Python, "open('b', 'a').write('more')") };
    let ran = run(&*sandbox, program).await;
    assert_eq!(ran.changed.entries.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), ["b"]);
    sandbox.close().await.expect("closes");
}

/// A place in which a kernel of `language` is started ahead of its first cell.
async fn open_waiting(backend: &dyn Backend, language: Language) -> Box<dyn Sandbox> {
    backend.open(&Spec { waiting: Some(language), ..Spec::default() }).await.expect("a sandbox opens")
}

/// Prints 42 and the value of the environment's `A`, in each language that has kernels.
fn answers(backend: &dyn Backend) -> Vec<(Language, &'static str)> {
    let languages = backend.capabilities().languages;
    let known = [
        (Language::Python, "import os; print(42, os.environ.get('A', 'none'))"),
        (Language::JavaScript, "console.log(42, process.env.A ?? 'none')"),
        (Language::TypeScript, "const n: number = 42; console.log(n, process.env.A ?? 'none')"),
        (Language::Shell, "echo 42 ${A-none}"),
    ];
    known.into_iter().filter(|(language, _)| languages.contains(language)).collect()
}

/// A kernel that waits takes the first cell, as new as one that was started for it, and is in the way of nothing else.
pub async fn a_waiting_kernel_answers(backend: &dyn Backend) {
    for (language, print) in answers(backend) {
        let sandbox = open_waiting(backend, language).await;
        if backend.capabilities().processes {
            let program = run(&*sandbox, command("sleep 4321.5 & echo beside")).await;
            assert_eq!((program.stdout.trim(), program.finish.exit), ("beside", Exit::Code(0)), "{language} waits");
        }
        let first = run(&*sandbox, cell(language, print)).await;
        assert_eq!(
            (first.stdout.trim(), first.finish.kernel),
            ("42 none", Some(State::Fresh)),
            "{language}: {first:?}"
        );
        for (other, print) in answers(backend) {
            let expected = if other.kernel() == language.kernel() { State::Preserved } else { State::Fresh };
            let ran = run(&*sandbox, cell(other, print)).await;
            // TypeScript and JavaScript share one: only the first of the two is told to be new.
            let told = ran.finish.kernel;
            assert!(told == Some(expected) || told == Some(State::Preserved), "{language}, then {other}: {ran:?}");
            assert_eq!(ran.stdout.trim(), "42 none", "{language}, then {other}: {ran:?}");
        }
        sandbox.close().await.expect("closes");
    }
}

/// An only cell in a kernel that waited ends as one that started with it, and nothing is told to be lost.
pub async fn a_waiting_kernel_takes_an_only_cell(backend: &dyn Backend) {
    for (language, print) in answers(backend) {
        let fail = match language {
            Language::Python => "import sys; print('last'); sys.exit(3)",
            Language::Shell => "echo last; exit 3",
            _ => "console.log('last'); process.exit(3)",
        };
        for (text, stdout, code) in [(print, "42 none", 0), (fail, "last", 3)] {
            let sandbox = open_waiting(backend, language).await;
            let source = Source::Cell { language, code: text.to_owned(), then: Then::End };
            let ran = run(&*sandbox, Program { source, ..cell(language, "") }).await;
            assert_eq!((ran.stdout.trim(), ran.finish.exit), (stdout, Exit::Code(code)), "{language}: {ran:?}");
            assert_ne!(ran.finish.kernel, Some(State::Lost), "{language}: {ran:?}");
            sandbox.close().await.expect("closes");
        }
    }
}

/// A cell's own environment is its kernel's, whether or not one waited without it.
pub async fn a_waiting_kernel_gives_way_to_an_environment(backend: &dyn Backend) {
    for (language, print) in answers(backend) {
        let sandbox = open_waiting(backend, language).await;
        let env = vec![("A".to_owned(), "own".to_owned())];
        let ran = run(&*sandbox, Program { env, ..cell(language, print) }).await;
        assert_eq!((ran.stdout.trim(), ran.finish.kernel), ("42 own", Some(State::Fresh)), "{language}: {ran:?}");
        let next = run(&*sandbox, cell(language, print)).await;
        assert_eq!(
            (next.stdout.trim(), next.finish.kernel),
            ("42 own", Some(State::Preserved)),
            "{language}: {next:?}"
        );
        sandbox.close().await.expect("closes");
    }
}

/// Of a first cell only its own files are told, at once after the place was opened and later.
pub async fn a_waiting_kernel_changes_nothing(backend: &dyn Backend) {
    for (language, _) in answers(backend) {
        let make = match language {
            Language::Python => "open('made', 'w').write('x')",
            Language::Shell => "echo x > made",
            _ => "require('fs').writeFileSync('made', 'x')",
        };
        for wait in [Duration::ZERO, Duration::from_millis(300)] {
            let sandbox = open_waiting(backend, language).await;
            sandbox.write("before.txt", b"x".to_vec()).await.expect("writes");
            tokio::time::sleep(wait).await;
            let ran = run(&*sandbox, Program { changed_max: 10, ..cell(language, make) }).await;
            let paths: Vec<&str> = ran.changed.entries.iter().map(|entry| entry.path.as_str()).collect();
            assert_eq!(paths, ["made"], "{language}: {ran:?}");
            sandbox.close().await.expect("closes");
        }
    }
}

/// What cannot wait keeps no place from opening.
pub async fn a_kernel_that_cannot_wait_is_none(backend: &dyn Backend) {
    let capabilities = backend.capabilities();
    let missing = capabilities.missing.iter().map(|(language, _)| *language);
    for language in missing.chain([Language::Go, Language::Rust]) {
        let sandbox = open_waiting(backend, language).await;
        if backend.capabilities().processes {
            assert_eq!(run(&*sandbox, command("echo fine")).await.stdout, "fine\n", "{language}");
        }
        for (other, print) in answers(backend) {
            assert_eq!(run(&*sandbox, cell(other, print)).await.stdout.trim(), "42 none", "{language}, then {other}");
        }
        sandbox.close().await.expect("closes");
    }
}

const ASK: &str = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('/home/agent/.belljar')\ns.sendall(b'how much?\\n')\n\
    told = b''\nwhile part := s.recv(100): told += part\nprint(told.decode())";

/// A process far below the program, in a session of its own, asks in its place.
const ASK_FROM_AFAR: &str = "import os, socket\nreading, writing = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    \
    if os.fork() == 0:\n        s = socket.socket(socket.AF_UNIX)\n        s.connect('/home/agent/.belljar')\n        \
    s.sendall(b'from afar\\n')\n        os.write(writing, s.recv(100))\n    os._exit(0)\nos.wait()\nprint(os.read(reading, 100).decode())";

/// Asks again and again, by a connection of its own each time, and says its line after the moment in which it was let in.
const ASK_OFTEN: &str = "import socket, time\nfor turn in range(200):\n    s = socket.socket(socket.AF_UNIX)\n    \
    s.connect('/home/agent/.belljar')\n    until = time.perf_counter() + turn * 2e-6\n    \
    while time.perf_counter() < until: pass\n    s.sendall(b'who?\\n')\n    s.recv(100)\n    s.close()\nprint('done')";

/// Leaves a process behind that asks when it is told to.
const ASK_LATE: &str = "import os, socket\nos.mkfifo('go')\nif os.fork() == 0:\n    os.setsid()\n    open('go').read()\n    \
    s = socket.socket(socket.AF_UNIX)\n    s.connect('/home/agent/.belljar')\n    s.sendall(b'late\\n')\n    s.recv(1)\n    os._exit(0)";

/// What a program asks comes out with the program's number, its answer comes in, and one that is given up is told.
pub async fn a_question_is_answered(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let next = || async { tokio::time::timeout(PATIENCE, sandbox.asked()).await.expect("in time").expect("stands") };
    for (text, line) in [(ASK, b"how much?\n"), (ASK_FROM_AFAR, b"from afar\n")] {
        let cell = Source::Cell { language: Language::Python, code: text.to_owned(), then: Then::More };
        for program in [code(Language::Python, text), Program { source: cell, ..code(Language::Python, "") }] {
            let running = sandbox.start(program).await.expect("the program starts");
            let number = running.number();
            let serve = async {
                let Asked::Question { id, by, body } = next().await else { panic!("nothing was asked") };
                assert_eq!((body.as_slice(), by), (&line[..], Some(number)));
                sandbox.answer(id, b"as much ".to_vec(), Part::MoreComes);
                sandbox.answer(id, b"as that".to_vec(), Part::Last);
            };
            let ((), ran) = tokio::join!(serve, finish(running));
            assert!(ran.stdout.trim().starts_with("as much"), "{ran:?}");
        }
    }
    let mut running = sandbox.start(code(Language::Python, ASK)).await.expect("starts");
    let Asked::Question { id, .. } = next().await else { panic!("nothing was asked") };
    running.stop();
    assert_eq!(next().await, Asked::Withdrawn { id });
    let late = Source::Cell { language: Language::Python, code: ASK_LATE.to_owned(), then: Then::More };
    let ran = run(&*sandbox, Program { source: late, ..code(Language::Python, "") }).await;
    assert_eq!(ran.finish.exit, Exit::Code(0), "{ran:?}");
    run(&*sandbox, command("echo >go")).await;
    let Asked::Question { by, body, .. } = next().await else { panic!("nothing was asked") };
    assert_eq!((body.as_slice(), by), (&b"late\n"[..], None));
    sandbox.close().await.expect("closes");
}

/// Whoever asks is known from the first word, whether that comes before the question is let in, after, or just then.
pub async fn every_question_has_its_asker(backend: &dyn Backend) {
    if lacks_processes(backend) {
        return;
    }
    let sandbox = open(backend, Limits::default()).await;
    let running = sandbox.start(code(Language::Python, ASK_OFTEN)).await.expect("the program starts");
    let number = running.number();
    let mut strangers = 0;
    let serve = async {
        loop {
            if let Asked::Question { id, by, .. } = sandbox.asked().await.expect("stands") {
                strangers += usize::from(by != Some(number));
                sandbox.answer(id, b"you".to_vec(), Part::Last);
            }
        }
    };
    let ran = tokio::select! {
        ran = finish(running) => ran,
        () = serve => unreachable!("it goes on"),
    };
    assert_eq!((ran.stdout.as_str(), strangers), ("done\n", 0), "{ran:?}");
    sandbox.close().await.expect("closes");
}

/// Doors are given once, for each granted port; without a network there is none.
pub async fn a_network_is_its_doors(backend: &dyn Backend) {
    if !backend.capabilities().network {
        return;
    }
    let grants = ["a.test", "b.test:8443"].map(|text| text.parse().expect("a grant")).to_vec();
    let spec = Spec { network: Network::Granted(grants), ..Spec::default() };
    let sandbox = backend.open(&spec).await.expect("a sandbox opens");
    match sandbox.doors() {
        Some(Doors::Sockets { transparent, .. }) => assert_eq!(transparent.len(), 3),
        Some(Doors::Relayed(mut relay)) => knocks_are_passed_on(&*sandbox, &mut *relay).await,
        None => panic!("there are no doors"),
    }
    assert!(sandbox.doors().is_none());
    assert_ne!(sandbox.isolation().network, "none");
    sandbox.close().await.expect("closes");
    let sandbox = open(backend, Limits::default()).await;
    assert!(sandbox.doors().is_none());
    assert_eq!(sandbox.isolation().network, "none");
    sandbox.close().await.expect("closes");
}

/// Asks for a name, connects to where it is told to go, and says and hears something there.
const GO_OUT: &str = "import socket\nquery = b'\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x01a\\x04test\\0\\0\\x01\\0\\x01'\n\
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nnames.settimeout(20)\nnames.sendto(query, ('127.0.0.1', 53))\n\
    print(names.recv(100).decode())\n\
    s = socket.create_connection(('127.64.0.7', 443))\ns.sendall(b'x' * 300000)\ns.shutdown(socket.SHUT_WR)\n\
    told = b''\nwhile part := s.recv(65536): told += part\nprint(len(told))";

/// Where the doors are relayed: a name and a connection come out with what the program meant, and go back.
async fn knocks_are_passed_on(sandbox: &dyn Sandbox, relay: &mut dyn Relay) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let running = sandbox.start(code(Language::Python, GO_OUT)).await.expect("starts");
    let serve = async {
        let next = tokio::time::timeout(PATIENCE, relay.next()).await.expect("in time").expect("stands");
        let Knock::Name { question, answer } = next else { panic!("no name was asked for") };
        assert!(question.ends_with(b"\x01a\x04test\0\0\x01\0\x01"), "{question:?}");
        answer(b"as told".to_vec());
        let next = tokio::time::timeout(PATIENCE, relay.next()).await.expect("in time").expect("stands");
        let Knock::Connection { to, stream } = next else { panic!("nobody came") };
        assert_eq!(to.to_string(), "127.64.0.7:443");
        let stream = std::os::unix::net::UnixStream::from(stream);
        let mut stream = tokio::net::UnixStream::from_std(stream).expect("a stream");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.expect("reads");
        assert_eq!(said.len(), 300_000);
        stream.write_all(&vec![b'y'; 700_000]).await.expect("writes");
    };
    let ((), ran) = tokio::join!(serve, finish(running));
    assert_eq!(ran.stdout, "as told\n700000\n", "{ran:?}");
}
