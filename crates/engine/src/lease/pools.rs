//! All prepared sandboxes. Here they are handed out; who prepares them is the [`keeper`](super::keeper).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::{BackendError, Sandbox, Spec};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::Budget;
use super::pool::{Lasts, Pool, Urgency};
use crate::PoolInfo;
use crate::teardown::Teardowns;

/// Specs that are kept in mind. Past it the one goes that was asked for longest ago, of those that are worth the least.
const POOLS_MAX: usize = 16;

/// What the standing pool begins with: one for the first call, and one for another right behind it.
const FIRST: u16 = 2;

#[derive(Debug)]
pub(super) struct Pools {
    /// So few that comparing is quicker than hashing, and in an order that stays.
    table: Mutex<Vec<Pool>>,
    budget: Budget,
    teardowns: Arc<Teardowns>,
    /// Throw-away runs under way.
    runs: AtomicUsize,
    /// Something was taken, or came to its end.
    pub(super) wake: Notify,
}

/// What the keeper is to do next.
#[derive(Debug)]
pub(super) enum Next {
    Open(Opening),
    /// Nothing before this; `None` when nothing is lacking.
    Wait(Option<Instant>),
}

impl Pools {
    /// With a pool that is always there, if `standing` says for what.
    pub(super) fn new(standing: Option<&Spec>, budget: Budget, teardowns: Arc<Teardowns>) -> Arc<Pools> {
        let pools = standing.map(|spec| Pool::standing(spec, FIRST, Instant::now()));
        let table = Mutex::new(pools.into_iter().collect());
        Arc::new(Pools { table, budget, teardowns, runs: AtomicUsize::new(0), wake: Notify::new() })
    }

    fn table(&self) -> MutexGuard<'_, Vec<Pool>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out a sandbox of exactly this spec, if one stands ready; where no kernel is asked for, one with any.
    pub(super) fn take(&self, spec: &Spec) -> Option<Box<dyn Sandbox>> {
        let now = Instant::now();
        let mut out = Vec::new();
        let mut table = self.table();
        let asked = match table.iter().position(|pool| *pool.spec == *spec) {
            Some(asked) => asked,
            None => add(&mut table, spec, now, &mut out),
        };
        table[asked].demand.asked(now);
        let mut taken = table[asked].take(&mut out);
        while taken.is_none() && spec.waiting.is_none() {
            let others = table.iter_mut().filter(|pool| !pool.ready.is_empty() && differ_in_kernel(&pool.spec, spec));
            let Some(fullest) = others.max_by_key(|pool| pool.ready.len()) else { break };
            taken = fullest.take(&mut out);
        }
        match taken {
            Some(_) => table[asked].taken += 1,
            None => table[asked].missed += 1,
        }
        drop(table);
        self.close(out);
        self.wake.notify_one();
        taken
    }

