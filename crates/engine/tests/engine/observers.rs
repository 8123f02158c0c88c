//! Those who are told what happens: all of it, in order, and what was refused as just that.

use std::sync::{Mutex, PoisonError};

use belljar_engine::{Away, Event, NetworkSettings, Observer, Outside, Quota, Refusal};
use tokio::time::sleep;

use super::jobs::away;
use super::*;

#[derive(Debug, Default)]
struct Diary(Mutex<Vec<String>>);

impl Observer for Diary {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::SandboxOpened { owner, isolation, .. } => format!("opened {} {}", owner.as_str(), isolation.backend),
            Event::RunAsked { .. } => return,
            Event::SandboxRefused { why, .. } => format!("no sandbox {}", why.kind),
            Event::RunRefused { why, .. } => format!("refused {}", why.kind),
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
    assert_eq!(diary.take(), ["refused no-sandbox"], "it never began");
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

    let quota = Quota { egress_mb: Some(1), ..Quota::default() };
    let network = NetworkSettings { allow: vec!["example.test".parse().unwrap()], ..NetworkSettings::default() };
    let manners = Manners { network: true, ..Manners::default() };
    let (diary, engine) = observed(manners, Settings { quota, network, ..Settings::default() });
    let mut request = CreateRequest::default();
    request.wants.network = vec!["example.test".to_owned()];
    let id = engine.create(&me(), request).await.unwrap().id;
    engine.run(&me(), within(&id, "move-later 10000 1048576")).await.unwrap();
    sleep(ms(20_000)).await;
    assert_eq!(diary.take().last().unwrap(), "closed quota", "its owner did not destroy it");
}

/// At the door, in the queue and on the way to a place: once each.
#[tokio::test(start_paused = true)]
async fn who_is_refused_for_want_of_room_is_told_once() {
    let quota = Quota { sandboxes: Some(0), cpu_seconds: Some(0), ..Quota::default() };
    let (diary, engine) = observed(Manners::default(), Settings { quota, ..Settings::default() });
    assert!(engine.create(&me(), CreateRequest::default()).await.is_err());
    assert!(engine.run(&me(), fresh("print a")).await.is_err());
    assert_eq!(diary.take(), ["no sandbox quota", "refused quota"]);
    let (diary, engine) = observed(Manners::default(), Settings { sandboxes_max: 1, ..Settings::default() });
    sandbox(&engine).await;
    assert!(engine.create(&me(), CreateRequest::default()).await.is_err());
    assert_eq!(diary.take()[1..], ["no sandbox too-many-sandboxes"]);

    let (diary, engine) = observed(Manners::default(), Settings::default());
    let id = sandbox(&engine).await;
    let me = me();
    let background = || engine.attend(&me, within(&id, "sleep 3600000"), away(Away::LetsSandboxExpire));
    for _ in 0..32 {
        background().await.unwrap();
    }
    settle().await;
    diary.take();
    assert!(background().await.is_err());
    settle().await;
    assert_eq!(diary.take(), ["refused too-many-jobs"]);
    engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_keeps_a_program_from_beginning_is_told() {
    let settings = Settings { runs_max: 1, queue_max: 1, ..Settings::default() };
    let (diary, engine) = observed(Manners::default(), settings);
    assert!(engine.run(&me(), fresh("")).await.is_err());
    let wants = Wants { network: vec!["https://me:word@host".into()], ..Wants::default() };
    assert!(engine.run(&me(), RunRequest { wants, ..fresh("print a") }).await.is_err());
    let running = spawn(&engine, fresh("sleep 20000"));
    sleep(ms(100)).await;
    let waiting = spawn(&engine, fresh("print b"));
    sleep(ms(100)).await;
    assert!(matches!(engine.run(&me(), fresh("print c")).await, Err(EngineError::Busy)));
    assert_eq!(diary.take(), ["refused invalid", "refused invalid", "began alone", "refused busy"]);
    waiting.abort();
    let _ = waiting.await;
    sleep(ms(100)).await;
    assert_eq!(diary.take(), ["refused cancelled"], "it was given up before its turn");
    engine.was_refused(&me(), &Source::Command("ls".into()), &Refusal { kind: "approval", words: String::new() });
    assert_eq!(diary.take(), ["refused approval"]);
    running.abort();
}
