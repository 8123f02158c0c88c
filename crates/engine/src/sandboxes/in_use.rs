//! A hold on a standing sandbox, for as long as somebody does something with it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_core::{Sandbox, State};
use tokio::sync::OwnedRwLockReadGuard;
use tokio::time::Instant;

use super::{Named, Place, Sandboxes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Sound,
    /// Something may be alive in it that nobody watches, or the place may be gone.
    Doubtful,
}

/// A hold on a standing sandbox. It is not idle meanwhile, and what is in doubt when the hold ends is closed.
#[derive(Debug)]
pub(crate) struct InUse {
    sandboxes: Arc<Sandboxes>,
    pub(crate) named: Arc<Named>,
    place: OwnedRwLockReadGuard<Option<Place>, Place>,
    trust: Trust,
    counts: Counts,
    purpose: Purpose,
}

/// What a hold is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Its files, or what is asked in it.
    Look,
    Run,
}

/// Whether a hold is a use of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Yes,
    No,
}

impl InUse {
    /// Of one that counts as used from here on; its caller holds the table.
    pub(super) fn new(
        sandboxes: Arc<Sandboxes>,
        named: Arc<Named>,
        place: OwnedRwLockReadGuard<Option<Place>, Place>,
    ) -> InUse {
        named.activity().users += 1;
        InUse { sandboxes, named, place, trust: Trust::Sound, counts: Counts::Yes, purpose: Purpose::Look }
    }

    pub(crate) fn sandbox(&self) -> &dyn Sandbox {
        &*self.place.sandbox
    }

    /// A program is to be run by it, now or when it has its turn.
    pub(crate) fn is_for_run(&mut self) {
        if std::mem::replace(&mut self.purpose, Purpose::Run) == Purpose::Look {
            self.named.activity().runs += 1;
        }
    }

    /// Counts a program that is about to start, and says what it will find.
    pub(crate) fn count_run(&self) -> State {
        match self.named.runs.fetch_add(1, Ordering::Relaxed) {
            0 => State::Fresh,
            _ => State::Preserved,
        }
    }

    /// It did not start after all.
    pub(crate) fn uncount_run(&self) {
        self.named.runs.fetch_sub(1, Ordering::Relaxed);
    }

    /// When the sandbox goes if nothing uses it from now on.
    pub(crate) fn expires_in(&self) -> Duration {
        let now = Instant::now();
        self.named.ends(now, self.sandboxes.age_max()).saturating_duration_since(now)
    }

    /// From here on the hold keeps it from closing in disorder, but not from being idle.
    pub(crate) fn rest(&mut self) {
        if std::mem::replace(&mut self.counts, Counts::No) == Counts::Yes {
            let mut activity = self.named.activity();
            activity.users -= 1;
            activity.last = Instant::now();
        }
    }

    /// The place went down. A program under way there hears of it as well, and has more to tell: then its end closes it.
    pub(crate) fn fell(&mut self) {
        if self.named.calm_since().is_some() {
            self.doubt();
        }
    }

    pub(crate) fn doubt(&mut self) {
        self.trust = Trust::Doubtful;
    }

    pub(crate) fn trust(&mut self) {
        self.trust = Trust::Sound;
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let is_run = self.purpose == Purpose::Run;
        // A program that never began has no word on the place, and may have been the only one there when it fell.
        if self.trust == Trust::Doubtful || (is_run && !self.sandbox().is_alive()) {
            self.sandboxes.close_if_standing(&self.named);
        }
        self.rest();
        if is_run {
            let mut activity = self.named.activity();
            activity.runs -= 1;
            activity.calm_since = Instant::now();
        }
    }
}
