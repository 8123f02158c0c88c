//! The gateway's door: what the engine, the server and the command line ask of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::{Caller, Desk, HostCalls, Layer, LayerKind, Soon};
use rmcp::model::CallToolResult;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::approval::Approvals;
use crate::audit::{self, Audit, Decided};
use crate::broker::{Budget, RunDesk, Validators, skill_lines};
use crate::catalogue::{Catalogue, Tool};
use crate::error::CallError;
use crate::layers::Layers;
use crate::ledger::{Ledger, Totals};
use crate::policy::{Approve, Decision, Rules};
use crate::privacy::Privacy;
use crate::search::{self, Detail};
use crate::skills::Skills;
use crate::snapshot::{Snapshot, Snapshots, Source};
use crate::stubs::{self, Dialect};
use crate::upstream::{Bridge, Face, Upstreams};

/// What a call has if nobody says otherwise.
pub(crate) const CALL_DEFAULT: Duration = Duration::from_secs(60);

/// How long a tool is waited for while servers start: one of a server that is named, and one that nobody knows.
const START_MAX: Duration = Duration::from_secs(15);
const UNKNOWN_MAX: Duration = Duration::from_secs(8);

/// Approvals that are kept for calls that are just the same.
const REMEMBERED_MAX: usize = 10_000;

/// Tools in one answer of a search.
const HITS_DEFAULT: usize = 10;
const HITS_MAX: usize = 100;

#[derive(Debug)]
pub struct Settings {
    pub servers: Vec<ServerSettings>,
    pub approve: Approve,
    pub budget: Budget,
    pub privacy: Privacy,
    pub skills: Skills,
    pub ledger: Ledger,
    pub audit: Arc<dyn Audit>,
    /// The backends' store of layers; without one there is nothing in `/tools`.
    pub store: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct ServerSettings {
    pub name: String,
    pub rules: Rules,
    /// Of a call.
    pub timeout: Duration,
    /// Whether a text that is JSON is read as such.
    pub parses: bool,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("servers", &self.0.upstreams.names()).finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) upstreams: Upstreams,
    pub(crate) settings: Settings,
    pub(crate) approvals: Approvals,
    snapshots: Arc<Snapshots>,
    source: Source,
    validators: Validators,
    remembered: Mutex<HashSet<String>>,
    /// Runs whose tokens were noted down.
    told: Mutex<HashSet<String>>,
    /// The layer of each owner's skills.
    skills: Mutex<HashMap<String, Option<Layer>>>,
    stop: CancellationToken,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// What `search_tools` is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    /// Empty for everything.
    pub query: String,
    pub detail: Detail,
    pub server: Option<String>,
    pub limit: usize,
}

impl Gateway {
    pub fn new(upstreams: Upstreams, settings: Settings) -> Gateway {
        let stop = CancellationToken::new();
        let rules = settings.servers.iter().map(|server| (server.name.clone(), server.rules.clone())).collect();
        let layers = settings.store.clone().map(Layers::at);
        if let Some(layers) = layers.clone() {
            std::thread::spawn(move || layers.tidy());
        }
        let source = Source { upstreams: upstreams.clone(), rules: Arc::new(rules), layers, stop: stop.clone() };
        Gateway(Arc::new(Inner {
            upstreams,
            settings,
            approvals: Approvals::default(),
            snapshots: Arc::default(),
            source,
            validators: Validators::default(),
            remembered: Mutex::default(),
            told: Mutex::default(),
            skills: Mutex::default(),
            stop,
        }))
    }

