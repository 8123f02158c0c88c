//! Whose turn it is: so many programs at once in all, so many in one sandbox, and a bounded number waiting.
//!
//! ```text
//! ann   ▢▢▢▢▢▢▢▢▢▢▢┐
//! bob   ▢──────────┼─▶ one of each in turn ──▶ turns that are free
//! carol ▢▢▢────────┘
//! ```
//!
//! Each principal has a lane of its own, first come first served, and the lanes are served round robin: who sends five
//! hundred programs waits behind his own. A few turns are kept for principals that have none, so that long programs of
//! one do not shut all others out either (docs/decisions/0019).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::quota::{Bound, Over};
use crate::{EngineError, Phase, Principal};

/// How often those who wait are told how many are before them.
const TOLD_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(crate) struct Admission(Arc<Mutex<Line>>);

#[derive(Debug)]
struct Line {
    runs_max: usize,
    /// Turns past those, for principals that have none.
    spare: usize,
    queue_max: usize,
    taken: usize,
    /// For a turn, or for a seat in their sandbox.
    waiting: usize,
    /// Of those who have or wait for something.
    lanes: HashMap<Principal, Lane>,
    /// Whose lane somebody waits in, the next first.
    order: VecDeque<Principal>,
    tickets: u64,
}

#[derive(Debug, Default)]
struct Lane {
    /// As its quota says, the last time that it came.
    runs_max: Option<usize>,
    turns: usize,
    /// Programs that have no turn any more and still run.
    jobs: usize,
    waiting: usize,
    queue: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    chosen: oneshot::Sender<Held>,
}

/// The right to run one program, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    held: Held,
    seat: Option<OwnedSemaphorePermit>,
}

impl Turn {
    /// The program goes on as a job: others may have its turn and its seat, and it still counts as its owner's.
    pub(crate) fn leave_to_others(&mut self) {
        self.seat = None;
        if !std::mem::replace(&mut self.held.is_job, true) {
            let mut line = self.held.admission.line();
            line.taken -= 1;
            if let Some(lane) = line.lanes.get_mut(&self.held.who) {
                lane.turns -= 1;
                lane.jobs += 1;
            }
            self.held.admission.choose(line);
        }
    }
}

#[derive(Debug)]
struct Held {
    admission: Admission,
    who: Principal,
    is_job: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut line = self.admission.line();
        if !self.is_job {
            line.taken -= 1;
        }
        if let Some(lane) = line.lanes.get_mut(&self.who) {
            *(if self.is_job { &mut lane.jobs } else { &mut lane.turns }) -= 1;
        }
        line.forget_if_empty(&self.who);
        self.admission.choose(line);
    }
}

/// How many programs may run in one place; at least one, or nothing ever would.
pub(crate) fn seats(max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS)))
}

impl Admission {
    pub(crate) fn new(runs_max: usize, queue_max: usize) -> Admission {
        let runs_max = runs_max.max(1);
        Admission(Arc::new(Mutex::new(Line {
            runs_max,
            spare: (runs_max / 4).max(1),
            queue_max,
            taken: 0,
            waiting: 0,
            lanes: HashMap::new(),
            order: VecDeque::new(),
            tickets: 0,
        })))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses whom his jobs leave no room for: waiting for those could take hours.
    pub(crate) fn check(&self, who: &Principal, runs_max: Option<u32>) -> Result<(), EngineError> {
        self.line().check(who, runs_max)
    }

    /// Waits for a turn, in `place` too if one is given, and tells `phase` how long the wait is. The seat in the place
    /// comes first: waiting for it must not keep others from running elsewhere.
    pub(crate) async fn turn(
        &self,
        who: &Principal,
        runs_max: Option<u32>,
        place: Option<&Arc<Semaphore>>,
        phase: &Phase,
    ) -> Result<Turn, EngineError> {
        let seat = place.map(|place| place.clone().try_acquire_owned());
        // Neither of these overtakes: a seat that is given back goes to the first that waits, if any does.
        if let Some(held) = self.at_once(who, runs_max, !matches!(seat, Some(Err(_))))? {
            return Ok(Turn { held, seat: seat.and_then(Result::ok) });
        }
        let mut waiting = Waiting { admission: self, who, ticket: None };
        let seat = match (place, seat) {
            (Some(place), Some(Err(_))) => {
                phase.is("waiting for its sandbox");
                // Nobody closes these semaphores, so that acquiring fails only if the engine is gone.
                Some(place.clone().acquire_owned().await.map_err(|_| EngineError::ShuttingDown)?)
            }
            (_, seat) => seat.and_then(Result::ok),
        };
        let held = waiting.until_chosen(phase).await?;
        phase.is("");
        Ok(Turn { held, seat })
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.line().waiting
    }

    /// A turn for one who has a seat, if there is one; else a place in the queue is taken.
    fn at_once(&self, who: &Principal, runs_max: Option<u32>, is_seated: bool) -> Result<Option<Held>, EngineError> {
        let mut line = self.line();
        line.check(who, runs_max)?;
        if is_seated && line.take(who, runs_max) {
            return Ok(Some(self.held(who)));
        }
        line.join(who, runs_max)?;
        Ok(None)
    }

    fn held(&self, who: &Principal) -> Held {
        Held { admission: self.clone(), who: who.clone(), is_job: false }
    }

    /// Gives out the turns that are free.
    fn choose(&self, mut line: MutexGuard<'_, Line>) {
        let mut chosen = Vec::new();
        while let Some(next) = line.next() {
            chosen.push(next);
        }
        // Not under the lock: one who has just left drops his turn, which takes it.
        drop(line);
        for (who, waiter) in chosen {
            let _ = waiter.send(self.held(&who));
        }
    }
}

impl Line {
    fn check(&self, who: &Principal, runs_max: Option<u32>) -> Result<(), EngineError> {
        let jobs = self.lanes.get(who).map_or(0, |lane| lane.jobs);
        match runs_max {
            Some(max) if jobs >= max as usize => {
                Err(EngineError::OverQuota(Over { bound: Bound::Runs, limit: max.into(), frees: None }))
            }
            _ => Ok(()),
        }
    }

