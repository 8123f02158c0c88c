//! Whole streams of recent runs, for a reader who was shown only a part. The oldest go first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::{Report, Stream};

use crate::{Principal, RunId};

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
    run: RunId,
    owner: Principal,
    stdout: Arc<[u8]>,
    stderr: Arc<[u8]>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.stdout.len() + self.stderr.len()
    }
}

impl Outputs {
    pub(crate) fn new(bytes_max: usize) -> Outputs {
        Outputs { bytes_max, kept: Mutex::default() }
    }

    pub(crate) fn keep(&self, owner: &Principal, run: &RunId, report: &Report) {
        let bytes = report.stdout.len() + report.stderr.len();
        if bytes <= WORTH_KEEPING_BYTES || bytes > self.bytes_max {
            return;
        }
        let entry = Entry {
            run: run.clone(),
            owner: owner.clone(),
            stdout: report.stdout.as_slice().into(),
            stderr: report.stderr.as_slice().into(),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.bytes + bytes > self.bytes_max {
            let Some(oldest) = kept.runs.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
        kept.bytes += bytes;
        kept.runs.push_back(entry);
    }

    pub(crate) fn get(&self, owner: &Principal, run: &str, stream: Stream) -> Option<Arc<[u8]>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = kept.runs.iter().find(|entry| entry.run.as_str() == run && entry.owner == *owner)?;
        Some(match stream {
            Stream::Stdout => entry.stdout.clone(),
            Stream::Stderr => entry.stderr.clone(),
        })
    }
}