    /// Whether the operator believes what this server says of its tools.
    pub fn trusts(&self, server: &str) -> bool {
        self.0.server(server).is_some_and(|server| server.rules.trusts())
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// The servers that clients see as they are.
    pub fn forwarded(&self) -> Vec<String> {
        let all = self.0.upstreams.names().into_iter();
        all.filter(|name| self.0.upstreams.config(name).is_some_and(|config| config.forward)).collect()
    }

    /// A connection to one of them, on behalf of a client. See [`Upstreams::bridge`].
    pub async fn bridge(&self, server: &str, face: Face) -> Result<Bridge, CallError> {
        self.0.upstreams.bridge(server, face).await
    }

    /// How long one of them may be silent.
    pub fn patience(&self, server: &str) -> Duration {
        self.0.server(server).map_or(CALL_DEFAULT, |server| server.timeout)
    }

    /// Puts personal data back in the place of its tokens, on the way to a server.
    pub fn reveal(&self, owner: &str, value: &mut Value) {
        self.0.settings.privacy.reveal(owner, value);
    }

    pub fn has_servers(&self) -> bool {
        !self.0.upstreams.names().is_empty()
    }

    pub fn approvals(&self) -> &Approvals {
        &self.0.approvals
    }

    /// Writes down what came of asking a person about a program, which is the server's to ask about.
    pub fn decided(&self, decided: &Decided) {
        self.0.settings.audit.decided(decided);
    }

    pub fn approves_code(&self) -> bool {
        self.0.settings.approve == Approve::Ask
    }

    /// What programs may call; waits for servers that start.
    pub async fn catalogue(&self) -> Catalogue {
        self.0.snapshot().await.offered.clone()
    }

    /// The same, with every server having answered or failed, however long that takes.
    pub async fn all(&self) -> Catalogue {
        self.0.snapshots.whole(&self.0.source).await.offered.clone()
    }

    /// A tool by its name, as programs look it up.
    pub async fn tool(&self, name: &str) -> Result<Arc<Tool>, CallError> {
        self.0.tool(None, name).await
    }

    /// Counts up with each new catalogue.
    pub fn changes(&self) -> watch::Receiver<u64> {
        let mut from = self.0.snapshots.changes();
        let (to, changes) = watch::channel(from.borrow().0);
        tokio::spawn(async move {
            while from.changed().await.is_ok() {
                let version = from.borrow().0;
                if to.send(version).is_err() {
                    return;
                }
            }
        });
        changes
    }

    /// For `run_code`'s description.
    pub async fn note(&self) -> String {
        search::catalogue_note(&self.0.snapshot().await.offered, search::NOTE_TOKENS)
    }

    pub async fn search(&self, owner: &str, wanted: &Search) -> String {
        self.0.search(owner, wanted, Dialect::Python).await.0
    }

    /// Puts tokens in place of personal data, where that is configured.
    pub fn hide(&self, owner: &str, text: &mut String) {
        self.0.settings.privacy.hide(owner, text);
    }

    /// Notes down what a run was worth, behind the caller's back. One that is told again adds what entered again.
    pub fn account(&self, run: &str, calls: u64, entered: u64, direct: u64) {
        let ledger = self.0.settings.ledger.clone();
        let is_new = {
            let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() >= REMEMBERED_MAX {
                told.clear();
            }
            told.insert(run.to_owned())
        };
        let more = match is_new {
            true => Totals { runs: 1, calls, entered, direct },
            false => Totals { entered, ..Totals::default() },
        };
        tokio::task::spawn_blocking(move || {
            if let Err(error) = ledger.add(more) {
                tracing::warn!(%error, "the tokens of a run were not noted down");
            }
        });
    }

    /// A tool by the name that [`direct_name`] gave it.
    pub async fn direct(&self, name: &str) -> Option<Arc<Tool>> {
        let find = |snapshot: &Snapshot| snapshot.offered.tools().find(|tool| direct_name(tool) == name).cloned();
        self.0.sought(find, UNKNOWN_MAX).await
    }

    /// A call that is not a program's: the same checks, the same audit.
    pub async fn call(
        &self,
        caller: Caller,
        tool: &Arc<Tool>,
        arguments: Map<String, Value>,
    ) -> Result<CallToolResult, CallError> {
        RunDesk::new(self.0.clone(), caller).made(tool, arguments, None).await
    }

    /// Ends all servers.
    pub async fn end(&self) {
        self.0.stop.cancel();
        self.0.upstreams.end().await;
    }
}

/// The longest name that all clients take.
const DIRECT_NAME_MAX: usize = 64;

/// What a tool is called where models call it themselves.
pub fn direct_name(tool: &Tool) -> String {
    let whole = format!("{}__{}", tool.server_ident, tool.ident);
    if whole.len() <= DIRECT_NAME_MAX {
        return whole;
    }
    let digest = audit::sha256(whole.as_bytes());
    let kept: String = whole.chars().take(DIRECT_NAME_MAX - 9).collect();
    format!("{kept}_{}", &digest[..8])
}

impl Inner {
    pub(crate) async fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.now(&self.source).await
    }

