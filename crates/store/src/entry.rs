//! What is written down of each event: owned, bounded, and without anything that could be a secret.

use belljar_core::{Isolation, Reached, Source};
use belljar_engine::{EngineError, Principal, Refusal, Run, RunId};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::time::ms;

/// What is kept of a program's text, where the operator wants it.
const CODE_BYTES_MAX: usize = 64 * 1024;

/// What a caller was told, and what it called a sandbox.
const WORDS_BYTES_MAX: usize = 1024;
pub(crate) const ID_BYTES_MAX: usize = 64;

/// The ending of what never began.
pub(crate) const REFUSED: &str = "refused";

/// Names of calls and hosts in one record.
const NAMES_MAX: usize = 100;

#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Opened(Opened),
    Closed(Closed),
    Began(Began),
    Ended(Box<Ended>),
    Called(Call),
    Decided(Decision),
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Opened {
    pub(crate) principal: String,
    pub(crate) sandbox: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    pub(crate) memory_bytes: u64,
    pub(crate) took_ms: i64,
    pub(crate) backend: String,
    pub(crate) isolation: Isolation,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Closed {
    pub(crate) principal: String,
    pub(crate) sandbox: String,
    pub(crate) why: &'static str,
}

/// What a run was to do. In its record the text itself only where the operator wants it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Task {
    pub(crate) principal: String,
    /// `run_code` or `exec`, whatever a profile calls it.
    pub(crate) tool: &'static str,
    pub(crate) run: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) language: Option<&'static str>,
    pub(crate) code_sha256: String,
    pub(crate) code_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Began {
    pub(crate) task: Task,
    pub(crate) waited_ms: i64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ended {
    #[serde(flatten)]
    pub(crate) task: Task,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) backend: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) isolation: Option<Isolation>,
    /// As results have it, `failed`, or `refused` where it never began.
    pub(crate) ending: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    pub(crate) duration_ms: i64,
    pub(crate) cpu_ms: u64,
    pub(crate) memory_peak_bytes: u64,
    pub(crate) network_bytes: u64,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
    /// Hosts that it was refused.
    pub(crate) refused: Vec<String>,
    /// Hosts that it reached.
    pub(crate) reached: Vec<Reached>,
    /// Other servers' tools that it called, as `server.tool`.
    pub(crate) calls: Vec<String>,
    /// What went wrong on our side, or why it was refused: a word, and what its caller was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error_kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A call of another server's tool.
#[derive(Debug, Clone)]
pub struct Call {
    pub principal: String,
    pub run: String,
    pub server: String,
    pub tool: String,
    /// `allowed`, `approved`, `denied` or `refused`.
    pub decision: &'static str,
    /// `ok`, or the name of the error.
    pub outcome: &'static str,
    pub milliseconds: u64,
}

/// What a person said to a program or a call.
#[derive(Debug, Clone, Serialize)]
pub struct Decision {
    pub principal: String,
    /// A program has none before it is approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// `program` or `call`.
    pub what: &'static str,
    /// The program's language, or `server.tool`.
    pub name: String,
    /// Of the program's text, as its runs have it, or of the call's arguments.
    pub sha256: String,
    /// `approved`, `approved-run`, `approved-same`, `denied` or `nobody`.
    pub outcome: &'static str,
}

/// Whether a record has the program's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Whole,
    DigestOnly,
}

pub(crate) fn task(owner: &Principal, run: &RunId, sandbox: Option<&str>, source: &Source, keep: Code) -> Task {
    let (tool, language, text) = match source {
        Source::Code { language, code } | Source::Cell { language, code, .. } => {
            ("run_code", Some(language.name()), code)
        }
        Source::Command(line) => ("exec", None, line),
    };
    Task {
        principal: owner.as_str().to_owned(),
        tool,
        run: run.to_string(),
        sandbox: sandbox.map(|sandbox| cut(sandbox, ID_BYTES_MAX)),
        language,
        code_sha256: sha256(text.as_bytes()),
        code_bytes: text.len() as u64,
        code: (keep == Code::Whole).then(|| cut(text, CODE_BYTES_MAX)),
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

/// A program that never began.
pub(crate) fn refused(task: Task, why: &Refusal) -> Ended {
    Ended { ending: REFUSED, error_kind: Some(why.kind), error: Some(cut(&why.words, WORDS_BYTES_MAX)), ..blank(task) }
}

pub(crate) fn ended(task: Task, outcome: Result<&Run, &EngineError>, network_bytes: u64) -> Ended {
    let blank = Ended { network_bytes, ..blank(task) };
    let run = match outcome {
        Ok(run) => run,
        Err(error) => return Ended { error_kind: Some(error.name()), error: Some(error.to_string()), ..blank },
    };
    let report = &run.report;
    Ended {
        backend: Some(report.isolation.backend.clone()),
        isolation: Some(report.isolation.clone()),
        ending: report.ending.name(),
        exit_code: Some(report.ending.exit_code()),
        duration_ms: ms(report.duration),
        cpu_ms: report.usage.cpu_ms,
        memory_peak_bytes: report.usage.memory_peak_bytes,
        stdout_bytes: report.stdout.len() as u64,
        stderr_bytes: report.stderr.len() as u64,
        refused: run.refused.iter().take(NAMES_MAX).cloned().collect(),
        reached: run.reached.iter().take(NAMES_MAX).cloned().collect(),
        calls: run.calls.made.iter().take(NAMES_MAX).map(|made| made.tool.clone()).collect(),
        ..blank
    }
}

fn blank(task: Task) -> Ended {
    Ended {
        task,
        backend: None,
        isolation: None,
        ending: "failed",
        exit_code: None,
        duration_ms: 0,
        cpu_ms: 0,
        memory_peak_bytes: 0,
        network_bytes: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        refused: Vec::new(),
        reached: Vec::new(),
        calls: Vec::new(),
        error_kind: None,
        error: None,
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
