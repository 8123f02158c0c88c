//! `belljar serve`: MCP on standard input and output, or over HTTP and a unix socket.

mod begin;
mod end;
mod reload;
mod socket;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belljar_backends::Preload;
use belljar_engine::{PoolSettings, Settings, Tenure};
use belljar_server::{HttpSettings, PROFILES, Surface, serve_http, serve_stdio};
use clap::Args;
use tokio_util::sync::CancellationToken;

use self::begin::{access, announce, engine, with_gateway};
use self::end::until_told;
use self::reload::Reload;
use self::socket::Socket;
use super::values;
use crate::complaint::Complaint;
use crate::config::{Config, Hosts, approve};
use crate::watching::{Tests, Watching};
use crate::wiring;

/// Where each flag of `serve` is found in its help.
const TRANSPORT: &str = "Transport";
const ACCESS: &str = "Access";
const SANDBOXES: &str = "Sandboxes";
const TOOLS: &str = "Tools";
const WATCHING: &str = "Watching";

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Serve streamable HTTP at /mcp on this address, such as 127.0.0.1:8931, instead of standard input and output
    #[arg(long, value_name = "ADDRESS", value_parser = values::address, help_heading = TRANSPORT)]
    http: Option<SocketAddr>,
    /// Serve programs of the same user on a unix socket at this path, instead of standard input and output; may stand beside
    /// --http
    #[arg(long, value_name = "PATH", help_heading = TRANSPORT)]
    socket: Option<PathBuf>,
    /// Who may call over HTTP: a file of `belljar token`, or of NAME:TOKEN lines; some are needed for any address but
    /// loopback [default: ~/.local/share/belljar/access.json, if it is there]
    #[arg(long, value_name = "FILE", requires = "http", help_heading = ACCESS)]
    token_file: Option<PathBuf>,
    /// Another name that the Host and Origin of a request may have, besides loopback's
    #[arg(long, value_name = "HOST", requires = "http", help_heading = TRANSPORT)]
    allow_host: Vec<String>,
    /// Seconds after which an unused sandbox is removed [default: 1800]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, help_heading = SANDBOXES)]
    idle_timeout: Option<Duration>,
    /// Offer the tools of another system in place of Belljar's own: e2b, daytona, code-sandbox, run-python, agentexec,
    /// morph or interpreter
    #[arg(long, value_name = "NAME", help_heading = TOOLS)]
    profile: Option<String>,
    /// Seconds after which a run goes on as a job, and its caller is told so [default: 45]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, help_heading = SANDBOXES)]
    yield_after: Option<Duration>,
    /// Seconds that programs under way have to come to their end after SIGTERM or SIGINT; a second signal ends them at
    /// once [default: 7]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, help_heading = TRANSPORT)]
    shutdown_timeout: Option<Duration>,
    /// Sandboxes that may exist at once [default: 256, or what the limit on open files has room for]
    #[arg(long, value_name = "NUMBER", help_heading = SANDBOXES)]
    max_sandboxes: Option<usize>,
    /// Start each Python by itself, instead of forking it from one that is loaded ahead
    #[arg(long, help_heading = SANDBOXES)]
    no_zygote: bool,
    /// A host that callers may ask for, such as api.example.com, '*.example.org:8443' or 'GET api.example.com'; the word
    /// packages for the package registries. May be given more than once
    #[arg(long, value_name = "HOST", help_heading = SANDBOXES)]
    allow_network: Vec<String>,
    /// Install no packages
    #[arg(long, help_heading = SANDBOXES)]
    no_packages: bool,
    /// A file of other MCP servers in the usual mcpServers form, whose tools programs may call; may be given more than once
    #[arg(long, value_name = "FILE", help_heading = TOOLS)]
    mcp_config: Vec<PathBuf>,
    /// What a person is asked about: never anything that no rule names, writes (calls that are not known to change nothing),
    /// or ask (those, and every program before it runs) [default: writes]
    #[arg(long, value_name = "WHEN", help_heading = TOOLS)]
    approve: Option<String>,
    /// Offer the other servers' tools as ordinary tools too
    #[arg(long, help_heading = TOOLS)]
    direct: bool,
    /// Open each sandbox when it is asked for, and none ahead
    #[arg(long, help_heading = SANDBOXES)]
    no_pool: bool,
    /// Serve figures at /metrics on this address of loopback too, such as 127.0.0.1:9464, beside whichever transport
    #[arg(long, value_name = "ADDRESS", value_parser = values::address, help_heading = WATCHING)]
    metrics: Option<SocketAddr>,
}