    fn lane(&mut self, who: &Principal, runs_max: Option<u32>) -> &mut Lane {
        let lane = self.lanes.entry(who.clone()).or_default();
        lane.runs_max = runs_max.map(|max| max as usize);
        lane
    }

    fn may_begin(&self, lane: &Lane) -> bool {
        let is_free = self.taken < self.runs_max || (lane.turns == 0 && self.taken < self.runs_max + self.spare);
        is_free && lane.runs_max.is_none_or(|max| lane.turns + lane.jobs < max)
    }

    /// A turn at once. Nobody is overtaken: those who wait while one is free wait for something of their own.
    fn take(&mut self, who: &Principal, runs_max: Option<u32>) -> bool {
        self.lane(who, runs_max);
        let may = self.lanes.get(who).is_some_and(|lane| lane.queue.is_empty() && self.may_begin(lane));
        if may {
            self.taken += 1;
            self.lane(who, runs_max).turns += 1;
        } else {
            self.forget_if_empty(who);
        }
        may
    }

    /// A place in the queue; of one principal's only so many, so that there are some for others.
    fn join(&mut self, who: &Principal, runs_max: Option<u32>) -> Result<(), EngineError> {
        let own = self.lanes.get(who).map_or(0, |lane| lane.waiting);
        if self.waiting >= self.queue_max || own >= self.queue_max.div_ceil(2) {
            return Err(EngineError::Busy);
        }
        self.waiting += 1;
        self.lane(who, runs_max).waiting += 1;
        Ok(())
    }

    fn next(&mut self) -> Option<(Principal, oneshot::Sender<Held>)> {
        let may = |who: &Principal| self.lanes.get(who).is_some_and(|lane| self.may_begin(lane));
        let at = self.order.iter().position(may)?;
        let who = self.order.remove(at)?;
        let lane = self.lanes.get_mut(&who)?;
        let waiter = lane.queue.pop_front()?;
        lane.turns += 1;
        self.taken += 1;
        if !lane.queue.is_empty() {
            self.order.push_back(who.clone());
        }
        Some((who, waiter.chosen))
    }

    /// How many come before one who waits, if nobody else comes. Those who are kept by their own quota count their own only.
    fn before(&self, who: &Principal, ticket: u64) -> usize {
        let Some(lane) = self.lanes.get(who) else { return 0 };
        let own = lane.queue.partition_point(|waiter| waiter.ticket < ticket);
        if lane.runs_max.is_some_and(|max| lane.turns + lane.jobs >= max) {
            return own;
        }
        let mut passed = false;
        let others = self.order.iter().map(|other| {
            if other == who {
                passed = true;
                return own;
            }
            let rounds = if passed { own } else { own + 1 };
            self.lanes.get(other).map_or(0, |lane| lane.queue.len().min(rounds))
        });
        others.sum()
    }

    fn forget_if_empty(&mut self, who: &Principal) {
        if self.lanes.get(who).is_some_and(|lane| lane.turns + lane.jobs + lane.waiting == 0) {
            self.lanes.remove(who);
        }
    }
}

/// One who waits. Dropped, it is out of the queue.
struct Waiting<'a> {
    admission: &'a Admission,
    who: &'a Principal,
    ticket: Option<u64>,
}

impl Waiting<'_> {
    async fn until_chosen(&mut self, phase: &Phase) -> Result<Held, EngineError> {
        let (chosen, mut is_chosen) = oneshot::channel();
        let ticket = {
            let mut line = self.admission.line();
            let ticket = line.tickets;
            line.tickets += 1;
            let Some(lane) = line.lanes.get_mut(self.who) else { return Err(EngineError::ShuttingDown) };
            lane.queue.push_back(Waiter { ticket, chosen });
            if lane.queue.len() == 1 {
                line.order.push_back(self.who.clone());
            }
            // One may have become free while it waited for its seat.
            self.admission.choose(line);
            ticket
        };
        self.ticket = Some(ticket);
        let mut tell = tokio::time::interval(TOLD_EVERY);
        loop {
            tokio::select! {
                biased;
                held = &mut is_chosen => return held.map_err(|_| EngineError::ShuttingDown),
                _ = tell.tick() => {
                    let before = self.admission.line().before(self.who, ticket);
                    phase.is(&format!("waiting for a turn: {before} before it"));
                }
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut line = self.admission.line();
        line.waiting -= 1;
        if let Some(lane) = line.lanes.get_mut(self.who) {
            lane.waiting -= 1;
            let at =
                self.ticket.and_then(|ticket| lane.queue.binary_search_by_key(&ticket, |waiter| waiter.ticket).ok());
            if let Some(at) = at {
                lane.queue.remove(at);
                if lane.queue.is_empty() {
                    line.order.retain(|other| other != self.who);
                }
            }
        }
        line.forget_if_empty(self.who);
    }
}

#[cfg(test)]
mod tests;
