//! Jails whose shared root is an image's: one for each, kept for the sandboxes to come, and no more than a few.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::BackendError;

use super::jail::{Given, Jail};
use super::probe;

/// A jail is a process of a few megabytes; its root is some mounts.
const KEPT_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct ImageJails {
    /// The one that was used last comes last.
    kept: Mutex<Vec<(PathBuf, Arc<Jail>)>>,
}

impl ImageJails {
    /// The jail of the root at this path, started if there is none that lives. One more than are kept ends the one that was
    /// not used for the longest time, as soon as its last sandbox is gone.
    pub(super) fn of_root(
        &self,
        path: &Path,
        given: impl FnOnce() -> Result<Given, BackendError>,
    ) -> Result<Arc<Jail>, BackendError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone: Vec<_> = kept.extract_if(.., |(_, jail)| !jail.is_alive()).collect();
        let at = kept.iter().position(|(known, _)| known == path);
        let (known, jail) = match at {
            Some(at) => kept.remove(at),
            None => {
                let started = Jail::start(given()?).map_err(|refusal| probe::explain(&refusal))?;
                (path.to_owned(), Arc::new(started))
            }
        };
        kept.push((known, Arc::clone(&jail)));
        let too_many = kept.len().saturating_sub(KEPT_MAX);
        gone.extend(kept.drain(..too_many));
        drop(kept);
        if !gone.is_empty() {
            // Whoever drops the last of one waits for its end.
            tokio::task::spawn_blocking(move || drop(gone));
        }
        Ok(jail)
    }
}
