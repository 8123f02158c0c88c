//! How a server has fared, and what follows from it: one that fails again and again is left alone for a while.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::words::Words;
use crate::error::CallError;

const BACK_OFF_FIRST: Duration = Duration::from_millis(500);
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Fate {
    /// How often it was started.
    pub(super) starts: u64,
    /// Whether it spoke the older protocol the last time.
    pub(super) legacy: bool,
    /// The process before the next one.
    pub(super) leaving: Option<CancellationToken>,
    /// Failures in a row: starts that failed, and ends that nobody asked for. A result ends the row.
    failures: u32,
    until: Option<Instant>,
    why: Option<CallError>,
}

impl Fate {
    /// Nobody waits for a server that has just failed: they are told when to come back. `starts` is how many there were when
    /// this caller came, so that all who waited for one start share its failure.
    pub(super) fn may_start(&self, server: &str, starts: u64, words: &Words) -> Result<(), CallError> {
        let Some(why) = &self.why else { return Ok(()) };
        if self.starts != starts {
            return Err(why.clone());
        }
        let wait = self.until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default();
        if wait.is_zero() {
            return Ok(());
        }
        let clause = words.clause();
        let clause = if why.message.ends_with(&clause) { "" } else { &clause };
        let message = format!(
            "`{server}` has failed {} times in a row and is left alone for {:.1} s more, then call again: {}{clause}",
            self.failures,
            wait.as_secs_f64(),
            why.message,
        );
        Err(CallError { message, retry_after: Some(wait.as_secs_f64()), ..why.clone() })
    }

    /// It failed to start, or ended unasked.
    pub(super) fn failed(&mut self, why: CallError) {
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + back_off(self.failures));
        self.why = Some(why);
        // It may have been replaced by another version of itself.
        self.legacy = false;
    }

    pub(super) fn thrived(&mut self) {
        self.failures = 0;
        self.until = None;
        self.why = None;
    }
}

/// Nothing after the first failure, then half a second, doubled each time.
fn back_off(failures: u32) -> Duration {
    match failures {
        0 | 1 => Duration::ZERO,
        more => BACK_OFF_FIRST.saturating_mul(1_u32.checked_shl(more - 2).unwrap_or(u32::MAX)).min(BACK_OFF_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_wait_longer_each_time() {
        let waits: Vec<u128> = [1, 2, 3, 4, 7, 8, 9, 40, u32::MAX].map(|n| back_off(n).as_millis()).into();
        assert_eq!(waits, [0, 500, 1000, 2000, 16_000, 30_000, 30_000, 30_000, 30_000]);
    }
}
