//! One server and its life: started at the first need, shared by all who call, left alone for a while when it fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, RequestParamsMeta as _};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::{UpstreamConfig, Way};
use super::connect::{Ear, Side, connect};
use super::failure::{challenge_of, of_call, of_input, upstream};
use super::fate::Fate;
use super::live::{Live, Use};
use super::words::Words;
use super::{Listed, Settings, files};
use crate::error::CallError;

/// How long the end of a process is waited for, to say how it ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Longer than a process is given to end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Server {
    pub(super) config: UpstreamConfig,
    pub(super) settings: Arc<Settings>,
    pub(super) words: Arc<Words>,
    pub(super) tasks: TaskTracker,
    /// Cancelled when the servers are ended for good.
    pub(super) ended: CancellationToken,
    changes: Arc<watch::Sender<u64>>,
    /// Held while it is started, so that all who need it wait for the one start.
    life: Arc<tokio::sync::Mutex<Option<Arc<Live>>>>,
    fate: Mutex<Fate>,
    known: Mutex<Known>,
    wanted: Mutex<Wanted>,
}

/// What a login has to ask for.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// What the server said when it last refused a request for want of a login, in its own words.
    pub(super) challenge: Option<String>,
    /// What logins have asked for before; the next one asks for it again, and for more.
    pub(super) scopes: Vec<String>,
}

/// Longer ones say nothing that anybody could use.
const CHALLENGE_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, Default)]
struct Known {
    listed: Option<Arc<Listed>>,
    trouble: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(super) fn new(config: UpstreamConfig, settings: Arc<Settings>, changes: Arc<watch::Sender<u64>>) -> Server {
        let secrets = config.secrets();
        Server {
            config,
            settings,
            words: Arc::new(Words::new(secrets)),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
            changes,
            life: Arc::default(),
            fate: Mutex::default(),
            known: Mutex::default(),
            wanted: Mutex::default(),
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        lock(&self.wanted).clone()
    }

    pub(super) fn asked_for(&self, scopes: Vec<String>) {
        lock(&self.wanted).scopes = scopes;
    }

    /// A request was refused; if that was for want of a login, what was said is kept for it.
    pub(super) fn challenged(&self, challenge: Option<&str>) {
        if let Some(challenge) = challenge.filter(|challenge| challenge.len() <= CHALLENGE_BYTES_MAX) {
            lock(&self.wanted).challenge = Some(challenge.to_owned());
        }
    }

    pub(super) fn is_legacy(&self) -> bool {
        lock(&self.fate).legacy
    }

    pub(super) fn leaving(&self, process: CancellationToken) {
        lock(&self.fate).leaving = Some(process);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.known).trouble.clone()
    }

    /// The connection, which is begun if there is none.
    async fn live(self: &Arc<Self>) -> Result<Use, CallError> {
        let name = &self.config.name;
        let starts = lock(&self.fate).starts;
        let mut life = self.life.clone().lock_owned().await;
        if self.ended.is_cancelled() {
            return Err(upstream(name, format!("`{name}` is not started any more: the program is ending")));
        }
        if let Some(live) = life.as_ref() {
            if live.is_up() {
                return Ok(live.used());
            }
            // So that its end is counted before the next start.
            let _ = tokio::time::timeout(LEAVE_MAX, live.over.cancelled()).await;
        }
        lock(&self.fate).may_start(name, starts, &self.words)?;
        let server = self.clone();
        // A task of its own: whoever asked first may lose patience, and the others wait for the same start.
        let start = self.tasks.spawn(async move {
            let live = server.start().await?;
            *life = Some(live.clone());
            Ok(live.used())
        });
        start.await.unwrap_or_else(|_| Err(upstream(name, format!("the start of `{name}` was broken off"))))
    }

    async fn start(self: &Arc<Self>) -> Result<Arc<Live>, CallError> {
        let leaving = {
            let mut fate = lock(&self.fate);
            fate.starts += 1;
            fate.leaving.take()
        };
        if let Some(leaving) = leaving {
            let _ = tokio::time::timeout(LEAVE_MAX, leaving.cancelled()).await;
        }
        let name = &self.config.name;
        let stop = CancellationToken::new();
        let changed = Arc::new(Notify::new());
        let ear = Ear { changed: changed.clone() };
        let limit = self.settings.start_limit;
        let side = Side { service: &ear, board: None, older: false, main: true, stop: &stop };
        let connected = tokio::select! {
            connected = tokio::time::timeout(limit, connect(self, &side)) => connected,
            () = self.ended.cancelled() => return Err(upstream(name, format!("`{name}` was not started: the program is ending"))),
        };
        let connection = connected.unwrap_or_else(|_| {
            let words = self.words.clause();
            Err(upstream(name, format!("`{name}` was not ready within {} s of its start{words}", limit.as_secs_f64())))
        });
        let connection = connection.inspect_err(|error| self.failed(error.clone()))?;
        let peer = connection.client.peer().clone();
        let version = peer.peer_info().map(|info| info.protocol_version.clone());
        lock(&self.fate).legacy = version.as_ref().is_some_and(|version| version.has_initialize());
        tracing::debug!(server = name, version = ?version, "started");
        let live = Arc::new(Live::new(peer, stop, changed, connection.gone));
        self.tasks.spawn(live.clone().watch(self.clone(), connection.client));
        self.tasks.spawn(live.clone().follow(self.clone()));
        if matches!(self.config.way, Way::Stdio { .. }) {
            self.tasks.spawn(live.clone().tire(self.clone()));
        }
        Ok(live)
    }

