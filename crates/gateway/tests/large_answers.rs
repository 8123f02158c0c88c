//! Answers of 50 MB, in a process of their own, so that the memory is theirs.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

#[expect(dead_code, reason = "shared with the other tests of servers")]
#[path = "upstreams/mock.rs"]
mod mock;

use belljar_gateway::error::ErrorKind;
use serde_json::json;

use mock::Mock;

fn resident_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn a_large_answer_is_refused_by_its_size_and_the_connection_goes_on() {
    for (era, last) in [("both", false), ("legacy", true)] {
        let mock = Mock::new(&["--era", era]);
        assert_eq!(mock.text("echo", json!({ "text": "before" })).await, "before");
        let before = resident_megabytes();
        let error = mock.call("big", json!({ "mb": 50, "last": last })).await.unwrap_err();
        assert_eq!((error.kind, error.retryable), (ErrorKind::Upstream, false));
        let bytes = 50 * 1024 * 1024;
        let said = error.message.split("at least ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(said.is_some_and(|said| said > bytes && said < bytes + 1000), "{error}");
        assert!(
            error.message.contains("may send 16 MB at once") && error.message.contains("\"max_result_mb\""),
            "{error}"
        );
        let grown = resident_megabytes() - before;
        assert!(grown < 150, "{grown} MB");
        assert_eq!(mock.text("echo", json!({ "text": "after" })).await, "after");
        assert_eq!(mock.starts(), 1);
        mock.upstreams.end().await;
    }
}
