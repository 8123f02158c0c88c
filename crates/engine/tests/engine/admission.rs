//! Whose turn it is.

use belljar_engine::EngineError;
use belljar_testkit::fake::Manners;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn programs_and_queue_are_bounded() {
    let (fake, engine) = engine_with(Manners::default(), Settings { runs_max: 2, queue_max: 6, ..Settings::default() });
    let runs: Vec<_> = (0..5).map(|_| spawn(&engine, fresh("sleep 1000"))).collect();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(fake.programs(), 2);
    assert!(matches!(engine.run(&me(), fresh("print a")).await, Err(EngineError::Busy)));
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!((fake.started(), fake.most_programs()), (5, 2));
    assert!(engine.run(&me(), fresh("print a")).await.is_ok(), "the queue is empty again");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_go_in_order() {
    let (_, engine) = engine_with(Manners::default(), Settings { runs_max: 1, ..Settings::default() });
    let begun = Instant::now();
    let runs: Vec<_> = (0..6).map(|_| spawn(&engine, fresh("sleep 100"))).collect();
    for (n, run) in runs.into_iter().enumerate() {
        run.await.unwrap().unwrap();
        let expected = ms(100) * (n as u32 + 1);
        assert!((expected..expected + ms(50)).contains(&begun.elapsed()), "{n}: {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn one_sandbox_has_so_many_seats_and_its_queue_is_the_common_one() {
    let settings = Settings { runs_per_sandbox_max: 2, runs_max: 8, queue_max: 6, ..Settings::default() };
    let (fake, engine) = engine_with(Manners::default(), settings);
    let id = sandbox(&engine).await;
    let runs: Vec<_> = (0..5).map(|_| spawn(&engine, within(&id, "sleep 100"))).collect();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(fake.programs(), 2);
    assert!(matches!(engine.run(&me(), within(&id, "print a")).await, Err(EngineError::Busy)));
    for run in runs {
        run.await.unwrap().unwrap();
    }
    assert_eq!(fake.most_programs(), 2);
    assert_eq!(engine.sandboxes(&me())[0].runs, 5);
}

#[tokio::test(start_paused = true)]
async fn a_full_sandbox_does_not_hold_up_the_others() {
    let settings = Settings { runs_per_sandbox_max: 1, runs_max: 2, ..Settings::default() };
    let (_, engine) = engine_with(Manners::default(), settings);
    let id = sandbox(&engine).await;
    let busy: Vec<_> = (0..4).map(|_| spawn(&engine, within(&id, "sleep 1000"))).collect();
    tokio::time::sleep(ms(10)).await;
    let begun = Instant::now();
    engine.run(&me(), fresh("print a")).await.unwrap();
    assert!(begun.elapsed() < ms(50), "{:?}", begun.elapsed());
    for run in busy {
        run.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn opening_waits_when_too_many_are_on_their_way_down() {
    let manners = Manners { close_takes: ms(20_000), ..Manners::default() };
    let (fake, engine) = engine_with(manners, Settings::default());
    let begun = Instant::now();
    for _ in 0..64 {
        engine.run(&me(), fresh("print a")).await.unwrap();
    }
    assert!(begun.elapsed() < ms(1000), "{:?}", begun.elapsed());
    assert_eq!(fake.sandboxes(), 64);
    engine.run(&me(), fresh("print a")).await.unwrap();
    assert!(begun.elapsed() >= ms(19_000), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_that_floods_waits_behind_its_own() {
    let (fake, engine) = engine_with(Manners::default(), Settings { runs_max: 4, ..Settings::default() });
    let flood: Vec<_> = (0..500).map(|_| spawn(&engine, fresh("sleep 1000"))).collect();
    tokio::time::sleep(ms(10)).await;
    let begun = Instant::now();
    let other = Principal::new("other");
    for _ in 0..10 {
        engine.run(&other, fresh("sleep 20")).await.unwrap();
    }
    assert!(begun.elapsed() < ms(1000), "{:?}", begun.elapsed());
    assert!(fake.most_programs() <= 5, "{}", fake.most_programs());
    flood.iter().for_each(|run| run.abort());
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_told_how_many_are_before_it() {
    let (_, engine) = engine_with(Manners::default(), Settings { runs_max: 1, ..Settings::default() });
    let running: Vec<_> = (0..3).map(|_| spawn(&engine, fresh("sleep 3000"))).collect();
    tokio::time::sleep(ms(10)).await;
    let (input, output) = (tokio::sync::mpsc::channel(1).1, tokio::sync::mpsc::unbounded_channel().0);
    let phase = belljar_engine::Phase::default();
    let mut told = phase.listen();
    let console = belljar_engine::Console { input, output, phase };
    let waits = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.run_with_console(&me(), fresh("print a"), console).await })
    };
    let mut heard = Vec::new();
    for _ in 0..4 {
        told.changed().await;
        heard.push(told.now());
    }
    let words = |n: usize| format!("waiting for a turn: {n} before it");
    assert_eq!(heard, [words(2), words(1), words(0), String::new()]);
    waits.await.unwrap().unwrap();
    drop(running);
}
