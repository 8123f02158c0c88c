//! Runs that nobody waits for: those in the background, and those whose caller hung up and may come back.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::departure::Departure;
use crate::flight::{Ended, Flight};
use crate::{EngineError, JobView, Principal, RunRequest};

/// Jobs of one principal that may run at once.
const RUNNING_MAX: usize = 32;

/// Jobs of one principal that are known, ended ones included, and the memory that ended ones may take; of those the oldest
/// are forgotten first.
const KNOWN_MAX: usize = 128;
const ENDED_BYTES_MAX: usize = 24 * 1024 * 1024;

/// The same of all principals together: many who come once would else have all of the host's memory.
const ENDED_OF_ALL_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long an ended job is known at most. A task has to be there for ten minutes.
const ENDED_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// How often those that are too old are looked for.
const FORGOTTEN_EVERY: Duration = Duration::from_secs(60);

/// How long a run goes on for a caller that hung up.
const ORPHAN_GRACE: Duration = Duration::from_secs(3);

/// How long the answer of a run is kept for a caller that hung up.
const ORPHAN_ANSWER: Duration = Duration::from_secs(20);

/// How long the news of a hang-up may take. So long a request waits that is equal to one in flight.
const HANGUP_SHOWS: Duration = Duration::from_millis(250);

/// A request that is equal to one which began less than this before is no second try of it: nobody gives up so soon, but many
/// may run the same at once.
const RESENT_AFTER: Duration = Duration::from_millis(200);

const ORPHANS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Oldest first.
    known: Mutex<Vec<Arc<Flight>>>,
    orphans: Mutex<Vec<Arc<Flight>>>,
    /// Those whose callers wait for them.
    attended: Mutex<Vec<Arc<Flight>>>,
}

