//! Other MCP servers as the operator has configured them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_gateway::ledger::Ledger;
use belljar_gateway::policy::Rules;
use belljar_gateway::privacy::Privacy;
use belljar_gateway::skills::Skills;
use belljar_gateway::upstream::{self, UpstreamConfig, Upstreams};
use belljar_gateway::{Budget, Gateway, ServerSettings, Settings};
use belljar_store::Records;

use crate::complaint::Complaint;
use crate::config::Config;
use crate::watching::{Counted, Watching};

/// Far more than anyone configures.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The servers, none of which is started.
pub(crate) fn upstreams(config: &Config) -> Result<Upstreams, Complaint> {
    let configs = configs(config)?;
    let environment =
        env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let settings = upstream::Settings {
        cache: super::usual_cache().map(|cache| cache.join("upstreams")),
        tokens: super::usual_data().map(|data| data.join("logins")),
        ..upstream::Settings::default()
    };
    Ok(Upstreams::new(configs, settings.inherit(environment)))
}

/// `None` where nothing asks for it.
pub(crate) fn gateway(
    config: &Config,
    store: Option<PathBuf>,
    records: &Records,
    watching: Option<&Watching>,
) -> Result<Option<Gateway>, Complaint> {
    if !config.upstreams.need_a_gateway() {
        return Ok(None);
    }
    let upstreams = upstreams(config)?;
    let ours = &config.upstreams;
    let names = upstreams.names();
    let servers = names.iter().filter_map(|name| upstreams.config(name)).map(server);
    let privacy = Privacy::new(&ours.hide.value, &ours.patterns);
    let audit = super::records::of_calls(records);
    let audit = match watching {
        Some(watching) => Arc::new(Counted::new(&watching.watch, audit)),
        None => audit,
    };
    let settings = Settings {
        servers: servers.collect::<Result<_, _>>()?,
        approve: ours.approve.value,
        budget: Budget { calls: ours.calls.value, in_flight: ours.in_flight.value, ..Budget::default() },
        privacy: privacy.map_err(|error| complain(&error.to_string()))?,
        skills: Skills::at(ours.skills.value.clone().or_else(|| super::usual_data().map(|data| data.join("skills")))),
        ledger: ledger(),
        audit,
        store,
    };
    Ok(Some(Gateway::new(upstreams, settings)))
}

/// Where what code mode was worth is summed up.
pub(crate) fn ledger() -> Ledger {
    Ledger::at(super::usual_state().map(|state| state.join("tokens.json")))
}

fn server(config: &UpstreamConfig) -> Result<ServerSettings, Complaint> {
    let rules = Rules::new(&config.allow, &config.ask, &config.deny, config.trusted);
    let rules = rules.map_err(|error| complain(&format!("server {:?}: {error}", config.name)))?;
    Ok(ServerSettings { name: config.name.clone(), rules, timeout: config.timeout, parses: config.parse })
}

/// What the servers' files say, which is only told apart from what they said before; with it, whether it can be read.
pub(crate) fn servers_written(config: &Config) -> Result<Vec<String>, Complaint> {
    configs(config)?;
    config.upstreams.files.value.iter().map(|path| read(path).map(|(_, text)| text)).collect()
}

fn configs(config: &Config) -> Result<Vec<UpstreamConfig>, Complaint> {
    let lookup = |name: &str| env::var(name).ok();
    let mut all: Vec<UpstreamConfig> = Vec::new();
    let texts = config.upstreams.own.iter().map(|text| Ok(("the configuration".to_owned(), text.clone())));
    for text in texts.chain(config.upstreams.files.value.iter().map(|path| read(path))) {
        let (shown, text) = text?;
        let parsed = upstream::parse(&text, &lookup).map_err(|error| {
            let hint = "docs/code-mode.md shows what a server's entry may hold";
            Complaint::new(format!("in {shown}: {error}"), hint)
        })?;
        for server in parsed {
            if all.iter().any(|other| other.name == server.name) {
                let what = format!("in {shown}: the server {:?} is configured twice", server.name);
                return Err(Complaint::new(what, "rename one of the two"));
            }
            all.push(server);
        }
    }
    Ok(all)
}

fn read(path: &Path) -> Result<(String, String), Complaint> {
    let shown = path.display().to_string();
    let hint = "write {\"mcpServers\": {\"NAME\": {\"command\": \"...\"}}} into it, or name another with --mcp-config";
    let unread =
        |error: std::io::Error| Complaint::new(format!("cannot read the servers' file {shown}: {error}"), hint);
    let metadata = fs::metadata(path).map_err(unread)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        let what = format!("the servers' file {shown} is no file of at most {FILE_BYTES_MAX} bytes");
        return Err(Complaint::new(what, hint));
    }
    fs::read_to_string(path).map(|text| (shown.clone(), text)).map_err(unread)
}

fn complain(what: &str) -> Complaint {
    match what.rsplit_once("; ") {
        Some((what, hint)) => Complaint::new(what, hint),
        None => Complaint::new(what, "docs/code-mode.md tells what can be set"),
    }
}
