//! What programs ask of those outside: one connection, one question, one answer.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::sync::Arc;
use std::time::Duration;

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::wire::{Part, QUESTION_MAX, QUESTIONS_MAX};
use belljar_core::{Asked, Backend, Exit, Language, Sandbox, Spec};
use belljar_testkit::contract::{Ran, code, command, run};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

fn native() -> Arc<dyn Backend> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let host = Host { path, home: std::env::var_os("HOME").map(Into::into), ..Host::default() };
    choose(Choice::Native, &host, Preload::No)
}

async fn asked(sandbox: &dyn Sandbox) -> Asked {
    timeout(PATIENCE, sandbox.asked()).await.unwrap().unwrap()
}

async fn question(sandbox: &dyn Sandbox) -> (u32, Vec<u8>) {
    match asked(sandbox).await {
        Asked::Question { id, body, .. } => (id, body),
        Asked::Withdrawn { id } => panic!("{id} was withdrawn"),
    }
}

async fn python(sandbox: &dyn Sandbox, text: &str) -> Ran {
    let text = format!(
        "import socket\ndef ask(line):\n    s = socket.socket(socket.AF_UNIX)\n    s.connect('/home/agent/.belljar')\n    s.sendall(line)\n    return s\n\
         def answer(s):\n    parts = []\n    while (part := s.recv(65536)): parts.append(part)\n    return b''.join(parts)\n{text}"
    );
    run(sandbox, code(Language::Python, &text)).await
}

#[tokio::test]
async fn a_question_goes_out_and_its_answer_comes_back() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let serve = async {
        for _ in 0..3 {
            let (id, body) = question(&*sandbox).await;
            assert_eq!(body, b"{\"ask\": 1}\n");
            sandbox.answer(id, b"one ".to_vec(), Part::MoreComes);
            sandbox.answer(id, Vec::new(), Part::MoreComes);
            sandbox.answer(id, b"two".to_vec(), Part::Last);
            // To one that is over.
            sandbox.answer(id, b"three".to_vec(), Part::Last);
        }
    };
    let ((), ran) = tokio::join!(
        serve,
        python(&*sandbox, "for _ in range(3): print(answer(ask(b'{\"ask\": 1}\\n')))\ns = ask(b'')")
    );
    assert_eq!(ran.stdout, "b'one two'\n".repeat(3), "{}", ran.stderr);
}

#[tokio::test]
async fn a_long_question_and_a_long_answer_come_whole() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let long: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    let serve = async {
        let (id, body) = question(&*sandbox).await;
        assert_eq!(body.len(), QUESTION_MAX);
        assert!(body.ends_with(b"\n") && body[..body.len() - 1].iter().all(|byte| *byte == b'x'));
        sandbox.answer(id, long.clone(), Part::Last);
    };
    let text = format!(
        "a = answer(ask(b'x' * {} + b'\\n'))\nprint(len(a), all(byte == n % 251 for n, byte in enumerate(a)))\n\
         try: print(answer(ask(b'x' * {QUESTION_MAX} + b'\\n')) or 'refused')\nexcept OSError: print('refused')",
        QUESTION_MAX - 1
    );
    let ((), ran) = tokio::join!(serve, python(&*sandbox, &text));
    assert_eq!(ran.stdout, "5000000 True\nrefused\n", "{}", ran.stderr);
}

#[tokio::test]
async fn who_hangs_up_has_withdrawn() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let serve = async {
        let (id, body) = question(&*sandbox).await;
        assert_eq!(body, b"waits\n");
        let (other, body) = question(&*sandbox).await;
        assert_eq!(body, b"goes\n");
        sandbox.answer(id, b"go".to_vec(), Part::MoreComes);
        assert_eq!(asked(&*sandbox).await, Asked::Withdrawn { id: other });
        sandbox.answer(other, vec![0; 1 << 20], Part::Last);
        sandbox.answer(id, b"on".to_vec(), Part::Last);
    };
    let ((), ran) = tokio::join!(
        serve,
        python(
            &*sandbox,
            "s, t = ask(b'waits\\n'), ask(b'goes\\n')\nassert s.recv(2) == b'go'\nt.close()\nprint(answer(s))"
        )
    );
    assert_eq!(ran.stdout, "b'on'\n", "{}", ran.stderr);
    // A program that ends takes its questions with it.
    let gone = tokio::join!(python(&*sandbox, "ask(b'last\\n').recv(1)"), async {
        let (id, _) = question(&*sandbox).await;
        sandbox.answer(id, b"x".to_vec(), Part::MoreComes);
        assert_eq!(asked(&*sandbox).await, Asked::Withdrawn { id });
    });
    assert_eq!(gone.0.finish.exit, Exit::Code(0), "{}", gone.0.stderr);
}

