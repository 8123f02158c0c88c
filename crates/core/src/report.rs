//! What a caller is told about a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Limit;

/// How a program ended. Every ending is a result for the caller to read; none is an error of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Exited {
        code: i32,
    },
    Killed {
        signal: i32,
    },
    /// We stopped it, and this is the limit it met.
    Stopped {
        limit: Limit,
    },
    Cancelled,
    /// Its packages could not be installed, and it was not started.
    NotInstalled,
}

impl Ending {
    /// The word that results carry.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Exited { .. } => "exited",
            Ending::Killed { .. } => "killed",
            Ending::Stopped { limit: Limit::Wall } => "timeout",
            Ending::Stopped { limit: Limit::Memory } => "memory",
            Ending::Stopped { limit: Limit::Output } => "output",
            Ending::Cancelled => "cancelled",
            Ending::NotInstalled => "install-error",
        }
    }

    /// What a shell would report: the code, or 128 + signal; 124 for a timeout, as timeout(1) has it.
    pub fn exit_code(self) -> i32 {
        match self {
            Ending::Exited { code } => code,
            Ending::Killed { signal } => 128 + signal,
            Ending::Stopped { limit: Limit::Wall } => 124,
            Ending::Stopped { .. } => 137,
            Ending::Cancelled => 130,
            // As timeout(1) and others have it for what they could not start.
            Ending::NotInstalled => 125,
        }
    }

    pub fn is_success(self) -> bool {
        self == Ending::Exited { code: 0 }
    }
}

/// Whether what an earlier run left is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Nothing ran here before.
    Fresh,
    /// What earlier runs left was there, and still is.
    Preserved,
    /// The kernel that remembered earlier runs had ended, and this run began in a new one.
    Reset,
    /// The kernel, or the whole sandbox, ended in this run, and with it what it remembered.
    Lost,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_ms: u64,
    /// Of the largest single process.
    pub memory_peak_bytes: u64,
}

/// The walls that stood around a run, each in a few words for a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    pub backend: String,
    pub namespaces: String,
    pub seccomp: String,
    pub landlock: String,
    pub cgroup: String,
    pub network: String,
    pub user: String,
}

/// One run, told whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub ending: Ending,
    pub state: State,
    pub duration: Duration,
    pub usage: Usage,
    pub isolation: Isolation,
}
