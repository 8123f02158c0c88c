//! Whether programs can be run here just now, for whoever sends them.

use std::sync::{Arc, PoisonError, RwLock};

/// A clone is the same. Ready from the beginning, unless somebody says otherwise.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    /// What is still waited for, or went wrong; in one line.
    waits_for: Option<String>,
    is_ending: bool,
}

impl Readiness {
    pub fn set_ready(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).waits_for = None;
    }

    pub fn set_not_ready(&self, why: impl Into<String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).waits_for = Some(why.into());
    }

    /// The server ends. There is no way back from here.
    pub fn end(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).is_ending = true;
    }

    /// `Err` has one line that says why not.
    pub fn check(&self) -> Result<(), String> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match &state.waits_for {
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
        other.set_not_ready("the walls are being tested\nmore");
        assert_eq!(readiness.check(), Err("the walls are being tested".to_owned()));
        other.set_ready();
        assert_eq!(readiness.check(), Ok(()));
        other.end();
        other.set_ready();
        assert_eq!(readiness.check(), Err("the server is ending".to_owned()));
    }
}
