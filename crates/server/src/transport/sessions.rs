//! Sessions of the protocol's older revisions, each bound to the principal that opened it.
//!
//! A session id is no authorisation: rmcp would take it from anyone, and would keep as many as are asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_engine::Principal;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;

use super::older::Older;

const PER_PRINCIPAL_MAX: usize = 64;
/// Answers are kept for a caller that resumes a stream; ours are dropped with the connection, so hardly at all.
const ANSWERS_KEPT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) manager: Arc<Older>,
    owners: Mutex<HashMap<Arc<str>, Owned>>,
}

#[derive(Debug)]
struct Owned {
    who: Principal,
    used: Instant,
}

impl Sessions {
    /// `idle` must outlast the longest request, since a session without traffic for so long is closed with all its work.
    pub(super) fn new(idle: Duration) -> Sessions {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(idle);
        manager.session_config.completed_cache_ttl = ANSWERS_KEPT;
        Sessions { manager: Arc::new(Older::new(manager)), owners: Mutex::default() }
    }

    /// Whether the session is this principal's. Unknown and foreign are the same.
    pub(super) fn is_of(&self, who: &Principal, id: &str) -> bool {
        match self.owners().get_mut(id) {
            Some(owned) if owned.who == *who => {
                owned.used = Instant::now();
                true
            }
            _ => false,
        }
    }

    /// Binds a new session. A principal that has too many loses the one it used least lately.
    pub(super) async fn bind(&self, who: &Principal, id: &str) {
        let alive: Vec<Arc<str>> = self.manager.inner.sessions.read().await.keys().cloned().collect();
        let surplus = {
            let mut owners = self.owners();
            owners.retain(|id, _| alive.contains(id));
            let of_caller: Vec<(&Arc<str>, &Owned)> = owners.iter().filter(|(_, owned)| owned.who == *who).collect();
            let surplus = (of_caller.len() >= PER_PRINCIPAL_MAX)
                .then(|| of_caller.iter().min_by_key(|(_, owned)| owned.used).map(|(id, _)| Arc::clone(id)))
                .flatten();
            if let Some(surplus) = &surplus {
                owners.remove(surplus);
            }
            owners.insert(id.into(), Owned { who: who.clone(), used: Instant::now() });
            surplus
        };
        if let Some(surplus) = surplus
            && let Err(error) = self.manager.close_session(&surplus).await
        {
            tracing::warn!(%error, "a surplus session could not be closed");
        }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<Arc<str>, Owned>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_is_its_openers_and_too_many_push_out_ones_own() {
        let sessions = Sessions::new(Duration::from_secs(60));
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let (of_bob, _keep) = sessions.manager.create_session().await.unwrap();
        sessions.bind(&bob, &of_bob).await;
        let mut of_ann = Vec::new();
        for _ in 0..PER_PRINCIPAL_MAX + 3 {
            let (id, transport) = sessions.manager.create_session().await.unwrap();
            sessions.bind(&ann, &id).await;
            of_ann.push((id, transport));
        }
        assert!(sessions.is_of(&bob, &of_bob) && !sessions.is_of(&ann, &of_bob));
        assert!(!sessions.is_of(&ann, "made-up"));
        let living = of_ann.iter().filter(|(id, _)| sessions.is_of(&ann, id)).count();
        assert_eq!(living, PER_PRINCIPAL_MAX);
        assert!(!sessions.is_of(&ann, &of_ann[0].0), "the oldest went");
        assert_eq!(sessions.manager.inner.sessions.read().await.len(), PER_PRINCIPAL_MAX + 1);
    }
}
