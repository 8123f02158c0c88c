//! The engine's end.

use belljar_core::{Ending, Range, State};
use belljar_engine::{Attendance, Away, EngineError, Stays};
use belljar_testkit::fake::Manners;
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn shutdown_stops_all_and_returns_when_nothing_is_left() {
    let manners = Manners { open_takes: ms(20), close_takes: ms(100), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings { runs_max: 2, ..Settings::default() });
    let id = sandbox(&engine).await;
    sandbox(&engine).await;
    let created = spawn(&engine, within(&id, "print a\nsleep 20000"));
    let throw_away = spawn(&engine, fresh("print b\nhang"));
    sleep(ms(50)).await;
    let waiting = spawn(&engine, within(&id, "print never"));
    let opening = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.create(&me(), CreateRequest::default()).await })
    };
    sleep(ms(10)).await;
    assert_eq!((fake.sandboxes(), fake.programs()), (4, 2));

    tokio::join!(engine.shutdown(), engine.shutdown());
    assert_nothing_left(&fake);
    let created = created.await.unwrap().unwrap().report;
    assert_eq!((created.ending, created.state), (Ending::Cancelled, State::Lost));
    assert_eq!(created.stdout, b"a\n");
    let throw_away = throw_away.await.unwrap().unwrap().report;
    assert_eq!((throw_away.ending, throw_away.state), (Ending::Cancelled, State::Lost));
    assert_eq!(throw_away.stdout, b"b\n");
    assert!(matches!(waiting.await.unwrap(), Err(EngineError::ShuttingDown)));
    assert!(matches!(opening.await.unwrap(), Err(EngineError::ShuttingDown)));
    assert_eq!(fake.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_after_a_shutdown() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    engine.shutdown().await;
    let id = id.as_str();
    let errors = [
        engine.run(&me(), fresh("print a")).await.unwrap_err(),
        engine.create(&me(), CreateRequest::default()).await.unwrap_err(),
        engine.destroy(&me(), id).await.unwrap_err(),
        engine.read(&me(), id, "a", Range { offset: 0, length: 1 }).await.unwrap_err(),
        engine.write(&me(), id, "a", Vec::new()).await.unwrap_err(),
        engine.list(&me(), id, ".", 1, 1).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, EngineError::ShuttingDown), "{error:?}");
    }
    assert_eq!(engine.sandboxes(&me()), []);
    assert_eq!(fake.opened(), 1);
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_teardowns_under_way() {
    let (fake, engine) = engine_with(Manners { close_takes: ms(700), ..Manners::default() }, Settings::default());
    engine.run(&me(), fresh("print a")).await.unwrap();
    assert_eq!(fake.sandboxes(), 1);
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_engine_ends_everything() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let run = spawn(&engine, within(&id, "sleep 20000"));
    let other = engine.clone();
    sleep(ms(10)).await;
    drop(engine);
    settle().await;
    assert_eq!((fake.sandboxes(), fake.programs()), (1, 1), "a clone is left");
    run.abort();
    drop(other);
    settle().await;
    assert_nothing_left(&fake);
    assert_eq!(Arc::strong_count(&fake), 1, "no task of the engine is left");
}

#[test]
fn a_runtime_that_ends_first_leaves_nothing() {
    let fake = Fake::new(Manners::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = runtime.block_on(async {
        let engine = Engine::new(fake.clone(), Settings::default());
        let id = sandbox(&engine).await;
        drop(spawn(&engine, within(&id, "sleep 20000")));
        drop(spawn(&engine, fresh("sleep 20000")));
        sleep(ms(50)).await;
        engine
    });
    assert_eq!((fake.sandboxes(), fake.programs()), (2, 2));
    drop(runtime);
    drop(engine);
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_nothing_new_and_lets_the_rest_finish() {
    let (fake, engine) = engine_with(Manners::default(), Settings { runs_max: 1, ..Settings::default() });
    let id = sandbox(&engine).await;
    let running = spawn(&engine, within(&id, "sleep 1000\nprint done"));
    let waiting = spawn(&engine, fresh("sleep 1000\nprint done too"));
    sleep(ms(10)).await;
    let draining = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.drain(ms(5000)).await })
    };
    engine.draining().cancelled().await;
    assert!(!engine.stopping().is_cancelled());
    for error in [
        engine.run(&me(), fresh("print a")).await.unwrap_err(),
        engine.create(&me(), CreateRequest::default()).await.unwrap_err(),
        engine.list(&me(), id.as_str(), ".", 1, 1).await.unwrap_err(),
    ] {
        assert!(matches!(error, EngineError::ShuttingDown), "{error:?}");
    }
    assert!(!draining.is_finished());
    assert_eq!(running.await.unwrap().unwrap().report.stdout, b"done\n");
    assert_eq!(waiting.await.unwrap().unwrap().report.stdout, b"done too\n");
    assert!(draining.await.unwrap(), "all came to their end");
    engine.shutdown().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_drain_has_its_time_and_counts_jobs() {
    let (fake, engine) = engine();
    let attendance = Attendance::new(Stays::Away(Away::KeepsSandbox));
    let id = sandbox(&engine).await;
    engine.attend(&me(), within(&id, "sleep 60000"), attendance).await.unwrap();
    sleep(ms(10)).await;
    let begun = tokio::time::Instant::now();
    assert!(!engine.drain(ms(3000)).await);
    assert!((ms(3000)..ms(3100)).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(fake.programs(), 1, "a drain ends nothing");
    engine.shutdown().await;
    assert_nothing_left(&fake);
}
