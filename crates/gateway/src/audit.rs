//! Who called what, and what became of it. Never an argument or a result: only their sizes and digests.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Takes down calls. It must not wait long.
pub trait Audit: Debug + Send + Sync {
    fn called(&self, line: &Line);
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
