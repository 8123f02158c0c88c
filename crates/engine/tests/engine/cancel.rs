//! Calls that are dropped: nothing may be left of them, at whatever moment it happens.

use belljar_core::State;
use belljar_engine::EngineError;
use belljar_testkit::fake::Manners;
use tokio::time::{sleep, timeout};

use super::*;

fn slow() -> Manners {
    Manners { open_takes: ms(20), start_takes: ms(20), close_takes: ms(20), ..Manners::default() }
}

#[tokio::test(start_paused = true)]
async fn a_throw_away_run_that_is_dropped_at_any_moment_leaves_nothing() {
    let mut seen_running = 0;
    for moment in 0..70 {
        let (fake, engine) = engine_with(slow(), Settings::default());
        let dropped = timeout(ms(moment), engine.run(&me(), fresh("print a\nsleep 20\nprint b"))).await;
        assert_eq!(dropped.is_ok(), moment > 60, "at {moment} ms");
        seen_running += fake.programs();
        tokio::time::sleep(ms(50)).await;
        assert_nothing_left(&fake);
        assert!(engine.run(&me(), fresh("print a")).await.is_ok());
    }
    assert!(seen_running > 10, "some of them were dropped while the program ran");
}

#[tokio::test(start_paused = true)]
async fn a_created_sandbox_stays_usable_after_a_run_that_is_dropped_at_any_moment() {
    let settings = Settings { runs_per_sandbox_max: 1, ..Settings::default() };
    for moment in 0..50 {
        let (fake, engine) = engine_with(slow(), settings.clone());
        let id = sandbox(&engine).await;
        engine.write(&me(), id.as_str(), "note", b"kept".to_vec()).await.unwrap();
        let dropped =
            timeout(ms(moment), engine.run(&me(), within(&id, "sleep 20\nwrite note changed\nsleep 10"))).await;
        assert!(dropped.is_err(), "at {moment} ms");
        let next = engine.run(&me(), within(&id, "cat note")).await.unwrap();
        assert_eq!(fake.most_programs(), 1, "the next began when nothing was left of the one before");
        assert_eq!(next.report.stdout, if moment < 40 { &b"kept"[..] } else { b"changed" }, "at {moment} ms");
        // A start that was under way is seen through and counts; before that, nothing had run.
        let state = if fake.started() == 1 { State::Fresh } else { State::Preserved };
        assert_eq!(next.report.state, state, "at {moment} ms");
        engine.destroy(&me(), id.as_str()).await.unwrap();
        assert_nothing_left(&fake);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_that_heeds_no_stop_takes_its_sandbox_along() {
    for code in ["hang", "stuck-start"] {
        let (fake, engine) = engine();
        let id = sandbox(&engine).await;
        assert!(timeout(ms(100), engine.run(&me(), within(&id, code))).await.is_err());
        assert_eq!(fake.programs(), 1, "{code}");
        sleep(ms(3500)).await;
        settle().await;
        assert_nothing_left(&fake);
        assert!(
            matches!(engine.run(&me(), within(&id, "print x")).await, Err(EngineError::SandboxGone { .. })),
            "{code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_create_leaves_nothing() {
    let (fake, engine) = engine_with(slow(), Settings { sandboxes_max: 1, ..Settings::default() });
    assert!(timeout(ms(10), engine.create(&me(), CreateRequest::default())).await.is_err());
    assert_nothing_left(&fake);
    assert_eq!(engine.sandboxes(&me()), []);
    sandbox(&engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_destroy_goes_on() {
    let (fake, engine) = engine_with(slow(), Settings::default());
    let id = sandbox(&engine).await;
    assert!(timeout(ms(5), engine.destroy(&me(), id.as_str())).await.is_err());
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_while_it_waits_gives_up_its_place() {
    let (fake, engine) = engine_with(Manners::default(), Settings { runs_max: 1, queue_max: 1, ..Settings::default() });
    let running = spawn(&engine, fresh("sleep 5000"));
    tokio::time::sleep(ms(10)).await;
    assert!(timeout(ms(10), engine.run(&me(), fresh("print dropped"))).await.is_err());
    tokio::time::sleep(ms(10)).await;
    let waiting = spawn(&engine, fresh("print b"));
    tokio::time::sleep(ms(10)).await;
    assert!(matches!(engine.run(&me(), fresh("print c")).await, Err(EngineError::Busy)));
    running.await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().report.stdout, b"b\n");
    assert_eq!(fake.started(), 2, "the dropped one never started");
}

/// The same on real threads and the real clock, where moments fall between instructions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_that_hangs_up_leaves_nothing() {
    let manners = Manners { open_takes: ms(1), start_takes: ms(1), close_takes: ms(1), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { runs_max: 16, ..Settings::default() });
    let created = sandbox(&engine).await;
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..400u64 {
        let engine = engine.clone();
        let request = match n % 4 {
            0 => within(&created, "print a\nsleep 3"),
            1 => fresh("flood"),
            _ => fresh("print a\nsleep 3"),
        };
        calls.spawn(async move {
            let patience = Duration::from_micros(n * 7919 % 20_000);
            let _ = timeout(patience, engine.run(&me(), request)).await;
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    let run = engine.run(&me(), within(&created, "print still here")).await.unwrap();
    assert_eq!(run.report.stdout, b"still here\n");
    assert!(fake.started() > 0);
    engine.shutdown().await;
    assert_nothing_left(&fake);
}
