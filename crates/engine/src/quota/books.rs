//! What each principal has and has used, as far as a quota may ask.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use super::window::Window;
use super::{Bound, Over, Quota};
use crate::{EngineError, Principal};

/// Far more principals than one server has within an hour. Past it new ones are refused.
const ACCOUNTS_MAX: usize = 16 * 1024;
const SWEEP_MIN: usize = 256;
const MIB: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Books {
    /// What holds for a principal that has no word of its own on it.
    everyone: RwLock<Quota>,
    accounts: Mutex<Accounts>,
    born: Instant,
}

#[derive(Debug, Default)]
struct Accounts {
    of: HashMap<Principal, Account>,
    /// So many are looked through for empty ones next.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Account {
    /// Its own word, as of the last time that it came: what it has may be older, and is to go by that too.
    own: Option<Arc<Quota>>,
    sandboxes: u32,
    memory_bytes: u64,
    cpu_ms: Window,
    /// Of programs under way, as far as it is charged only when they end.
    cpu_ahead_ms: u64,
    egress_bytes: Window,
}

impl Account {
    fn is_empty(&mut self, now: Duration) -> bool {
        let has_nothing = (self.sandboxes, self.memory_bytes, self.cpu_ahead_ms) == (0, 0, 0);
        has_nothing && self.cpu_ms.used(now) == 0 && self.egress_bytes.used(now) == 0
    }
}

impl Accounts {
    fn account(&mut self, who: &Principal, now: Duration) -> Result<&mut Account, EngineError> {
        if !self.of.contains_key(who) {
            if self.of.len() >= self.sweep_at.clamp(SWEEP_MIN, ACCOUNTS_MAX) {
                self.of.retain(|_, account| !account.is_empty(now));
                self.sweep_at = self.of.len() * 2;
            }
            if self.of.len() >= ACCOUNTS_MAX {
                tracing::warn!(max = ACCOUNTS_MAX, "too many principals at once");
                return Err(EngineError::Busy);
            }
        }
        let new = || Account { own: who.quota().cloned(), ..Account::default() };
        Ok(self.of.entry(who.clone()).or_insert_with(new))
    }
}

impl Books {
    pub(crate) fn new(everyone: Quota) -> Arc<Books> {
        Arc::new(Books { everyone: RwLock::new(everyone), accounts: Mutex::default(), born: Instant::now() })
    }

    /// From now on this holds for whoever has no word of its own.
    pub(crate) fn change(&self, everyone: Quota) {
        *self.everyone.write().unwrap_or_else(PoisonError::into_inner) = everyone;
    }

    /// It came, with what it may have by now.
    pub(crate) fn came(&self, who: &Principal) {
        if let Some(account) = self.accounts().of.get_mut(who) {
            account.own = who.quota().cloned();
        }
    }

    /// What holds for a principal.
    pub(crate) fn quota(&self, who: &Principal) -> Quota {
        let everyone = *self.everyone.read().unwrap_or_else(PoisonError::into_inner);
        let own = self.accounts().of.get(who).map_or_else(|| who.quota().cloned(), |account| account.own.clone());
        own.map_or(everyone, |own| own.over(&everyone))
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    /// Whether a program may be started, or go on: its hour has processor time left.
    pub(crate) fn may_run(&self, who: &Principal) -> Result<(), EngineError> {
        let Some(limit) = self.quota(who).cpu_seconds else { return Ok(()) };
        let (now, mut accounts) = (self.now(), self.accounts());
        let Account { cpu_ms, cpu_ahead_ms, .. } = accounts.account(who, now)?;
        within(cpu_ms, now, Bound::Cpu, limit, 1000)?;
        if cpu_ms.used(now).saturating_add(*cpu_ahead_ms) < limit.saturating_mul(1000) {
            return Ok(());
        }
        Err(EngineError::OverQuota(Over { bound: Bound::Cpu, limit, frees: None }))
    }

    /// For a program under way of which nobody can tell what it has used: what it could have counts, and is not charged yet.
    pub(crate) fn ahead(&self, who: &Principal) -> Ahead<'_> {
        Ahead { books: self, who: who.clone(), ms: AtomicU64::new(0) }
    }

    /// Whether its programs may move more over the network.
    pub(crate) fn may_move(&self, who: &Principal) -> Result<(), EngineError> {
        let Some(limit) = self.quota(who).egress_mb else { return Ok(()) };
        let (now, mut accounts) = (self.now(), self.accounts());
        within(&mut accounts.account(who, now)?.egress_bytes, now, Bound::Egress, limit, MIB)
    }

