//! What recent runs came to, for a reader who was shown only a part. The oldest go first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Principal, Run, RunId, SandboxId};

/// Shorter output is shown whole in the answer, so that its caller does not come back for it.
const WORTH_KEEPING_BYTES: usize = 1024;

/// Its operator may, and finds the latest of those: a quarter of a megabyte at most.
const SHORT_MAX: usize = 256;

/// What a run has printed, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    pub run: RunId,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes at its beginning that are forgotten.
    pub missed: u64,
    /// How it ended, if it did.
    pub ending: Option<&'static str>,
}

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
    /// The latest of the others, oldest first; apart, so that many short ones drive out no long one.
    short: VecDeque<(u64, Printed, Option<SandboxId>)>,
    /// How many were kept so far.
    count: u64,
}

#[derive(Debug)]
struct Entry {
    owner: Principal,
    run: Arc<Run>,
    bytes: usize,
    /// By which the later of two is known.
    number: u64,
}

impl Outputs {
    pub(crate) fn new(bytes_max: usize) -> Outputs {
        Outputs { bytes_max, kept: Mutex::default() }
    }

    pub(crate) fn keep(&self, owner: &Principal, run: &Arc<Run>) {
        // However little a value or a file takes, there is a place that leads to it.
        let floor = if run.rich.is_empty() && run.left.is_empty() { 0 } else { WORTH_KEEPING_BYTES + 1 };
        let bytes = run.bytes().max(floor);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        let number = kept.count;
        if bytes <= WORTH_KEEPING_BYTES {
            if kept.short.len() >= SHORT_MAX {
                kept.short.pop_front();
            }
            kept.short.push_back((number, printed(run), run.sandbox.clone()));
            return;
        }
        if bytes > self.bytes_max {
            return;
        }
        while kept.bytes + bytes > self.bytes_max {
            let Some(oldest) = kept.runs.pop_front() else { break };
            kept.bytes -= oldest.bytes;
        }
        kept.bytes += bytes;
        kept.runs.push_back(Entry { owner: owner.clone(), run: run.clone(), bytes, number });
    }

    /// Whoever's it is, for the operator: a run by its own id, or the latest of a sandbox.
    pub(crate) fn find(&self, id: &str) -> Option<Printed> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |run: &RunId, sandbox: &Option<SandboxId>| {
            run.as_str() == id || sandbox.as_ref().is_some_and(|own| own.as_str() == id)
        };
        let long = kept.runs.iter().rev().find(|entry| is_it(&entry.run.id, &entry.run.sandbox));
        let short = kept.short.iter().rev().find(|(_, printed, sandbox)| is_it(&printed.run, sandbox));
        match (long, short) {
            (Some(long), Some((number, short, _))) if *number > long.number => Some(short.clone()),
            (Some(long), _) => Some(printed(&long.run)),
            (None, short) => short.map(|(_, short, _)| short.clone()),
        }
    }

    pub(crate) fn get(&self, owner: &Principal, run: &str) -> Option<Arc<Run>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kept.runs.iter().rev().find(|entry| entry.run.id.as_str() == run && entry.owner == *owner)?;
        Some(entry.run.clone())
    }
}

fn printed(run: &Run) -> Printed {
    let report = &run.report;
    let (stdout, stderr) = (report.stdout.clone(), report.stderr.clone());
    Printed { run: run.id.clone(), stdout, stderr, missed: 0, ending: Some(report.ending.name()) }
}
