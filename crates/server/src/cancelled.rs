//! Which requests their callers cancelled, as opposed to hanging up.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::RequestId;

/// How long after a request was cancelled its cause may take to show: the caller's own word, or its hanging up.
const CAUSE_SHOWS: Duration = Duration::from_millis(50);

/// Requests that their callers cancelled in so many words, the latest last. The protocol library cancels for a hang-up too,
/// and does not say which it was.
#[derive(Debug, Default)]
pub(crate) struct Cancelled(Mutex<VecDeque<RequestId>>);

impl Cancelled {
    /// Of cancellations that were not noticed in time nobody asks any more.
    const KEPT: usize = 64;

    pub(crate) fn add(&self, id: RequestId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() == Cancelled::KEPT {
            ids.pop_front();
        }
        ids.push_back(id);
    }

    fn take(&self, id: &RequestId) -> bool {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = ids.iter().position(|known| known == id);
        found.is_some_and(|at| ids.remove(at).is_some())
    }

    /// Whether word comes soon that this request was cancelled.
    pub(crate) async fn comes(&self, id: &RequestId) -> bool {
        const LOOKS: u32 = 10;
        for _ in 0..LOOKS {
            if self.take(id) {
                return true;
            }
            tokio::time::sleep(CAUSE_SHOWS / LOOKS).await;
        }
        self.take(id)
    }
}
