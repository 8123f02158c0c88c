//! The mock server, started the way an operator would.

use std::path::Path;
use std::time::Duration;

use belljar_gateway::error::CallError;
use belljar_gateway::upstream::{Settings, Upstreams, parse};
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// One server named `mock`, and the folder of its log.
pub(crate) struct Mock {
    pub(crate) upstreams: Upstreams,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn settings() -> Settings {
    // Only the tests may read the environment here; the gateway is given what it may pass on.
    let environment = ["PATH", "HOME", "LANG"].map(|name| (name.to_owned(), std::env::var_os(name)));
    let environment = environment.into_iter().filter_map(|(name, value)| Some((name, value?.into_string().ok()?)));
    Settings { debounce: Duration::from_millis(20), ..Settings::default() }.inherit(environment)
}

pub(crate) fn entry(folder: &Path, options: &[&str]) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upstreams/mock.py");
    let log = folder.join("log");
    let mut args = vec![script.to_owned(), "--log".into(), log.to_str().unwrap().to_owned()];
    args.extend(options.iter().map(|option| option.to_string()));
    json!({ "command": "python3", "args": args })
}

impl Mock {
    pub(crate) fn new(options: &[&str]) -> Mock {
        Mock::with(options, json!({}), settings())
    }

    pub(crate) fn with(options: &[&str], more: Value, settings: Settings) -> Mock {
        let folder = tempfile::tempdir().unwrap();
        let mut entry = entry(folder.path(), options);
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let text = json!({ "mcpServers": { "mock": entry } }).to_string();
        Mock { upstreams: Upstreams::new(parse(&text, &|_| None).unwrap(), settings), folder }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<CallToolResult, CallError> {
        self.call_within(tool, arguments, LIMIT).await
    }

    pub(crate) async fn call_within(
        &self,
        tool: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<CallToolResult, CallError> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        self.upstreams.call("mock", tool, arguments, limit, &CancellationToken::new()).await
    }

    pub(crate) async fn text(&self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments).await.unwrap())
    }

    pub(crate) async fn tools(&self) -> Vec<String> {
        names(&self.upstreams.list("mock").await.unwrap().tools)
    }

    pub(crate) fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    pub(crate) fn starts(&self) -> usize {
        self.log().iter().filter(|line| *line == "start").count()
    }

    /// Waits until the server has heard or said this.
    pub(crate) async fn heard(&self, what: &str) {
        until(|| self.log().iter().any(|line| line == what)).await;
    }
}

pub(crate) fn text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}

pub(crate) fn names(tools: &[Value]) -> Vec<String> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits for something that happens elsewhere.
pub(crate) async fn until(mut happened: impl FnMut() -> bool) {
    let wait = async {
        while !happened() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "it did not happen");
}

pub(crate) fn is_alive(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z')
}
