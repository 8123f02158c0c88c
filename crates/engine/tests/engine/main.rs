//! The engine through its public door, on the fake backend and mostly on tokio's paused clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod admission;
mod cancel;
mod endings;
mod files;
mod jobs;
mod kernels;
mod observers;
mod outputs;
mod overview;
mod quota;
mod requests;
mod sandboxes;
mod shutdown;
mod wants;

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Language, Program, Source};
use belljar_engine::{CreateRequest, Engine, EngineError, Principal, Run, RunRequest, SandboxId, Settings, Wants};
use belljar_testkit::fake::{Fake, Manners};

fn me() -> Principal {
    Principal::local()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn engine() -> (Arc<Fake>, Engine) {
    engine_with(Manners::default(), Settings::default())
}

fn engine_with(manners: Manners, settings: Settings) -> (Arc<Fake>, Engine) {
    let fake = Fake::new(manners);
    (fake.clone(), Engine::new(fake, settings))
}

fn program(code: &str) -> Program {
    Program {
        source: Source::Code { language: Language::Python, code: code.into() },
        env: Vec::new(),
        cwd: None,
        stdin: belljar_core::Stdin::empty(),
        wall: Duration::from_secs(30),
        changed_max: 0,
    }
}

fn fresh(code: &str) -> RunRequest {
    RunRequest { sandbox: None, program: program(code), wants: Wants::default() }
}

fn within(id: &SandboxId, code: &str) -> RunRequest {
    RunRequest { sandbox: Some(id.to_string()), program: program(code), wants: Wants::default() }
}

fn walled(mut request: RunRequest, wall: Duration) -> RunRequest {
    request.program.wall = wall;
    request
}

async fn sandbox(engine: &Engine) -> SandboxId {
    engine.create(&me(), CreateRequest::default()).await.unwrap().id
}

/// A run on a task of its own, as a server would have it.
fn spawn(engine: &Engine, request: RunRequest) -> tokio::task::JoinHandle<Result<Run, EngineError>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.run(&me(), request).await })
}

/// Long enough for everything that is under way to come to its end, on the paused clock.
async fn settle() {
    tokio::time::sleep(ms(900)).await;
}

#[track_caller]
fn assert_nothing_left(fake: &Fake) {
    assert_eq!((fake.sandboxes(), fake.programs()), (0, 0), "(sandboxes, programs) left");
}

/// A server runs each call on a task of its own.
#[test]
fn every_call_can_be_sent_to_a_task() {
    fn sendable<T: Send>(_: impl FnOnce(Engine, Principal) -> T) {}
    let range = belljar_core::Range { offset: 0, length: 0 };
    sendable(|engine, who| async move { engine.run(&who, fresh("")).await });
    sendable(|engine, who| async move { engine.create(&who, CreateRequest::default()).await });
    sendable(|engine, who| async move { engine.destroy(&who, "").await });
    sendable(|engine, who| async move { engine.read(&who, "", "", range).await });
    sendable(|engine, who| async move { engine.write(&who, "", "", Vec::new()).await });
    sendable(|engine, who| async move { engine.list(&who, "", "", 0, 0).await });
    sendable(|engine, _| async move { engine.shutdown().await });
}

/// Every file here is a module of this binary: one that is left out would never run.
#[test]
fn no_file_is_left_out() {
    let listed = include_str!("main.rs");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || listed.contains(&format!("\nmod {module};\n")), "{name} is not listed");
    }
}
