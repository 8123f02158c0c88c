//! What a surface has to remember for its callers: the sandbox that they use without naming it, the names that they know
//! sandboxes by, and the environment that their own programs have there. Each caller's apart, and bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_engine::{CreateRequest, Engine, Principal};

use super::fault::Fault;

/// Callers that are remembered; who has been away longest is forgotten first, and their sandboxes expire by themselves.
const CALLERS_MAX: usize = 4096;
const NAMES_MAX: usize = 256;

/// An environment.
pub(super) type Variables = Vec<(String, String)>;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The latest caller last.
    desks: Mutex<VecDeque<(Principal, Arc<Desk>)>>,
}

/// What belongs to one caller.
#[derive(Debug, Default)]
pub(super) struct Desk {
    shared: tokio::sync::Mutex<Option<String>>,
    /// Names and the sandboxes that they stand for, oldest first.
    names: Mutex<Vec<(String, String)>>,
    /// By sandbox. Not the sandbox's own, which our commands would have as well: a variable can make a shell, or the loader of
    /// any program, run whatever it says.
    variables: Mutex<BTreeMap<String, Variables>>,
}

impl Memory {
    pub(super) fn desk(&self, who: &Principal) -> Arc<Desk> {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = desks.iter().position(|(caller, _)| caller == who).and_then(|at| desks.remove(at));
        let (caller, desk) = known.unwrap_or_else(|| (who.clone(), Arc::default()));
        if desks.len() >= CALLERS_MAX {
            desks.pop_front();
        }
        desks.push_back((caller, desk.clone()));
        desk
    }
}

impl Desk {
    /// The sandbox that the caller uses without naming it; made if there is none. Calls that come at once get the same.
    pub(super) async fn shared(&self, engine: &Engine, who: &Principal) -> Result<String, Fault> {
        let mut shared = self.shared.lock().await;
        if let Some(sandbox) = &*shared {
            return Ok(sandbox.clone());
        }
        let info = engine.create(who, CreateRequest::default()).await?;
        Ok(shared.insert(info.id.as_str().to_owned()).clone())
    }

    /// It is gone; another may have taken its place already.
    pub(super) async fn forget_shared(&self, sandbox: &str) {
        let mut shared = self.shared.lock().await;
        if shared.as_deref() == Some(sandbox) {
            *shared = None;
        }
    }

    fn names(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sandbox_of(&self, name: &str) -> Option<String> {
        self.names().iter().find(|(known, _)| known == name).map(|(_, sandbox)| sandbox.clone())
    }

    pub(super) fn name_of(&self, sandbox: &str) -> Option<String> {
        self.names().iter().find(|(_, known)| known == sandbox).map(|(name, _)| name.clone())
    }

    /// Whether there is room for one more name, after those of sandboxes that are gone.
    pub(super) fn make_room(&self, engine: &Engine, who: &Principal) -> Result<(), Fault> {
        let standing = engine.sandboxes(who);
        let mut names = self.names();
        if names.len() >= NAMES_MAX {
            names.retain(|(_, sandbox)| standing.iter().any(|info| info.id.as_str() == sandbox));
        }
        if names.len() < NAMES_MAX {
            return Ok(());
        }
        Err(Fault::refused(format!("there are already {NAMES_MAX} of them; remove one that is no longer needed")))
    }

    /// `false` when the name is taken.
    pub(super) fn name(&self, name: &str, sandbox: &str) -> bool {
        let mut names = self.names();
        if names.len() > NAMES_MAX || names.iter().any(|(known, _)| known == name) {
            return false;
        }
        names.push((name.to_owned(), sandbox.to_owned()));
        true
    }

    fn all_variables(&self) -> MutexGuard<'_, BTreeMap<String, Variables>> {
        self.variables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each program of the caller's in this new sandbox is to have. As many are kept as the caller has sandboxes.
    pub(super) fn give(&self, engine: &Engine, who: &Principal, sandbox: &str, variables: Variables) {
        if variables.is_empty() {
            return;
        }
        let standing = engine.sandboxes(who);
        let mut all = self.all_variables();
        all.retain(|known, _| standing.iter().any(|info| info.id.as_str() == known));
        all.insert(sandbox.to_owned(), variables);
    }

    pub(super) fn variables_of(&self, sandbox: &str) -> Variables {
        self.all_variables().get(sandbox).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self, sandbox: &str) {
        self.names().retain(|(_, known)| known != sandbox);
        self.all_variables().remove(sandbox);
    }
}

/// 16 URL-safe characters that nobody can guess.
pub(super) fn session_id() -> Result<String, Fault> {
    let mut bytes = [0u8; 12];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system gave no random bytes");
        Fault::refused("this server cannot make a session now; its operator finds the reason in its log")
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_do_not_see_each_others_names() {
        let memory = Memory::default();
        assert!(memory.desk(&Principal::new("ann")).name("box", "sb_1"));
        assert_eq!(memory.desk(&Principal::new("bob")).sandbox_of("box"), None);
        assert_eq!(memory.desk(&Principal::new("ann")).sandbox_of("box").as_deref(), Some("sb_1"));
        assert!(!memory.desk(&Principal::new("ann")).name("box", "sb_2"));
        memory.desk(&Principal::new("ann")).forget("sb_1");
        assert_eq!(memory.desk(&Principal::new("ann")).sandbox_of("box"), None);
    }

    #[test]
    fn the_caller_who_was_away_longest_is_forgotten() {
        let memory = Memory::default();
        memory.desk(&Principal::new("first")).name("n", "s");
        memory.desk(&Principal::new("second")).name("n", "s");
        memory.desk(&Principal::new("first"));
        for other in 0..CALLERS_MAX - 1 {
            memory.desk(&Principal::new(&format!("caller {other}")));
        }
        assert!(memory.desk(&Principal::new("first")).sandbox_of("n").is_some());
        assert!(memory.desk(&Principal::new("second")).sandbox_of("n").is_none());
    }

    #[test]
    fn a_session_id_is_16_url_safe_characters() {
        let (one, two) = (session_id().unwrap(), session_id().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), 16);
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'), "{one}");
    }
}
