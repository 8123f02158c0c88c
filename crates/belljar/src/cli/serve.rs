//! `belljar serve`: MCP on standard input and output, or over HTTP.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use belljar_backends::Preload;
use belljar_core::WallState;
use belljar_engine::{Engine, PoolSettings, Settings};
use belljar_gateway::Gateway;
use belljar_server::{CodeMode, HttpSettings, PROFILES, ServeError, Surface, Tokens, serve_http, serve_stdio};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::values;
use crate::complaint::Complaint;
use crate::config::{Config, Hosts, approve};
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Serve streamable HTTP at /mcp on this address, such as 127.0.0.1:8931, instead of standard input and output
    #[arg(long, value_name = "ADDRESS", value_parser = values::address)]
    http: Option<SocketAddr>,
    /// Who may call over HTTP: one NAME:TOKEN a line; needed for any address but loopback
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// Another name that the Host and Origin of a request may have, besides loopback's
    #[arg(long, value_name = "HOST", requires = "http")]
    allow_host: Vec<String>,
    /// Seconds after which an unused sandbox is removed [default: 1800]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    idle_timeout: Option<Duration>,
    /// Offer the tools of another system in place of Belljar's own: e2b, daytona, code-sandbox, run-python, agentexec,
    /// morph or interpreter
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Seconds after which a run goes on as a job, and its caller is told so [default: 45]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    yield_after: Option<Duration>,
    /// Sandboxes that may exist at once [default: 256, or what the limit on open files has room for]
    #[arg(long, value_name = "NUMBER")]
    max_sandboxes: Option<usize>,
    /// Start each Python by itself, instead of forking it from one that is loaded ahead
    #[arg(long)]
    no_zygote: bool,
    /// A host that callers may ask for, such as api.example.com, '*.example.org:8443' or 'GET api.example.com'; the word
    /// packages for the package registries. May be given more than once
    #[arg(long, value_name = "HOST")]
    allow_network: Vec<String>,
    /// Install no packages
    #[arg(long)]
    no_packages: bool,
    /// A file of other MCP servers in the usual mcpServers form, whose tools programs may call; may be given more than once
    #[arg(long, value_name = "FILE")]
    mcp_config: Vec<PathBuf>,
    /// What a person is asked about: never anything that no rule names, writes (calls that are not known to change nothing),
    /// or ask (those, and every program before it runs) [default: writes]
    #[arg(long, value_name = "WHEN")]
    approve: Option<String>,
    /// Offer the other servers' tools as ordinary tools too
    #[arg(long)]
    direct: bool,
    /// Open each sandbox when it is asked for, and none ahead
    #[arg(long)]
    no_pool: bool,
}

