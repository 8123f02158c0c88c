//! Host user ids for sandboxes, when the server is root: each live sandbox has one that nothing else has.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Above the ranges that systemd and the subuid files hand out, below 2^31. Two servers on one host draw from the same
/// range without asking each other; among 2^27 ids a clash is less likely than a failing disk.
const FIRST: u32 = 0x7000_0000;
const COUNT: u32 = 0x0800_0000;

#[derive(Debug, Default)]
pub(super) struct Ids {
    leased: Mutex<HashSet<u32>>,
}

impl Ids {
    pub(super) fn lease(self: &Arc<Self>) -> Lease {
        let mut leased = self.leased.lock().unwrap_or_else(PoisonError::into_inner);
        let mut random = [0; 4];
        // Without entropy at boot any free number will do: the ids are no secret.
        let _ = getrandom::fill(&mut random);
        let mut number = FIRST + u32::from_le_bytes(random) % COUNT;
        while !leased.insert(number) {
            number = FIRST + (number - FIRST + 1) % COUNT;
        }
        Lease { number, ids: Arc::clone(self) }
    }
}

/// An id in use. Dropped only when the last process that had it is gone.
#[derive(Debug)]
pub(super) struct Lease {
    number: u32,
    ids: Arc<Ids>,
}

impl Lease {
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.ids.leased.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}
