//! Nothing that a server sends can cost more than it may.

use serde_json::json;

use super::mock::{Mock, settings};

#[tokio::test]
async fn the_operator_can_raise_and_lower_it() {
    let mock = Mock::with(&[], json!({ "max_result_mb": 0.5 }), settings());
    assert!(mock.call("big", json!({ "mb": 1 })).await.unwrap_err().message.contains("may send 0.5 MB"));
    assert_eq!(mock.text("big", json!({ "mb": 0.4 })).await.len(), (0.4 * 1024.0 * 1024.0) as usize);
    mock.upstreams.end().await;
    let mock = Mock::with(&[], json!({ "max_result_mb": 24 }), settings());
    assert_eq!(mock.text("big", json!({ "mb": 20 })).await.len(), 20 * 1024 * 1024);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_list_without_end_is_cut_and_noted() {
    for (pages, known, why) in [("endless", 50, "more than 50 pages"), ("circle", 3, "runs in a circle")] {
        let mock = Mock::new(&["--pages", pages]);
        assert_eq!(mock.tools().await.len(), known, "{pages}");
        let trouble = mock.upstreams.trouble("mock").unwrap();
        assert!(trouble.contains(why) && trouble.contains(&format!("the first {known} are known")), "{trouble}");
        mock.upstreams.end().await;
    }
}

#[tokio::test]
async fn fifty_thousand_tools_are_too_many() {
    let mock = Mock::new(&["--many", "50000"]);
    assert_eq!(mock.tools().await.len(), 2000);
    assert!(mock.upstreams.trouble("mock").unwrap().contains("more than 2000 tools"));
    assert_eq!(mock.text("echo", json!({ "text": "still there" })).await, "still there");
    mock.upstreams.end().await;
}
