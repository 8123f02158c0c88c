//! This same program as a server, with recorded tools behind it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use belljar_gateway::search::Detail;
use belljar_gateway::tokens::arms::Stage;
use belljar_gateway::tokens::recorded::Recorded;
use belljar_gateway::tokens::workflows::Call as DirectCall;
use serde_json::{Map, Value, json};

use super::super::client::{Call, Client as _};
use super::super::server::{Launch, OnPipe};

const UPSTREAM: &str = include_str!("upstream.py");

/// Dozens of interpreters at once, on a busy machine.
const START: Duration = Duration::from_secs(90);

/// Between a server's name and a tool's, where a model calls it itself.
const DIRECT: &str = "__";

#[derive(Debug)]
pub(super) struct Served {
    server: OnPipe,
    _folder: tempfile::TempDir,
}

impl Served {
    /// Nobody is asked, and the upstream tools are there as ordinary ones too, for the direct arms.
    pub(super) fn start(backend: &'static str, tools: &[Recorded]) -> anyhow::Result<Served> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("upstream.py"), UPSTREAM)?;
        let mut servers = Map::new();
        for server in tools {
            let record = at(&format!("{}.json", server.server));
            fs::write(&record, serde_json::to_vec(server)?)?;
            servers.insert(server.server.clone(), json!({"command": "python3", "args": [at("upstream.py"), record]}));
        }
        fs::write(at("mcp.json"), json!({"mcpServers": servers}).to_string())?;
        // What is measured is not to be in anybody's totals.
        let configuration = format!("[packages]\ncache = {:?}\ninstall = false\n", at("cache").display().to_string());
        fs::write(at("config.toml"), configuration)?;
        let launch = Launch { backend, config: at("config.toml"), path: None, home: None };
        let file = at("mcp.json");
        let server = launch.stdio(&flags(&file)?).context("starting the server")?;
        let mut served = Served { server, _folder: folder };
        served.settle(tools.iter().map(|server| server.tools.len()).sum())?;
        Ok(served)
    }

    /// Waits until all upstreams have told their tools.
    fn settle(&mut self, tools: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let listed = self.listed()?;
            let direct = listed.iter().filter(|tool| is_direct(tool)).count();
            if direct == tools {
                return Ok(());
            }
            if started.elapsed() > START {
                bail!("only {direct} of {tools} tools are there after {} s", START.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn listed(&mut self) -> anyhow::Result<Vec<Value>> {
        let listed = self.server.client.request("tools/list", &json!({}))?;
        listed["tools"].as_array().cloned().context("the server lists no tools")
    }

    fn text(&mut self, tool: &str, arguments: Value) -> anyhow::Result<String> {
        let answer = self.server.client.call(&Call::new(tool, arguments))?;
        let blocks = answer.result["content"].as_array().cloned().unwrap_or_default();
        let texts: Vec<&str> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        Ok(texts.join("\n"))
    }
}

fn is_direct(tool: &Value) -> bool {
    tool["name"].as_str().unwrap_or_default().contains(DIRECT)
}

fn flags(file: &Path) -> anyhow::Result<Vec<&str>> {
    let file = file.to_str().context("the folder's name is no text")?;
    Ok(vec!["--mcp-config", file, "--approve", "never", "--direct", "--no-pool"])
}

impl Stage for Served {
    type Error = anyhow::Error;

    /// All that clients give the model: names, descriptions and what they take.
    fn surface(&mut self) -> anyhow::Result<Vec<String>> {
        let listed = self.listed()?;
        let shown = listed.iter().filter(|tool| !is_direct(tool)).map(|tool| {
            let (name, description, input) = (&tool["name"], &tool["description"], &tool["inputSchema"]);
            json!({"name": name, "description": description, "inputSchema": input}).to_string()
        });
        let instructions = self.server.client.instructions().to_owned();
        Ok(shown.chain([instructions]).collect())
    }

    fn search(&mut self, query: &str, detail: Detail) -> anyhow::Result<String> {
        let detail = match detail {
            Detail::Names => "names",
            Detail::Signatures => "signatures",
            Detail::Full => "full",
        };
        self.text("search_tools", json!({"query": query, "detail": detail}))
    }

    fn run(&mut self, program: &str) -> anyhow::Result<String> {
        self.text("run_code", json!({"language": "python", "code": program}))
    }

    fn call(&mut self, call: &DirectCall) -> anyhow::Result<String> {
        let name = format!("{}{DIRECT}{}", call.server, call.tool.replace(['-', '.'], "_"));
        self.text(&name, Value::Object(call.arguments.clone()))
    }
}
