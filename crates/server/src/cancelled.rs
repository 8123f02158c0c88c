//! Which requests their callers cancelled, as opposed to hanging up.
//!
//! The protocol library cancels for both reasons and does not say which it was, and a caller that cancels may close its
//! stream before its word arrives, or after. So nobody waits: a request that ends without a word counts as left, and a word
//! that comes later still ends what it began.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_engine::Departure;
use rmcp::model::RequestId;

/// A word and the end of its request are no further apart. Later another connection may use the id again.
const APART_MAX: Duration = Duration::from_secs(4);

const KEPT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Cancelled(Mutex<VecDeque<Seen>>);

#[derive(Debug)]
struct Seen {
    since: Instant,
    id: RequestId,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Its caller cancelled it.
    Word,
    /// It ended, and its caller was gone.
    Left(Departure),
}

impl Cancelled {
    fn seen(&self) -> MutexGuard<'_, VecDeque<Seen>> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.len() >= KEPT_MAX || seen.front().is_some_and(|first| first.since.elapsed() > APART_MAX) {
            seen.pop_front();
        }
        seen
    }

    /// The caller's word that a request is cancelled.
    pub(crate) fn word(&self, id: RequestId) {
        let mut seen = self.seen();
        let left = seen.iter().position(|seen| seen.id == id && matches!(seen.what, What::Left(_)));
        match left.and_then(|at| seen.remove(at)) {
            Some(Seen { what: What::Left(departure), .. }) => departure.cancelled(),
            _ => seen.push_back(Seen { since: Instant::now(), id, what: What::Word }),
        }
    }

    /// A request ended before its answer. Unless there was a word, its caller hung up and may come back.
    pub(crate) fn left(&self, id: &RequestId, departure: &Departure) {
        let mut seen = self.seen();
        let word = seen.iter().position(|seen| seen.id == *id && matches!(seen.what, What::Word));
        if word.and_then(|at| seen.remove(at)).is_none() {
            departure.hung_up();
            let what = What::Left(departure.clone());
            seen.push_back(Seen { since: Instant::now(), id: id.clone(), what });
        }
    }
}
