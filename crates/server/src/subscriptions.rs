//! Who wants to be told of changes: of a file or directory of a sandbox, and of sandboxes that come and go.
//!
//! The protocol's older revisions subscribe for a connection and are told on it; the newest has a request that is open
//! for as long as its caller listens. Both are told from the engine's news; no sandbox is looked into. What is known of a
//! program's changes is known when it ends, and a file that it removed is not among them. Of tools there is news only where
//! there are other servers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_engine::{Engine, News, Principal, SandboxEvent, workspace_path};
use rmcp::ErrorData;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, RoleServer, SubscriptionSink};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::resources::uri::{self, Target};
use crate::shares::Shares;

/// For one connection, or one request that listens.
const WATCHED_MAX: usize = 100;
/// Requests that listen, where there is one caller. Over HTTP each keeps a connection, and is counted with the other streams.
const LISTENERS_MAX: usize = 64;
/// Requests between being accepted and being carried out.
const PREPARED_MAX: usize = 16;

/// Counts up when the tools are others; nobody's where there are no other servers.
pub(crate) type ToolNews = Option<watch::Receiver<u64>>;

/// Where news comes from.
#[derive(Debug)]
struct Ears {
    news: Receiver<News>,
    tools: ToolNews,
}

impl Ears {
    fn open(engine: &Engine, mut tools: ToolNews) -> Ears {
        if let Some(tools) = &mut tools {
            tools.mark_unchanged();
        }
        Ears { news: engine.news(), tools }
    }
}

/// What one connection subscribed to. A clone is for another connection, and begins with nothing.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    watched: Arc<Mutex<Vec<Watched>>>,
    teller: Mutex<Option<DropGuard>>,
    /// Ears that opened before a request to listen was acknowledged, so that nothing is missed in between.
    prepared: Mutex<VecDeque<Ears>>,
    streams: Arc<Shares>,
}

impl Default for Subscriptions {
    fn default() -> Subscriptions {
        Subscriptions::among(Arc::new(Shares::new(LISTENERS_MAX, LISTENERS_MAX)))
    }
}

impl Clone for Subscriptions {
    fn clone(&self) -> Subscriptions {
        Subscriptions::among(self.streams.clone())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscriptions {
    /// A request that listens takes a place of those that all streams have.
    pub(crate) fn among(streams: Arc<Shares>) -> Subscriptions {
        Subscriptions { watched: Arc::default(), teller: Mutex::default(), prepared: Mutex::default(), streams }
    }

    /// Tells a connection from now on, until `self` is dropped with it.
    pub(crate) fn begin(&self, engine: &Engine, tools: ToolNews, who: Principal, peer: Peer<RoleServer>) {
        let mut teller = locked(&self.teller);
        if teller.is_some() {
            return;
        }
        let end = CancellationToken::new();
        *teller = Some(end.clone().drop_guard());
        let teller = Teller { who, voice: Voice::Connection(peer), watched: self.watched.clone() };
        let ears = Ears::open(engine, tools);
        tokio::spawn(async move { end.run_until_cancelled(teller.tell(ears)).await });
    }

    pub(crate) fn subscribe(&self, engine: &Engine, who: &Principal, uri: &str) -> Result<(), ErrorData> {
        let new = Watched::parse(uri).map_err(|sentence| ErrorData::invalid_params(sentence, None))?;
        if !new.is_of(engine, who) {
            return Err(ErrorData::resource_not_found(belljar_engine::EngineError::UnknownSandbox.to_string(), None));
        }
        let mut watched = locked(&self.watched);
        if watched.contains(&new) {
            return Ok(());
        }
        if watched.len() >= WATCHED_MAX {
            let sentence =
                format!("there are already {WATCHED_MAX} subscriptions; unsubscribe some, or watch a directory");
            return Err(ErrorData::invalid_params(sentence, None));
        }
        watched.push(new);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        locked(&self.watched).retain(|watched| watched.uri != uri);
    }

    /// What of a request to listen we can do.
    pub(crate) fn accept(
        &self,
        engine: &Engine,
        tools: ToolNews,
        requested: &SubscriptionFilter,
    ) -> SubscriptionFilter {
        let mut prepared = locked(&self.prepared);
        if prepared.len() >= PREPARED_MAX {
            prepared.pop_front();
        }
        let mut accepted = SubscriptionFilter::new();
        accepted.tools_list_changed = requested.tools_list_changed.filter(|_| tools.is_some());
        prepared.push_back(Ears::open(engine, tools));
        let uris = requested.resource_subscriptions.iter().flatten();
        accepted.resources_list_changed = requested.resources_list_changed;
        accepted.resource_subscriptions = requested
            .resource_subscriptions
            .is_some()
            .then(|| uris.filter(|uri| Watched::parse(uri).is_ok()).take(WATCHED_MAX).cloned().collect());
        accepted
    }

    /// Tells one that listens, until its future is dropped. What is not its own it never hears of.
    pub(crate) async fn listen(
        &self,
        engine: &Engine,
        tools: ToolNews,
        who: Principal,
        accepted: &SubscriptionFilter,
        sink: SubscriptionSink,
    ) -> Result<(), ErrorData> {
        let ears = locked(&self.prepared).pop_front().unwrap_or_else(|| Ears::open(engine, tools));
        let _place = self.streams.try_take(&who).map_err(|full| ErrorData::internal_error(full.to_string(), None))?;
        let uris = accepted.resource_subscriptions.iter().flatten();
        let watched = uris.filter_map(|uri| Watched::parse(uri).ok()).filter(|watched| watched.is_of(engine, &who));
        let watched = Arc::new(Mutex::new(watched.collect()));
        let lists = accepted.resources_list_changed == Some(true);
        let tools = accepted.tools_list_changed == Some(true);
        Teller { who, voice: Voice::Listener { sink, lists, tools }, watched }.tell(ears).await;
        Ok(())
    }
}

/// A resource that someone watches.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watched {
    /// As its watcher wrote it.
    uri: String,
    sandbox: String,
    place: Place,
}

/// Paths as [`workspace_path`] has them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    File(String),
    Below(String),
}

