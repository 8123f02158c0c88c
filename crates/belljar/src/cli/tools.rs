//! `belljar tools`: what programs can call of other MCP servers, seen and tried from the command line.

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use belljar_core::Caller;
use belljar_gateway::approval::Verdict;
use belljar_gateway::catalogue::{Catalogue, Tool};
use belljar_gateway::error::CallError;
use belljar_gateway::search::Detail;
use belljar_gateway::stubs::{self, Dialect};
use belljar_gateway::{Gateway, Search};
use belljar_store::Records;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::complaint::Complaint;
use crate::config::Config;
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Tools {
    /// A file of MCP servers in the usual mcpServers form; may be given more than once
    #[arg(long, value_name = "FILE", global = true)]
    mcp_config: Vec<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Every server and its tools
    List {
        /// Only this server's
        server: Option<String>,
    },
    /// Find tools by what they are for
    Search {
        #[arg(required = true)]
        query: Vec<String>,
        /// names, signatures or full
        #[arg(long, default_value = "signatures", value_parser = detail)]
        detail: Detail,
        #[arg(long, default_value_t = 10)]
        limit: usize,
    },
    /// Everything that is known of a tool
    Describe {
        /// As server.tool
        name: String,
    },
    /// Call a tool; it is you who calls, so nobody is asked
    Call {
        /// As server.tool
        name: String,
        /// key=text, or key:=JSON
        arguments: Vec<String>,
        /// All arguments as one JSON object; - reads it from standard input
        #[arg(long = "arguments", value_name = "JSON", conflicts_with = "arguments")]
        all: Option<String>,
    },
    /// Tokens that entered the model's context, against what direct calls would have cost
    Stats,
    /// Log in at a server with OAuth, in a browser
    Login { server: String },
    /// Forget the login of a server
    Logout { server: String },
}

fn detail(word: &str) -> Result<Detail, String> {
    Detail::named(word).ok_or_else(|| "write names, signatures or full".to_owned())
}

impl Tools {
    /// Exits with 1 if a tool failed.
    pub(super) fn execute(self, mut config: Config) -> anyhow::Result<ExitCode> {
        if let Action::Stats = self.action {
            return stats(self.json);
        }
        if !self.mcp_config.is_empty() {
            config.upstreams.files.or_flag(Some(self.mcp_config.clone()));
        }
        // It is the operator who calls, on purpose.
        config.upstreams.approve.or_flag(Some(belljar_gateway::policy::Approve::Never));
        let runtime = wiring::runtime_for_many()?;
        runtime.block_on(async {
            let gateway = wiring::gateway(&config, None, &Records::default(), None)?.filter(Gateway::has_servers);
            let Some(gateway) = gateway else {
                let hint =
                    "name a file of servers with --mcp-config, or write them below [upstreams] in the configuration";
                return Err(Complaint::new("no MCP servers are configured", hint).into());
            };
            let done = self.act(&gateway, &config).await;
            gateway.end().await;
            done
        })
    }

    async fn act(&self, gateway: &Gateway, config: &Config) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::List { server } => list(&gateway.all().await, server.as_deref(), self.json),
            Action::Search { query, detail, limit } => {
                gateway.all().await;
                let wanted = Search { query: query.join(" "), detail: *detail, server: None, limit: *limit };
                let found = gateway.search("local", &wanted).await;
                if self.json { say(&json!({"text": found}).to_string()) } else { say(&found) }
            }
            Action::Describe { name } => {
                let tool = find(gateway, name).await?;
                if self.json {
                    say(&format!("{:#}", tool.definition))
                } else {
                    say(&stubs::stub(&tool, Dialect::Python))
                }
            }
            Action::Call { name, arguments, all } => {
                let tool = find(gateway, name).await?;
                let arguments = read_arguments(&tool, arguments, all.as_deref())?;
                call(gateway, &tool, arguments, self.json).await
            }
            Action::Login { server } => login(config, server).await,
            Action::Logout { server } => {
                let upstreams = wiring::upstreams(config)?;
                let had = upstreams.logout(server).await.map_err(|error| complain(&error))?;
                say(if had { "logged out" } else { "there was no login" })
            }
            Action::Stats => Ok(ExitCode::SUCCESS),
        }
    }
}

