//! Occasions as the server holds them: for a request that is open, and for a job that goes on after it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_gateway::approval::{Approvals, Verdict};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::PATIENCE;
use super::form::Decision;
use super::state::{CallDigest, States};

/// Jobs whose owners can still be asked, of one owner and of all.
const OWN_JOBS_MAX: usize = 64;
const JOBS_MAX: usize = 512;
/// Programs that are always approved.
const PROGRAMS_MAX: usize = 1024;

/// An occasion, open for as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(super) approvals: Approvals,
    pub(super) owner: String,
    pub(super) occasion: u64,
    /// Whoever asks has it, so that nobody is asked the same twice at once.
    pub(super) floor: Arc<tokio::sync::Mutex<()>>,
    /// Ends with it.
    pub(super) gone: CancellationToken,
    _gone: DropGuard,
    _clock: AbortOnDropHandle<()>,
}

impl Held {
    pub(super) fn open(approvals: &Approvals, owner: &str) -> Arc<Held> {
        let occasion = approvals.open(owner);
        let gone = CancellationToken::new();
        let clock = tokio::spawn(deny_in_time(approvals.clone(), owner.to_owned(), occasion));
        Arc::new(Held {
            approvals: approvals.clone(),
            owner: owner.to_owned(),
            occasion,
            floor: Arc::default(),
            _gone: gone.clone().drop_guard(),
            gone,
            _clock: AbortOnDropHandle::new(clock),
        })
    }

    pub(super) fn decide(&self, decision: &Decision) {
        decide(&self.approvals, &self.owner, self.occasion, decision);
    }

    /// Nobody can be asked any more, whoever still holds it.
    pub(super) fn close(&self) {
        self.approvals.close(self.occasion);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn decide(approvals: &Approvals, owner: &str, occasion: u64, decision: &Decision) {
    approvals.decide(owner, occasion, &decision.ids, decision.verdict);
    approvals.decide(owner, occasion, &decision.denied, Verdict::Deny);
}

/// Denies what has waited for too long. Nobody is there then, so that the next call does not wait as long again.
async fn deny_in_time(approvals: Approvals, owner: String, occasion: u64) {
    while let Some(first) = approvals.wanted(occasion).await {
        tokio::time::sleep(PATIENCE).await;
        let waiting = approvals.waiting(occasion);
        if waiting.iter().any(|now| first.iter().any(|then| then.id == now.id)) {
            tracing::info!(owner, "nobody decided on a call in time; it is denied");
            let ids: Vec<u64> = waiting.iter().map(|pending| pending.id).collect();
            approvals.decide(&owner, occasion, &ids, Verdict::Deny);
            approvals.close(occasion);
            return;
        }
    }
}

/// What is asked and was decided, for all connections.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) states: States,
    jobs: Mutex<VecDeque<Parked>>,
    programs: Mutex<VecDeque<CallDigest>>,
}

#[derive(Debug)]
struct Parked {
    owner: String,
    job: String,
    held: Arc<Held>,
}

impl Desk {
    fn jobs(&self) -> MutexGuard<'_, VecDeque<Parked>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps an occasion open for a job.
    pub(super) fn park(&self, job: &str, held: Arc<Held>) {
        let mut jobs = self.jobs();
        if jobs.iter().any(|parked| parked.job == job && parked.owner == held.owner) {
            return;
        }
        if jobs.iter().filter(|parked| parked.owner == held.owner).count() >= OWN_JOBS_MAX
            && let Some(oldest) = jobs.iter().position(|parked| parked.owner == held.owner)
        {
            jobs.remove(oldest);
        }
        if jobs.len() >= JOBS_MAX {
            jobs.pop_front();
        }
        jobs.push_back(Parked { owner: held.owner.clone(), job: job.to_owned(), held });
    }

    pub(super) fn parked(&self, owner: &str, job: &str) -> Option<Arc<Held>> {
        let jobs = self.jobs();
        let found = jobs.iter().find(|parked| parked.job == job && parked.owner == owner);
        found.map(|parked| parked.held.clone())
    }

    /// The job has ended.
    pub(super) fn unpark(&self, owner: &str, job: &str) {
        self.jobs().retain(|parked| parked.job != job || parked.owner != owner);
    }

    fn programs(&self) -> MutexGuard<'_, VecDeque<CallDigest>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Approves a program for as long as the server runs, or until many others were.
    pub(super) fn remember(&self, program: CallDigest) {
        let mut programs = self.programs();
        if programs.len() >= PROGRAMS_MAX {
            programs.pop_front();
        }
        programs.push_back(program);
    }

    pub(super) fn remembers(&self, program: &CallDigest) -> bool {
        self.programs().contains(program)
    }
}