impl Watched {
    fn parse(uri: &str) -> Result<Watched, String> {
        let (sandbox, place) = match uri::parse(uri)? {
            (Target::File { sandbox, path }, query) if query == Default::default() => {
                (sandbox, Place::File(workspace_path(&path)))
            }
            (Target::Directory { sandbox, path }, _) => (sandbox, Place::Below(workspace_path(&path))),
            _ => return Err("only whole files and directories of sandboxes change; subscribe to one of those".into()),
        };
        Ok(Watched { uri: uri.to_owned(), sandbox, place })
    }

    fn is_of(&self, engine: &Engine, who: &Principal) -> bool {
        engine.sandboxes(who).iter().any(|info| info.id.as_str() == self.sandbox)
    }

    fn is_changed_by(&self, news: &News) -> bool {
        self.sandbox == news.sandbox.as_str()
            && match &news.event {
                SandboxEvent::Created => false,
                SandboxEvent::Gone => true,
                // Of files without names any could be the one.
                SandboxEvent::Changed(changes) => {
                    changes.more || changes.paths.iter().any(|path| self.place.contains(path))
                }
            }
    }
}

impl Place {
    fn contains(&self, path: &str) -> bool {
        match self {
            Place::File(file) => file == path,
            Place::Below(directory) if directory.is_empty() => !path.starts_with('/'),
            Place::Below(directory) => {
                let below = path.strip_prefix(directory.trim_end_matches('/'));
                below.is_some_and(|rest| rest.starts_with('/'))
            }
        }
    }
}

#[derive(Debug)]
enum Voice {
    Connection(Peer<RoleServer>),
    Listener { sink: SubscriptionSink, lists: bool, tools: bool },
}

/// Nobody is there any more.
#[derive(Debug)]
struct Deaf;

impl Voice {
    async fn updated(&self, uri: String) -> Result<(), Deaf> {
        match self {
            Voice::Connection(peer) => {
                let update = ResourceUpdatedNotificationParam::new(uri);
                peer.notify_resource_updated(update).await.map_err(|_| Deaf)
            }
            Voice::Listener { sink, .. } => sink.notify_resource_updated(uri).await.map_err(|_| Deaf),
        }
    }

