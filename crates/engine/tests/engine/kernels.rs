//! Cells: what their kernels remember, and how they are brought to an end.

use belljar_core::{Ending, Limit, State, Then};
use belljar_engine::{Lost, Names};

use super::*;

fn cell(id: &SandboxId, code: &str) -> RunRequest {
    let mut request = within(id, code);
    request.program.source = Source::Cell { language: Language::Python, code: code.into(), then: Then::More };
    request
}

async fn state(engine: &Engine, id: &SandboxId, code: &str) -> (Ending, State) {
    let run = engine.run(&me(), walled(cell(id, code), ms(500))).await.unwrap();
    (run.report.ending, run.report.state)
}

#[tokio::test(start_paused = true)]
async fn every_state_is_told() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    let done = Ending::Exited { code: 0 };
    let late = Ending::Stopped { limit: Limit::Wall };
    assert_eq!(state(&engine, &id, "print a").await, (done, State::Fresh));
    assert_eq!(state(&engine, &id, "print a").await, (done, State::Preserved));
    assert_eq!(state(&engine, &id, "sleep 60000").await, (late, State::Preserved), "interrupted, and it lives");
    assert_eq!(state(&engine, &id, "doze 60000").await, (late, State::Lost), "it did not heed the interrupt");
    assert_eq!(state(&engine, &id, "print a").await, (done, State::Reset));
    assert_eq!(state(&engine, &id, "print a").await, (done, State::Preserved));
    assert_eq!(state(&engine, &id, "signal 11").await, (Ending::Killed { signal: 11 }, State::Lost));
    assert_eq!(state(&engine, &id, "exit 3").await, (Ending::Exited { code: 3 }, State::Reset));
    assert_eq!(engine.sandboxes(&me()).len(), 1, "the sandbox outlives its kernels");
}

#[tokio::test(start_paused = true)]
async fn what_went_with_a_kernel_is_named() {
    let (_, engine) = engine();
    let id = sandbox(&engine).await;
    engine.run(&me(), cell(&id, r#"record {"names": ["df", "x"], "count": 2}"#)).await.unwrap();
    let run = engine.run(&me(), cell(&id, "oom")).await.unwrap();
    let names = Names { names: vec!["df".into(), "x".into()], count: 2 };
    assert_eq!(run.lost, Some(Lost::Kernel { language: Language::Python, names }));
    let again = engine.run(&me(), cell(&id, "oom")).await.unwrap();
    let nothing = Names::default();
    assert_eq!(again.lost, Some(Lost::Kernel { language: Language::Python, names: nothing }), "it is lost once");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_cell_keeps_its_kernel() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    engine.run(&me(), cell(&id, "print a")).await.unwrap();
    let running = spawn(&engine, cell(&id, "sleep 600000"));
    tokio::time::sleep(ms(10)).await;
    running.abort();
    settle().await;
    assert_eq!(fake.programs(), 0);
    assert_eq!(state(&engine, &id, "print a").await, (Ending::Exited { code: 0 }, State::Preserved));
}

#[tokio::test(start_paused = true)]
async fn cells_of_one_kernel_take_turns_and_others_do_not_wait() {
    let (fake, engine) = engine();
    let id = sandbox(&engine).await;
    let calls: Vec<_> = (0..3).map(|_| spawn(&engine, cell(&id, "sleep 100"))).collect();
    let program = spawn(&engine, within(&id, "sleep 100"));
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().report.ending, Ending::Exited { code: 0 });
    }
    program.await.unwrap().unwrap();
    assert_eq!(fake.most_programs(), 2, "one cell at a time, and the program beside it");
}

#[tokio::test(start_paused = true)]
async fn a_cell_without_a_sandbox_is_fresh_however_it_ends() {
    let (fake, engine) = engine();
    for code in ["print a", "exit 3", "signal 11"] {
        let mut request = fresh(code);
        request.program.source = Source::Cell { language: Language::Python, code: code.into(), then: Then::More };
        let run = engine.run(&me(), request).await.unwrap();
        assert_eq!((run.report.state, run.lost), (State::Fresh, None), "{code}");
    }
    settle().await;
    assert_nothing_left(&fake);
}

#[tokio::test(start_paused = true)]
async fn files_that_a_throw_away_sandbox_left_are_kept_for_a_while() {
    let (_, engine) = engine();
    let mut request = fresh("write a.txt hello\nwrite d/b.txt there");
    request.program.changed_max = 1;
    let run = engine.run(&me(), request).await.unwrap();
    assert_eq!((run.changes.entries.len(), run.changes.more), (1, 1));
    let kept = engine.kept(&me(), run.id.as_str()).unwrap();
    assert_eq!((kept.left[0].path.as_str(), kept.left[0].bytes.as_slice()), ("a.txt", &b"hello"[..]));
    assert!(engine.kept(&Principal::new("other"), run.id.as_str()).is_none());
}
