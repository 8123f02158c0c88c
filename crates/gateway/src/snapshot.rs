//! What there is to call at this moment, made anew whenever a server's list changes.
//!
//! ```text
//! first need ──▶ every server is asked at once ──▶ snapshot ── a list changes, or comes late ──▶ snapshot …
//! ```
//!
//! The first who need it wait a few seconds for all servers; whoever is slower comes into a later one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Layer, LayerKind};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::catalogue::{Catalogue, Server, Tool};
use crate::layers::Layers;
use crate::policy::Rules;
use crate::search::Index;
use crate::stubs;
use crate::upstream::{Listed, Upstreams};

/// How long the first who ask wait for all servers.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// Changes that come together make one snapshot.
const SETTLE: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    /// What programs may know of.
    pub(crate) offered: Catalogue,
    /// And what the servers have besides, to tell a tool that is denied from one that is not there.
    pub(crate) all: Catalogue,
    pub(crate) index: Index,
    /// `/tools`; none where there is no store for it.
    pub(crate) layer: Option<Layer>,
}

#[derive(Debug)]
pub(crate) struct Snapshots {
    current: watch::Sender<(u64, Arc<Snapshot>)>,
    /// Every server has answered or failed once.
    whole: CancellationToken,
    /// Or it has been waited for long enough.
    soon: CancellationToken,
    begun: std::sync::Once,
}

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots {
            current: watch::Sender::new((0, Arc::default())),
            whole: CancellationToken::new(),
            soon: CancellationToken::new(),
            begun: std::sync::Once::new(),
        }
    }
}

impl Snapshots {
    /// The newest, of all servers if they answer soon. The first call begins the work, inside a runtime.
    pub(crate) async fn now(self: &Arc<Self>, source: &Source) -> Arc<Snapshot> {
        self.begin(source);
        self.soon.cancelled().await;
        self.last()
    }

    /// The newest, of all servers.
    pub(crate) async fn whole(self: &Arc<Self>, source: &Source) -> Arc<Snapshot> {
        self.begin(source);
        self.whole.cancelled().await;
        self.last()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.whole.is_cancelled()
    }

    fn begin(self: &Arc<Self>, source: &Source) {
        self.begun.call_once(|| {
            tokio::spawn(Arc::clone(self).keep(source.clone()));
            let soon = self.soon.clone();
            tokio::spawn(async move {
                // Once: whoever comes later gets what is there.
                tokio::select! {
                    () = tokio::time::sleep(FIRST_WAIT) => soon.cancel(),
                    () = soon.cancelled() => {}
                }
            });
        });
    }

    /// The newest that is there.
    pub(crate) fn last(&self) -> Arc<Snapshot> {
        self.current.borrow().1.clone()
    }

    /// Tells of each new one.
    pub(crate) fn changes(&self) -> watch::Receiver<(u64, Arc<Snapshot>)> {
        self.current.subscribe()
    }

    async fn keep(self: Arc<Self>, source: Source) {
        let names = source.upstreams.names();
        let mut changes = source.upstreams.changes();
        let mut listed: Vec<(String, Result<Listed, String>)> =
            names.iter().map(|name| (name.clone(), Err("it is still starting".to_owned()))).collect();
        // Whoever asks before the first has answered is told that they start, and not that there are none.
        self.publish(&source, &listed).await;
        let mut asked: HashSet<&String> = names.iter().collect();
        let mut asking: FuturesUnordered<_> = names.iter().map(|name| ask(&source.upstreams, name)).collect();
        loop {
            tokio::select! {
                () = source.stop.cancelled() => return,
                Some(answer) = asking.next() => {
                    let mut is_new = false;
                    // Those that have come together make one snapshot.
                    let mut next = Some(answer);
                    while let Some((name, answer)) = next {
                        asked.remove(name);
                        is_new |= note(&mut listed, name, answer);
                        next = asking.next().now_or_never().flatten();
                    }
                    if is_new {
                        // The quick ones are there for whoever gave up on the slow.
                        self.publish(&source, &listed).await;
                    }
                    if asking.is_empty() {
                        self.whole.cancel();
                        self.soon.cancel();
                    }
                }
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(SETTLE).await;
                    // Beside those that have yet to answer: one that never does keeps nobody's news back.
                    asking.extend(names.iter().filter(|name| asked.insert(name)).map(|name| ask(&source.upstreams, name)));
                }
            }
        }
    }

    async fn publish(&self, source: &Source, listed: &[(String, Result<Listed, String>)]) {
        let (source, listed) = (source.clone(), listed.to_vec());
        let made = tokio::task::spawn_blocking(move || make(&source, listed)).await;
        let Ok(snapshot) = made else {
            tracing::error!("the catalogue of tools could not be made: a bug");
            return;
        };
        self.current.send_modify(|(version, current)| {
            *version += 1;
            *current = Arc::new(snapshot);
        });
    }
}

/// What snapshots are made from.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) upstreams: Upstreams,
    pub(crate) rules: Arc<Vec<(String, Rules)>>,
    pub(crate) layers: Option<Layers>,
    pub(crate) stop: CancellationToken,
}

async fn ask<'a>(upstreams: &Upstreams, name: &'a String) -> (&'a String, Result<Listed, String>) {
    let answer = upstreams.list(name).await.map_err(|error| error.message);
    (name, answer)
}

/// Whether it is news. A server that answered once and fails now keeps its tools: its next start may bring them back.
fn note(listed: &mut [(String, Result<Listed, String>)], name: &str, answer: Result<Listed, String>) -> bool {
    let Some((_, slot)) = listed.iter_mut().find(|(other, _)| *other == name) else { return false };
    if let Err(why) = &answer {
        tracing::warn!(server = name, why, "an upstream server did not tell its tools");
    }
    let is_new = *slot != answer && (answer.is_ok() || slot.is_err());
    if is_new {
        *slot = answer;
    }
    is_new
}

fn make(source: &Source, listed: Vec<(String, Result<Listed, String>)>) -> Snapshot {
    let all = stubs::catalogue(listed);
    for server in &all.servers {
        for (name, why) in &server.refused {
            tracing::warn!(server = server.name, tool = ?name, why, "a tool is not offered");
        }
    }
    let offered = Catalogue { servers: all.servers.iter().map(|server| Arc::new(offer(source, server))).collect() };
    let layer = source.layers.as_ref().and_then(|layers| {
        let put = layers.put(LayerKind::Tools, &stubs::files(&offered));
        put.inspect_err(|error| tracing::warn!(%error, "/tools could not be made; programs see it empty")).ok()
    });
    let index = Index::new(&offered);
    Snapshot { offered, all, index, layer }
}

fn offer(source: &Source, server: &Server) -> Server {
    let rules = source.rules.iter().find(|(name, _)| *name == server.name).map(|(_, rules)| rules);
    let is_offered = |tool: &Tool| rules.is_none_or(|rules| rules.offers(tool));
    let tools = server.tools.iter().filter(|tool| is_offered(tool)).cloned().collect();
    Server { tools, ..server.clone() }
}
