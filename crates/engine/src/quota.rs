//! What one principal may have at a time, or use up in an hour.

mod books;
mod window;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::books::{Ahead, Books, Hold};

/// Each bound is there only if it is given; the engine's own bounds hold besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Created sandboxes at once.
    pub sandboxes: Option<u32>,
    /// Programs at once.
    pub runs: Option<u32>,
    /// Of all sandboxes together that it has at once, by their limits.
    pub memory_mb: Option<u64>,
    /// Seconds of processor time within an hour.
    pub cpu_seconds: Option<u64>,
    /// What may leave and enter its sandboxes over the network within an hour.
    pub egress_mb: Option<u64>,
    /// Requests of the protocol, which the server counts.
    pub requests_per_second: Option<u32>,
}

impl Quota {
    /// This one, and where it says nothing, the other.
    pub fn over(&self, other: &Quota) -> Quota {
        Quota {
            sandboxes: self.sandboxes.or(other.sandboxes),
            runs: self.runs.or(other.runs),
            memory_mb: self.memory_mb.or(other.memory_mb),
            cpu_seconds: self.cpu_seconds.or(other.cpu_seconds),
            egress_mb: self.egress_mb.or(other.egress_mb),
            requests_per_second: self.requests_per_second.or(other.requests_per_second),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    Sandboxes,
    Runs,
    Memory,
    Cpu,
    Egress,
}

/// A bound of a quota that was met, as its principal is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    pub bound: Bound,
    /// In the unit of [`Quota`].
    pub limit: u64,
    /// When there is something again, where only time helps.
    pub frees: Option<Duration>,
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match self.bound {
            Bound::Sandboxes => {
                write!(f, "your quota is {limit} sandboxes, which you have; destroy one that is no longer needed")
            }
            Bound::Runs => write!(
                f,
                "your quota is {limit} programs at once, and so many jobs are running; wait for one with job, or end \
                 one with its action signal"
            ),
            Bound::Memory => write!(
                f,
                "your quota is {limit} MB of memory for all sandboxes and programs together, and this would be more; \
                 destroy a sandbox, wait until a program has ended, or ask for a lower memory_mb"
            ),
            Bound::Cpu => write!(f, "your quota of {limit} CPU seconds an hour is used up; {}", again(self.frees)),
            Bound::Egress => {
                write!(f, "your quota of {limit} MB an hour over the network is used up; {}", again(self.frees))
            }
        }
    }
}

fn again(frees: Option<Duration>) -> String {
    match frees {
        Some(time) => format!("try again in about {} s", time.as_secs().max(1)),
        None => "try again later".to_owned(),
    }
}
