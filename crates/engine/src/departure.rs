//! How a caller leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// How a caller leaves before its answer. Unless it says that it hung up, it meant to cancel.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    hung_up: AtomicBool,
    cancelled: CancellationToken,
}

impl Departure {
    /// The connection is gone, and the caller may come back for its answer.
    pub fn hung_up(&self) {
        self.0.hung_up.store(true, Ordering::Release);
    }

    /// It meant to cancel after all: what it began ends now.
    pub fn cancelled(&self) {
        self.0.cancelled.cancel();
    }

    pub(crate) fn is_hang_up(&self) -> bool {
        self.0.hung_up.load(Ordering::Acquire) && !self.0.cancelled.is_cancelled()
    }

    pub(crate) async fn is_cancelled(&self) {
        self.0.cancelled.cancelled().await;
    }
}
