//! What the operator decides, and what callers ask for.

use std::time::Duration;

use belljar_core::{Isolation, Limits, Program, Report, Stream};
use tokio::sync::mpsc;

use crate::{RunId, SandboxId};

/// The engine's bounds. Everything that could grow has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Created sandboxes at once. Throw-away ones are bounded by `runs_max` instead.
    pub sandboxes_max: usize,
    /// Programs at once, in all sandboxes together.
    pub runs_max: usize,
    /// Runs that may wait for their turn past that.
    pub queue_max: usize,
    pub runs_per_sandbox_max: usize,
    /// How long a created sandbox stays without being used.
    pub idle: Duration,
    /// How long it stays however much it is used.
    pub age_max: Duration,
    /// The longest wall time a program can ask for.
    pub wall_max: Duration,
    /// The most a wish can ask for.
    pub ceiling: Limits,
    /// Whole streams kept for later reading, of all runs together.
    pub kept_output_bytes_max: usize,
}

const MIB: u64 = 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            sandboxes_max: 256,
            runs_max: (4 * cores).max(8),
            queue_max: 1024,
            runs_per_sandbox_max: 8,
            idle: Duration::from_secs(30 * 60),
            age_max: Duration::from_secs(24 * 60 * 60),
            wall_max: Duration::from_secs(10 * 60),
            ceiling: Limits {
                memory_bytes: 8 * 1024 * MIB,
                cpu_milli: 8000,
                processes: 1024,
                open_files: 65536,
                disk_bytes: 4 * 1024 * MIB,
                output_bytes: 16 * MIB,
            },
            kept_output_bytes_max: 32 * 1024 * 1024,
        }
    }
}

/// The limits a caller asks for; what it leaves out keeps its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub memory_bytes: Option<u64>,
    pub cpu_milli: Option<u32>,
    pub processes: Option<u32>,
    pub open_files: Option<u32>,
    pub disk_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateRequest {
    pub wish: Wish,
    /// Environment of every program in the sandbox.
    pub env: Vec<(String, String)>,
    /// Instead of the operator's default; brought to at least a second, and [`SandboxInfo::idle`] says what it became.
    pub idle: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxInfo {
    pub id: SandboxId,
    pub limits: Limits,
    pub isolation: Isolation,
    pub idle: Duration,
    /// If nothing uses it from now on.
    pub expires_in: Duration,
    pub age: Duration,
    /// Programs that were started in it.
    pub runs: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    /// As the caller wrote it; without one, a throw-away sandbox is used.
    pub sandbox: Option<String>,
    pub program: Program,
}

/// The other ends of a program's streams, for someone who is there while it runs.
#[derive(Debug)]
pub struct Console {
    /// Gets the output as it comes, besides its being kept. The output limit bounds what can wait here.
    pub output: mpsc::UnboundedSender<(Stream, Vec<u8>)>,
    /// Passed to a program whose standard input is [`belljar_core::Stdin::Live`]; its end is the end of the input.
    pub input: mpsc::Receiver<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub report: Report,
    /// What it ran under.
    pub limits: Limits,
    /// The sandbox it ran in, if that was not a throw-away one.
    pub sandbox: Option<SandboxId>,
}
