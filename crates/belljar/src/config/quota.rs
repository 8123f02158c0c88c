//! What each principal may have that has no word of its own on it.

use belljar_engine::Quota;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

/// Without a value there is no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quotas {
    pub(crate) sandboxes: Value<Option<u32>>,
    pub(crate) runs: Value<Option<u32>>,
    pub(crate) memory_mb: Value<Option<u64>>,
    pub(crate) cpu_seconds: Value<Option<u64>>,
    pub(crate) egress_mb: Value<Option<u64>>,
    pub(crate) requests_per_second: Value<Option<u32>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuota {
    /// Created sandboxes at once.
    sandboxes: Option<u32>,
    /// Programs at once, jobs among them; more wait.
    runs: Option<u32>,
    /// Memory of all sandboxes and programs together that it has at once, by their limits.
    memory_mb: Option<u64>,
    /// Seconds of processor time within an hour.
    cpu_seconds: Option<u64>,
    /// Megabytes that may leave and enter its sandboxes over the network within an hour.
    egress_mb: Option<u64>,
    /// Requests of the protocol within a second.
    requests_per_second: Option<u32>,
}

impl Quotas {
    pub(super) fn resolve(raw: &RawQuota) -> Result<Quotas, Complaint> {
        for (key, value) in [("runs", raw.runs), ("requests_per_second", raw.requests_per_second)] {
            if value == Some(0) {
                let what = format!("in the configuration: quota.{key} is 0, and nobody could do anything");
                return Err(Complaint::new(
                    what,
                    format!("write a number above 0, such as {key} = 8, or leave it out"),
                ));
            }
        }
        Ok(Quotas {
            sandboxes: Value::of(None, raw.sandboxes.map(Some)),
            runs: Value::of(None, raw.runs.map(Some)),
            memory_mb: Value::of(None, raw.memory_mb.map(Some)),
            cpu_seconds: Value::of(None, raw.cpu_seconds.map(Some)),
            egress_mb: Value::of(None, raw.egress_mb.map(Some)),
            requests_per_second: Value::of(None, raw.requests_per_second.map(Some)),
        })
    }

    /// What the engine is told.
    pub(crate) fn settings(&self) -> Quota {
        Quota {
            sandboxes: self.sandboxes.value,
            runs: self.runs.value,
            memory_mb: self.memory_mb.value,
            cpu_seconds: self.cpu_seconds.value,
            egress_mb: self.egress_mb.value,
            requests_per_second: self.requests_per_second.value,
        }
    }
}