impl Jobs {
    fn known(&self) -> MutexGuard<'_, Vec<Arc<Flight>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn orphans(&self) -> MutexGuard<'_, Vec<Arc<Flight>>> {
        self.orphans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a job of a run; `Err` when its owner has too many. `slot` is the room that its own sandbox takes.
    pub(crate) fn add(&self, flight: &Arc<Flight>, slot: Option<OwnedSemaphorePermit>) -> Result<(), EngineError> {
        let mut known = self.known();
        let running = |other: &&Arc<Flight>| other.owner == flight.owner && other.outcome().is_none();
        if known.iter().filter(running).count() >= RUNNING_MAX {
            return Err(EngineError::TooManyJobs { max: RUNNING_MAX });
        }
        let is_own = |other: &Arc<Flight>| other.owner == flight.owner;
        if known.iter().filter(|other| is_own(other)).count() >= KNOWN_MAX
            && let Some(oldest) = known.iter().position(|other| is_own(other) && other.outcome().is_some())
        {
            known.remove(oldest);
        }
        flight.become_job(slot);
        known.push(flight.clone());
        Ok(())
    }

    /// Forgets those that ended long ago, and the oldest that ended where they take too much memory together: of their
    /// owner's, of whom the latest stays, and of all.
    pub(crate) fn forget(&self) {
        let mut known = self.known();
        let mut taken_of: HashMap<Principal, usize> = HashMap::new();
        let mut taken = 0;
        let is_kept = |flight: &Arc<Flight>| {
            let Some(Ended { at, bytes }) = flight.ended() else { return true };
            let own = taken_of.get(&flight.owner).copied();
            let fits = own.is_none_or(|own| own + bytes <= ENDED_BYTES_MAX) && taken + bytes <= ENDED_OF_ALL_BYTES_MAX;
            let kept = fits && at.elapsed() < ENDED_AGE_MAX;
            if kept {
                taken += bytes;
                taken_of.insert(flight.owner.clone(), own.unwrap_or_default() + bytes);
            }
            kept
        };
        let mut kept: Vec<Arc<Flight>> = known.drain(..).rev().filter(is_kept).collect();
        kept.reverse();
        *known = kept;
    }

    pub(crate) fn find(&self, who: &Principal, id: &str) -> Result<Arc<Flight>, EngineError> {
        let known = self.known();
        let found = known.iter().find(|flight| flight.id.as_str() == id && flight.owner == *who);
        found.cloned().ok_or(EngineError::UnknownJob)
    }

    pub(crate) fn list(&self, who: &Principal) -> Vec<Arc<Flight>> {
        self.known().iter().filter(|flight| flight.owner == *who).cloned().collect()
    }

    /// Keeps a run going for a caller that hung up; it is cancelled if nobody comes. `false` when there is no room.
    pub(crate) fn orphan(&self, flight: &Arc<Flight>) -> bool {
        let mut orphans = self.orphans();
        if orphans.len() >= ORPHANS_MAX {
            return false;
        }
        flight.was_left();
        orphans.push(flight.clone());
        true
    }

    /// Something else is done in a sandbox: what was answered there before is old now, and nobody gets it.
    pub(crate) fn outdate(&self, sandbox: &str) {
        let is_of = |flight: &Arc<Flight>| flight.sandbox.as_ref().is_some_and(|id| id.as_str() == sandbox);
        self.orphans().retain(|flight| !(is_of(flight) && flight.outcome().is_some()));
    }

    /// The run of the same request, if its caller hung up a moment ago.
    pub(crate) fn adopt(&self, who: &Principal, request: &RunRequest) -> Option<Arc<Flight>> {
        let mut orphans = self.orphans();
        let found = orphans.iter().position(|flight| flight.owner == *who && flight.request == *request)?;
        Some(orphans.remove(found))
    }

    /// The same, for a caller that may be quicker than the news of its own hanging up: as long as an equal request is
    /// waited for, it may be that one.
    pub(crate) async fn adopt_soon(&self, who: &Principal, request: &RunRequest) -> Option<Arc<Flight>> {
        const LOOKS: u32 = 25;
        for _ in 0..LOOKS {
            if let Some(flight) = self.adopt(who, request) {
                return Some(flight);
            }
            let is_equal = |flight: &Arc<Flight>| {
                flight.begun.elapsed() >= RESENT_AFTER && flight.owner == *who && flight.request == *request
            };
            if !self.attended().iter().any(is_equal) {
                // It may have been orphaned between the two looks.
                return self.adopt(who, request);
            }
            tokio::time::sleep(HANGUP_SHOWS / LOOKS).await;
        }
        self.adopt(who, request)
    }

    fn attended(&self) -> MutexGuard<'_, Vec<Arc<Flight>>> {
        self.attended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn attend(&self, flight: &Arc<Flight>) {
        self.attended().push(flight.clone());
    }

    pub(crate) fn leave(&self, flight: &Arc<Flight>) {
        let mut attended = self.attended();
        if let Some(at) = attended.iter().position(|known| Arc::ptr_eq(known, flight)) {
            attended.swap_remove(at);
        }
    }

    /// Everybody's that are known: those that are waited for, those that are not, and those that were left. Of the jobs,
    /// ended ones too. Oldest first.
    pub(crate) fn under_way(&self) -> Vec<Arc<Flight>> {
        let mut all: Vec<Arc<Flight>> = self.attended().clone();
        all.extend(self.orphans().iter().cloned());
        all.extend(self.known().iter().cloned());
        all.sort_by(|a, b| a.begun.cmp(&b.begun).then_with(|| a.id.as_str().cmp(b.id.as_str())));
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    fn is_orphan(&self, flight: &Arc<Flight>) -> bool {
        self.orphans().iter().any(|orphan| Arc::ptr_eq(orphan, flight))
    }

    /// Waits for an orphan's caller, and makes an end of it if none comes.
    pub(crate) async fn mourn(&self, flight: Arc<Flight>, departure: Departure, stop: CancellationToken) {
        let times = flight.times_left();
        for (patience, ends_it) in [(ORPHAN_GRACE, true), (ORPHAN_ANSWER, false)] {
            tokio::select! {
                () = stop.cancelled() => break,
                () = departure.is_cancelled() => break,
                () = tokio::time::sleep(patience) => {}
            }
            // Taken up again, and perhaps left again since: that is another's to wait for.
            if !self.is_orphan(&flight) || flight.times_left() != times {
                return;
            }
            if ends_it && flight.outcome().is_none() {
                break;
            }
        }
        let mut orphans = self.orphans();
        if let Some(at) = orphans.iter().position(|orphan| Arc::ptr_eq(orphan, &flight)) {
            orphans.remove(at);
            flight.cancel.cancel();
        }
    }
}

/// Forgets ended jobs as their time comes, until the engine ends.
pub(crate) async fn forget_old(jobs: Arc<Jobs>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FORGOTTEN_EVERY) => jobs.forget(),
        }
    }
}

/// A look at a job, from `offset` or from where the last look ended.
pub(crate) fn view(flight: &Flight, offset: Option<u64>) -> Result<JobView, EngineError> {
    // Before the output: what comes in between is then seen by the next look, and never lost.
    let ended = flight.outcome().transpose()?;
    let part = flight.output_since(offset.unwrap_or_else(|| flight.told()), ended.as_deref());
    // What is between its log and its run is told when it has arrived.
    if ended.is_some() || !flight.is_between() {
        flight.told_up_to(part.end);
    }
    Ok(JobView {
        id: flight.id.clone(),
        sandbox: flight.sandbox.clone(),
        ended,
        age: flight.begun.elapsed(),
        stdout: part.stdout,
        stderr: part.stderr,
        missed: part.missed,
        next_offset: part.end,
    })
}

/// A job without its output, of which nothing counts as told.
pub(crate) fn summary(flight: &Flight) -> JobView {
    JobView {
        id: flight.id.clone(),
        sandbox: flight.sandbox.clone(),
        ended: flight.outcome().and_then(Result::ok),
        age: flight.begun.elapsed(),
        stdout: Vec::new(),
        stderr: Vec::new(),
        missed: 0,
        next_offset: flight.told(),
    }
}

#[cfg(test)]
mod tests;
