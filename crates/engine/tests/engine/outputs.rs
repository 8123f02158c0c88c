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
