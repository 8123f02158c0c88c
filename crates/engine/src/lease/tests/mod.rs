//! Prepared sandboxes through the engine's door, on the fake backend. But for one, these are on tokio's paused clock: a
//! sleep ends when everything else waits.

mod keeping;
mod taking;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::{Language, Limits, Program, Source, Spec, Stdin, Then};
use belljar_testkit::fake::{Fake, Manners};
use tokio::time::sleep;

use super::memory::Memory;
use crate::{CreateRequest, Engine, PoolInfo, PoolSettings, Principal, RunRequest, Settings, Wants};

const MIB: u64 = 1024 * 1024;

fn me() -> Principal {
    Principal::local()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn pool_of(max: usize) -> PoolSettings {
    PoolSettings { memory_bytes: Some(256 * MIB), max }
}

/// An engine with a pool, on a host with memory to spare.
fn engine() -> (Arc<Fake>, Engine) {
    engine_with(Manners::default(), pool_of(32))
}

fn engine_with(manners: Manners, pool: PoolSettings) -> (Arc<Fake>, Engine) {
    let (fake, engine, _) = engine_on(manners, Settings { pool: Some(pool), ..Settings::default() });
    (fake, engine)
}

/// And with the percentage of its memory that is available.
fn engine_on(manners: Manners, settings: Settings) -> (Arc<Fake>, Engine, Arc<AtomicU64>) {
    let fake = Fake::new(manners);
    let available = Arc::new(AtomicU64::new(100));
    let told = available.clone();
    let gauge = move || vec![Memory { total_bytes: 100, available_bytes: told.load(Ordering::SeqCst) }];
    let engine = Engine::with_gauge(fake.clone(), settings, crate::Outside::default(), || Box::new(gauge));
    (fake, engine, available)
}

fn request(source: Source) -> RunRequest {
    let (env, cwd, stdin) = (Vec::new(), None, Stdin::empty());
    let program = Program { source, env, cwd, stdin, wall: secs(3600), changed_max: 0 };
    RunRequest { sandbox: None, program, wants: Wants::default() }
}

fn cell(language: Language, code: &str) -> RunRequest {
    request(Source::Cell { language, code: code.into(), then: Then::End })
}

fn python(code: &str) -> RunRequest {
    cell(Language::Python, code)
}

/// The number of the sandbox that the request is run in.
async fn place(engine: &Engine, request: RunRequest) -> usize {
    let run = engine.run(&me(), request).await.unwrap();
    String::from_utf8(run.report.stdout).unwrap().trim().parse().unwrap()
}

/// The same for one that was created.
async fn created(engine: &Engine, wished: CreateRequest) -> usize {
    let info = engine.create(&me(), wished).await.unwrap();
    let look = request(Source::Command("place".into()));
    place(engine, RunRequest { sandbox: Some(info.id.to_string()), ..look }).await
}

fn spawn(engine: &Engine, request: RunRequest) -> tokio::task::JoinHandle<usize> {
    let engine = engine.clone();
    tokio::spawn(async move { place(&engine, request).await })
}

/// What a program without wishes asks for.
fn usual(waiting: Option<Language>) -> Spec {
    Spec { limits: Limits::default(), waiting, ..Spec::default() }
}

#[track_caller]
fn pool(engine: &Engine, waiting: Option<Language>) -> PoolInfo {
    engine.prepared().into_iter().find(|pool| pool.waiting == waiting).unwrap()
}

#[track_caller]
fn assert_pool(engine: &Engine, waiting: Option<Language>, ready: usize, wanted: usize) {
    let pool = pool(engine, waiting);
    assert_eq!((pool.ready, pool.wanted), (ready, wanted), "(ready, wanted)");
}

#[track_caller]
fn assert_nothing_left(fake: &Fake) {
    assert_eq!((fake.sandboxes(), fake.programs()), (0, 0), "(sandboxes, programs) left");
}

/// Long enough for everything to be prepared that is wanted, and for everything to be closed that is not.
async fn settle() {
    sleep(ms(900)).await;
}
