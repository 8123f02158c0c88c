//! Names that nobody can guess, and who they belong to.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use belljar_core::BackendError;

use crate::{EngineError, Quota};

/// On whose behalf a call is made. Sandboxes and kept output belong to one and are invisible to all others.
///
/// Two of the same name are the same, whatever they may have.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    quota: Option<Arc<Quota>>,
    /// Whether its programs may call other servers' tools.
    may_call: bool,
}

impl PartialEq for Principal {
    fn eq(&self, other: &Principal) -> bool {
        self.name == other.name
    }
}

impl Eq for Principal {}

impl Hash for Principal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Principal {
    pub fn new(name: &str) -> Principal {
        Principal { name: name.into(), quota: None, may_call: true }
    }

    /// With bounds of its own, in place of the operator's for everyone.
    pub fn with_quota(self, quota: Arc<Quota>) -> Principal {
        Principal { quota: Some(quota), ..self }
    }

    /// Whose programs call no tools of other servers, and see none.
    pub fn without_calls(self) -> Principal {
        Principal { may_call: false, ..self }
    }

    pub fn may_call(&self) -> bool {
        self.may_call
    }

    pub fn quota(&self) -> Option<&Arc<Quota>> {
        self.quota.as_ref()
    }

    /// The one caller of a server that is not shared.
    pub fn local() -> Principal {
        Principal::new("local")
    }

    pub fn as_str(&self) -> &str {
        &self.name
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SandboxId(String);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RunId(String);

impl SandboxId {
    pub(crate) fn random() -> Result<SandboxId, EngineError> {
        Ok(SandboxId(unguessable("sb_")?))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl RunId {
    /// One that nobody can guess, and that no run has.
    pub fn random() -> Result<RunId, EngineError> {
        Ok(RunId(unguessable("run_")?))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A caller's text finds a sandbox without becoming an id.
impl Borrow<str> for SandboxId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// 128 random bits in lowercase hex, after `prefix`.
fn unguessable(prefix: &str) -> Result<String, EngineError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        tracing::error!(%error, "the system gave no random bytes");
        EngineError::Backend(BackendError::Unavailable {
            why: format!("the system gave no random bytes: {error}"),
            fix: "let the server use getrandom(2)".into(),
        })
    })?;
    Ok(format!("{prefix}{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_shape_and_differ() {
        let (one, two) = (SandboxId::random().unwrap(), SandboxId::random().unwrap());
        assert_ne!(one, two);
        let digits = one.as_str().strip_prefix("sb_").unwrap();
        assert_eq!(digits.len(), 32);
        assert!(digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{digits}");
        assert!(RunId::random().unwrap().as_str().starts_with("run_"));
    }
}
