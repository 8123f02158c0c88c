//! Live sandboxes: who owns them, when they end, how many programs run at once, and what each run came to.
//!
//! Deliberately not here: MCP, HTTP, files of the host (but for how much memory it has), and the name of any backend. How code is confined is the
//! backend's; how an answer reads is the server's.

#![forbid(unsafe_code)]

mod admission;
mod carry;
mod check;
mod departure;
mod desks;
mod effort;
mod engine;
mod error;
mod flight;
mod id;
mod jobs;
mod kernels;
mod lease;
mod limits;
mod log;
mod network;
mod news;
mod observer;
mod outputs;
mod overview;
mod phase;
mod provision;
mod python;
mod questions;
mod quota;
mod request;
mod rich;
mod run;
mod sandboxes;
mod settings;
mod shared;
mod teardown;
mod templates;
mod tenure;
mod traffic;

/// What fuzzing needs (`fuzz/`). Nothing else uses this.
#[doc(hidden)]
pub mod fuzzing {
    /// Whether a file may be asked for by this path at all.
    pub fn is_path(path: &str) -> bool {
        crate::check::path(path).is_ok()
    }
}

pub use check::{CODE_BYTES_MAX, STDIN_BYTES_MAX};
pub use departure::Departure;
pub use engine::{Engine, LIST_ENTRIES_MAX, READ_BYTES_MAX};
pub use error::{EngineError, Gone};
pub use id::{Principal, RunId, SandboxId};
pub use log::Piece;
pub use network::NetworkSettings;
pub use news::{FileChanges, News, SandboxEvent, workspace_path};
pub use observer::{Closed, Event, Observer, Refusal};
pub use outputs::Printed;
pub use overview::{Overview, RunInfo};
pub use phase::{Listener, Phase};
pub use provision::{Outside, Provisions};
pub use quota::{Bound, Over, Quota};
pub use request::{
    Answer, Attendance, Away, Console, CreateRequest, Installation, JobAction, JobView, LeftFile, Lost, PoolInfo, Run,
    RunRequest, SandboxInfo, Stays, StdinThen, Wants,
};
pub use rich::{Bundle, Failure, Names, Original, Rich};
pub use settings::{PoolSettings, Settings, Template, Wish};
pub use tenure::Tenure;
