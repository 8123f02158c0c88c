//! The wasm wall with its real interpreters: `scripts/wasm-guests` fetches them, `cargo build -p belljar-wasm` makes the
//! worker.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, Preload, WallSettings, WasmSettings, choose, compile_wasm};
use belljar_core::wire::Part;
use belljar_core::{
    Asked, Backend, BackendError, Event, Exit, Language, Limits, Network, Program, Range, Sandbox, Source, Spec, State,
    Then,
};
use belljar_testkit::contract::{Ran, code, command, finish, run};

const PATIENCE: Duration = Duration::from_secs(30);

/// Debug or release, whichever the tests are.
fn worker() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let worker = tests.ancestors().nth(2).unwrap().join("belljar-wasm");
    assert!(worker.is_file(), "there is no {}: run `cargo build -p belljar-wasm`", worker.display());
    worker
}

fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(|| {
        let guests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/wasm")).canonicalize();
        let guests = guests.unwrap_or_else(|_| panic!("there is no target/wasm: run `scripts/wasm-guests`"));
        let wasm = WasmSettings {
            python: Some(guests.join("python.wasm")),
            javascript: Some(guests.join("javascript.wasm")),
            worker: Some(worker()),
        };
        let host = Host {
            cache: Some(guests.join("compiled")),
            walls: WallSettings { wasm, ..WallSettings::default() },
            ..Host::default()
        };
        compile_wasm(&host, None).unwrap();
        host
    })
}

fn wasm() -> Arc<dyn Backend> {
    choose(Choice::Wasm, host(), Preload::No)
}

// What the suite does by commands is skipped here, and below with code.
belljar_testkit::keeps_the_contract!(wasm, std::future::ready(wasm()));

fn cell(language: Language, text: &str) -> Program {
    let source = Source::Cell { language, code: text.to_owned(), then: Then::More };
    Program { source, ..code(language, "") }
}

async fn open(limits: Limits) -> Box<dyn Sandbox> {
    wasm().open(&Spec { limits, ..Spec::default() }).await.unwrap()
}

async fn python(sandbox: &dyn Sandbox, text: &str) -> Ran {
    run(sandbox, code(Language::Python, text)).await
}

