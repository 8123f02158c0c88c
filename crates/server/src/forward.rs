//! Servers that are forwarded whole: what they have stands beside our own under their own names, and requests about it go
//! through to them and back as they are. Their tools' calls pass the gateway's policy and audit like all others.
//!
//! ```text
//! handler ─▶ Forward ─▶ lines (a connection for this client) ─▶ exchange ─▶ gateway::Bridge ─▶ server
//!                                                                 └─ what it says and asks meanwhile goes to the client
//! ```

mod exchange;
mod lines;
mod lists;
mod news;
mod tools;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use belljar_engine::Principal;
use belljar_gateway::Gateway;
use belljar_gateway::catalogue::Tool as Listed;
use rmcp::model::{ServerNotification, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio::sync::broadcast;

use self::lines::Pool;
pub(crate) use self::lines::Session;
pub(crate) use self::news::is_own;
use crate::logging::Level;

/// Tasks of other servers that are remembered, of one owner and of all.
const OWN_TASKS_MAX: usize = 128;
const TASKS_MAX: usize = 4096;
/// Addresses that one who listens may watch on forwarded servers.
pub(crate) const WATCHED_MAX: usize = 64;
/// News that wait for one who listens.
const NEWS_MAX: usize = 64;

/// A change in one server's lists, for one principal.
#[derive(Debug, Clone)]
struct Told {
    owner: String,
    notice: ServerNotification,
}

/// One for all connections.
#[derive(Debug)]
pub(crate) struct Forward {
    gateway: Gateway,
    servers: Vec<String>,
    pool: Pool,
    /// The tools as they were listed last, by the names that clients know.
    known: RwLock<BTreeMap<String, Place>>,
    tasks: Mutex<VecDeque<Foreign>>,
    news: broadcast::Sender<Told>,
}

/// Where a tool is.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) listed: Arc<Listed>,
    pub(crate) offered: Tool,
}

/// A task that another server made of a call.
#[derive(Debug)]
struct Foreign {
    owner: String,
    id: String,
    server: String,
}

impl Forward {
    /// `None` where nothing is forwarded.
    pub(crate) fn new(gateway: &Gateway) -> Option<Arc<Forward>> {
        let servers = gateway.forwarded();
        (!servers.is_empty()).then(|| {
            Arc::new(Forward {
                gateway: gateway.clone(),
                servers,
                pool: Pool::default(),
                known: RwLock::default(),
                tasks: Mutex::default(),
                news: broadcast::Sender::new(NEWS_MAX),
            })
        })
    }

    fn tasks(&self) -> MutexGuard<'_, VecDeque<Foreign>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server that made this task for this caller.
    fn server_of_task(&self, who: &Principal, id: &str) -> Option<String> {
        let tasks = self.tasks();
        let found = tasks.iter().find(|task| task.id == id && task.owner == who.as_str());
        found.map(|task| task.server.clone())
    }

    fn remember_task(&self, who: &Principal, id: &str, server: &str) {
        let task = Foreign { owner: who.as_str().to_owned(), id: id.to_owned(), server: server.to_owned() };
        remember(&mut self.tasks(), task);
    }
}

/// Whoever has too many loses the oldest of its own.
fn remember(tasks: &mut VecDeque<Foreign>, task: Foreign) {
    if tasks.iter().filter(|other| other.owner == task.owner).count() >= OWN_TASKS_MAX
        && let Some(oldest) = tasks.iter().position(|other| other.owner == task.owner)
    {
        tasks.remove(oldest);
    }
    if tasks.len() >= TASKS_MAX {
        tasks.pop_front();
    }
    tasks.push_back(task);
}

/// One request of a client's, on its way through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage<'a> {
    pub(crate) forward: &'a Forward,
    /// The connection that the request came on.
    pub(crate) session: &'a Session,
    /// What level of log messages that connection set.
    pub(crate) level: &'a Level,
    pub(crate) who: &'a Principal,
    pub(crate) context: &'a RequestContext<RoleServer>,
}

/// Why nothing came back, for the client.
fn failed(error: belljar_gateway::error::CallError) -> ErrorData {
    ErrorData::internal_error(error.message, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_pushes_out_the_tasks_of_another() {
        let mut tasks = VecDeque::new();
        let of = |owner: &str, id: String| Foreign { owner: owner.into(), id, server: "tracker".into() };
        remember(&mut tasks, of("ann", "mine".into()));
        for number in 0..TASKS_MAX + 1 {
            remember(&mut tasks, of("flooder", number.to_string()));
        }
        assert!(tasks.iter().any(|task| task.owner == "ann" && task.id == "mine"));
        assert_eq!(tasks.len(), OWN_TASKS_MAX + 1);
        assert_eq!(tasks.back().map(|task| task.id.clone()), Some(TASKS_MAX.to_string()), "the newest are kept");
    }
}
