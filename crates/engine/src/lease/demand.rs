//! How often sandboxes of one kind are asked for.

use std::time::Duration;

use tokio::time::Instant;

/// Those asked for within such a time count as asked for at once: it is about how long after one was taken another is
/// ready. What comes slower than that finds it ready again, and needs no more of them, however often it comes.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Seconds that are remembered. An agent thinks for some of these between two calls; past them its next burst is as
/// likely as anybody's.
const REMEMBERED: usize = 60;

/// So long after the last time one is still kept ready: people come back to a conversation within minutes.
const LINGER: Duration = Duration::from_secs(5 * 60);

#[derive(Debug)]
pub(super) struct Demand {
    began: Instant,
    /// The most that were asked for at once in each second. A ring: second `n` is at `n % REMEMBERED`; the one before it
    /// began is 0, and holds what was expected.
    seconds: [u16; REMEMBERED],
    newest: u64,
    /// Since when they count as asked for at once, and how many these are.
    group: (Instant, u16),
    last: Option<Instant>,
    times: u64,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Demand {
        Demand { began: now, seconds: [0; REMEMBERED], newest: 0, group: (now, 0), last: None, times: 0 }
    }

    /// As if so many had been asked for just before.
    pub(super) fn expecting(now: Instant, count: u16) -> Demand {
        let mut demand = Demand::new(now);
        demand.seconds[0] = count;
        demand
    }

    pub(super) fn asked(&mut self, now: Instant) {
        let second = self.second(now);
        for passed in (self.newest + 1..=second).rev().take(REMEMBERED) {
            self.seconds[slot(passed)] = 0;
        }
        self.newest = self.newest.max(second);
        let (since, count) = &mut self.group;
        if now.saturating_duration_since(*since) >= AT_ONCE {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        let most = &mut self.seconds[slot(second)];
        *most = (*most).max(*count);
        self.last = Some(now);
        self.times += 1;
    }

    /// How often, in all.
    pub(super) fn times(&self) -> u64 {
        self.times
    }

    /// The last time; for one that was never asked for, when it began.
    pub(super) fn last(&self) -> Instant {
        self.last.unwrap_or(self.began)
    }

    /// Whether someone asked not long ago.
    pub(super) fn lingers(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.saturating_duration_since(last) < LINGER)
    }

    /// The most that were asked for at once in the last minute, each second counting for less the longer it is ago: what is
    /// prepared for a burst goes one by one, and not all when the minute is over.
    pub(super) fn peak(&self, now: Instant) -> usize {
        let second = self.second(now);
        let whole = REMEMBERED as u64;
        let weighed = |at: u64| {
            let left = (at + whole).saturating_sub(second);
            (u64::from(self.seconds[slot(at)]) * left).div_ceil(whole)
        };
        let oldest = self.newest.saturating_sub(whole - 1);
        (oldest..=self.newest).map(weighed).max().map_or(0, |peak| peak as usize)
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() + 1
    }
}

fn slot(second: u64) -> usize {
    (second % REMEMBERED as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(began: Instant, seconds: f64) -> Instant {
        began + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_most_at_once_counts_and_wears_off() {
        let began = Instant::now();
        let mut demand = Demand::new(began);
        assert_eq!(demand.peak(began), 0);
        for _ in 0..30 {
            demand.asked(at(began, 5.5));
        }
        demand.asked(at(began, 6.1));
        let peaks = [6.5, 35.0, 64.0, 65.0, 66.0, 600.0].map(|seconds| demand.peak(at(began, seconds)));
        assert_eq!(peaks, [30, 15, 1, 1, 0, 0]);
    }

    #[test]
    fn one_after_the_other_is_one() {
        for (each, peak) in [(2.0, 1), (0.2, 1), (0.051, 2), (0.0101, 10)] {
            let began = Instant::now();
            let mut demand = Demand::new(began);
            for n in 0..200 {
                demand.asked(at(began, f64::from(n) * each));
            }
            assert_eq!((demand.peak(at(began, 200.0 * each)), demand.times()), (peak, 200), "one each {each} s");
        }
    }

    #[test]
    fn a_pause_longer_than_the_ring_leaves_nothing_of_before() {
        let began = Instant::now();
        let mut demand = Demand::new(began);
        for _ in 0..9 {
            demand.asked(at(began, 1.0));
        }
        demand.asked(at(began, 1.0 + 5.0 * 60.0));
        assert_eq!(demand.peak(at(began, 301.5)), 1);
    }

    #[test]
    fn it_lingers_for_some_minutes() {
        let began = Instant::now();
        let mut demand = Demand::new(began);
        assert!(!demand.lingers(began), "nobody asked yet");
        demand.asked(at(began, 10.0));
        assert!(demand.lingers(at(began, 309.0)));
        assert!(!demand.lingers(at(began, 310.0)));
    }

    #[test]
    fn what_is_expected_wears_off_too() {
        let began = Instant::now();
        let mut demand = Demand::expecting(began, 2);
        assert_eq!([0.0, 28.0, 29.0, 59.0].map(|seconds| demand.peak(at(began, seconds))), [2, 2, 1, 0]);
        assert!(!demand.lingers(began));
        demand.asked(began);
        assert_eq!((demand.peak(began), demand.times()), (2, 1), "what comes was expected");
    }
}
