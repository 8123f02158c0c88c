//! What is asked of a running server, and what it answers: one line of JSON each.

use belljar_engine::Printed;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Request {
    Overview,
    /// What a run has printed, or the latest of a sandbox.
    Logs {
        id: String,
    },
    Kill {
        id: String,
    },
    /// Kept for later; a signal does it today.
    Reload,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    Overview(Overview),
    Logs(Option<Logs>),
    /// `false` when there is nothing of that id.
    Killed(bool),
    Error(String),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Overview {
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) backend: String,
    pub(crate) uptime_ms: u64,
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) runs: Vec<Run>,
    /// Runs that wait for their turn, their packages or their place.
    pub(crate) waiting: usize,
    /// Sandboxes that are ready for callers to come.
    pub(crate) prepared: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) principal: String,
    pub(crate) backend: String,
    pub(crate) age_ms: u64,
    pub(crate) expires_in_ms: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) runs: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) principal: String,
    pub(crate) sandbox: Option<String>,
    /// The language, or `command`.
    pub(crate) kind: String,
    pub(crate) age_ms: u64,
    /// `waiting`, `running`, or `job`.
    pub(crate) state: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Logs {
    pub(crate) run: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Bytes at its beginning that are forgotten.
    pub(crate) missed: u64,
    pub(crate) ending: Option<String>,
}

fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn overview(seen: &belljar_engine::Overview) -> Overview {
    let sandboxes = seen.sandboxes.iter().map(|(owner, info)| Sandbox {
        id: info.id.to_string(),
        principal: owner.as_str().to_owned(),
        backend: info.isolation.backend.clone(),
        age_ms: ms(info.age),
        expires_in_ms: ms(info.expires_in),
        memory_bytes: info.limits.memory_bytes,
        runs: info.runs,
    });
    let runs = seen.runs.iter().map(|run| Run {
        id: run.id.to_string(),
        principal: run.owner.as_str().to_owned(),
        sandbox: run.sandbox.as_ref().map(ToString::to_string),
        kind: run.kind.to_owned(),
        age_ms: ms(run.age),
        state: match (run.has_begun, run.is_job) {
            (false, _) => "waiting",
            (true, true) => "job",
            (true, false) => "running",
        }
        .to_owned(),
    });
    Overview {
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        backend: seen.backend.clone(),
        uptime_ms: ms(seen.uptime),
        sandboxes: sandboxes.collect(),
        runs: runs.collect(),
        waiting: seen.runs.iter().filter(|run| !run.has_begun).count(),
        prepared: seen.prepared.iter().map(|pool| pool.ready).sum(),
    }
}

pub(super) fn logs(printed: &Printed) -> Logs {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Logs {
        run: printed.run.to_string(),
        stdout: text(&printed.stdout),
        stderr: text(&printed.stderr),
        missed: printed.missed,
        ending: printed.ending.map(str::to_owned),
    }
}