    pub(crate) fn charge_cpu(&self, who: &Principal, used: Duration) {
        if self.quota(who).cpu_seconds.is_some() {
            let milliseconds = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
            self.charge(who, |account, now| account.cpu_ms.add(now, milliseconds));
        }
    }

    pub(crate) fn charge_egress(&self, who: &Principal, bytes: u64) {
        if bytes > 0 && self.quota(who).egress_mb.is_some() {
            self.charge(who, |account, now| account.egress_bytes.add(now, bytes));
        }
    }

    /// One for whom there is no account was refused before it could use anything.
    fn charge(&self, who: &Principal, add: impl FnOnce(&mut Account, Duration)) {
        let (now, mut accounts) = (self.now(), self.accounts());
        if let Ok(account) = accounts.account(who, now) {
            add(account, now);
        }
    }

    /// For a sandbox that is to be created.
    pub(crate) fn hold_sandbox(self: &Arc<Self>, who: &Principal, memory_bytes: u64) -> Result<Hold, EngineError> {
        self.hold(who, 1, memory_bytes)
    }

    /// For a program that gets a sandbox of its own.
    pub(crate) fn hold_memory(self: &Arc<Self>, who: &Principal, memory_bytes: u64) -> Result<Hold, EngineError> {
        self.hold(who, 0, memory_bytes)
    }

    /// Looked at and taken in one step, so that two at once never get more than there is.
    fn hold(self: &Arc<Self>, who: &Principal, sandboxes: u32, memory_bytes: u64) -> Result<Hold, EngineError> {
        let quota = self.quota(who);
        let mut accounts = self.accounts();
        let account = accounts.account(who, self.now())?;
        let many = account.sandboxes.saturating_add(sandboxes);
        let much = account.memory_bytes.saturating_add(memory_bytes);
        let over = |bound, limit| Err(EngineError::OverQuota(Over { bound, limit, frees: None }));
        let refused = match quota {
            Quota { sandboxes: Some(max), .. } if sandboxes > 0 && many > max => over(Bound::Sandboxes, max.into()),
            Quota { memory_mb: Some(max), .. } if much > max.saturating_mul(MIB) => over(Bound::Memory, max),
            _ => Ok(()),
        };
        if refused.is_ok() {
            (account.sandboxes, account.memory_bytes) = (many, much);
        }
        accounts.forget_if_empty(who, self.now());
        refused?;
        Ok(Hold { books: self.clone(), who: who.clone(), sandboxes, memory_bytes })
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.accounts().of.len()
    }
}

impl Accounts {
    fn forget_if_empty(&mut self, who: &Principal, now: Duration) {
        if self.of.get_mut(who).is_some_and(|account| account.is_empty(now)) {
            self.of.remove(who);
        }
    }
}

fn within(window: &mut Window, now: Duration, bound: Bound, limit: u64, unit: u64) -> Result<(), EngineError> {
    let most = limit.saturating_mul(unit);
    if window.used(now) < most {
        return Ok(());
    }
    Err(EngineError::OverQuota(Over { bound, limit, frees: window.frees(now, most) }))
}

/// Processor time that counts until it is charged, or until this is dropped.
#[derive(Debug)]
pub(crate) struct Ahead<'a> {
    books: &'a Books,
    who: Principal,
    ms: AtomicU64,
}

impl Ahead<'_> {
    pub(crate) fn is(&self, used: Duration) {
        let after = u64::try_from(used.as_millis()).unwrap_or(u64::MAX);
        let before = self.ms.swap(after, Ordering::Relaxed);
        if after != before {
            self.books.charge(&self.who, |account, _| {
                account.cpu_ahead_ms = account.cpu_ahead_ms.saturating_sub(before).saturating_add(after);
            });
        }
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        self.is(Duration::ZERO);
    }
}

/// What a principal has, until dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    books: Arc<Books>,
    who: Principal,
    sandboxes: u32,
    memory_bytes: u64,
}

impl Hold {
    /// Traffic of what it stands for, at its end.
    pub(crate) fn charge_egress(&self, bytes: u64) {
        self.books.charge_egress(&self.who, bytes);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (now, mut accounts) = (self.books.now(), self.books.accounts());
        if let Some(account) = accounts.of.get_mut(&self.who) {
            account.sandboxes = account.sandboxes.saturating_sub(self.sandboxes);
            account.memory_bytes = account.memory_bytes.saturating_sub(self.memory_bytes);
        }
        accounts.forget_if_empty(&self.who, now);
    }
}

#[cfg(test)]
mod tests;
