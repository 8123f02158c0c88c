//! Who called what, and what became of it. Never an argument or a result: only their sizes and digests.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::approval::{Subject, Verdict};

/// Takes down calls, and what people said to them. It must not wait long.
pub trait Audit: Debug + Send + Sync {
    fn called(&self, line: &Line);
    /// The `traceparent` that a call for this run is to be made with, where it is part of a trace. [`Line`] has it again.
    fn calling(&self, _run: &str) -> Option<String> {
        None
    }
    /// Something needed a person, who was asked or could not be.
    fn decided(&self, decided: &Decided);
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Line {
    pub owner: String,
    pub run: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    pub server: String,
    pub tool: String,
    /// `allowed`, `approved`, `denied`, `refused` (by its arguments or the budget).
    pub decision: &'static str,
    /// `ok`, or the name of the error.
    pub outcome: &'static str,
    pub milliseconds: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub arguments_sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_sha256: Option<String>,
    /// What the server was told, if it was told anything.
    #[serde(skip)]
    pub traceparent: Option<String>,
}

/// What came of asking a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// Through whose client it was asked.
    pub owner: String,
    /// A program has none before it is approved; its digest is that of its runs.
    pub run: Option<String>,
    /// `program` or `call`.
    pub what: &'static str,
    /// The program's language, or `server.tool`.
    pub name: String,
    /// Of the program's text, or of the call's arguments.
    pub sha256: String,
    /// `approved`, `approved-run`, `approved-same`, `denied`, or `nobody` where nobody could be asked.
    pub outcome: &'static str,
}

impl Decided {
    /// Whoever declines, or does not answer in time, has denied. Without a verdict nobody could be asked.
    pub fn new(owner: &str, run: Option<&str>, subject: &Subject, verdict: Option<Verdict>) -> Decided {
        let (what, name, sha256) = match subject {
            Subject::Call { server, tool, arguments } => ("call", format!("{server}.{tool}"), measured(arguments).1),
            Subject::Code { language, code } => ("program", language.clone(), sha256(code.as_bytes())),
        };
        let outcome = match verdict {
            Some(Verdict::Once) => "approved",
            Some(Verdict::Run) => "approved-run",
            Some(Verdict::Same) => "approved-same",
            Some(Verdict::Deny) => "denied",
            None => "nobody",
        };
        Decided { owner: owner.to_owned(), run: run.map(str::to_owned), what, name, sha256, outcome }
    }
}

/// Where nobody wants a file of it.
#[derive(Debug)]
pub struct LogOnly;

impl Audit for LogOnly {
    fn called(&self, line: &Line) {
        tracing::info!(
            owner = line.owner,
            run = line.run,
            server = line.server,
            tool = line.tool,
            decision = line.decision,
            outcome = line.outcome,
            milliseconds = line.milliseconds,
            "a tool was called"
        );
    }

    fn decided(&self, decided: &Decided) {
        let Decided { owner, run, what, name, outcome, .. } = decided;
        tracing::info!(owner, run, what, name, outcome, "a person was to decide");
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How long it is as JSON, and the digest of that, without its ever being written out.
pub(crate) fn measured(value: &impl Serialize) -> (usize, String) {
    let mut meter = Meter { bytes: 0, digest: Sha256::new() };
    // It takes everything.
    let _ = serde_json::to_writer(&mut meter, value);
    (meter.bytes, meter.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

struct Meter {
    bytes: usize,
    digest: Sha256,
}

impl std::io::Write for Meter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes += bytes.len();
        self.digest.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn digest_of(value: &Value) -> String {
    sha256(value.to_string().as_bytes())
}
