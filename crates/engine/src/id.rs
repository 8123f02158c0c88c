//! Names that nobody can guess, and who they belong to.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use belljar_core::BackendError;

use crate::EngineError;

/// On whose behalf a call is made. Sandboxes and kept output belong to one and are invisible to all others.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Principal(Arc<str>);

impl Principal {
    pub fn new(name: &str) -> Principal {
        Principal(name.into())
    }

    /// The one caller of a server that is not shared.
    pub fn local() -> Principal {
        Principal::new("local")
    }

    pub fn as_str(&self) -> &str {
        &self.0
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
    pub(crate) fn random() -> Result<RunId, EngineError> {
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
