//! Connections to forwarded servers. A client of the older revisions has its own, for as long as its session lasts, since what
//! a server asks or tells belongs to a session there. Newer clients say everything in each request, and a principal's share one.

#![expect(deprecated, reason = "older clients set a level for their whole session")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_gateway::error::CallError;
use belljar_gateway::upstream::{Bridge, Face, Step};
use rmcp::RoleServer;
use rmcp::model::{
    ClientCapabilities, ClientRequest, ProtocolVersion, RequestMetaObject, ServerNotification, SetLevelRequest,
    SetLevelRequestParams,
};
use rmcp::service::Peer;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::Passage;

/// Connections of newer clients, all principals together.
const POOL_MAX: usize = 128;
/// One that nobody has used for so long is ended.
const IDLE: Duration = Duration::from_secs(600);
/// How long a server is waited for that is told of a level.
const LEVEL_MAX: Duration = Duration::from_secs(5);

/// The connections of one session, by server. A clone is for another session.
#[derive(Debug, Default)]
pub(crate) struct Session(Mutex<HashMap<String, Bridge>>);

impl Clone for Session {
    fn clone(&self) -> Session {
        Session::default()
    }
}

#[derive(Debug, Default)]
pub(super) struct Pool(std::sync::Mutex<Vec<Pooled>>);

#[derive(Debug)]
struct Pooled {
    server: String,
    owner: String,
    used: Instant,
    line: Arc<OnceCell<Bridge>>,
}

impl Pool {
    /// The place of a connection, where it is made by whoever comes first.
    fn place(&self, server: &str, owner: &str) -> Arc<OnceCell<Bridge>> {
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.retain(|pooled| {
            let is_up = pooled.line.get().is_none_or(Bridge::is_up);
            is_up && pooled.used.elapsed() < IDLE
        });
        if let Some(pooled) = all.iter_mut().find(|pooled| pooled.server == server && pooled.owner == owner) {
            pooled.used = Instant::now();
            return pooled.line.clone();
        }
        if all.len() >= POOL_MAX
            && let Some(oldest) = (0..all.len()).min_by_key(|at| all[*at].used)
        {
            all.swap_remove(oldest);
        }
        let line = Arc::<OnceCell<Bridge>>::default();
        let used = Instant::now();
        all.push(Pooled { server: server.to_owned(), owner: owner.to_owned(), used, line: line.clone() });
        line
    }
}

impl Passage<'_> {
    pub(super) fn version(&self) -> ProtocolVersion {
        self.context.protocol_version().unwrap_or(ProtocolVersion::V_2025_11_25)
    }

    pub(super) fn is_older(&self) -> bool {
        self.version().has_initialize()
    }

    /// The connection to a server that this request goes through.
    pub(super) async fn line(&self, server: &str) -> Result<Bridge, CallError> {
        match self.is_older() {
            true => self.own_line(server).await,
            false => self.shared_line(server).await,
        }
    }

    async fn own_line(&self, server: &str) -> Result<Bridge, CallError> {
        let mut lines = self.session.0.lock().await;
        if let Some(line) = lines.get(server).filter(|line| line.is_up()) {
            return Ok(line.clone());
        }
        let capabilities = self.context.client_capabilities().unwrap_or_default();
        let line = self.forward.gateway.bridge(server, Face { version: self.version(), capabilities }).await?;
        if let Some(level) = self.level.get() {
            let request = ClientRequest::from(SetLevelRequest::new(SetLevelRequestParams::new(level)));
            // It may not know of levels.
            if let Ok(mut exchange) = line.request(request, RequestMetaObject::new()).await {
                let answered = async { while !matches!(exchange.next().await, Step::Answer(_)) {} };
                let _ = tokio::time::timeout(LEVEL_MAX, answered).await;
            }
        }
        tokio::spawn(pass_on(line.clone().news(), self.context.peer.clone()));
        lines.insert(server.to_owned(), line.clone());
        Ok(line)
    }

    async fn shared_line(&self, server: &str) -> Result<Bridge, CallError> {
        let place = self.forward.pool.place(server, self.who.as_str());
        let line = place.get_or_try_init(async || {
            // A server of the older revisions would ask this connection, behind which there is nobody.
            let face = Face { version: ProtocolVersion::V_2026_07_28, capabilities: ClientCapabilities::default() };
            let line = self.forward.gateway.bridge(server, face).await?;
            self.forward.follow(&line, self.who.as_str()).await;
            Ok(line)
        });
        line.await.cloned()
    }
}

/// What a server says outside of all requests, told to the session's client until one of them is gone. That tools have
/// changed the gateway tells, which has looked at them then.
async fn pass_on(mut news: tokio::sync::broadcast::Receiver<ServerNotification>, peer: Peer<RoleServer>) {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        match news.recv().await {
            Ok(ServerNotification::ToolListChangedNotification(_)) | Err(RecvError::Lagged(_)) => {}
            Ok(notice) => {
                if peer.send_notification(notice).await.is_err() {
                    return;
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}
