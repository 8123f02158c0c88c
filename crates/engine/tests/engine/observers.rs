//! Those who are told what happens: all of it, in order, and nothing of what never began.

use std::sync::{Mutex, PoisonError};

use belljar_engine::{Event, Observer, Outside};
use tokio::time::sleep;

use super::*;

#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::SandboxOpened { owner, isolation, .. } => format!("opened {} {}", owner.as_str(), isolation.backend),
            Event::RunAsked { .. } => return,
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
    assert_eq!(diary.take(), [""; 0], "what was refused never began");
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
