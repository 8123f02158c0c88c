//! How much of something was used within the last hour.

use std::collections::VecDeque;
use std::time::Duration;

const MINUTE: u64 = 60;
const MINUTES: u64 = 60;

/// Sums by the minute. What was used leaves the sum when its whole minute is an hour ago, so that the sum is never too
/// small. Times are since whatever beginning the caller counts from.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Of minutes in which something was used, oldest first; at most one more than an hour has.
    minutes: VecDeque<(u64, u64)>,
    sum: u64,
}

impl Window {
    pub(super) fn add(&mut self, now: Duration, amount: u64) {
        self.pass(now);
        if amount == 0 {
            return;
        }
        let minute = now.as_secs() / MINUTE;
        match self.minutes.back_mut() {
            Some((last, used)) if *last == minute => *used = used.saturating_add(amount),
            _ => self.minutes.push_back((minute, amount)),
        }
        self.sum = self.sum.saturating_add(amount);
    }

    pub(super) fn used(&mut self, now: Duration) -> u64 {
        self.pass(now);
        self.sum
    }

    /// How long until less than `limit` is used, if nothing more is; never for a limit of nothing.
    pub(super) fn frees(&mut self, now: Duration, limit: u64) -> Option<Duration> {
        self.pass(now);
        let mut left = self.sum;
        for (minute, used) in &self.minutes {
            left = left.saturating_sub(*used);
            if left < limit {
                let leaves = Duration::from_secs((minute + MINUTES + 1) * MINUTE);
                return Some(leaves.saturating_sub(now));
            }
        }
        None
    }

    fn pass(&mut self, now: Duration) {
        let minute = now.as_secs() / MINUTE;
        while let Some((oldest, used)) = self.minutes.front()
            && *oldest + MINUTES < minute
        {
            self.sum = self.sum.saturating_sub(*used);
            self.minutes.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_hour_slides() {
        let mut window = Window::default();
        window.add(at(10), 5);
        window.add(at(59), 1);
        window.add(at(1800), 7);
        assert_eq!(window.used(at(3600 + 59)), 13, "not a second less than an hour");
        assert_eq!(window.used(at(3660)), 7);
        assert_eq!(window.used(at(1800 + 3660)), 0);
        assert!(window.minutes.is_empty());
    }

    #[test]
    fn it_says_when_there_is_room() {
        let mut window = Window::default();
        window.add(at(0), 5);
        window.add(at(600), 5);
        assert_eq!(window.frees(at(700), 10), Some(at(3660 - 700)), "when the first five are gone");
        assert_eq!(window.frees(at(700), 5), Some(at(600 + 3660 - 700)), "five left are not less than five");
        assert_eq!(window.frees(at(700), 0), None);
    }

    #[test]
    fn it_is_bounded() {
        let mut window = Window::default();
        for second in 0..20_000 {
            window.add(at(second), 1);
        }
        assert!(window.minutes.len() <= 61, "{}", window.minutes.len());
        let used = window.used(at(19_999));
        assert!((3600..=3660).contains(&used), "{used}");
        window.add(at(19_999), u64::MAX);
        assert_eq!(window.used(at(19_999)), u64::MAX, "saturates");
    }
}
