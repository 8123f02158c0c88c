//! How many refusals are written down. Whoever is refused may try again as fast as it can, and a record must not grow as fast:
//! past a few a minute of one principal they are counted, and told as a number.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Of one principal, within a minute.
const WRITTEN_MAX: u64 = 30;
/// Principals that are counted apart within a minute; more are counted as one.
const PRINCIPALS_MAX: usize = 1024;
const OTHERS: &str = "(others)";

const MINUTE_MS: i64 = 60_000;

#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    began_ms: i64,
    /// How many were refused, written or not.
    counts: HashMap<String, u64>,
}

/// Whether a refusal is written, or only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Written,
    Counted,
}

impl Refusals {
    fn minute(&self) -> MutexGuard<'_, Minute> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn take(&self, principal: &str) -> Room {
        let counts = &mut self.minute().counts;
        let is_known = counts.contains_key(principal) || counts.len() < PRINCIPALS_MAX;
        let count = counts.entry(if is_known { principal } else { OTHERS }.to_owned()).or_default();
        *count += 1;
        if *count <= WRITTEN_MAX { Room::Written } else { Room::Counted }
    }

    /// Whose were only counted, and how many, once their minute is over.
    pub(crate) fn of_the_last_minute(&self, now_ms: i64) -> Vec<(String, u64)> {
        let mut minute = self.minute();
        // A clock that was set back must not hold them up.
        if (0..MINUTE_MS).contains(&now_ms.saturating_sub(minute.began_ms)) {
            return Vec::new();
        }
        minute.began_ms = now_ms;
        unwritten(&mut minute)
    }

    /// The same, however long the minute has been.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        unwritten(&mut self.minute())
    }
}

fn unwritten(minute: &mut Minute) -> Vec<(String, u64)> {
    let counts = minute.counts.drain().filter(|(_, count)| *count > WRITTEN_MAX);
    counts.map(|(principal, count)| (principal, count - WRITTEN_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_a_few_a_minute_they_are_counted() {
        let refusals = Refusals::default();
        assert!(refusals.of_the_last_minute(MINUTE_MS).is_empty());
        let written = (0..100).filter(|_| refusals.take("ann") == Room::Written).count();
        assert_eq!((written, refusals.take("bob")), (30, Room::Written), "nobody pays for another's");
        assert!(refusals.of_the_last_minute(2 * MINUTE_MS - 1).is_empty(), "its minute is not over");
        assert_eq!(refusals.of_the_last_minute(2 * MINUTE_MS), [("ann".to_owned(), 70)]);
        assert_eq!(refusals.take("ann"), Room::Written);
        assert!(refusals.all().is_empty());
    }

    #[test]
    fn however_many_principals_there_are_memory_is_bounded() {
        let refusals = Refusals::default();
        for number in 0..PRINCIPALS_MAX * 2 {
            refusals.take(&format!("p{number}"));
        }
        assert_eq!(refusals.minute().counts.len(), PRINCIPALS_MAX + 1);
        assert_eq!(refusals.all(), [(OTHERS.to_owned(), PRINCIPALS_MAX as u64 - WRITTEN_MAX)]);
    }
}
