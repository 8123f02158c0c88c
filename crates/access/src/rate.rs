//! How many requests a second each principal may make. A second's worth may come at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_engine::Principal;

const PRINCIPALS_MAX: usize = 10_000;
/// For whoever may make none, or came when there was no room to count.
const LONG: Duration = Duration::from_secs(60);
const UNBOUNDED: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Rates {
    /// For principals that have none of their own.
    usual: AtomicU32,
    buckets: Mutex<HashMap<Principal, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
    rate: f64,
}

impl Bucket {
    fn filled(self, now: Instant) -> Bucket {
        let more = now.saturating_duration_since(self.at).as_secs_f64() * self.rate;
        Bucket { left: (self.left + more).min(self.rate), at: now, ..self }
    }
}

impl Default for Rates {
    fn default() -> Rates {
        Rates { usual: AtomicU32::new(UNBOUNDED), buckets: Mutex::default() }
    }
}

impl Rates {
    pub(crate) fn set_usual(&self, per_second: Option<u32>) {
        self.usual.store(per_second.unwrap_or(UNBOUNDED), Ordering::Relaxed);
    }

    /// Counts a request, or says how long to wait.
    pub(crate) fn count(&self, who: &Principal, now: Instant) -> Result<(), Duration> {
        let own = who.quota().and_then(|quota| quota.requests_per_second);
        let per_second = own.unwrap_or_else(|| self.usual.load(Ordering::Relaxed));
        if per_second == UNBOUNDED {
            return Ok(());
        }
        if per_second == 0 {
            return Err(LONG);
        }
        let rate = f64::from(per_second);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= PRINCIPALS_MAX && !buckets.contains_key(who) {
            // One that is full again says the same as none.
            buckets.retain(|_, bucket| bucket.filled(now).left < bucket.rate);
            if buckets.len() >= PRINCIPALS_MAX {
                return Err(LONG);
            }
        }
        let bucket = buckets.entry(who.clone()).or_insert(Bucket { left: rate, at: now, rate });
        *bucket = Bucket { rate, ..*bucket }.filled(now);
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - bucket.left) / rate))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belljar_engine::Quota;

    use super::*;

    fn with_rate(name: &str, per_second: u32) -> Principal {
        let quota = Quota { requests_per_second: Some(per_second), ..Quota::default() };
        Principal::new(name).with_quota(Arc::new(quota))
    }

    #[test]
    fn a_seconds_worth_at_once_and_then_as_they_come() {
        let (rates, begin) = (Rates::default(), Instant::now());
        let ann = with_rate("ann", 4);
        let passed = |at: f64| rates.count(&ann, begin + Duration::from_secs_f64(at)).is_ok();
        assert_eq!([0.0; 6].map(passed), [true, true, true, true, false, false]);
        assert_eq!(rates.count(&ann, begin).unwrap_err(), Duration::from_millis(250));
        assert_eq!([0.26, 0.27, 0.51].map(passed), [true, false, true]);
        // However long it was silent.
        assert_eq!([100.0; 5].map(passed), [true, true, true, true, false]);
        // Others have their own, or none.
        assert!(rates.count(&Principal::new("bob"), begin).is_ok());
        assert_eq!(rates.count(&with_rate("eve", 0), begin), Err(LONG));
    }

    #[test]
    fn the_usual_rate_is_for_those_without_their_own_and_can_change() {
        let (rates, now) = (Rates::default(), Instant::now());
        rates.set_usual(Some(1));
        let (ann, bob) = (Principal::new("ann"), with_rate("bob", 3));
        assert_eq!(
            [&ann, &ann, &bob, &bob, &bob, &bob].map(|who| rates.count(who, now).is_ok()),
            [true, false, true, true, true, false]
        );
        rates.set_usual(None);
        assert!(rates.count(&ann, now).is_ok());
    }

    #[test]
    fn those_who_are_silent_are_forgotten() {
        let (rates, begin) = (Rates::default(), Instant::now());
        rates.set_usual(Some(1));
        for number in 0..PRINCIPALS_MAX {
            rates.count(&Principal::new(&number.to_string()), begin).unwrap();
        }
        assert!(rates.count(&Principal::new("late"), begin).is_err());
        assert!(rates.count(&Principal::new("late"), begin + Duration::from_secs(2)).is_ok());
        assert_eq!(rates.buckets.lock().unwrap().len(), 1);
    }
}