#[tokio::test]
async fn streams_are_kept_apart_and_an_exit_code_is_told() {
    let sandbox = open(Limits::default()).await;
    let text =
        "import sys\nfor i in range(2000):\n    print('out', i)\n    print('err', i, file=sys.stderr)\nsys.exit(200)";
    let ran = python(&*sandbox, text).await;
    assert_eq!((ran.stdout.lines().count(), ran.stderr.lines().count()), (2000, 2000));
    assert_eq!(ran.finish.exit, Exit::Code(200));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn files_stay_in_their_sandbox() {
    let (one, other) = (open(Limits::default()).await, open(Limits::default()).await);
    let made = python(&*one, "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').write('mine')").await;
    assert_eq!(made.finish.exit, Exit::Code(0), "{made:?}");
    let whole = Range { offset: 0, length: 100 };
    assert_eq!(one.read("a/b/c", whole).await.unwrap().bytes, b"mine");
    assert!(other.read("a/b/c", whole).await.is_err());
    one.write("new/deep/file", vec![7; 300_000]).await.unwrap();
    let seen = python(&*one, "print(len(open('/workspace/new/deep/file', 'rb').read()))").await;
    assert_eq!(seen.stdout, "300000\n", "{}", seen.stderr);
    assert!(one.write("/usr/planted", vec![1]).await.is_err());
    let told =
        run(&*one, Program { changed_max: 10, ..code(Language::Python, "open('told.txt', 'w').write('x')") }).await;
    let told: Vec<_> = told.changed.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(told, ["told.txt"]);
    one.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test]
async fn no_path_leads_out() {
    let sandbox = open(Limits::default()).await;
    let text = "import os
def attempt(path, how=lambda path: open(path).read(50)):
    try: print('OUT', path, how(path))
    except OSError as error: print('held')
for path in ('/etc/passwd', '/proc/self/status', '/usr/lib/os-release', '../etc/passwd', '/workspace/../etc/passwd',
        '/workspace/../../proc/1/maps', '/belljar/wasm/python.cwasm', '/dev/null', '/belljar/lines/other'): attempt(path)
for target in ('/etc/passwd', '../../etc/passwd', '/proc/1/maps', '..'):
    try: os.symlink(target, 'link')
    except OSError: pass
    attempt('link'); attempt('link/etc/passwd'); attempt('link', os.listdir)
    try: os.unlink('link')
    except OSError: pass
attempt('/tools/x', lambda path: open(path, 'w'))
attempt('/belljar/lib/tools.py', lambda path: open(path, 'w'))
attempt('/', os.listdir)
for name in ('a\\nb', '\\udcff', '-rf', ' ', 'x' * 200):
    try: open(name, 'w').write('1')
    except (OSError, ValueError): pass
print(len(os.listdir('.')) > 2)";
    let ran = python(&*sandbox, text).await;
    assert!(!ran.stdout.contains("OUT"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("True\n"), "{} {}", ran.stdout, ran.stderr);
    // A link that code has made is followed inside the place alone, in which there is nothing of the host's but libraries.
    assert!(sandbox.list(".", 1, 100).await.unwrap().entries.len() > 2);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn memory_is_held_and_the_sandbox_survives_it() {
    let sandbox = open(Limits { memory_bytes: 64 << 20, ..Limits::default() }).await;
    let ran = python(&*sandbox, "b = bytearray(100 << 20)").await;
    assert_eq!(ran.finish.exit, Exit::OutOfMemory, "{ran:?}");
    // Together they have more than the limit, and each has less.
    run(&*sandbox, cell(Language::Python, "b = bytearray(30 << 20)")).await;
    let ran = python(&*sandbox, "b = bytearray(30 << 20)").await;
    assert_eq!(ran.finish.exit, Exit::OutOfMemory, "{ran:?}");
    let ran = run(&*sandbox, cell(Language::Python, "len(b) >> 20")).await;
    assert!(ran.records.iter().any(|record| record.contains("30")), "{ran:?}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn the_disk_is_held() {
    let sandbox = open(Limits { disk_bytes: 4 << 20, ..Limits::default() }).await;
    let text = "n = 0\ntry:\n    with open('big', 'wb') as f:\n        while n < 16 << 20: n += f.write(bytes(1 << 16))\n\
        except OSError as error: print(error.errno, n <= 5 << 20)";
    let ran = python(&*sandbox, text).await;
    assert_eq!(ran.stdout, "51 True\n", "{}", ran.stderr);
    assert!(sandbox.write("more", vec![1; 1 << 20]).await.is_err());
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn endless_code_is_stopped_at_once() {
    let sandbox = open(Limits::default()).await;
    for text in ["print('up', flush=True)\nwhile True: pass", "print('up', flush=True)\nimport time\ntime.sleep(1000)"]
    {
        let mut running = sandbox.start(code(Language::Python, text)).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), Event::Output { .. }));
        let asked = Instant::now();
        running.stop();
        let ran = tokio::time::timeout(PATIENCE, finish(running)).await.unwrap();
        assert_eq!(ran.finish.exit, Exit::Signal(9), "{ran:?}");
        assert!(asked.elapsed() < Duration::from_millis(500), "took {:?}", asked.elapsed());
    }
    assert_eq!(python(&*sandbox, "print(1)").await.stdout, "1\n");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn an_interrupt_is_an_exception_that_code_can_catch() {
    let sandbox = open(Limits::default()).await;
    for waits in ["while True: kept += 0", "import time; time.sleep(1000)"] {
        let text = format!(
            "kept = 1\ntry:\n    print('up', flush=True)\n    {waits}\nexcept KeyboardInterrupt: print('caught')\n7"
        );
        let mut running = sandbox.start(cell(Language::Python, &text)).await.unwrap();
        assert!(matches!(running.next().await.unwrap(), Event::Output { .. }));
        running.signal(2);
        let ran = finish(running).await;
        assert_eq!((ran.stdout.as_str(), ran.finish.exit), ("caught\n", Exit::Code(0)), "{ran:?}");
    }
    let ran = run(&*sandbox, cell(Language::Python, "kept")).await;
    assert_eq!(ran.finish.kernel, Some(State::Preserved));
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn programs_overlap() {
    let sandbox = open(Limits::default()).await;
    let text = "import time\nprint(1)\ntime.sleep(1)\nprint(2)";
    let began = Instant::now();
    let (one, other, third) = tokio::join!(python(&*sandbox, text), python(&*sandbox, text), python(&*sandbox, text));
    assert_eq!([&one.stdout, &other.stdout, &third.stdout], ["1\n2\n"; 3]);
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_millis(2700)).contains(&took), "one after the other: {took:?}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_call_goes_out_and_its_answer_comes_back() {
    let sandbox = open(Limits::default()).await;
    let serve = async {
        let Asked::Question { id, by, body } = sandbox.asked().await.unwrap() else { panic!("withdrawn") };
        assert!(by.is_some());
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("\"s.t\"") && body.contains("41"), "{body}");
        sandbox.answer(id, b"{\"value\": ".to_vec(), Part::MoreComes);
        sandbox.answer(id, b"42}\n".to_vec(), Part::Last);
    };
    let text = "from mcp_runtime import call_tool\nprint(call_tool('s.t', {'a': 41}))";
    let ((), ran) = tokio::join!(serve, python(&*sandbox, text));
    assert_eq!(ran.stdout, "42\n", "{}", ran.stderr);
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn what_it_cannot_do_is_said() {
    let sandbox = open(Limits::default()).await;
    let ran = run(&*sandbox, command("ls")).await;
    assert_eq!(ran.finish.exit, Exit::Code(127));
    assert!(ran.stderr.contains("no processes") && ran.stderr.contains("run_code"), "{}", ran.stderr);
    let ran = python(&*sandbox, "import subprocess\nsubprocess.run(['ls'])").await;
    assert_eq!(ran.finish.exit, Exit::Code(1));
    let capabilities = wasm().capabilities();
    assert!(!capabilities.processes && !capabilities.network && !capabilities.images);
    let network = Network::Granted(Vec::new());
    let refused = wasm().open(&Spec { network, ..Spec::default() }).await.unwrap_err();
    assert!(matches!(refused, BackendError::Lacks { .. }), "{refused}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn javascript_is_what_code_expects() {
    let sandbox = open(Limits::default()).await;
    let script = |text: &'static str| run(&*sandbox, code(Language::JavaScript, text));
    let ran =
        script("setTimeout(() => console.log('later', [1, {a: 'b'}]), 20); await null; console.error('now')").await;
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("later [ 1, { a: 'b' } ]\n", "now\n"), "{ran:?}");
    let ran = script("const fs = require('fs'); fs.writeFileSync('js.txt', 'x'.repeat(9)); console.log(fs.readFileSync('/workspace/js.txt').length, fs.readdirSync('.'))").await;
    assert_eq!(ran.stdout, "9 [ 'js.txt' ]\n", "{ran:?}");
    let ran = script("throw new TypeError('no')").await;
    assert!(ran.finish.exit == Exit::Code(1) && ran.stderr.contains("TypeError: no"), "{ran:?}");
    let text = "const fs = require('fs'); for (const path of ['/etc/passwd', '/proc/1/maps', '../etc/passwd', '/workspace/../etc/passwd', '/tmp/../usr/lib/os-release'])\n\
        try { console.log('OUT', fs.readFileSync(path)) } catch (error) { console.log(error.code) }\n\
        try { fs.writeFileSync('/tools/x', 'x'); console.log('OUT') } catch (error) { console.log(error.code) }";
    let ran = script(text).await;
    assert!(!ran.stdout.contains("OUT") && ran.stdout.lines().count() == 6, "{ran:?}");
    python(&*sandbox, "import os\nos.symlink('../etc/passwd', 'away')").await;
    let ran = script(
        "try { console.log('OUT', require('fs').readFileSync('away')) } catch (error) { console.log(error.code) }",
    )
    .await;
    assert!(!ran.stdout.contains("OUT"), "{ran:?}");
    let ran = run(&*sandbox, cell(Language::JavaScript, "let n = 2;\n({ n, list: [1, 2] })")).await;
    assert!(ran.records.iter().any(|record| record.contains("{ n: 2, list: [ 1, 2 ] }")), "{ran:?}");
    let ran = run(&*sandbox, cell(Language::TypeScript, "let n: number = n + 1\nn")).await;
    assert!(ran.records.iter().any(|record| record.contains("NaN") || record.contains('3')), "{ran:?}");
    let ran = run(&*sandbox, cell(Language::JavaScript, "nothing.there")).await;
    assert!(
        ran.finish.exit == Exit::Code(1) && ran.records.iter().any(|record| record.contains("ReferenceError")),
        "{ran:?}"
    );
    let small = open(Limits { memory_bytes: 32 << 20, ..Limits::default() }).await;
    let ran =
        run(&*small, code(Language::JavaScript, "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))"))
            .await;
    assert_eq!(ran.finish.exit, Exit::OutOfMemory, "{ran:?}");
    sandbox.close().await.unwrap();
    small.close().await.unwrap();
}

#[tokio::test]
async fn javascript_calls_tools() {
    let sandbox = open(Limits::default()).await;
    let serve = async {
        let Asked::Question { id, body, .. } = sandbox.asked().await.unwrap() else { panic!("withdrawn") };
        let body = String::from_utf8(body).unwrap();
        assert!(body.contains("\"server\":\"s\"") && body.contains("41"), "{body}");
        sandbox.answer(id, b"{\"value\": 42}\n".to_vec(), Part::Last);
    };
    let text = "import { s } from 'tools'\nconsole.log(await s.t({ a: 41 }))";
    let ((), ran) = tokio::join!(serve, run(&*sandbox, code(Language::JavaScript, text)));
    assert_eq!(ran.stdout, "42\n", "{ran:?}");
    sandbox.close().await.unwrap();
}

#[tokio::test]
async fn a_cache_that_others_could_write_is_not_run() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir().unwrap();
    let mut host = host().clone();
    let compiled = host.cache.replace(place.path().to_owned()).unwrap().join("wasm");
    let into = place.path().join("wasm");
    std::fs::create_dir(&into).unwrap();
    for entry in std::fs::read_dir(compiled).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), into.join(entry.file_name())).unwrap();
    }
    assert_eq!(choose(Choice::Wasm, &host, Preload::No).capabilities().interpreters.len(), 2);
    let mode = |path: &std::path::Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&into, 0o777);
    let backend = choose(Choice::Wasm, &host, Preload::No);
    assert!(backend.capabilities().interpreters.is_empty() && !backend.probe().usable());
    let refused = backend.open(&Spec::default()).await.unwrap_err();
    assert!(matches!(refused, BackendError::Unavailable { .. }), "{refused}");
    mode(&into, 0o755);
    for entry in std::fs::read_dir(&into).unwrap() {
        mode(&entry.unwrap().path(), 0o666);
    }
    assert!(choose(Choice::Wasm, &host, Preload::No).capabilities().interpreters.is_empty());
}

