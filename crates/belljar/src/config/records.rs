//! What is written down of what happened, and for how long.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

/// The audit as the rest of the program uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Audit {
    /// Without it there is none but the log's.
    pub(crate) file: Value<Option<PathBuf>>,
    pub(crate) code: Value<bool>,
    pub(crate) max_mb: Value<u32>,
    pub(crate) keep: Value<u32>,
    pub(crate) required: Value<bool>,
}

/// The history as the rest of the program uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct History {
    pub(crate) enabled: Value<bool>,
    /// Without it, below the user's state directory.
    pub(crate) file: Value<Option<PathBuf>>,
    pub(crate) days: Value<u32>,
    pub(crate) max_mb: Value<u32>,
    pub(crate) code: Value<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAudit {
    /// A line of JSON for every run, sandbox, attempt to reach a host, and call of another server's tool.
    file: Option<PathBuf>,
    /// Whether a run's line has the program's text, and not only its digest.
    code: Option<bool>,
    /// A file that would be larger is put aside as `file.1`, and so on.
    max_mb: Option<u32>,
    /// So many files are kept that were put aside.
    keep: Option<u32>,
    /// Whether nothing is run that could not be written down.
    required: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHistory {
    /// Whether sandboxes and runs are remembered.
    enabled: Option<bool>,
    /// The database that has them.
    file: Option<PathBuf>,
    /// What is older goes.
    days: Option<u32>,
    /// Past this the oldest go.
    max_mb: Option<u32>,
    /// Whether the programs' text is kept, and not only its digest.
    code: Option<bool>,
}

impl Audit {
    pub(super) fn resolve(raw: RawAudit) -> Result<Audit, Complaint> {
        if raw.required == Some(true) && raw.file.is_none() {
            let what = "in the configuration: audit.required is set, and there is no audit.file";
            return Err(Complaint::new(what, "name the file below [audit], such as file = \"/var/log/belljar.jsonl\""));
        }
        Ok(Audit {
            file: Value::of(None, raw.file.map(Some)),
            code: Value::of(false, raw.code),
            max_mb: Value::of(64, within("audit.max_mb", raw.max_mb, 1, 1 << 20)?),
            keep: Value::of(8, within("audit.keep", raw.keep, 1, 1000)?),
            required: Value::of(false, raw.required),
        })
    }
}

impl History {
    pub(super) fn resolve(raw: RawHistory) -> Result<History, Complaint> {
        Ok(History {
            enabled: Value::of(true, raw.enabled),
            file: Value::of(None, raw.file.map(Some)),
            days: Value::of(30, within("history.days", raw.days, 1, 36_500)?),
            max_mb: Value::of(512, within("history.max_mb", raw.max_mb, 1, 1 << 20)?),
            code: Value::of(false, raw.code),
        })
    }
}

fn within(key: &str, value: Option<u32>, min: u32, max: u32) -> Result<Option<u32>, Complaint> {
    match value {
        Some(value) if !(min..=max).contains(&value) => {
            let what = format!("in the configuration: {key} is {value}");
            Err(Complaint::new(what, format!("write a number from {min} to {max}")))
        }
        other => Ok(other),
    }
}