fn say(text: &str) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn list(catalogue: &Catalogue, server: Option<&str>, as_json: bool) -> anyhow::Result<ExitCode> {
    let servers =
        catalogue.servers.iter().filter(|one| server.is_none_or(|name| one.name == name || one.ident == name));
    let servers: Vec<_> = servers.collect();
    if let (Some(name), []) = (server, servers.as_slice()) {
        let names: Vec<&str> = catalogue.servers.iter().map(|server| server.name.as_str()).collect();
        return Err(Complaint::new(
            format!("there is no server {name:?}"),
            format!("use one of: {}", names.join(", ")),
        )
        .into());
    }
    let mut out = std::io::stdout().lock();
    if as_json {
        let all = servers.iter().map(|server| {
            let tools: Vec<&Value> = server.tools.iter().map(|tool| &tool.definition).collect();
            json!({"name": server.name, "ident": server.ident, "tools": tools, "refused": server.refused, "trouble": server.trouble})
        });
        writeln!(out, "{:#}", json!({"servers": all.collect::<Vec<_>>()}))?;
        return Ok(ExitCode::SUCCESS);
    }
    for server in &servers {
        writeln!(out, "{} ({} tools)", server.ident, server.tools.len())?;
        if let Some(why) = &server.trouble {
            writeln!(out, "  not known: {why}")?;
        }
        for tool in &server.tools {
            writeln!(out, "  {}", stubs::signature(tool, Dialect::Python))?;
        }
        for (name, why) in &server.refused {
            writeln!(out, "  refused {name:?}: {why}")?;
        }
    }
    let failed = servers.iter().any(|server| server.trouble.is_some());
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

async fn find(gateway: &Gateway, name: &str) -> anyhow::Result<std::sync::Arc<Tool>> {
    gateway.all().await;
    gateway.tool(name).await.map_err(|error| complain(&error).into())
}

/// As in the sandbox: a text, unless the tool wants something else, or `:=` says that it is JSON.
fn read_arguments(tool: &Tool, pairs: &[String], all: Option<&str>) -> anyhow::Result<Map<String, Value>> {
    let bad = |what: String| Complaint::new(what, "write key=text or key:=JSON, or --arguments '{\"key\": 1}'");
    if let Some(all) = all {
        let mut text = all.to_owned();
        if all == "-" {
            text.clear();
            std::io::stdin().take(1 << 20).read_to_string(&mut text).context("reading the arguments")?;
        }
        return serde_json::from_str(&text)
            .map_err(|error| bad(format!("the arguments are no JSON object: {error}")).into());
    }
    let mut arguments = Map::new();
    for pair in pairs {
        let (key, value) = pair.split_once('=').ok_or_else(|| bad(format!("{pair:?} is no argument")))?;
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let value = serde_json::from_str(value);
                (key, value.map_err(|error| bad(format!("the value of {key} is no JSON: {error}")))?)
            }
            None => {
                let kind = tool.input_schema.get("properties").and_then(|all| all.get(key)?.get("type")?.as_str());
                let plain = Value::String(value.to_owned());
                match kind {
                    None | Some("string") => (key, plain),
                    Some(_) => (key, serde_json::from_str(value).unwrap_or(plain)),
                }
            }
        };
        arguments.insert(key.to_owned(), value);
    }
    Ok(arguments)
}

async fn call(
    gateway: &Gateway,
    tool: &std::sync::Arc<Tool>,
    arguments: Map<String, Value>,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let who = "local";
    let occasion = gateway.approvals().open(who);
    let caller = Caller { owner: who.into(), run: "command-line".into(), sandbox: None, occasion: Some(occasion) };
    // Whoever types the command has decided.
    let approving = async {
        while let Some(wanted) = gateway.approvals().wanted(occasion).await {
            let ids: Vec<u64> = wanted.iter().map(|pending| pending.id).collect();
            gateway.approvals().decide(who, occasion, &ids, Verdict::Once);
        }
        std::future::pending().await
    };
    let called = tokio::select! {
        called = gateway.call(caller, tool, arguments) => called,
        never = approving => never,
    };
    let result = match called {
        Ok(result) => result,
        Err(error) if as_json => {
            say(&json!({"error": error}).to_string())?;
            return Ok(ExitCode::from(1));
        }
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            writeln!(stderr, "{}: {}", error.kind.name(), error.message)?;
            if let Some(signature) = &error.signature {
                writeln!(stderr, "{signature}")?;
            }
            return Ok(ExitCode::from(1));
        }
    };
    let result = serde_json::to_value(&result)?;
    if as_json {
        return say(&result.to_string());
    }
    let structured = result.get("structuredContent").filter(|value| !value.is_null());
    let blocks = result.get("content").and_then(Value::as_array).cloned().unwrap_or_default();
    if let (Some(structured), true) = (structured, blocks.is_empty()) {
        return say(&format!("{structured:#}"));
    }
    for block in blocks {
        match block.get("text").and_then(Value::as_str) {
            Some(text) => say(text)?,
            None => say(&block.to_string())?,
        };
    }
    Ok(ExitCode::SUCCESS)
}

async fn login(config: &Config, server: &str) -> anyhow::Result<ExitCode> {
    let upstreams = wiring::upstreams(config)?;
    let open = |address: &str| {
        let _ = writeln!(std::io::stderr(), "open this in a browser on this machine:\n{address}");
        if std::io::stderr().is_terminal() {
            wiring::open_browser(address);
        }
    };
    let done = upstreams.login(server, open).await;
    upstreams.end().await;
    done.map_err(|error| complain(&error))?;
    say(&format!("logged in at {server}"))
}

fn stats(as_json: bool) -> anyhow::Result<ExitCode> {
    let totals = wiring::ledger().totals();
    if as_json {
        return say(&serde_json::to_string_pretty(&totals)?);
    }
    let saved = if totals.direct > 0 { 100.0 * (1.0 - totals.entered as f64 / totals.direct as f64) } else { 0.0 };
    say(&format!(
        "runs with calls            {}\ncalls                      {}\ntokens that entered        {}\ntokens of direct calls     {}\n\
         difference                 {saved:.1} % (estimated from the length of the texts)",
        totals.runs, totals.calls, totals.entered, totals.direct
    ))
}

fn complain(error: &CallError) -> Complaint {
    let hint = match error.suggestions.as_slice() {
        [] => "belljar tools list shows what there is".to_owned(),
        some => format!("did you mean {}?", some.join(", ")),
    };
    // Written for programs, which have no line for hints.
    let what = error.message.strip_suffix(&format!("; {hint}")).unwrap_or(&error.message);
    Complaint::new(what, hint)
}
