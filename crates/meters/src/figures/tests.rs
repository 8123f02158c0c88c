use std::sync::Arc;

use belljar_core::{Language, Program, Source, Stdin};
use belljar_engine::{CreateRequest, Outside, Principal, Quota, RunRequest, Settings, Wants};
use belljar_testkit::fake::{Fake, Manners};

use super::*;
use crate::exposition::{self, Figure};

fn figure(text: &str, name: &str) -> Figure {
    let all = exposition::parse(text).unwrap();
    all.into_iter().find(|figure| figure.name == name).unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

/// The value of the sample with exactly these labels.
fn value(text: &str, name: &str, labels: &[(&str, &str)]) -> f64 {
    let figure = figure(text, name);
    let is_it = |sample: &&exposition::Sample| {
        sample.labels.len() == labels.len()
            && labels.iter().all(|(name, value)| sample.labels.contains(&((*name).into(), (*value).into())))
    };
    figure.samples.iter().find(is_it).unwrap_or_else(|| panic!("no {labels:?} in {figure:?}")).value
}

fn program(code: &str) -> RunRequest {
    RunRequest {
        sandbox: None,
        program: Program {
            source: Source::Code { language: Language::Python, code: code.to_owned() },
            env: Vec::new(),
            cwd: None,
            stdin: Stdin::empty(),
            wall: Duration::from_secs(5),
            changed_max: 0,
        },
        wants: Wants::default(),
    }
}

#[tokio::test]
async fn runs_and_sandboxes_are_counted_by_what_the_engine_tells() {
    let meters = Arc::new(Meters::new());
    let outside = Outside { observers: vec![meters.clone()], ..Outside::default() };
    let engine = Engine::with_outside(Fake::new(Manners::default()), Settings::default(), outside);
    let me = Principal::local();
    engine.run(&me, program("print a")).await.unwrap();
    engine.run(&me, program("exit 3")).await.unwrap();
    engine.run(&me, program("oom")).await.unwrap();
    let kept = engine.create(&me, CreateRequest::default()).await.unwrap();
    let text = meters.text(&Levels::of(&engine));
    assert_eq!(value(&text, "belljar_runs", &[("language", "python"), ("ending", "exited")]), 2.0);
    assert_eq!(value(&text, "belljar_runs", &[("language", "python"), ("ending", "memory")]), 1.0);
    assert_eq!(value(&text, "belljar_runs_now", &[]), 0.0);
    assert_eq!(value(&text, "belljar_sandboxes", &[]), 1.0);
    assert_eq!(value(&text, "belljar_queue", &[]), 0.0);
    let seconds = figure(&text, "belljar_run_seconds");
    assert_eq!(seconds.histograms().unwrap()[0].count, 3);
    engine.destroy(&me, kept.id.as_str()).await.unwrap();
    assert_eq!(value(&meters.text(&Levels::default()), "belljar_sandboxes", &[]), 0.0);
}

/// Whichever way a caller came: the engine knows of no transport.
#[tokio::test]
async fn who_is_refused_for_want_of_room_is_counted_and_who_is_mistaken_is_not() {
    let meters = Arc::new(Meters::new());
    let outside = Outside { observers: vec![meters.clone()], ..Outside::default() };
    let quota = Quota { sandboxes: Some(1), ..Quota::default() };
    let settings = Settings { sandboxes_max: 1, quota, ..Settings::default() };
    let engine = Engine::with_outside(Fake::new(Manners::default()), settings, outside);
    let (me, other) = (Principal::local(), Principal::new("other"));
    engine.create(&me, CreateRequest::default()).await.unwrap();
    assert!(engine.create(&me, CreateRequest::default()).await.is_err());
    assert!(engine.create(&other, CreateRequest::default()).await.is_err());
    assert!(engine.run(&me, program("")).await.is_err());
    engine.shutdown().await;
    assert!(engine.run(&me, program("print a")).await.is_err());
    let text = meters.text(&Levels::default());
    for why in ["over_quota", "full", "unavailable"] {
        assert_eq!(value(&text, "belljar_refused", &[("why", why)]), 1.0, "{why}: {text}");
    }
    assert_eq!(figure(&text, "belljar_refused").samples.len(), 3, "an empty program is a mistake: {text}");
}

#[test]
fn every_figure_has_a_type_and_a_help_and_the_text_its_end() {
    let meters = Meters::new();
    meters.requested(Method::of("tools/call"), "ok", Duration::from_millis(30));
    meters.requested(Method::of("a method\"} that nobody knows"), "error", Duration::from_secs(400));
    meters.refused(Refused::NoToken);
    meters.called("ok");
    meters.egress_refused();
    meters.egress_moved(1000);
    let text = meters.text(&Levels { queue: 7, prepared_ready: 2, prepared_wanted: 3 });
    assert!(text.ends_with("# EOF\n"), "{text}");
    for figure in exposition::parse(&text).unwrap() {
        assert!(!figure.help.is_empty(), "{figure:?}");
    }
    assert_eq!(value(&text, "belljar_requests", &[("method", "other"), ("outcome", "error")]), 1.0);
    assert_eq!(value(&text, "belljar_queue", &[]), 7.0);
    assert_eq!(value(&text, "belljar_prepared", &[("state", "wanted")]), 3.0);
    assert_eq!(value(&text, "belljar_egress_bytes", &[]), 1000.0);
    let operations = figure(&text, "mcp_server_operation_duration_seconds").histograms().unwrap();
    let called = operations.iter().find(|histogram| histogram.labels[0].1 == "tools/call").unwrap();
    assert_eq!((called.count, called.bounds.len(), called.counts.len()), (1, 14, 15));
    assert_eq!(called.counts[2], 1, "30 ms are between 20 and 50: {called:?}");
    let other = operations.iter().find(|histogram| histogram.labels[0].1 == "other").unwrap();
    assert_eq!(other.counts[14], 1, "and 400 s are beyond all: {other:?}");
}

/// However much is asked for, the text stays as long as it was.
#[test]
fn the_number_of_series_is_bounded() {
    let meters = Meters::new();
    for number in 0..1000 {
        meters.requested(Method::of(&format!("made/up{number}")), "error", Duration::ZERO);
    }
    let text = meters.text(&Levels::default());
    assert_eq!(figure(&text, "belljar_requests").samples.len(), 1);
    assert!(!text.contains("made/up"));
}