impl Serve {
    /// `read` reads the configuration; it is read again when the operator asks for it.
    pub(super) fn execute(
        self,
        read: impl Fn() -> anyhow::Result<Config> + Send + 'static,
    ) -> anyhow::Result<ExitCode> {
        let serve = Arc::new(self);
        let flags = serve.clone();
        let read: reload::Read = Box::new(move || flags.put_into(read()?));
        let config = read()?;
        wiring::tell_only(&config.log.value);
        serve.serve(config, read)
    }

    /// The command line goes before all that was written.
    fn put_into(&self, mut config: Config) -> anyhow::Result<Config> {
        config.idle_timeout.or_flag(self.idle_timeout);
        config.max_sandboxes.or_flag(self.max_sandboxes.map(Some));
        config.yield_after.or_flag(self.yield_after);
        config.shutdown_timeout.or_flag(self.shutdown_timeout);
        config.profile.or_flag(self.profile.clone().map(Some));
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
        if let Some(name) = config.profile.value.as_deref().filter(|name| !PROFILES.contains(name)) {
            let hint = format!("use one of: {}", PROFILES.join(", "));
            return Err(Complaint::new(format!("there is no profile {name:?}"), hint).into());
        }
        Ok(config)
    }

    fn serve(&self, config: Config, read: reload::Read) -> anyhow::Result<ExitCode> {
        let settings = wiring::settings();
        let usual = Tenure::from(&settings);
        let tenure = reload::tenure(&config, usual);
        // Prepared ones take descriptors of ours as well, and are the first that can be done without.
        let max = config.pool.max.value.min(settings.sandboxes_max / 4);
        let pool = config.pool.settings().map(|pool| PoolSettings { max, ..pool });
        let settings = Settings {
            idle: tenure.idle,
            age_max: tenure.age_max,
            sandboxes_max: tenure.sandboxes_max,
            pool,
            templates: config.templates.clone(),
            quota: config.quota.settings(),
            ..settings
        };
        let surface = Surface {
            profile: config.profile.value.clone(),
            yield_after: config.yield_after.value,
            direct: config.upstreams.direct.value,
            ..Surface::default()
        };
        let tests = if config.self_test.enabled.value { Tests::Yes } else { Tests::No };
        let watching = Watching::new(wiring::variable, tests, self.metrics)?;
        let at_most = config.shutdown_timeout.value;
        let preload = if self.no_zygote { Preload::No } else { Preload::Yes };
        match (self.http, self.socket.as_deref()) {
            (None, None) => {
                let runtime = wiring::runtime_for_one()?;
                let served = runtime.block_on(async {
                    let (engine, gateway, mut begun) = engine(preload, &config, settings, watching)?;
                    let surface = with_gateway(surface, gateway.as_ref(), &begun);
                    let readiness = begun.watch.readiness.clone();
                    let serving = begun.over(serve_stdio(engine.clone(), surface));
                    let stop = CancellationToken::new();
                    let served = until_told(engine, gateway, serving, stop, at_most, &readiness).await;
                    begun.end().await;
                    served
                });
                // Standard input is read on a thread that only its end can wake; it must not hold the exit.
                runtime.shutdown_background();
                served?;
            }
            (address, path) => {
                let access = access(self.token_file.as_deref(), &config)?;
                let runtime = wiring::runtime_for_many()?;
                runtime.block_on(async {
                    // What can be refused is, before anything has begun that would have to be ended.
                    let socket = path.map(Socket::bind).transpose()?;
                    let (engine, gateway, mut begun) = engine(preload, &config, settings, watching)?;
                    let surface = with_gateway(surface, gateway.as_ref(), &begun);
                    let stop = CancellationToken::new();
                    let reload = Reload {
                        read,
                        servers: wiring::servers_written(&config)?,
                        begun: config.clone(),
                        config,
                        usual,
                        engine: engine.clone(),
                        hooks: access.iter().cloned().map(reload::tokens).collect(),
                        access: access.clone(),
                    };
                    if let Err(error) = reload.listen(stop.clone()) {
                        begun.end().await;
                        return Err(error);
                    }
                    let on_socket = socket::serve(engine.clone(), socket, surface.clone(), stop.clone());
                    let http = address.map(|address| HttpSettings {
                        access,
                        allowed_hosts: self.allow_host.clone(),
                        connections_max: wiring::connections_max(),
                        surface,
                        ..HttpSettings::new(address)
                    });
                    let (over_http, stopped) = (engine.clone(), stop.clone());
                    let over_http = async {
                        match http {
                            Some(http) => serve_http(over_http, http, announce, stopped).await,
                            None => Ok(()),
                        }
                    };
                    let readiness = begun.watch.readiness.clone();
                    let serving = begun.over(async { tokio::try_join!(over_http, on_socket).map(|_| ()) });
                    let served = until_told(engine, gateway, serving, stop, at_most, &readiness).await;
                    begun.end().await;
                    served
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