    async fn list_changed(&self) -> Result<(), Deaf> {
        match self {
            Voice::Connection(peer) => peer.notify_resource_list_changed().await.map_err(|_| Deaf),
            Voice::Listener { sink, lists: true, .. } => sink.notify_resource_list_changed().await.map_err(|_| Deaf),
            Voice::Listener { lists: false, .. } => Ok(()),
        }
    }

    async fn tools_changed(&self) -> Result<(), Deaf> {
        match self {
            Voice::Connection(peer) => peer.notify_tool_list_changed().await.map_err(|_| Deaf),
            Voice::Listener { sink, tools: true, .. } => sink.notify_tool_list_changed().await.map_err(|_| Deaf),
            Voice::Listener { tools: false, .. } => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Teller {
    who: Principal,
    voice: Voice,
    watched: Arc<Mutex<Vec<Watched>>>,
}

impl Teller {
    /// Until the engine or the listener is gone. One that reads slowly is told less often, never more at once.
    async fn tell(&self, ears: Ears) {
        let Ears { mut news, mut tools } = ears;
        loop {
            let heard = tokio::select! {
                heard = news.recv() => heard,
                changed = changed(&mut tools) => {
                    match changed {
                        Ok(()) if self.voice.tools_changed().await.is_err() => return,
                        Ok(()) => {}
                        // There will be no more of it.
                        Err(_) => tools = None,
                    }
                    continue;
                }
            };
            let told = match heard {
                Ok(news) if news.owner == self.who => self.pass_on(&news).await,
                Ok(_) => Ok(()),
                Err(RecvError::Lagged(_)) => self.say_that_all_changed().await,
                Err(RecvError::Closed) => return,
            };
            if let Err(Deaf) = told {
                return;
            }
        }
    }

    async fn pass_on(&self, news: &News) -> Result<(), Deaf> {
        let changed: Vec<String> = {
            let mut watched = locked(&self.watched);
            let changed = watched.iter().filter(|watched| watched.is_changed_by(news));
            let changed = changed.map(|watched| watched.uri.clone()).collect();
            if news.event == SandboxEvent::Gone {
                watched.retain(|watched| watched.sandbox != news.sandbox.as_str());
            }
            changed
        };
        for uri in changed {
            self.voice.updated(uri).await?;
        }
        match news.event {
            SandboxEvent::Created | SandboxEvent::Gone => self.voice.list_changed().await,
            SandboxEvent::Changed(_) => Ok(()),
        }
    }

    /// Some news were missed, so any of it may have.
    async fn say_that_all_changed(&self) -> Result<(), Deaf> {
        let all: Vec<String> = locked(&self.watched).iter().map(|watched| watched.uri.clone()).collect();
        for uri in all {
            self.voice.updated(uri).await?;
        }
        self.voice.list_changed().await
    }
}

async fn changed(tools: &mut ToolNews) -> Result<(), watch::error::RecvError> {
    match tools {
        Some(tools) => tools.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(uri: &str) -> Place {
        Watched::parse(uri).unwrap().place
    }

    #[test]
    fn a_path_is_in_the_places_that_it_is_in() {
        assert!(place("belljar://sb_1/a/b.txt").contains("a/b.txt"));
        assert!(place("belljar://sb_1//workspace/./a/b.txt").contains("a/b.txt"));
        assert!(!place("belljar://sb_1/a/b.txt").contains("a/b.txt2"));
        assert!(place("belljar://sb_1/").contains("a/b.txt") && !place("belljar://sb_1/").contains("/tmp/x"));
        assert!(place("belljar://sb_1/a/").contains("a/b/c") && !place("belljar://sb_1/a/").contains("ab"));
        assert!(place("belljar://sb_1//tmp/").contains("/tmp/x") && !place("belljar://sb_1//tmp/").contains("tmp/x"));
        assert!(place("belljar://sb_1///").contains("/tmp/x"));
    }

    #[test]
    fn only_what_changes_can_be_watched() {
        for uri in ["belljar://runs/run_1/stdout", "belljar://runs/run_1/", "belljar://sb_1/x?lines=1", "file:///x"] {
            assert!(Watched::parse(uri).is_err(), "{uri}");
        }
    }
}
