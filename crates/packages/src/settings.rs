//! What the operator decides about packages.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::Host;

use crate::Registries;

const GIB: u64 = 1 << 30;

/// Whether a host can be reached at all; asked before a build, so that offline is told at once.
pub type Reachable = Arc<dyn Fn(Host) -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

#[derive(Clone)]
pub struct Settings {
    /// The layers' store: the very directory that the backend was told of.
    pub store: PathBuf,
    /// Layers past this are removed, those that were not used for the longest time first.
    pub budget_bytes: u64,
    /// After this, a set without versions is resolved anew.
    pub refresh: Duration,
    /// Of a sandbox that builds.
    pub memory_bytes: u64,
    pub wall: Duration,
    /// One layer, with what is only needed while it is built.
    pub layer_bytes: u64,
    /// What a build leaves free on the store's disk.
    pub free_bytes: u64,
    pub registries: Registries,
    pub reachable: Reachable,
}

impl Settings {
    pub fn new(store: PathBuf, registries: Registries, reachable: Reachable) -> Settings {
        Settings {
            store,
            budget_bytes: 10 * GIB,
            refresh: Duration::from_secs(7 * 24 * 60 * 60),
            memory_bytes: 2 * GIB,
            wall: Duration::from_secs(600),
            layer_bytes: 4 * GIB,
            free_bytes: GIB / 4,
            registries,
            reachable,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("store", &self.store).finish_non_exhaustive()
    }
}
