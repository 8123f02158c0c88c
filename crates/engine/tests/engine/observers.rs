//! Those who are told what happens: all of it, in order, and nothing of what never began.

use std::sync::{Mutex, PoisonError};

use belljar_engine::{Event, Observer, Outside, Quota};
use tokio::time::sleep;

use super::*;

#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::SandboxOpened { owner, isolation, .. } => format!("opened {} {}", owner.as_str(), isolation.backend),
            Event::RunAsked { .. } => return,
            Event::Refused { owner, why } => format!("refused {} {why:?}", owner.as_str()),
            Event::SandboxClosed { why, .. } => format!("closed {}", why.name()),
            Event::RunBegan { sandbox, .. } => format!("began {}", if sandbox.is_some() { "inside" } else { "alone" }),
            Event::RunEnded { outcome, .. } => match outcome {
                Ok(run) => format!("ended {}", run.report.ending.name()),
                Err(error) => format!("failed {error}"),
            },
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

impl Diary {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn observed(manners: Manners, settings: Settings) -> (Arc<Diary>, Engine) {
    let diary = Arc::new(Diary::default());
    let outside = Outside { observers: vec![diary.clone()], ..Outside::default() };
    (diary, Engine::with_outside(Fake::new(manners), settings, outside))
}

#[tokio::test(start_paused = true)]
async fn each_run_and_sandbox_is_told_from_its_beginning_to_its_end() {
    let (diary, engine) = observed(Manners::default(), Settings::default());
    engine.run(&me(), fresh("print a")).await.unwrap();
    assert_eq!(diary.take(), ["began alone", "ended exited"], "told before the caller has the answer");
    let id = sandbox(&engine).await;
    engine.run(&me(), within(&id, "print a")).await.unwrap();
    engine.destroy(&me(), id.as_str()).await.unwrap();
    assert_eq!(diary.take(), ["opened local fake", "began inside", "ended exited", "closed destroyed"]);
    assert!(engine.run(&me(), within(&id, "print a")).await.is_err());
    assert_eq!(diary.take(), ["refused local SandboxGone { why: Destroyed }"], "what was refused never began");
}

#[tokio::test(start_paused = true)]
async fn why_a_sandbox_is_gone_is_told() {
    let settings = Settings { idle: ms(5000), ..Settings::default() };
    let (diary, engine) = observed(Manners::default(), settings);
    sandbox(&engine).await;
    sleep(ms(6000)).await;
    assert_eq!(diary.take()[1..], ["closed idle"]);
    let id = sandbox(&engine).await;
    let running = spawn(&engine, within(&id, "sleep 20000"));
    sleep(ms(100)).await;
    engine.shutdown().await;
    let _ = running.await.unwrap();
    let mut told = diary.take();
    told.sort();
    assert_eq!(told, ["began inside", "closed shutdown", "ended cancelled", "opened local fake"]);

    let (diary, engine) = observed(Manners::default(), Settings { age_max: ms(3000), ..Settings::default() });
    sandbox(&engine).await;
    sleep(ms(4000)).await;
    assert_eq!(diary.take()[1..], ["closed too-old"]);
}

/// At the door, in the queue and on the way to a place: once each.
#[tokio::test(start_paused = true)]
async fn who_is_refused_is_told_once_and_who_gives_up_is_not() {
    let quota = Quota { sandboxes: Some(0), cpu_seconds: Some(0), ..Quota::default() };
    let (diary, engine) = observed(Manners::default(), Settings { quota, ..Settings::default() });
    assert!(engine.create(&me(), CreateRequest::default()).await.is_err());
    assert!(engine.run(&me(), fresh("print a")).await.is_err());
    let told = diary.take();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("bound: Sandboxes") && told[1].contains("bound: Cpu"), "{told:?}");

    let settings = Settings { runs_max: 1, queue_max: 2, sandboxes_max: 1, ..Settings::default() };
    let (diary, engine) = observed(Manners::default(), settings);
    let mut runs: Vec<_> = (0..2).map(|_| spawn(&engine, fresh("sleep 1000"))).collect();
    sleep(ms(10)).await;
    assert_eq!(diary.take(), ["began alone"], "the other waits");
    assert!(engine.run(&me(), fresh("print a")).await.is_err());
    assert_eq!(diary.take(), ["refused local Busy"]);
    runs.remove(1).abort();
    sleep(ms(10)).await;
    assert_eq!(diary.take(), [""; 0], "who gives up is not refused");
    sandbox(&engine).await;
    assert!(engine.create(&me(), CreateRequest::default()).await.is_err());
    assert_eq!(diary.take()[1..], ["refused local TooManySandboxes { max: 1 }"]);
}
