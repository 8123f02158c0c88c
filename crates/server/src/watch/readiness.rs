//! Whether programs can be run here just now, for whoever sends them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A clone is the same. Ready from the beginning, unless somebody says otherwise.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    /// What is still waited for, or went wrong, by its name; each in one line.
    waits_for: BTreeMap<String, String>,
    is_ending: bool,
}

impl Readiness {
    /// It is there; ready is who waits for nothing else.
    pub fn has(&self, what: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).waits_for.remove(what);
    }

    pub fn waits_for(&self, what: &str, why: impl Into<String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).waits_for.insert(what.to_owned(), why.into());
    }

    /// The server ends. There is no way back from here.
    pub fn end(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).is_ending = true;
    }

    /// `Err` has one line that says why not.
    pub fn check(&self) -> Result<(), String> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match state.waits_for.values().next() {
            _ if state.is_ending => Err("the server is ending".to_owned()),
            Some(why) => Err(why.lines().next().unwrap_or_default().to_owned()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_until_something_is_waited_for_and_never_again_at_the_end() {
        let readiness = Readiness::default();
        assert_eq!(readiness.check(), Ok(()));
        let other = readiness.clone();
        other.waits_for("native", "the walls are being tested\nmore");
        other.waits_for("docker", "the walls could not be tested");
        assert_eq!(readiness.check(), Err("the walls could not be tested".to_owned()));
        other.has("docker");
        assert_eq!(readiness.check(), Err("the walls are being tested".to_owned()));
        other.has("native");
        assert_eq!(readiness.check(), Ok(()));
        other.end();
        other.has("native");
        assert_eq!(readiness.check(), Err("the server is ending".to_owned()));
    }
}
