//! The prepared sandboxes of one spec.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Sandbox, Spec};
use tokio::time::Instant;

use super::demand::Demand;

/// How long one may wait to be used. What it read when it started grows old: the interpreter's files may have been
/// upgraded beneath it, and the time zone, and its pages are the first to be swapped out.
const AGE_MAX: Duration = Duration::from_secs(10 * 60);

/// How long opening waits for the runs that are under way: longer than a short run takes, which would be the slower for
/// it, and shorter than what counts as asked for at once, so that there are enough meanwhile.
const PATIENCE: Duration = Duration::from_millis(50);

/// After an opening that failed; twice as long after each that follows, up to the longest.
const SETBACK: Duration = Duration::from_secs(1);
const SETBACK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) spec: Arc<Spec>,
    lasts: Lasts,
    pub(super) demand: Demand,
    /// Oldest first: its kernel has had the most time to be ready.
    pub(super) ready: VecDeque<Prepared>,
    pub(super) opening: usize,
    /// How many there should be, ready or on their way.
    pub(super) share: usize,
    lacks_since: Option<Instant>,
    setback: Option<Setback>,
    pub(super) taken: u64,
    pub(super) missed: u64,
}

/// Whether a pool is there without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    Always,
    WhileAskedFor,
}

/// A sandbox that was opened ahead. Nothing ran in it, and it is handed out once.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) sandbox: Box<dyn Sandbox>,
    pub(super) since: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Setback {
    failures: u32,
    until: Instant,
}

/// How urgent it is to open another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// There are enough.
    None,
    /// It is put off until then, whatever else happens.
    NotBefore(Instant),
    /// When no run is under way, or from this time on.
    WhenQuiet(Instant),
}

impl Pool {
    pub(super) fn new(spec: &Spec, now: Instant) -> Pool {
        Pool::with(spec, Demand::new(now), Lasts::WhileAskedFor)
    }

    /// One that is always there, and begins with so many.
    pub(super) fn standing(spec: &Spec, count: u16, now: Instant) -> Pool {
        Pool::with(spec, Demand::expecting(now, count), Lasts::Always)
    }

    fn with(spec: &Spec, demand: Demand, lasts: Lasts) -> Pool {
        let spec = Arc::new(spec.clone());
        Pool {
            spec,
            lasts,
            demand,
            ready: VecDeque::new(),
            opening: 0,
            share: 0,
            lacks_since: None,
            setback: None,
            taken: 0,
            missed: 0,
        }
    }

    pub(super) fn lasts(&self) -> Lasts {
        self.lasts
    }

    /// The oldest that stands; those before it go to `fallen`.
    pub(super) fn take(&mut self, fallen: &mut Vec<Box<dyn Sandbox>>) -> Option<Box<dyn Sandbox>> {
        while let Some(Prepared { sandbox, .. }) = self.ready.pop_front() {
            if sandbox.is_alive() {
                return Some(sandbox);
            }
            fallen.push(sandbox);
        }
        None
    }

    /// Whether it may well be asked for again. An environment of its own is mostly asked for once, and may be a secret:
    /// nothing waits with it for nobody.
    pub(super) fn is_worthwhile(&self) -> bool {
        self.spec.env.is_empty() || self.demand.times() > 1
    }

    /// How many it should have by what was asked of it.
    pub(super) fn wants(&self, now: Instant) -> usize {
        match self.lasts {
            Lasts::WhileAskedFor if !self.is_worthwhile() || !self.demand.lingers(now) => 0,
            Lasts::Always | Lasts::WhileAskedFor => self.demand.peak(now).max(1),
        }
    }

    /// Takes out what fell, is too old, or is more than its share.
    pub(super) fn trim(&mut self, now: Instant, out: &mut Vec<Box<dyn Sandbox>>) {
        let waited = |prepared: &Prepared| now.saturating_duration_since(prepared.since);
        let is_good = |prepared: &Prepared| prepared.sandbox.is_alive() && waited(prepared) < AGE_MAX;
        if !self.ready.iter().all(is_good) {
            let (good, bad) = self.ready.drain(..).partition(is_good);
            self.ready = good;
            out.extend(VecDeque::into_iter(bad).map(|prepared| prepared.sandbox));
        }
        let surplus = self.ready.len().saturating_sub(self.share);
        out.extend(self.ready.drain(..surplus).map(|prepared| prepared.sandbox));
        match self.ready.len() + self.opening < self.share {
            true => self.lacks_since = self.lacks_since.or(Some(now)),
            false => self.lacks_since = None,
        }
    }

    /// Whether it is of no more use.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_empty = self.ready.is_empty() && self.opening == 0;
        self.lasts == Lasts::WhileAskedFor && is_empty && !self.demand.lingers(now)
    }

    pub(super) fn urgency(&self, now: Instant) -> Urgency {
        let Some(since) = self.lacks_since else { return Urgency::None };
        match self.setback {
            Some(setback) if setback.until > now => return Urgency::NotBefore(setback.until),
            _ => {}
        }
        Urgency::WhenQuiet(since + PATIENCE)
    }

    pub(super) fn begins(&mut self) {
        self.opening += 1;
        if self.ready.len() + self.opening >= self.share {
            self.lacks_since = None;
        }
    }

    /// Puts one in. How many times opening had failed before.
    pub(super) fn succeeds(&mut self, sandbox: Box<dyn Sandbox>, now: Instant) -> u32 {
        self.ready.push_back(Prepared { sandbox, since: now });
        self.setback.take().map_or(0, |setback| setback.failures)
    }

    /// Puts further openings off. How many times it has failed in a row.
    pub(super) fn fails(&mut self, now: Instant) -> u32 {
        let failures = self.setback.map_or(0, |setback| setback.failures).saturating_add(1);
        let wait = SETBACK.saturating_mul(1 << (failures - 1).min(16)).min(SETBACK_MAX);
        self.setback = Some(Setback { failures, until: now + wait });
        failures
    }
}