/// Prints what starts cost; for a quiet machine and an optimised build.
#[tokio::test]
#[ignore = "measures, and asserts nothing"]
async fn figures() {
    let median = |mut all: Vec<Duration>| {
        all.sort();
        all[all.len() / 2]
    };
    let backend = wasm();
    let only = |text: &str| {
        let source = Source::Cell { language: Language::Python, code: text.to_owned(), then: Then::End };
        Program { source, ..code(Language::Python, "") }
    };
    let (mut floor, mut fresh, mut pooled) = (Vec::new(), Vec::new(), Vec::new());
    let stands = open(Limits::default()).await;
    for _ in 0..11 {
        // The module is loaded: an instance, and the interpreter's own start.
        let began = Instant::now();
        assert_eq!(python(&*stands, "print(1)").await.stdout, "1\n");
        floor.push(began.elapsed());

        let began = Instant::now();
        let sandbox = backend.open(&Spec::default()).await.unwrap();
        assert_eq!(run(&*sandbox, only("print(1)")).await.stdout, "1\n");
        fresh.push(began.elapsed());
        sandbox.close().await.unwrap();

        let spec = Spec { waiting: Some(Language::Python), ..Spec::default() };
        let sandbox = backend.open(&spec).await.unwrap();
        // Whatever it does ahead it has done by then.
        run(&*sandbox, code(Language::Python, "import time; time.sleep(0.3)")).await;
        let began = Instant::now();
        assert_eq!(run(&*sandbox, only("print(1)")).await.stdout, "1\n");
        pooled.push(began.elapsed());
        sandbox.close().await.unwrap();
    }
    let (floor, fresh, pooled) = (median(floor), median(fresh), median(pooled));
    eprintln!("an instance in a standing worker {floor:?}, fresh sandbox {fresh:?}, prepared sandbox {pooled:?}");
}