impl Serve {
    pub(super) fn execute(self, mut config: Config) -> anyhow::Result<ExitCode> {
        config.idle_timeout.or_flag(self.idle_timeout);
        config.max_sandboxes.or_flag(self.max_sandboxes.map(Some));
        config.yield_after.or_flag(self.yield_after);
        config.profile.or_flag(self.profile.map(Some));
        config.pool.enabled.or_flag(self.no_pool.then_some(false));
        config.packages.install.or_flag(self.no_packages.then_some(false));
        if !self.mcp_config.is_empty() {
            config.upstreams.files.or_flag(Some(self.mcp_config.clone()));
        }
        config.upstreams.approve.or_flag(self.approve.as_deref().map(approve).transpose()?);
        config.upstreams.direct.or_flag(self.direct.then_some(true));
        if !self.allow_network.is_empty() {
            let allowed = config.network.allow.value.clone().and(Hosts::read(&self.allow_network)?);
            config.network.allow.or_flag(Some(allowed));
        }
        let settings = wiring::settings();
        // Prepared ones take descriptors of ours as well, and are the first that can be done without.
        let max = config.pool.max.value.min(settings.sandboxes_max / 4);
        let pool = config.pool.settings().map(|pool| PoolSettings { max, ..pool });
        let settings = Settings {
            idle: config.idle_timeout.value,
            age_max: config.max_age.value,
            sandboxes_max: config.max_sandboxes.value.unwrap_or(settings.sandboxes_max),
            pool,
            templates: std::mem::take(&mut config.templates),
            ..settings
        };
        if let Some(name) = config.profile.value.as_deref().filter(|name| !PROFILES.contains(name)) {
            let hint = format!("use one of: {}", PROFILES.join(", "));
            return Err(Complaint::new(format!("there is no profile {name:?}"), hint).into());
        }
        let surface = Surface {
            profile: config.profile.value.take(),
            yield_after: config.yield_after.value,
            direct: config.upstreams.direct.value,
            ..Surface::default()
        };
        let preload = if self.no_zygote { Preload::No } else { Preload::Yes };
        match self.http {
            None => {
                let runtime = wiring::runtime_for_one()?;
                let served = runtime.block_on(async {
                    let (engine, gateway) = engine(preload, &config, settings)?;
                    let surface = with_gateway(surface, gateway.as_ref());
                    let serving = serve_stdio(engine.clone(), surface);
                    until_told(engine, gateway, serving, CancellationToken::new()).await
                });
                // Standard input is read on a thread that only its end can wake; it must not hold the exit.
                runtime.shutdown_background();
                served?;
            }
            Some(address) => {
                let tokens = self.token_file.as_deref().map(read_tokens).transpose()?;
                let runtime = wiring::runtime_for_many()?;
                runtime.block_on(async {
                    let (engine, gateway) = engine(preload, &config, settings)?;
                    let surface = with_gateway(surface, gateway.as_ref());
                    let http =
                        HttpSettings { tokens, allowed_hosts: self.allow_host, surface, ..HttpSettings::new(address) };
                    let stop = CancellationToken::new();
                    let serving = serve_http(engine.clone(), http, announce, stop.clone());
                    until_told(engine, gateway, serving, stop).await
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An engine on this host; what it cannot do is told at once, and not only to the first caller.
fn engine(preload: Preload, config: &Config, settings: Settings) -> Result<(Engine, Option<Gateway>), Complaint> {
    let parts = wiring::parts(preload, config)?;
    let backend = &parts.backend;
    for wall in backend.probe().walls {
        if let WallState::Missing { why, fix } = wall.state {
            tracing::error!(wall = wall.name, why, fix, "no program can be run here");
        }
    }
    if backend.capabilities().languages.is_empty() {
        tracing::error!("no interpreter was found; belljar doctor says what to install");
    }
    if let Some(provisions) = &parts.provisions {
        let packages = provisions.packages.clone();
        // Nobody waits for it: what it removes is in nobody's way.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = packages.tidy() {
                tracing::warn!(%error, "the store of packages could not be tidied");
            }
        });
    }
    let gateway = parts.gateway.clone();
    Ok((wiring::engine(parts, settings), gateway))
}

fn with_gateway(surface: Surface, gateway: Option<&Gateway>) -> Surface {
    let code_mode = gateway.map(|gateway| Arc::new(gateway.clone()) as Arc<dyn CodeMode>);
    Surface { code_mode, ..surface }
}

/// Serves until the transport ends or a signal comes, and then leaves nothing behind.
async fn until_told(
    engine: Engine,
    gateway: Option<Gateway>,
    serving: impl Future<Output = Result<(), ServeError>>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let served = tokio::select! {
        served = serving => served.map_err(complain),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    stop.cancel();
    engine.shutdown().await;
    if let Some(gateway) = gateway {
        gateway.end().await;
    }
    served
}

fn complain(error: ServeError) -> anyhow::Error {
    let hint = error.next_step();
    let what = match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    Complaint::new(what, hint).into()
}

fn announce(address: SocketAddr) {
    // Whoever started us waits for this line; without a stderr nobody does.
    let _ = writeln!(std::io::stderr(), "belljar: serving MCP at http://{address}/mcp");
}

fn read_tokens(path: &Path) -> anyhow::Result<Tokens> {
    let shown = path.display();
    let unread = |error: std::io::Error| {
        Complaint::new(format!("cannot read the token file {shown}: {error}"), "write one NAME:TOKEN a line into it")
    };
    let metadata = std::fs::metadata(path).map_err(unread)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        let what = format!("the token file {shown} can be read by other users");
        return Err(Complaint::new(what, format!("chmod 600 {shown}")).into());
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let tokens = Tokens::parse(&text).map_err(|error| {
        let hint = "one NAME:TOKEN a line, each token at least 16 characters, such as `openssl rand -hex 32` makes";
        Complaint::new(format!("in the token file {shown}: {error}"), hint)
    })?;
    Ok(tokens)
}
