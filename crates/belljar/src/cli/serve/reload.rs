//! SIGHUP: the configuration is read again, and what can change while a server runs does.
//!
//! A file that is wrong changes nothing: the server goes on as it was, and says why.

use std::io::IsTerminal;
use std::sync::Arc;

use anyhow::Context;
use belljar_access::Access;
use belljar_engine::{Engine, Tenure};
use rustix::process::{Signal as Kill, getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Changed, Config};
use crate::wiring;

/// The configuration as it is now, with the command line's own words in it.
pub(super) type Read = Box<dyn Fn() -> anyhow::Result<Config> + Send>;

/// Something that has a file of its own to read again: what it is, and what was wrong with it.
pub(super) type Hook = (&'static str, Box<dyn Fn() -> Result<(), String> + Send>);

/// The key of the files of other servers.
const FILES: &str = "upstreams.files";

/// What is done at the signal.
pub(super) struct Reload {
    pub(super) read: Read,
    /// What the server began with.
    pub(super) begun: Config,
    /// What was read last.
    pub(super) config: Config,
    /// What the files of other servers said then.
    pub(super) servers: Vec<String>,
    /// For what the configuration leaves to us.
    pub(super) usual: Tenure,
    pub(super) engine: Engine,
    pub(super) hooks: Vec<Hook>,
    /// Who counts requests.
    pub(super) access: Option<Arc<Access>>,
}

impl Reload {
    /// From here on the signal does not end the server. The engine is let go of when `stop` comes.
    pub(super) fn listen(mut self, stop: CancellationToken) -> anyhow::Result<()> {
        let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
        let had_terminal = std::io::stderr().is_terminal();
        tokio::spawn(async move {
            while next(&mut hangup, &stop).await {
                if had_terminal && !std::io::stderr().is_terminal() {
                    // It was not the operator: the window that we were started in was closed.
                    let _ = kill_process(getpid(), Kill::TERM);
                    return;
                }
                self.again();
            }
        });
        Ok(())
    }

    fn again(&mut self) {
        match (self.read)() {
            Ok(config) => self.take(config),
            Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        }
        // Tokens may have been taken back in the same breath; they do not wait for a comma.
        for (what, hook) in &self.hooks {
            match hook() {
                Ok(()) => tracing::info!("read again: {what}"),
                Err(error) => tracing::error!("{what} cannot be read again: {error}"),
            }
        }
    }

    fn take(&mut self, config: Config) {
        let mut changed = config.changed_since(&self.config);
        // However often it is read: what needs a restart needs it until there is one.
        changed.after_restart = config.changed_since(&self.begun).after_restart;
        self.engine.change_tenure(tenure(&config, self.usual));
        self.engine.change_quota(config.quota.settings());
        if let Some(access) = &self.access {
            access.set_requests_per_second(config.quota.requests_per_second.value);
        }
        match wiring::servers_written(&config) {
            Ok(servers) if servers != self.servers && !changed.after_restart.iter().any(|key| key == FILES) => {
                changed.after_restart.push(format!("what {FILES} name"));
            }
            Ok(_) => {}
            Err(error) => tracing::error!("a restart would fail: {error}"),
        }
        if changed == Changed::default() {
            tracing::info!("the configuration was read again, and says nothing new");
        }
        if !changed.in_effect.is_empty() {
            tracing::info!("in effect from now on: {}", changed.in_effect.join(", "));
        }
        if !changed.after_restart.is_empty() {
            tracing::warn!("changed, and in effect after a restart: {}", changed.after_restart.join(", "));
        }
        if !changed.without_effect.is_empty() {
            let keys = changed.without_effect.join(", ");
            tracing::warn!("changed, and without effect, since the command line says otherwise: {keys}");
        }
        // Last, so that it cannot keep the words above from being told.
        wiring::tell_only(&config.log.value);
        self.config = config;
    }
}

/// A change of their file is seen without the signal, too.
pub(super) fn tokens(access: Arc<Access>) -> Hook {
    ("tokens", Box::new(move || access.reload().map_err(|error| error.to_string())))
}

/// What the engine is told.
pub(super) fn tenure(config: &Config, usual: Tenure) -> Tenure {
    Tenure {
        sandboxes_max: config.max_sandboxes.value.unwrap_or(usual.sandboxes_max),
        idle: config.idle_timeout.value,
        age_max: config.max_age.value,
    }
}

async fn next(hangup: &mut Signal, stop: &CancellationToken) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        came = hangup.recv() => came.is_some(),
    }
}
