//! How a caller leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How a caller leaves before its answer. Unless it says that it hung up, it meant to cancel.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<AtomicBool>);

impl Departure {
    /// The connection is gone, and the caller may come back for its answer.
    pub fn hung_up(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_hang_up(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
