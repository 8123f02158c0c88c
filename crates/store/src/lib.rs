//! What happened, for later: a history in SQLite and an audit as lines of JSON.
//!
//! The history is for looking back and never holds a run up: what it cannot take is dropped, and counted. The audit is for
//! proving what was done: a line is written before the caller hears of it, and where it is `required` nothing is run that
//! could not be written down.
//!
//! Deliberately not here: what a program printed, its input, its environment, and any secret.

#![forbid(unsafe_code)]

mod audit;
mod entry;
mod error;
mod history;
mod process;
mod queue;
mod reader;
mod records;
mod refusals;
mod retention;
mod schema;
mod time;

pub use audit::{AuditFile, AuditSettings};
pub use entry::{Call, Decision};
pub use error::StoreError;
pub use history::{History, HistorySettings};
pub use reader::{PastDecision, PastRun, PastSandbox, Reader, Wanted};
pub use records::Records;
pub use time::{now_ms, rfc3339};
