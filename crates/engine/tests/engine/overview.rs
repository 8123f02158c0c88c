//! What the operator sees and does, whoever's it is.

use belljar_core::Ending;
use belljar_engine::{Attendance, Away, Event, Observer, Outside, Stays};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn everybodys_things_are_seen_and_can_be_ended() {
    let (fake, engine) = engine();
    let other = Principal::new("other");
    let id = engine.create(&other, CreateRequest::default()).await.unwrap().id;
    let mine = spawn(&engine, fresh("print a\nsleep 20000"));
    sleep(ms(50)).await;
    let away = Attendance::new(Stays::Away(Away::KeepsSandbox));
    engine.attend(&other, within(&id, "print b\nsleep 20000"), away).await.unwrap();
    sleep(ms(50)).await;

    let seen = engine.overview();
    assert_eq!(seen.backend, "fake");
    let sandboxes: Vec<_> = seen.sandboxes.iter().map(|(owner, info)| (owner.as_str(), &info.id)).collect();
    assert_eq!(sandboxes, [("other", &id)]);
    let runs: Vec<_> = seen.runs.iter().map(|run| (run.owner.as_str(), run.kind, run.has_begun, run.is_job)).collect();
    assert_eq!(runs, [("local", "python", true, false), ("other", "python", true, true)]);
    assert_eq!(seen.runs[1].sandbox.as_ref(), Some(&id));

    let printed = engine.look_at(seen.runs[0].id.as_str()).unwrap();
    assert_eq!((printed.stdout.as_slice(), printed.ending), (&b"a\n"[..], None));
    let printed = engine.look_at(id.as_str()).unwrap();
    assert_eq!((printed.stdout.as_slice(), &printed.run), (&b"b\n"[..], &seen.runs[1].id));
    assert_eq!(engine.look_at("run_of_nobody"), None);

    assert!(engine.kill(seen.runs[0].id.as_str()).await.unwrap());
    assert_eq!(mine.await.unwrap().unwrap().report.ending, Ending::Cancelled);
    assert!(engine.kill(id.as_str()).await.unwrap());
    settle().await;
    assert_nothing_left(&fake);
    let seen = engine.overview();
    assert!(seen.sandboxes.is_empty() && seen.runs.is_empty(), "{seen:?}");
    assert!(!engine.kill(id.as_str()).await.unwrap());
    let printed = engine.look_at(id.as_str()).unwrap();
    assert_eq!(
        (printed.stdout.as_slice(), printed.ending),
        (&b"b\n"[..], Some("killed")),
        "an ended job is still known"
    );
}

#[tokio::test(start_paused = true)]
async fn the_operator_ends_what_a_drain_waits_for() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let running = spawn(&engine, within(&id, "sleep 20000"));
    sleep(ms(50)).await;
    let draining = {
        let engine = engine.clone();
        tokio::spawn(async move { engine.drain(ms(60_000)).await })
    };
    engine.draining().cancelled().await;
    assert!(engine.kill(id.as_str()).await.unwrap());
    assert_nothing_left(&fake);
    assert_eq!(running.await.unwrap().unwrap().report.ending, Ending::Killed { signal: 9 });
    assert!(draining.await.unwrap());
}

#[derive(Debug, Default)]
struct Clerk(AtomicBool);

impl Observer for Clerk {
    fn observe(&self, _: &Event<'_>) {}

    fn can_record(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_down_does_not_begin() {
    let (fake, clerk) = (Fake::new(Manners::default()), Arc::new(Clerk::default()));
    let outside = Outside { observers: vec![clerk.clone()], ..Outside::default() };
    let engine = Engine::with_outside(fake.clone(), Settings::default(), outside);
    let errors =
        [engine.run(&me(), fresh("print a")).await.err(), engine.create(&me(), CreateRequest::default()).await.err()];
    for error in errors {
        assert!(matches!(error, Some(EngineError::NotRecorded)), "{error:?}");
    }
    assert_eq!((fake.opened(), fake.started()), (0, 0));
    clerk.0.store(true, Ordering::Relaxed);
    engine.run(&me(), fresh("print a")).await.unwrap();
}
