//! The processor time of runs under way, held against their owner's quota.
//!
//! Where the wall of a sandbox can tell what was used in it, that is charged as it comes, once for all programs there. Where
//! it cannot, a program counts as if it used all that it may, until its end, when it is charged.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use belljar_core::{Limits, Sandbox};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::quota::{Ahead, Books};
use crate::{EngineError, Principal};

/// How often a look is taken while a program runs. What it uses in between is past the quota at most.
const LOOKED_EVERY: Duration = Duration::from_secs(2);

/// How much of a sandbox's processor time was charged already, or was nobody's program's.
#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<Reading>);

#[derive(Debug, Default)]
struct Reading {
    programs: usize,
    /// `None` until somebody asked.
    told: Option<Duration>,
}

/// One program among those that are counted, until dropped.
#[derive(Debug)]
struct Metered<'a>(&'a Meter);

impl Meter {
    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was used while no program ran is passed over.
    fn begin(&self, used: impl FnOnce() -> Option<Duration>) -> Metered<'_> {
        let mut reading = self.reading();
        if reading.programs == 0 {
            reading.told = used();
        }
        reading.programs += 1;
        Metered(self)
    }

    /// What came since the last call, for whoever calls first. In whole milliseconds, so that none is lost on the way.
    fn rest(&self, used: Duration) -> Duration {
        let used = Duration::from_millis(u64::try_from(used.as_millis()).unwrap_or(u64::MAX));
        let mut reading = self.reading();
        let before = reading.told.unwrap_or(used);
        reading.told = Some(before.max(used));
        used.saturating_sub(before)
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        self.0.reading().programs -= 1;
    }
}

#[derive(Debug)]
pub(crate) struct Effort<'a> {
    sandbox: &'a dyn Sandbox,
    metered: Metered<'a>,
    books: &'a Books,
    who: &'a Principal,
    cpus: f64,
    begun: Instant,
    ahead: Ahead<'a>,
}

impl<'a> Effort<'a> {
    pub(crate) fn new(
        sandbox: &'a dyn Sandbox,
        meter: &'a Meter,
        limits: &Limits,
        books: &'a Books,
        who: &'a Principal,
    ) -> Effort<'a> {
        let cpus = f64::from(limits.cpu_milli) / 1000.0;
        // Asking takes a file or two, on the way of every run.
        let metered = meter.begin(|| books.quota(who).cpu_seconds.and_then(|_| sandbox.cpu_used()));
        let (begun, ahead) = (Instant::now(), books.ahead(who));
        Effort { sandbox, metered, books, who, cpus, begun, ahead }
    }

    /// All that there was to use.
    fn most(&self) -> Duration {
        self.begun.elapsed().mul_f64(self.cpus)
    }

    fn look(&self) {
        match self.sandbox.cpu_used() {
            Some(used) => self.books.charge_cpu(self.who, self.metered.0.rest(used)),
            None => self.ahead.is(self.most()),
        }
    }

    /// At its end. `usage` is what the guest says of it, if that still answered: without it, and where the wall cannot tell
    /// either, all that it could have used, or it would pay to go down.
    pub(crate) fn charge(self, usage: Option<Duration>) {
        if self.books.quota(self.who).cpu_seconds.is_none() {
            return;
        }
        let used = match (self.sandbox.cpu_used(), usage) {
            (Some(used), _) => self.metered.0.rest(used),
            (None, Some(usage)) => usage,
            (None, None) => self.most(),
        };
        drop(self.ahead);
        self.books.charge_cpu(self.who, used);
    }

    /// Cancels the run when its owner's programs, with those under way, have used too much. Never returns.
    pub(crate) async fn watch(&self, cancel: &CancellationToken, stopped: &OnceLock<EngineError>) -> Infallible {
        let mut look = tokio::time::interval(LOOKED_EVERY);
        loop {
            look.tick().await;
            // There may be one by the next look.
            if self.books.quota(self.who).cpu_seconds.is_none() {
                continue;
            }
            self.look();
            if let Err(over) = self.books.may_run(self.who) {
                let _ = stopped.set(over);
                cancel.cancel();
                return std::future::pending().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn what_was_used_is_told_once_whoever_asks_and_never_what_nobody_ran() {
        let meter = Meter::default();
        let one = meter.begin(|| Some(ms(100)));
        assert_eq!(meter.rest(ms(150)), ms(50));
        let other = meter.begin(|| panic!("it is counted already"));
        assert_eq!((meter.rest(ms(170)), meter.rest(ms(170)), meter.rest(ms(160))), (ms(20), ms(0), ms(0)));
        drop(one);
        assert_eq!(meter.rest(ms(180)), ms(10));
        drop(other);
        let _next = meter.begin(|| Some(ms(5000)));
        assert_eq!(meter.rest(ms(5001)), ms(1));
    }

    #[test]
    fn fractions_add_up_and_what_was_used_before_anybody_asked_is_not_charged() {
        let meter = Meter::default();
        let _one = meter.begin(|| None);
        assert_eq!(meter.rest(ms(5000)), ms(0));
        let told: Duration = (1..=10).map(|n| meter.rest(ms(5000) + Duration::from_micros(n * 700))).sum();
        assert_eq!(told, ms(7));
    }
}
