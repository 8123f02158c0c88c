//! What a sandbox moves over the network, charged to its owner.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::Sandbox;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::quota::Books;
use crate::sandboxes::InUse;
use crate::shared::Shared;
use crate::{EngineError, Principal};

/// How often a look is taken while a program runs. What goes through in between is past the quota at most.
const LOOKED_EVERY: Duration = Duration::from_secs(2);

/// What still comes through this long after a program's end may be its own.
const SETTLES_IN: Duration = Duration::from_secs(1);

/// How much of a sandbox's traffic was charged already.
#[derive(Debug, Default)]
pub(crate) struct Toll(AtomicU64);

impl Toll {
    /// What came since the last call, for whoever calls first.
    pub(crate) fn rest(&self, moved: u64) -> u64 {
        moved.saturating_sub(self.0.fetch_max(moved, Ordering::Relaxed))
    }
}

/// One run's look at the traffic of its sandbox.
#[derive(Debug)]
pub(crate) struct Traffic<'a> {
    sandbox: &'a dyn Sandbox,
    toll: &'a Toll,
    /// What had gone through before.
    before: u64,
    books: &'a Books,
    who: &'a Principal,
    /// Why the run was stopped, if it was for this.
    pub(crate) stopped: OnceLock<EngineError>,
}

impl<'a> Traffic<'a> {
    pub(crate) fn new(sandbox: &'a dyn Sandbox, toll: &'a Toll, books: &'a Books, who: &'a Principal) -> Traffic<'a> {
        Traffic { before: sandbox.moved_bytes(), sandbox, toll, books, who, stopped: OnceLock::new() }
    }

    /// Of whatever program it was: a sandbox has one network for all.
    pub(crate) fn since_it_began(&self) -> u64 {
        self.sandbox.moved_bytes().saturating_sub(self.before)
    }

    pub(crate) fn charge(&self) {
        self.books.charge_egress(self.who, self.toll.rest(self.sandbox.moved_bytes()));
    }

    /// Charges what goes through, and cancels the run when that is too much. Never returns.
    pub(crate) async fn watch(&self, cancel: &CancellationToken) -> std::convert::Infallible {
        let mut look = tokio::time::interval(LOOKED_EVERY);
        loop {
            look.tick().await;
            let moves = self.sandbox.moved_bytes() > 0;
            self.charge();
            // A sandbox that moves nothing is none of those who use it up.
            if let Err(over) = self.books.may_move(self.who)
                && moves
            {
                let _ = self.stopped.set(over);
                cancel.cancel();
                return std::future::pending().await;
            }
        }
    }
}

/// Looks at a created sandbox for as long as it stands. What a program left running there may move as well, and where that
/// passes its owner's quota while no program is there that could be stopped for it, only closing it makes an end of that. Never
/// returns.
pub(crate) async fn watch_created(used: &InUse, shared: &Shared) -> std::convert::Infallible {
    let (named, books) = (&used.named, &shared.books);
    if !named.has_network {
        return std::future::pending().await;
    }
    let mut look = tokio::time::interval(LOOKED_EVERY);
    let (mut before, mut looked) = (0, Instant::now());
    loop {
        look.tick().await;
        let moved = used.sandbox().moved_bytes();
        books.charge_egress(&named.owner, named.toll.rest(moved));
        // Of what a program moved before its end, nothing goes on: its own end made an end of it, and its files stay.
        let went_on = named.calm_since().is_some_and(|calm| calm + SETTLES_IN <= looked);
        if went_on && moved > before && books.may_move(&named.owner).is_err() {
            tracing::warn!(sandbox = %named.id, owner = named.owner.as_str(), "a sandbox moved more than its owner may");
            shared.sandboxes.close_spent(named);
        }
        (before, looked) = (moved, Instant::now());
    }
}
