//! Live sandboxes: who owns them, when they end, how many programs run at once, and what each run came to.
//!
//! Deliberately not here: MCP, HTTP, files of the host, and the name of any backend. How code is confined is the
//! backend's; how an answer reads is the server's.

#![forbid(unsafe_code)]

mod admission;
mod carry;
mod check;
mod engine;
mod error;
mod flight;
mod id;
mod jobs;
mod kernels;
mod lease;
mod limits;
mod log;
mod news;
mod outputs;
mod rich;
mod run;
mod sandboxes;
mod settings;
mod teardown;
mod templates;

pub use check::{CODE_BYTES_MAX, STDIN_BYTES_MAX};
pub use engine::{Engine, LIST_ENTRIES_MAX, READ_BYTES_MAX};
pub use error::{EngineError, Gone};
pub use flight::Departure;
pub use id::{Principal, RunId, SandboxId};
pub use jobs::{JobAction, JobView, StdinThen};
pub use news::{FileChanges, News, SandboxEvent, workspace_path};
pub use rich::{Bundle, Failure, Names, Original, Rich};
pub use settings::{
    Answer, Attendance, Away, Console, CreateRequest, LeftFile, Lost, Run, RunRequest, SandboxInfo, Settings, Stays,
    Template, Wish,
};
