//! Other MCP servers: started when they are needed, kept alive, started again when they fail.
//!
//! ```text
//! config ─▶ Server (life, back-off, list) ─▶ connect ─▶ stdio | http | sse
//!              ├─ Live (one connection)        └─ login (OAuth)
//!              └─ Bridge (one more for a client that the server is forwarded to)
//! ```

mod bridge;
mod callback;
pub mod config;
mod connect;
mod events;
mod expand;
mod failure;
mod fate;
mod files;
mod hidden;
mod http;
mod keys;
mod lines;
mod listing;
mod live;
mod login;
mod server;
mod settings;
mod sse;
mod stdio;
mod tap;
mod tokens;
mod words;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::CallToolResult;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use bridge::{Bridge, Exchange, Face, Step, Word};
pub use config::{ConfigError, Flavour, Oauth, UpstreamConfig, Way, parse};
pub use hidden::Hidden;
pub use settings::Settings;

use crate::error::{CallError, ErrorKind};
use server::Server;

/// What one server said of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub instructions: Option<String>,
    /// The tools' definitions, in the server's own order and words.
    pub tools: Vec<Value>,
}

/// All configured servers. Cheap to clone. When the last clone is dropped, the servers are ended in the background.
#[derive(Debug, Clone)]
pub struct Upstreams {
    all: Arc<All>,
}

#[derive(Debug)]
struct All {
    servers: Vec<Arc<Server>>,
    changes: Arc<watch::Sender<u64>>,
}

impl Drop for All {
    fn drop(&mut self) {
        self.servers.iter().for_each(|server| server.ended.cancel());
    }
}

impl Upstreams {
    /// Starts nothing yet.
    pub fn new(configs: Vec<UpstreamConfig>, settings: Settings) -> Upstreams {
        // Whoever installed one before us is right as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let settings = Arc::new(settings);
        let changes = Arc::new(watch::Sender::new(0));
        let server = |config| Arc::new(Server::new(config, settings.clone(), changes.clone()));
        let servers = configs.into_iter().map(server).collect();
        Upstreams { all: Arc::new(All { servers, changes }) }
    }

    /// The servers' names as configured, in order.
    pub fn names(&self) -> Vec<String> {
        self.all.servers.iter().map(|server| server.config.name.clone()).collect()
    }

    /// What the operator wrote of a server.
    pub fn config(&self, server: &str) -> Option<&UpstreamConfig> {
        self.all.servers.iter().find(|known| known.config.name == server).map(|known| &known.config)
    }

    /// Why a server's list of tools is not all of it or not the latest, if so.
    pub fn trouble(&self, server: &str) -> Option<String> {
        self.server(server).ok()?.trouble()
    }

    /// The tools of a server: from memory, else from the cache, else asked for, in which case it is started.
    pub async fn list(&self, server: &str) -> Result<Listed, CallError> {
        let known = self.server(server)?;
        let listed = known.list().await.map(Arc::unwrap_or_clone);
        listed.map_err(|error| known.words.redact_error(CallError { server: server.to_owned(), ..error }))
    }

    /// The same as the server says it now: it is started if it does not run.
    pub async fn list_now(&self, server: &str) -> Result<Listed, CallError> {
        let known = self.server(server)?;
        let listed = known.list_now().await.map(Arc::unwrap_or_clone);
        listed.map_err(|error| known.words.redact_error(CallError { server: server.to_owned(), ..error }))
    }

    /// One call. Waits at most `limit`, or what the operator allows if that is less, the server's start included;
    /// cancelling or dropping it tells the upstream so.
    pub async fn call(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<CallToolResult, CallError> {
        self.call_in_trace(server, tool, arguments, limit, cancel, None).await
    }

    /// The same, as a part of a trace: the server is told the span that its work belongs to, as W3C writes it.
    pub async fn call_in_trace(
        &self,
        server: &str,
        tool: &str,
        arguments: Map<String, Value>,
        limit: Duration,
        cancel: &CancellationToken,
        traceparent: Option<&str>,
    ) -> Result<CallToolResult, CallError> {
        let known = self.server(server)?;
        let limit = limit.min(known.config.timeout);
        let result = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(CallError::new(ErrorKind::Cancelled, "the call was cancelled")),
            result = tokio::time::timeout(limit, known.call(tool, arguments, traceparent)) => result.unwrap_or_else(|_| {
                let seconds = limit.as_secs_f64();
                let message = format!(
                    "`{server}` did not answer within {seconds} s; the call may or may not have taken effect. Allow more time, \
                     or ask for less"
                );
                Err(CallError { limit: Some(seconds), ..CallError::new(ErrorKind::ToolTimeout, message) })
            }),
        };
        let told = |error| CallError { server: server.to_owned(), tool: tool.to_owned(), ..error };
        // Some put the token that they refuse into the sentence that says so.
        let result = result.map(|result| known.words.redact_result(result));
        result.map_err(|error| known.words.redact_error(told(error)))
    }

    /// A connection of its own to a server, on behalf of one client of ours, whose face it shows.
    pub async fn bridge(&self, server: &str, face: Face) -> Result<Bridge, CallError> {
        let known = self.server(server)?;
        bridge::open(known, face).await.map_err(|error| known.words.redact_error(error))
    }

    /// Counts up whenever some server's list of tools is another.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.all.changes.subscribe()
    }

    /// Logs in at a server with OAuth 2.1: `open` is given the address that a person has to open in a browser on this
    /// machine. Returns when the tokens are stored.
    pub async fn login(&self, server: &str, open: impl Fn(&str)) -> Result<(), CallError> {
        let known = self.server(server)?;
        if known.wanted().challenge.is_none() && matches!(known.config.way, Way::Http { .. }) {
            // Where to log in, and for what, a server says when it refuses somebody.
            let _ = tokio::time::timeout(known.settings.list_limit, known.list_now()).await;
            known.renew().await;
        }
        login::login(known, open).await?;
        known.renew().await;
        Ok(())
    }

    /// Forgets the tokens of a server; says whether there were any.
    pub async fn logout(&self, server: &str) -> Result<bool, CallError> {
        let known = self.server(server)?;
        let had = login::logout(known)?;
        known.renew().await;
        Ok(had)
    }

    /// Ends all of them; returns when no process of theirs is left.
    pub async fn end(&self) {
        futures::future::join_all(self.all.servers.iter().map(|server| server.end())).await;
    }

    fn server(&self, name: &str) -> Result<&Arc<Server>, CallError> {
        self.all.servers.iter().find(|server| server.config.name == name).ok_or_else(|| CallError {
            server: name.to_owned(),
            suggestions: self.names(),
            ..CallError::new(ErrorKind::UnknownTool, format!("there is no server `{}`", words::clean(name, 80)))
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}
