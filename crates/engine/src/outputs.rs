//! What recent runs came to, for a reader who was shown only a part. The oldest go first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Principal, Run};

/// Shorter output is shown whole in the answer, so nobody comes back for it.
const WORTH_KEEPING_BYTES: usize = 1024;

#[derive(Debug)]
pub(crate) struct Outputs {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: usize,
    /// Oldest first. Each is longer than [`WORTH_KEEPING_BYTES`], so that the budget bounds their number too.
    runs: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    owner: Principal,
    run: Arc<Run>,
    bytes: usize,
}

impl Outputs {
    pub(crate) fn new(bytes_max: usize) -> Outputs {
        Outputs { bytes_max, kept: Mutex::default() }
    }

    pub(crate) fn keep(&self, owner: &Principal, run: &Arc<Run>) {
        // However little a value or a file takes, there is a place that leads to it.
        let floor = if run.rich.is_empty() && run.left.is_empty() { 0 } else { WORTH_KEEPING_BYTES + 1 };
        let bytes = run.bytes().max(floor);
        if bytes <= WORTH_KEEPING_BYTES || bytes > self.bytes_max {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.bytes + bytes > self.bytes_max {
            let Some(oldest) = kept.runs.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
        kept.bytes += bytes;
        kept.runs.push_back(Entry { owner: owner.clone(), run: run.clone(), bytes });
    }

    /// Whoever's it is: a run by its own id, or the latest of a sandbox.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Run>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |run: &Run| run.id.as_str() == id || run.sandbox.as_ref().is_some_and(|own| own.as_str() == id);
        kept.runs.iter().rev().find(|entry| is_it(&entry.run)).map(|entry| entry.run.clone())
    }

    pub(crate) fn get(&self, owner: &Principal, run: &str) -> Option<Arc<Run>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kept.runs.iter().rev().find(|entry| entry.run.id.as_str() == run && entry.owner == *owner)?;
        Some(entry.run.clone())
    }
}