    /// What is looked for, in the snapshot of this moment; or, while servers are still starting, in the first that has it.
    async fn sought<T>(&self, find: impl Fn(&Snapshot) -> Option<T>, patience: Duration) -> Option<T> {
        let last = self.snapshots.last();
        if let Some(found) = find(&last) {
            return Some(found);
        }
        tokio::time::timeout(patience, self.sought_for_long(find)).await.unwrap_or_default()
    }

    async fn sought_for_long<T>(&self, find: impl Fn(&Snapshot) -> Option<T>) -> Option<T> {
        let mut changes = self.snapshots.changes();
        loop {
            let is_whole = self.snapshots.is_whole();
            let snapshot = self.snapshot().await;
            if let Some(found) = find(&snapshot) {
                return Some(found);
            }
            if is_whole {
                return None;
            }
            tokio::select! {
                changed = changes.changed() => changed.ok()?,
                _ = self.snapshots.whole(&self.source) => {}
            }
        }
    }

    /// A tool as programs name it.
    pub(crate) async fn tool(&self, server: Option<&str>, name: &str) -> Result<Arc<Tool>, CallError> {
        // A server that is named, and still starting, is worth waiting for; a name that nobody knows is not.
        let named = server.unwrap_or(name).to_owned();
        let is_named =
            |known: &String| named.starts_with(known.as_str()) || named.starts_with(&stubs::server_ident(known));
        let patience = if self.upstreams.names().iter().any(is_named) { START_MAX } else { UNKNOWN_MAX };
        let found = self.sought(|snapshot| crate::broker::tool(snapshot, server, name).ok(), patience).await;
        match found {
            Some(tool) => Ok(tool),
            None => crate::broker::tool(&self.snapshots.last(), server, name),
        }
    }

    pub(crate) fn server(&self, name: &str) -> Option<&ServerSettings> {
        self.settings.servers.iter().find(|server| server.name == name)
    }

    pub(crate) fn decide(&self, tool: &Tool, arguments: &Map<String, Value>) -> Decision {
        match self.server(&tool.server) {
            Some(server) => server.rules.decide(tool, arguments, self.settings.approve),
            None => Decision::Deny,
        }
    }

    pub(crate) fn validator(&self, tool: &Tool) -> Arc<stubs::Validator> {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(validator) = validators.get(&tool.digest) {
            return validator.clone();
        }
        if validators.len() >= 1_000 {
            validators.clear();
        }
        let validator = Arc::new(stubs::Validator::new(tool));
        validators.insert(tool.digest.clone(), validator.clone());
        validator
    }

