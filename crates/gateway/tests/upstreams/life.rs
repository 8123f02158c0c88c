//! Started when needed, once for all; started again when it ends; left alone when it fails again and again.

use std::time::Duration;

use belljar_gateway::error::ErrorKind;
use belljar_gateway::upstream::Settings;
use serde_json::json;

use super::mock::{LIMIT, Mock, is_alive, settings, until};

#[tokio::test]
async fn nothing_is_started_before_the_first_need_and_then_once_for_all() {
    let mock = Mock::new(&[]);
    assert_eq!(mock.upstreams.names(), ["mock"]);
    assert_eq!(mock.starts(), 0);
    let calls = (0..8).map(|n| mock.text("echo", json!({ "text": n.to_string() })));
    assert_eq!(futures::future::join_all(calls).await, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(mock.starts(), 1);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn both_eras_are_spoken() {
    for (era, opening, speaks) in [
        ("both", "server/discover", "server/discover"),
        ("legacy", "server/discover", "initialize"),
        ("strict", "server/discover", "initialize"),
    ] {
        let mock = Mock::new(&["--era", era]);
        assert_eq!(mock.text("echo", json!({ "text": era })).await, era);
        let log = mock.log();
        assert_eq!(log[1], opening, "{era}: {log:?}");
        assert!(log.iter().any(|line| line == speaks), "{era}: {log:?}");
        assert_eq!(log.iter().any(|line| line == "initialize"), era != "both", "{era}: {log:?}");
        mock.upstreams.end().await;
    }
}

#[tokio::test]
async fn one_that_dies_in_mid_call_says_so_and_comes_back() {
    let mock = Mock::new(&[]);
    let error = mock.call("crash", json!({})).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Upstream);
    assert!(error.message.contains("ended in the middle of the call; it may or may not have taken effect"), "{error}");
    assert!(error.message.contains("disk on fire") && !error.message.contains('\u{1b}'), "{error}");
    assert!(error.message.contains("exit code 3"), "{error}");
    assert!(!error.retryable);
    assert_eq!(mock.text("echo", json!({ "text": "again" })).await, "again");
    assert_eq!(mock.starts(), 2);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn failures_in_a_row_are_left_alone_for_a_while() {
    let mock = Mock::new(&["--start", "fail"]);
    let first = mock.call("echo", json!({})).await.unwrap_err();
    assert!(first.message.contains("ended before it was ready"), "{first}");
    assert!(first.message.contains("exit code 2") && first.message.contains("no such database"), "{first}");
    // At once, as after any first failure.
    mock.call("echo", json!({})).await.unwrap_err();
    let starts = mock.starts();
    let third = mock.call("echo", json!({})).await.unwrap_err();
    assert_eq!((third.kind, mock.starts()), (ErrorKind::Upstream, starts));
    assert!(third.message.contains("failed 2 times in a row and is left alone for 0."), "{third}");
    assert!(third.message.contains("no such database"), "{third}");
    let wait = third.retry_after.unwrap();
    assert!(wait > 0.0 && wait <= 0.5, "{wait}");
    tokio::time::sleep(Duration::from_secs_f64(wait)).await;
    mock.call("echo", json!({})).await.unwrap_err();
    assert!(mock.starts() > starts);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn those_who_wait_for_a_start_share_its_failure() {
    let mock = Mock::new(&["--start", "fail", "--era", "legacy"]);
    let calls = (0..6).map(|_| mock.call("echo", json!({})));
    for error in futures::future::join_all(calls).await {
        assert!(error.unwrap_err().message.contains("no such database"));
    }
    // The second is the one in the older manner.
    assert_eq!(mock.starts(), 2);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_result_ends_the_row_of_failures() {
    let mock = Mock::new(&["--era", "legacy"]);
    for round in 0..3 {
        mock.call("crash", json!({})).await.unwrap_err();
        assert_eq!(mock.text("echo", json!({ "text": "up" })).await, "up", "round {round}");
    }
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_start_that_hangs_has_a_limit_and_costs_nobody_else() {
    let settings = Settings { start_limit: Duration::from_millis(700), ..settings() };
    let mock = Mock::with(&["--start", "hang"], json!({}), settings);
    let error = mock.call("echo", json!({})).await.unwrap_err();
    assert!(error.message.contains("was not ready within 0.7 s"), "{error}");
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_call_gives_up_at_its_own_limit_while_the_start_goes_on() {
    let mock = Mock::new(&["--era", "mute"]);
    let error = mock.call_within("echo", json!({}), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!((error.kind, error.limit), (ErrorKind::ToolTimeout, Some(0.3)));
    // It never answers the first question, and is spoken to in the older manner after ten seconds.
    assert_eq!(mock.text("echo", json!({ "text": "late" })).await, "late");
    assert_eq!(mock.starts(), 1);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn an_idle_one_is_ended_and_comes_back() {
    let settings = Settings { idle: Duration::from_millis(600), ..settings() };
    let mock = Mock::with(&[], json!({}), settings);
    let first: i32 = mock.text("pid", json!({})).await.parse().unwrap();
    // A call under way is not idleness.
    assert_eq!(mock.text("slow", json!({ "seconds": 1.2 })).await, "done");
    assert!(is_alive(first));
    until(|| !is_alive(first)).await;
    let second: i32 = mock.text("pid", json!({})).await.parse().unwrap();
    assert_ne!(first, second);
    mock.upstreams.end().await;
    assert!(!is_alive(second));
}

#[tokio::test]
async fn the_end_takes_the_whole_group() {
    let mock = Mock::new(&[]);
    let server: i32 = mock.text("pid", json!({})).await.parse().unwrap();
    let child: i32 = mock.text("child", json!({})).await.parse().unwrap();
    assert!(is_alive(server) && is_alive(child));
    mock.upstreams.end().await;
    assert!(!is_alive(server) && !is_alive(child));
    let error = mock.call("echo", json!({})).await.unwrap_err();
    assert!(error.message.contains("is not started any more"), "{error}");
}

#[tokio::test]
async fn dropping_all_of_it_ends_the_processes_too() {
    let mock = Mock::new(&[]);
    let server: i32 = mock.text("pid", json!({})).await.parse().unwrap();
    let Mock { upstreams, folder } = mock;
    drop(upstreams);
    until(|| !is_alive(server)).await;
    drop(folder);
}

#[tokio::test]
async fn noise_does_not_matter() {
    let mock = Mock::new(&["--noise", "--era", "legacy"]);
    assert_eq!(mock.text("echo", json!({ "text": "clear" })).await, "clear");
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_command_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        json!({ "mcpServers": { "gone": { "command": "/nowhere/mcp-gone", "args": ["--token", "sesame-open"] } } });
    let configs = belljar_gateway::upstream::parse(&text.to_string(), &|_| None).unwrap();
    let upstreams = belljar_gateway::upstream::Upstreams::new(configs, settings());
    let error = upstreams.list("gone").await.unwrap_err();
    assert!(error.message.contains("`gone` could not be started: mcp-gone"), "{error}");
    assert!(!error.message.contains("sesame"), "{error}");
    let error = upstreams.call("other", "x", Default::default(), LIMIT, &Default::default()).await.unwrap_err();
    assert_eq!((error.kind, error.suggestions), (ErrorKind::UnknownTool, vec!["gone".to_owned()]));
    drop(folder);
}

#[tokio::test]
async fn one_that_stops_reading_costs_its_own_calls_and_can_be_ended() {
    let mock = Mock::new(&[]);
    let server: i32 = mock.text("pid", json!({})).await.parse().unwrap();
    mock.text("deaf", json!({})).await;
    let long = "x".repeat(2 * 1024 * 1024);
    let calls = (0..3).map(|_| mock.call_within("echo", json!({ "text": long }), Duration::from_secs(1)));
    for result in futures::future::join_all(calls).await {
        assert_eq!(result.unwrap_err().kind, ErrorKind::ToolTimeout);
    }
    assert!(is_alive(server));
    tokio::time::timeout(Duration::from_secs(10), mock.upstreams.end()).await.unwrap();
    assert!(!is_alive(server));
}
