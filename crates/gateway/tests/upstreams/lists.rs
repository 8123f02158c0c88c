//! The list of tools: asked for once, kept for the next time, asked for again when it changes.

use std::os::unix::fs::PermissionsExt as _;

use belljar_gateway::upstream::{Settings, Upstreams, parse};
use serde_json::json;

use super::mock::{Mock, entry, names, settings, until};

#[tokio::test]
async fn it_is_asked_for_once() {
    let mock = Mock::new(&[]);
    let first = mock.upstreams.list("mock").await.unwrap();
    assert_eq!(first.instructions.as_deref(), Some("Use it for tests."));
    assert_eq!(names(&first.tools)[..2], ["echo", "slow"]);
    assert_eq!(first.tools[0]["inputSchema"]["type"], "object");
    assert_eq!(mock.upstreams.list("mock").await.unwrap(), first);
    assert_eq!(mock.log().iter().filter(|line| *line == "tools/list").count(), 1);
    assert_eq!(mock.upstreams.trouble("mock"), None);
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_tool_that_is_not_as_it_should_be_does_not_cost_the_others() {
    let mock = Mock::new(&["--odd"]);
    let tools = mock.tools().await;
    assert!(tools.contains(&"odd".into()) && tools.contains(&"echo".into()), "{tools:?}");
    mock.upstreams.end().await;
}

#[tokio::test]
async fn a_change_is_heard_in_both_eras_and_counted_once() {
    for era in ["both", "legacy"] {
        let mock = Mock::new(&["--era", era]);
        let mut changes = mock.upstreams.changes();
        assert_eq!(*changes.borrow_and_update(), 0);
        assert!(!mock.tools().await.contains(&"fresh".into()));
        assert_eq!(*changes.borrow_and_update(), 1);
        if era == "both" {
            mock.heard("subscriptions/listen").await;
        }
        mock.text("change", json!({ "name": "fresh" })).await;
        until(|| changes.has_changed().unwrap()).await;
        assert_eq!(*changes.borrow_and_update(), 2, "{era}");
        assert!(mock.tools().await.contains(&"fresh".into()), "{era}");
        mock.upstreams.end().await;
        assert_eq!(*changes.borrow(), 2, "{era}");
    }
}

#[tokio::test]
async fn the_next_process_knows_the_tools_without_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache/tools");
    let extra = folder.path().join("extra");
    let configured = |key: &str| {
        let mut entry = entry(folder.path(), &["--extra", extra.to_str().unwrap()]);
        entry["env"] = json!({ "API_KEY": key });
        let configs = parse(&json!({ "mcpServers": { "mock": entry } }).to_string(), &|_| None).unwrap();
        Upstreams::new(configs, Settings { cache: Some(cache.clone()), ..settings() })
    };
    let starts = || {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| *line == "start").count()
    };

    let first = configured("first-secret");
    let tools = first.list("mock").await.unwrap();
    first.end().await;
    let files: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let name = files[0].file_name().into_string().unwrap();
    assert!(name.len() == 64 + 5 && name.ends_with(".json"), "{name}");
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read_to_string(files[0].path()).unwrap().contains("secret"));

    // Another key is the same server.
    let second = configured("second-secret");
    assert_eq!(second.list("mock").await.unwrap(), tools);
    assert_eq!(starts(), 1);
    let changes = second.changes();
    assert_eq!(*changes.borrow(), 0);

    // Started for a call, it is asked again, and only another list counts.
    std::fs::write(&extra, "brand_new").unwrap();
    let result = second.call("mock", "echo", Default::default(), super::mock::LIMIT, &Default::default()).await;
    result.unwrap();
    until(|| *changes.borrow() == 1).await;
    assert!(names(&second.list("mock").await.unwrap().tools).contains(&"brand_new".into()));
    second.end().await;

    let third = configured("third-secret");
    assert!(names(&third.list("mock").await.unwrap().tools).contains(&"brand_new".into()));
    assert_eq!(starts(), 2);
    std::fs::write(files[0].path(), "{ damaged").unwrap();
    let fourth = configured("x");
    assert_eq!(fourth.list("mock").await.unwrap().tools.len(), tools.tools.len() + 1);
    assert_eq!(starts(), 3);
    fourth.end().await;
}
