//! The processor time of a run under way, held against its owner's quota until its end, when it is charged.

use std::convert::Infallible;
use std::sync::OnceLock;
use std::time::Duration;

use belljar_core::{Limits, Sandbox};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::quota::{Ahead, Books};
use crate::{EngineError, Principal};

/// How often a look is taken while a program runs. What it uses in between is past the quota at most.
const LOOKED_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Effort<'a> {
    sandbox: &'a dyn Sandbox,
    books: &'a Books,
    who: &'a Principal,
    cpus: f64,
    begun: Instant,
    /// What had been used in the place before.
    before: Option<Duration>,
    ahead: Ahead<'a>,
}

impl<'a> Effort<'a> {
    pub(crate) fn new(sandbox: &'a dyn Sandbox, limits: &Limits, books: &'a Books, who: &'a Principal) -> Effort<'a> {
        let cpus = f64::from(limits.cpu_milli) / 1000.0;
        // Asking takes a file or two, on the way of every run.
        let before = books.quota(who).cpu_seconds.and_then(|_| sandbox.cpu_used());
        let (begun, ahead) = (Instant::now(), books.ahead(who));
        Effort { sandbox, books, who, cpus, begun, before, ahead }
    }

    /// What the place says, of whatever program it was; and where it cannot tell, or says more, all that there was to use.
    fn so_far(&self) -> Duration {
        let most = self.begun.elapsed().mul_f64(self.cpus);
        match (self.sandbox.cpu_used(), self.before) {
            (Some(used), Some(before)) => used.saturating_sub(before).min(most),
            _ => most,
        }
    }

    /// Cancels the run when its owner's programs, with those under way, have used too much. Never returns.
    pub(crate) async fn watch(&self, cancel: &CancellationToken, stopped: &OnceLock<EngineError>) -> Infallible {
        if self.books.quota(self.who).cpu_seconds.is_none() {
            return std::future::pending().await;
        }
        let mut look = tokio::time::interval(LOOKED_EVERY);
        loop {
            look.tick().await;
            self.ahead.is(self.so_far());
            if let Err(over) = self.books.may_run(self.who) {
                let _ = stopped.set(over);
                cancel.cancel();
                return std::future::pending().await;
            }
        }
    }
}
