//! Between those who must not wait and the one thread that writes: a bounded queue that drops, and counts what it dropped.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entry::Entry;

/// How long the writer lets entries gather, so that a busy server costs it one transaction and not hundreds.
const GATHER: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    entries_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// With the time at which each happened.
    entries: VecDeque<(i64, Entry)>,
    dropped: u64,
    /// The writer is awake already, or will be soon.
    gathering: bool,
    ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) entries: VecDeque<(i64, Entry)>,
    /// How many there was no room for since the last.
    pub(crate) dropped: u64,
    /// Nothing comes after it.
    pub(crate) last: bool,
}

impl Queue {
    pub(crate) fn new(entries_max: usize) -> Queue {
        Queue { state: Mutex::default(), changed: Condvar::new(), entries_max }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, at_ms: i64, entry: Entry) {
        let mut state = self.state();
        if state.ended || state.entries.len() >= self.entries_max {
            state.dropped += 1;
            return;
        }
        state.entries.push_back((at_ms, entry));
        if !state.gathering {
            self.changed.notify_all();
        }
    }

    /// Counts what is not even tried.
    pub(crate) fn leave_out(&self, count: u64) {
        self.state().dropped += count;
    }

    pub(crate) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_all();
    }

    /// What has gathered; empty after `patience` without anything.
    pub(crate) fn next(&self, patience: Duration) -> Batch {
        let is_idle = |state: &mut State| state.entries.is_empty() && !state.ended;
        let waited = self.changed.wait_timeout_while(self.state(), patience, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if !state.ended && !state.entries.is_empty() {
            state.gathering = true;
            let waited = self.changed.wait_timeout_while(state, GATHER, |state| !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.gathering = false;
        }
        let entries = std::mem::take(&mut state.entries);
        Batch { entries, dropped: std::mem::take(&mut state.dropped), last: state.ended }
    }
}