    /// It failed to start, or ended unasked.
    pub(super) fn failed(&self, why: CallError) {
        tracing::warn!(server = self.config.name, "{}", why.message);
        lock(&self.fate).failed(why);
    }

    fn thrived(&self) {
        lock(&self.fate).thrived();
    }

    /// Ends the connection, unless somebody uses it.
    pub(super) async fn end_if_idle(&self, live: &Live) -> bool {
        let _life = self.life.lock().await;
        live.idle() >= self.settings.idle && live.end()
    }

    /// Forgets failures and the connection, so that the next need starts afresh.
    pub(super) async fn renew(&self) {
        if let Some(live) = self.life.lock().await.take() {
            live.end();
        }
        self.thrived();
    }

    pub(super) async fn list(self: &Arc<Self>) -> Result<Arc<Listed>, CallError> {
        if let Some(listed) = lock(&self.known).listed.clone() {
            return Ok(listed);
        }
        if let Some(directory) = self.settings.cache.clone() {
            let fingerprint = self.config.fingerprint.clone();
            let read = tokio::task::spawn_blocking(move || files::listed(&directory, &fingerprint)).await;
            if let Ok(Some(listed)) = read {
                return Ok(lock(&self.known).listed.get_or_insert_with(|| Arc::new(listed)).clone());
            }
        }
        self.list_now().await
    }

    /// As it has been told since the last start.
    pub(super) async fn list_now(self: &Arc<Self>) -> Result<Arc<Listed>, CallError> {
        let live = self.live().await?;
        live.listed().await?;
        let name = &self.config.name;
        lock(&self.known).listed.clone().ok_or_else(|| upstream(name, format!("the tools of `{name}` are not known")))
    }

    /// A list has come; it counts as a change only if it is another one.
    pub(super) fn store(&self, listed: Listed, trouble: Option<String>) {
        if let Some(trouble) = &trouble {
            tracing::warn!(server = self.config.name, "{trouble}");
        }
        let listed = Arc::new(listed);
        {
            let mut known = lock(&self.known);
            known.trouble = trouble;
            if known.listed.as_ref() == Some(&listed) {
                return;
            }
            known.listed = Some(listed.clone());
        }
        self.changes.send_modify(|count| *count += 1);
        if let Some(directory) = self.settings.cache.clone() {
            let (name, fingerprint) = (self.config.name.clone(), self.config.fingerprint.clone());
            self.tasks.spawn_blocking(move || {
                if let Err(error) = files::keep_listed(&directory, &fingerprint, &listed) {
                    tracing::warn!(server = name, %error, "the list of tools could not be kept for the next time");
                }
            });
        }
    }

    pub(super) fn list_failed(&self, why: &CallError) {
        lock(&self.known).trouble = Some(why.message.clone());
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: Map<String, Value>,
        traceparent: Option<&str>,
    ) -> Result<CallToolResult, CallError> {
        let live = self.live().await?;
        let name = &self.config.name;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if let Some(traceparent) = traceparent {
            params.set_traceparent(traceparent);
        }
        match live.peer.call_tool_once(params).await {
            Ok(CallToolResponse::Complete(result)) => {
                self.thrived();
                Ok(result)
            }
            Ok(CallToolResponse::InputRequired(result)) => Err(of_input(name, &result)),
            Ok(_) => Err(upstream(name, format!("`{name}` made a task of the call, which this client did not offer"))),
            Err(error) => {
                self.challenged(challenge_of(&error));
                if live.peer.is_transport_closed() {
                    let _ = tokio::time::timeout(LAST_WORDS, live.gone()).await;
                }
                Err(of_call(name, &error, &self.words.clause()))
            }
        }
    }

    /// Returns when no process of it is left.
    pub(super) async fn end(&self) {
        self.ended.cancel();
        if let Some(live) = self.life.lock().await.take() {
            live.end();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}