    /// Tells that a throw-away run is under way, until dropped.
    pub(super) fn run(self: &Arc<Self>) -> UnderWay {
        self.runs.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// Shares the budget out anew and closes what has become too much; with no memory to spare, all of it.
    pub(super) fn tidy(&self, now: Instant, is_short: bool) {
        let mut out = Vec::new();
        let mut table = self.table();
        let wants: Vec<_> =
            table.iter().map(|pool| (if is_short { 0 } else { pool.wants(now) }, pool.spec.waiting)).collect();
        for (pool, share) in table.iter_mut().zip(self.budget.share(&wants)) {
            pool.share = share;
            pool.trim(now, &mut out);
        }
        table.retain(|pool| !pool.is_over(now));
        drop(table);
        self.close(out);
    }

    /// What is lacking most, if it is time to open it. After [`Pools::tidy`].
    pub(super) fn next(self: &Arc<Self>, now: Instant) -> Next {
        let is_quiet = self.runs.load(Ordering::Relaxed) == 0;
        let mut table = self.table();
        let mut first: Option<&mut Pool> = None;
        let mut later: Option<Instant> = None;
        for pool in table.iter_mut() {
            let until = match pool.urgency(now) {
                Urgency::None => continue,
                Urgency::WhenQuiet(until) if !is_quiet && now < until => until,
                Urgency::NotBefore(until) => until,
                Urgency::WhenQuiet(_) => {
                    let there = |pool: &Pool| pool.ready.len() + pool.opening;
                    if first.as_ref().is_none_or(|first| there(pool) < there(first)) {
                        first = Some(pool);
                    }
                    continue;
                }
            };
            later = Some(later.map_or(until, |later| later.min(until)));
        }
        match first {
            Some(pool) => {
                pool.begins();
                Next::Open(Opening { pools: self.clone(), spec: pool.spec.clone(), ended: None })
            }
            None => Next::Wait(later),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().is_empty()
    }

    /// Closes all. Nothing may be opening any more.
    pub(super) fn close_all(&self) {
        let all = std::mem::take(&mut *self.table());
        self.close(all.into_iter().flat_map(sandboxes_of).collect());
    }

    fn close(&self, sandboxes: Vec<Box<dyn Sandbox>>) {
        for sandbox in sandboxes {
            self.teardowns.begin(std::future::ready(Some((sandbox, ()))));
        }
    }

    pub(super) fn infos(&self) -> Vec<PoolInfo> {
        let info = |pool: &Pool| PoolInfo {
            waiting: pool.spec.waiting,
            ready: pool.ready.len(),
            wanted: pool.share,
            taken: pool.taken,
            missed: pool.missed,
        };
        self.table().iter().map(info).collect()
    }
}

/// A pool for a spec that has none; where it is.
fn add(table: &mut Vec<Pool>, spec: &Spec, now: Instant, out: &mut Vec<Box<dyn Sandbox>>) -> usize {
    if table.len() >= POOLS_MAX {
        let may_go = table.iter().enumerate().filter(|(_, pool)| pool.lasts() == Lasts::WhileAskedFor);
        if let Some((oldest, _)) = may_go.min_by_key(|(_, pool)| (pool.is_worthwhile(), pool.demand.last())) {
            out.extend(sandboxes_of(table.remove(oldest)));
        }
    }
    table.push(Pool::new(spec, now));
    table.len() - 1
}

fn sandboxes_of(pool: Pool) -> impl Iterator<Item = Box<dyn Sandbox>> {
    pool.ready.into_iter().map(|prepared| prepared.sandbox)
}

/// Whether the two are the same place, but for the kernel that waits in it. Every field is named, so that a new one is
/// not forgotten here.
fn differ_in_kernel(one: &Spec, other: &Spec) -> bool {
    let Spec { limits, network, env, ground, layers, owner, build, waiting } = one;
    *waiting != other.waiting
        && *limits == other.limits
        && *network == other.network
        && *env == other.env
        && *ground == other.ground
        && *layers == other.layers
        && *owner == other.owner
        && *build == other.build
}

/// One throw-away run. Its end is a good time to prepare the next sandbox.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Pools>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::Relaxed);
        self.0.wake.notify_one();
    }
}

/// A sandbox on its way into its pool. Dropped before it has ended, by a panic, it has failed.
#[derive(Debug)]
pub(super) struct Opening {
    pools: Arc<Pools>,
    pub(super) spec: Arc<Spec>,
    ended: Option<Result<Box<dyn Sandbox>, BackendError>>,
}

impl Opening {
    pub(super) fn ends(mut self, opened: Result<Box<dyn Sandbox>, BackendError>) {
        self.ended = Some(opened);
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let now = Instant::now();
        let (sandbox, error) = match self.ended.take() {
            Some(Ok(sandbox)) => (Some(sandbox), None),
            Some(Err(error)) => (None, Some(error)),
            None => (None, None),
        };
        let mut table = self.pools.table();
        let Some(pool) = table.iter_mut().find(|pool| Arc::ptr_eq(&pool.spec, &self.spec)) else {
            drop(table);
            return self.pools.close(sandbox.into_iter().collect());
        };
        pool.opening -= 1;
        let (succeeded, failures) = match sandbox {
            Some(sandbox) => (true, pool.succeeds(sandbox, now)),
            None => (false, pool.fails(now)),
        };
        let (ready, wanted) = (pool.ready.len(), pool.share);
        drop(table);
        // One word for each row of failures, which may last as long as the server.
        let language = self.spec.waiting;
        match (succeeded, failures) {
            (true, 0) => tracing::debug!(?language, ready, wanted, "a sandbox was prepared"),
            (true, _) => tracing::info!(?language, "sandboxes can be prepared again"),
            (false, 1) => {
                tracing::warn!(?language, ?error, "no sandbox could be prepared; each is opened when asked for")
            }
            (false, _) => tracing::debug!(?language, ?error, failures, "no sandbox could be prepared"),
        }
    }
}