    pub(crate) fn is_remembered(&self, owner: &str, tool: &Tool, arguments: &Map<String, Value>) -> bool {
        let key = remembered_key(owner, tool, arguments);
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).contains(&key)
    }

    pub(crate) fn remember(&self, owner: &str, tool: &Tool, arguments: &Map<String, Value>) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(remembered_key(owner, tool, arguments));
        }
    }

    pub(crate) fn forget_skills(&self, owner: &str) {
        self.skills.lock().unwrap_or_else(PoisonError::into_inner).remove(owner);
    }

    async fn search(&self, owner: &str, wanted: &Search, dialect: Dialect) -> (String, Vec<search::Hit>) {
        let snapshot = self.snapshot().await;
        let mut hits = snapshot.index.search(&wanted.query, wanted.server.as_deref(), usize::MAX);
        let total = hits.len();
        hits.truncate(wanted.limit.clamp(1, HITS_MAX));
        let mut text = search::render(&hits, wanted.detail, dialect, total);
        for line in skill_lines(self, owner, &wanted.query) {
            text.push_str(&format!("\n{line}"));
        }
        for server in snapshot.offered.servers.iter().filter(|server| server.trouble.is_some()) {
            let why = server.trouble.as_deref().unwrap_or_default();
            text.push_str(&format!("\n(the tools of {} are not known: {why})", server.name));
        }
        (text, hits)
    }

    pub(crate) async fn find(&self, owner: &str, wanted: &crate::broker::SearchQuestion) -> Result<Value, CallError> {
        let search = Search {
            query: wanted.query.clone(),
            detail: wanted.detail,
            server: wanted.server.clone(),
            limit: wanted.limit.unwrap_or(HITS_DEFAULT),
        };
        let (text, hits) = self.search(owner, &search, wanted.language.dialect()).await;
        let hits = hits.iter().map(|hit| {
            json!({"server": hit.tool.server, "tool": hit.tool.name, "path": hit.tool.path(),
                "description": stubs::summary(&hit.tool)})
        });
        Ok(json!({"text": text, "hits": hits.collect::<Vec<_>>()}))
    }

    pub(crate) async fn servers(&self) -> Value {
        let snapshot = self.snapshot().await;
        let servers = snapshot.offered.servers.iter().map(|server| {
            let tools: Vec<Value> =
                server.tools.iter().map(|tool| json!({"name": tool.name, "ident": tool.ident})).collect();
            json!({"name": server.name, "ident": server.ident, "tools": tools, "trouble": server.trouble})
        });
        json!({"servers": servers.collect::<Vec<_>>()})
    }

    /// The layer of an owner's skills; none where there are none.
    async fn skills_layer(&self, owner: &str) -> Option<Layer> {
        let known = self.skills.lock().unwrap_or_else(PoisonError::into_inner).get(owner).cloned();
        if let Some(layer) = known {
            return layer;
        }
        let layers = self.source.layers.clone()?;
        let (skills, name) = (self.settings.skills.clone(), owner.to_owned());
        let made = tokio::task::spawn_blocking(move || {
            let files: BTreeMap<String, Vec<u8>> = skills.files(&name);
            if files.is_empty() { Ok(None) } else { layers.put(LayerKind::Skills, &files).map(Some) }
        });
        let layer = match made.await {
            Ok(Ok(layer)) => layer,
            Ok(Err(error)) => {
                tracing::warn!(%error, "/skills could not be made; programs see it empty");
                None
            }
            Err(_) => None,
        };
        let mut known = self.skills.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= 1_000 {
            known.clear();
        }
        known.insert(owner.to_owned(), layer.clone());
        layer
    }
}

fn remembered_key(owner: &str, tool: &Tool, arguments: &Map<String, Value>) -> String {
    audit::digest_of(&json!([owner, tool.server, tool.name, tool.digest, arguments]))
}

impl HostCalls for Gateway {
    fn layers<'a>(&'a self, owner: &'a str) -> Soon<'a, Vec<Layer>> {
        Box::pin(async move {
            if !self.has_servers() {
                return Vec::new();
            }
            let tools = self.0.snapshot().await.layer.clone();
            let skills = self.0.skills_layer(owner).await;
            tools.into_iter().chain(skills).collect()
        })
    }

    fn begin(&self, caller: Caller) -> Box<dyn Desk> {
        Box::new(RunDesk::new(self.0.clone(), caller))
    }
}
