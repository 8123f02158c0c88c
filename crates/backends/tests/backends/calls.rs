//! What calls tools of other servers in a real sandbox: the names are there in every language, and a call is answered.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::wire::Part;
use belljar_core::{Asked, Backend, Exit, Language, Layer, LayerKind, Program, Sandbox, Source, Spec, Stdin, Then};
use belljar_testkit::contract::{Ran, code, command, finish};
use tempfile::TempDir;

const INDEX: &str = r#"{"servers": {"demo": {"name": "demo", "tools": {"echo": {"name": "echo", "parameters": ["text"], "required": ["text"]}}}}}"#;

/// Prints what the kernel's runner is called.
const RUNNER: &str = "import os\nprint(open(f'/proc/{os.getppid()}/cmdline').read().split('\\0')[0])";

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
    let tools = store.path().join("d".repeat(40));
    fs::create_dir_all(&tools).unwrap();
    fs::write(tools.join("index.json"), INDEX).unwrap();
    Ground { backend: choose(Choice::Native, &host, preload), store }
}

async fn open(ground: &Ground, waiting: Option<Language>) -> Box<dyn Sandbox> {
    assert!(ground.store.path().exists());
    let layers = vec![Layer { kind: LayerKind::Tools, id: "d".repeat(40) }];
    ground.backend.open(&Spec { layers, waiting, ..Spec::default() }).await.unwrap()
}

/// Runs a program and answers its calls, each of which has to be its own, with the text that they carry.
async fn served(sandbox: &dyn Sandbox, program: Program) -> Ran {
    let running = sandbox.start(program).await.unwrap();
    let number = running.number();
    let serve = async {
        loop {
            let Asked::Question { id, by, body } = sandbox.asked().await.unwrap() else { continue };
            assert_eq!(by, Some(number), "{}", String::from_utf8_lossy(&body));
            let question: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let value = &question["call"]["arguments"]["text"];
            let call = &question["call"];
            assert!(
                call["tool"] == "echo" || call["name"].as_str().is_some_and(|name| name.ends_with("echo")),
                "{call}"
            );
            sandbox.answer(id, format!("{{\"value\": {value}, \"parsed\": false}}\n").into_bytes(), Part::Last);
        }
    };
    tokio::select! {
        ran = finish(running) => ran,
        () = serve => unreachable!(),
    }
}

fn cell(language: Language, text: &str, then: Then) -> Program {
    let source = Source::Cell { language, code: text.to_owned(), then };
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall: Duration::from_secs(30), changed_max: 0 }
}

#[tokio::test]
async fn every_language_calls() {
    let ground = ground(Preload::No);
    let sandbox = open(&ground, None).await;
    let python = "print(tools.demo.echo(text='a'))\nfrom tools import demo\nprint(demo.echo(text='b'), call_tool('demo.echo', {'text': 'c'}))";
    let node = "const { demo } = require('tools'); tools.demo.echo({text: 'a'}).then(async (a) => \
        console.log(a + '\\n' + await demo.echo({text: 'b'}), await (await import('tools')).demo.echo({text: 'c'})))";
    let typescript = "import { demo, type Nothing } from 'tools';\nconst a: string = await demo.echo({text: 'a'});\n\
        console.log(a); console.log(await tools.demo.echo({text: 'b'}), await demo.echo({text: 'c'}))";
    let shell = "tools call demo echo text=a; echo $(tools call demo.echo text=b) $(tools call echo text=c)";
    let mut programs = vec![
        code(Language::Python, python),
        cell(Language::Python, python, Then::More),
        cell(Language::Python, python, Then::End),
        command(shell),
        cell(Language::Shell, shell, Then::More),
    ];
    if ground.backend.capabilities().languages.contains(&Language::JavaScript) {
        programs.extend([
            code(Language::JavaScript, node),
            cell(Language::JavaScript, node, Then::End),
            cell(Language::TypeScript, typescript, Then::More),
        ]);
    }
    for program in programs {
        let told = format!("{:?}", program.source);
        let ran = served(&*sandbox, program).await;
        assert_eq!(
            (ran.stdout.as_str(), ran.finish.exit),
            ("a\nb c\n", Exit::Code(0)),
            "{told}: {} {:?}",
            ran.stderr,
            ran.records
        );
    }
}

/// Not a promise of any speed: it tells what a call takes, for whoever changes something on its way.
#[tokio::test]
async fn a_thousand_calls_one_after_the_other() {
    for preload in [Preload::No, Preload::Yes] {
        let ground = ground(preload);
        let mut sandbox = open(&ground, Some(Language::Python)).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        // Until there is a zygote that it is forked from.
        while preload == Preload::Yes
            && !served(&*sandbox, cell(Language::Python, RUNNER, Then::More)).await.stdout.contains("runner")
        {
            assert!(Instant::now() < deadline, "there is no zygote");
            sandbox = open(&ground, Some(Language::Python)).await;
        }
        let text = "import time\nbegan = time.perf_counter()\nimport tools\nimported = time.perf_counter()\n\
            tools.demo.echo(text='first')\nfirst = time.perf_counter()\n\
            for n in range(1000): assert tools.demo.echo(text=n) == n\nlast = time.perf_counter()\n\
            print('import %.0f us, first call %.0f us, each call %.1f us' % ((imported - began) * 1e6, (first - imported) * 1e6, (last - first) * 1e3))";
        let ran = served(&*sandbox, cell(Language::Python, text, Then::More)).await;
        assert!(ran.stdout.contains("each call"), "{} {:?}", ran.stderr, ran.records);
        println!("{preload:?}: {}", ran.stdout.trim());
    }
}
