//! Live sandboxes: who owns them, when they end, how many programs run at once, and what each run came to.
//!
//! Deliberately not here: MCP, HTTP, files of the host, and the name of any backend. How code is confined is the
//! backend's; how an answer reads is the server's.

#![forbid(unsafe_code)]

mod admission;
mod capture;
mod check;
mod engine;
mod error;
mod id;
mod lease;
mod limits;
mod outputs;
mod run;
mod sandboxes;
mod settings;
mod teardown;

pub use check::{CODE_BYTES_MAX, STDIN_BYTES_MAX};
pub use engine::{Engine, LIST_ENTRIES_MAX, READ_BYTES_MAX};
pub use error::EngineError;
pub use id::{Principal, RunId, SandboxId};
pub use settings::{Console, CreateRequest, Run, RunRequest, SandboxInfo, Settings, Wish};
