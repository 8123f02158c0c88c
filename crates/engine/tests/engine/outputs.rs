//! Whole streams that are kept for later.

use belljar_testkit::fake::Manners;

use super::*;

#[tokio::test(start_paused = true)]
async fn long_output_is_kept_for_its_owner_only() {
    let (_, engine) = engine();
    let run = engine.run(&me(), fresh("flood 9000\nerr e")).await.unwrap();
    let id = run.id.as_str();
    assert_eq!(engine.kept(&me(), id).as_deref(), Some(&run));
    assert_eq!(engine.kept(&Principal::new("other"), id), None);
    assert_eq!(engine.kept(&me(), "run_0"), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_short_is_not_kept() {
    let (_, engine) = engine();
    for (code, kept) in [("flood 1024", false), ("flood 1025", true), ("flood 1023\nerr x", true)] {
        let run = engine.run(&me(), fresh(code)).await.unwrap();
        assert_eq!(engine.kept(&me(), run.id.as_str()).is_some(), kept, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_operator_finds_what_recent_runs_printed_however_short() {
    let (_, engine) = engine();
    let printed = |id: &str| engine.look_at(id).map(|seen| String::from_utf8(seen.stdout).unwrap());
    let first = engine.run(&me(), fresh("print first")).await.unwrap().id;
    let seen = engine.look_at(first.as_str()).unwrap();
    assert_eq!((seen.run, seen.stdout.as_slice(), seen.ending), (first.clone(), &b"first\n"[..], Some("exited")));
    assert_eq!(engine.kept(&me(), first.as_str()), None, "its caller was told all of it");
    // The latest of a sandbox, whichever of the two was short.
    let id = sandbox(&engine).await;
    engine.run(&me(), within(&id, "flood 9000")).await.unwrap();
    assert_eq!(printed(id.as_str()).unwrap().len(), 9000);
    engine.run(&me(), within(&id, "print short")).await.unwrap();
    assert_eq!(printed(id.as_str()).as_deref(), Some("short\n"));
    let long = engine.run(&me(), within(&id, "flood 9001")).await.unwrap().id;
    assert_eq!(printed(id.as_str()).unwrap().len(), 9001);
    // Many short ones push out one another, and nothing else.
    for _ in 0..256 {
        engine.run(&me(), fresh("print more")).await.unwrap();
    }
    assert_eq!(printed(first.as_str()), None);
    assert_eq!(printed(long.as_str()).unwrap().len(), 9001);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_goes_when_the_budget_is_full() {
    let settings = Settings { kept_output_bytes_max: 30_000, ..Settings::default() };
    let (_, engine) = engine_with(Manners::default(), settings);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(engine.run(&me(), fresh("flood 10000")).await.unwrap().id);
    }
    let kept = |runs: &[belljar_engine::RunId]| -> Vec<bool> {
        runs.iter().map(|run| engine.kept(&me(), run.as_str()).is_some()).collect()
    };
    assert_eq!(kept(&runs), [true, true, true]);
    runs.push(engine.run(&me(), fresh("flood 10001")).await.unwrap().id);
    assert_eq!(kept(&runs), [false, false, true, true]);
    runs.push(engine.run(&me(), fresh("flood 30001")).await.unwrap().id);
    assert_eq!(kept(&runs), [false, false, true, true, false], "what can never fit drives nothing out");
}
