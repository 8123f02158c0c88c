//! Which requests their callers cancelled, as opposed to hanging up.
//!
//! The protocol library cancels for both reasons and does not say which it was, and a caller that cancels may close its
//! stream before its word arrives, or after. So nobody waits: a request that ends without a word counts as left, and a word
//! that comes later still ends what it began. Ids of requests are each client's own, so that a word counts only for the
//! requests of its own principal.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_engine::{Departure, Principal};
use rmcp::model::RequestId;

/// A word and the end of its request are no further apart. Later another connection may use the id again.
const APART_MAX: Duration = Duration::from_secs(4);

const KEPT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Cancelled(Mutex<VecDeque<Seen>>);

#[derive(Debug)]
struct Seen {
    since: Instant,
    who: Principal,
    id: RequestId,
    what: What,
}

impl Seen {
    fn new(who: &Principal, id: &RequestId, what: What) -> Seen {
        Seen { since: Instant::now(), who: who.clone(), id: id.clone(), what }
    }

    fn is(&self, who: &Principal, id: &RequestId) -> bool {
        self.who == *who && self.id == *id
    }
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
    pub(crate) fn word(&self, who: &Principal, id: &RequestId) {
        let mut seen = self.seen();
        let left = seen.iter().position(|seen| seen.is(who, id) && matches!(seen.what, What::Left(_)));
        match left.and_then(|at| seen.remove(at)) {
            Some(Seen { what: What::Left(departure), .. }) => departure.cancelled(),
            _ => seen.push_back(Seen::new(who, id, What::Word)),
        }
    }

    /// A request ended before its answer. Unless there was a word, its caller hung up and may come back.
    pub(crate) fn left(&self, who: &Principal, id: &RequestId, departure: &Departure) {
        let mut seen = self.seen();
        let word = seen.iter().position(|seen| seen.is(who, id) && matches!(seen.what, What::Word));
        if word.and_then(|at| seen.remove(at)).is_none() {
            departure.hung_up();
            seen.push_back(Seen::new(who, id, What::Left(departure.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_for_the_requests_of_its_own_principal() {
        let (ann, bob, id) = (Principal::new("ann"), Principal::new("bob"), RequestId::Number(1));
        let kept = |cancelled: &Cancelled| -> Vec<bool> {
            cancelled.seen().iter().map(|seen| matches!(seen.what, What::Left(_))).collect()
        };
        let before = Cancelled::default();
        before.word(&bob, &id);
        before.left(&ann, &id, &Departure::default());
        assert_eq!(kept(&before), [false, true], "hers was left, whatever he said");
        let after = Cancelled::default();
        after.left(&ann, &id, &Departure::default());
        after.word(&bob, &id);
        assert_eq!(kept(&after), [true, false]);
        after.word(&ann, &id);
        assert_eq!(kept(&after), [false], "her own word ended it");
    }
}
