//! What a call gives back, and what its failures are.

use std::time::Duration;

use belljar_gateway::error::ErrorKind;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::mock::{LIMIT, Mock, text};

#[tokio::test]
async fn one_that_hangs_ends_at_its_limit_is_told_so_and_costs_only_itself() {
    for era in ["both", "legacy"] {
        let mock = Mock::new(&["--era", era]);
        let hanging = mock.call_within("hang", json!({}), Duration::from_secs(2));
        let (error, echo) = tokio::join!(hanging, mock.text("echo", json!({ "text": "meanwhile" })));
        let error = error.unwrap_err();
        assert_eq!((error.kind, error.limit), (ErrorKind::ToolTimeout, Some(2.0)));
        assert_eq!((error.server.as_str(), error.tool.as_str()), ("mock", "hang"));
        assert_eq!(echo, "meanwhile");
        mock.heard("notifications/cancelled").await;
        mock.upstreams.end().await;
    }
}

#[tokio::test]
async fn the_operators_limit_is_the_upper_one() {
    let mock = Mock::with(&[], json!({ "timeout": 1.5 }), super::mock::settings());
    let error = mock.call("hang", json!({})).await.unwrap_err();
    assert_eq!((error.kind, error.limit), (ErrorKind::ToolTimeout, Some(1.5)));
    mock.upstreams.end().await;
}

#[tokio::test]
async fn cancelling_and_dropping_reach_the_server() {
    let mock = Mock::new(&[]);
    let cancel = CancellationToken::new();
    let call = mock.upstreams.call("mock", "hang", Map::new(), LIMIT, &cancel);
    let (error, ()) = tokio::join!(call, async {
        mock.heard("hanging").await;
        cancel.cancel();
    });
    assert_eq!(error.unwrap_err().kind, ErrorKind::Cancelled);
    mock.heard("notifications/cancelled").await;
    mock.upstreams.end().await;

    let mock = Mock::new(&[]);
    tokio::select! {
        result = mock.call("hang", json!({})) => panic!("{result:?}"),
        () = mock.heard("hanging") => {}
    }
    mock.heard("notifications/cancelled").await;
    mock.upstreams.end().await;
}

#[tokio::test]
async fn errors_of_the_server_have_their_kind() {
    let mock = Mock::new(&[]);
    let big = "é".repeat(5000);
    let url = json!({ "elicitations": [{ "mode": "url", "url": "https://example.org/connect" }] });
    for (code, message, data, kind) in [
        (-32602, "text is missing", json!({ "field": "text" }), ErrorKind::InvalidArguments),
        (-32602, "Unknown tool: nope", Value::Null, ErrorKind::UnknownTool),
        (-32601, "no such method", Value::Null, ErrorKind::UnknownTool),
        (-32002, "not there", Value::Null, ErrorKind::UnknownTool),
        (-32042, "connect your account", url, ErrorKind::AuthRequired),
        (401, "log in", Value::Null, ErrorKind::AuthRequired),
        (429, "slow down", json!({ "retry_after": 7 }), ErrorKind::RateLimited),
        (-32603, "\u{1b}[1mboom\u{202e}", json!(big), ErrorKind::Upstream),
    ] {
        let error = mock.call("fail", json!({ "code": code, "message": message, "data": data })).await.unwrap_err();
        assert_eq!((error.kind, error.code), (kind, Some(code)), "{message}");
        let size = error.data.as_ref().map_or(0, |data| data.to_string().len());
        assert!(size <= 4200, "{size}");
        match code {
            -32042 => assert_eq!(error.url.as_deref(), Some("https://example.org/connect")),
            429 => assert_eq!((error.retry_after, error.retryable), (Some(7.0), true)),
            -32603 => assert_eq!((error.message.as_str(), error.retryable), ("boom", false)),
            _ => assert_eq!(error.message, message),
        }
    }
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_failed_result_is_handed_on_as_it_is() {
    let mock = Mock::new(&[]);
    let result = mock.call("broken", json!({})).await.unwrap();
    assert_eq!((result.is_error, text(&result).as_str()), (Some(true), "it failed"));
    mock.upstreams.end().await;
}

#[tokio::test]
async fn questions_to_us_are_answered_and_never_granted() {
    let mock = Mock::new(&["--era", "legacy"]);
    let answers: Value = serde_json::from_str(&mock.text("ask", json!({})).await).unwrap();
    assert_eq!(
        answers,
        json!({ "sampling": -32601, "roots": -32601, "elicitation": { "action": "decline" }, "other": -32601 })
    );
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_wish_for_input_is_an_error_that_says_what_to_do() {
    let mock = Mock::new(&[]);
    let form = json!({ "message": "Sure?", "requestedSchema": { "type": "object", "properties": {} } });
    let error = mock.call("input", json!({ "params": form })).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Upstream);
    assert!(error.message.contains("wants more input"), "{error}");
    let page = json!({ "mode": "url", "message": "Log in", "url": "https://example.org/in", "elicitationId": "1" });
    let error = mock.call("input", json!({ "params": page })).await.unwrap_err();
    assert_eq!((error.kind, error.url.as_deref()), (ErrorKind::AuthRequired, Some("https://example.org/in")));
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_process_sees_its_own_environment_and_not_ours() {
    let environment = [("PATH", std::env::var_os("PATH").unwrap().into_string().unwrap()), ("LC_ALL", "C".into())];
    let secret = ("BELLJAR_TEST_SECRET", "open sesame".to_owned());
    let given = environment.into_iter().chain([secret]).map(|(name, value)| (name.to_owned(), value));
    let settings = super::mock::settings().inherit(given);
    let mock = Mock::with(&[], json!({ "env": { "API_KEY": "own-key", "PORT": 80 } }), settings);
    let seen: Map<String, Value> = serde_json::from_str(&mock.text("environment", json!({})).await).unwrap();
    // It has its key, which does not come out here even so.
    assert_eq!((&seen["API_KEY"], &seen["PORT"], &seen["LC_ALL"]), (&json!("[hidden]"), &json!("80"), &json!("C")));
    assert!(!seen.contains_key("BELLJAR_TEST_SECRET"));
    // Cargo gives the tests a good many of its own.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some() && !seen.contains_key("CARGO_MANIFEST_DIR"), "{seen:?}");
    // Nor in what it writes of it.
    let error = mock.call("crash", json!({ "last": "bad key own-key" })).await.unwrap_err();
    assert!(error.message.contains("bad key [hidden]"), "{error}");
    mock.upstreams.end().await;
}