#[tokio::test]
async fn who_does_not_read_holds_up_nobody() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let serve = async {
        let (deaf, _) = question(&*sandbox).await;
        sandbox.answer(deaf, vec![7; 64 << 20], Part::Last);
        for _ in 0..3 {
            let (id, _) = question(&*sandbox).await;
            sandbox.answer(id, b"ok".to_vec(), Part::Last);
        }
    };
    let text = "deaf = ask(b'deaf\\n')\nhalf = ask(b'no end')\nfor _ in range(3): print(answer(ask(b'hears\\n')))";
    let ((), ran) = tokio::join!(serve, python(&*sandbox, text));
    assert_eq!(ran.stdout, "b'ok'\n".repeat(3), "{}", ran.stderr);
    assert_eq!(run(&*sandbox, command("echo here")).await.stdout, "here\n");
}

#[tokio::test]
async fn a_flood_of_questions_is_bounded() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    // Nobody takes any of these; what they are is kept by nobody but themselves.
    let flood = "all = []\nfor n in range(200):\n    s = socket.socket(socket.AF_UNIX)\n    s.setblocking(False)\n    \
        try:\n        s.connect('/home/agent/.belljar')\n        s.send(b'x' * 100 + b'\\n')\n        all.append(s)\n    except OSError: pass\n\
        print(len(all))";
    let ran = python(&*sandbox, flood).await;
    let held: usize = ran.stdout.trim().parse().unwrap();
    // Those that are let in, and those that wait for it.
    assert!((1..=QUESTIONS_MAX + 40).contains(&held), "{held} {}", ran.stderr);
    for _ in 0..5 {
        python(&*sandbox, "for n in range(400): ask(b'x' * 60000 + b'\\n').close()").await;
    }
    assert_eq!(run(&*sandbox, command("echo here")).await.stdout, "here\n");
    let serve = async {
        // All of the flood was withdrawn before anybody took it.
        let (id, body) = question(&*sandbox).await;
        sandbox.answer(id, body, Part::Last);
    };
    let ((), ran) = tokio::join!(serve, python(&*sandbox, "print(answer(ask(b'after\\n')))"));
    assert_eq!(ran.stdout, "b'after\\n'\n", "{}", ran.stderr);
}

#[tokio::test]
async fn a_place_that_is_gone_asks_nothing() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let other = backend.open(&Spec::default()).await.unwrap();
    // The socket of one is not that of another.
    let ran = tokio::join!(python(&*sandbox, "print(answer(ask(b'one\\n')))"), async {
        let (id, _) = question(&*sandbox).await;
        assert!(timeout(Duration::from_millis(200), other.asked()).await.is_err());
        sandbox.answer(id, b"1".to_vec(), Part::Last);
    });
    assert_eq!(ran.0.stdout, "b'1'\n");
    // The name is taken before any program runs.
    let take =
        "s = socket.socket(socket.AF_UNIX)\ntry: s.bind('/home/agent/.belljar')\nexcept OSError as e: print(e.errno)";
    assert_eq!(python(&*sandbox, take).await.stdout, "98\n");
}

#[tokio::test]
async fn a_line_that_does_not_end_is_not_waited_for() {
    let backend = native();
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    let text = "import time\nbegan = time.monotonic()\ns = ask(b'no end')\nprint(s.recv(1), 5 < time.monotonic() - began < 30)";
    assert_eq!(python(&*sandbox, text).await.stdout, "b'' True\n");
    assert!(timeout(Duration::from_millis(100), sandbox.asked()).await.is_err(), "it was no question");
}
