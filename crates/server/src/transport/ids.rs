//! Ids of a session's requests that are not answered yet: no two of them may have the same.
//!
//! rmcp looks for the way of an answer, and for what a cancellation means, by the id alone. Of two requests with one id the first
//! to be answered would have the other's caller hear it and the other's work cancelled, and its own caller would never hear.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::RequestId;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A caller that hung up may send its request again before we know of that.
const END_WAIT: Duration = Duration::from_millis(500);
/// rmcp has no answer of what was cancelled, so that nobody sees when its work is over. It is by then.
const CANCELLED_FOR: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default)]
pub(super) struct Ids(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    used: Mutex<HashMap<RequestId, Use>>,
    ended: Notify,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    Open,
    Cancelled(Instant),
}

/// The id is a request's that is on its way to the service; if this is dropped, it did not get there.
#[derive(Debug)]
pub(super) struct Claim {
    /// `None` once it got there.
    on_way: Option<(Ids, RequestId)>,
}

impl Ids {
    fn used(&self) -> MutexGuard<'_, HashMap<RequestId, Use>> {
        self.0.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` if another request has this id, and keeps it.
    pub(super) async fn claim(&self, id: &RequestId) -> Option<Claim> {
        let claiming = async {
            loop {
                let ended = self.0.ended.notified();
                if self.take(id) {
                    return;
                }
                ended.await;
            }
        };
        timeout(END_WAIT, claiming).await.ok()?;
        Some(Claim { on_way: Some((self.clone(), id.clone())) })
    }

    fn take(&self, id: &RequestId) -> bool {
        let mut used = self.used();
        used.retain(|_, how| !matches!(how, Use::Cancelled(since) if since.elapsed() > CANCELLED_FOR));
        if used.contains_key(id) {
            return false;
        }
        used.insert(id.clone(), Use::Open);
        true
    }

    /// Its caller cancelled it, and is not answered.
    pub(super) fn cancel(&self, id: &RequestId) {
        if let Some(how) = self.used().get_mut(id) {
            *how = Use::Cancelled(Instant::now());
        }
    }

    /// It was answered.
    pub(super) fn end(&self, id: &RequestId) {
        if self.used().remove(id).is_some() {
            self.0.ended.notify_waiters();
        }
    }
}

impl Claim {
    /// The service has the request, and will answer it.
    pub(super) fn hand_over(mut self) {
        self.on_way = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((ids, id)) = self.on_way.take() {
            ids.end(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_id_is_one_requests_until_it_is_answered() {
        let ids = Ids::default();
        let (one, two) = (RequestId::Number(1), RequestId::Number(2));
        ids.claim(&one).await.expect("it is free").hand_over();
        assert!(ids.claim(&one).await.is_none());
        drop(ids.claim(&two).await.expect("another"));
        ids.claim(&two).await.expect("that one did not get anywhere").hand_over();
        let again = tokio::spawn({
            let (ids, one) = (ids.clone(), one.clone());
            async move { ids.claim(&one).await.is_some() }
        });
        tokio::task::yield_now().await;
        ids.end(&one);
        assert!(again.await.unwrap(), "whoever waited has it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_cancelled_is_not_used_again_at_once() {
        let (ids, one) = (Ids::default(), RequestId::Number(1));
        ids.cancel(&one);
        ids.claim(&one).await.expect("nothing was to be cancelled").hand_over();
        ids.cancel(&one);
        assert!(ids.claim(&one).await.is_none());
        tokio::time::advance(CANCELLED_FOR).await;
        assert!(ids.claim(&one).await.is_some());
    }
}
