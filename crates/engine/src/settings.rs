//! What the operator decides, and what callers ask for.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Changes, Isolation, Language, Limits, Program, Report, Stream};
use tokio::sync::mpsc;

use crate::rich::{Names, Rich};
use crate::{Departure, JobView, RunId, SandboxId};

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
    /// What runs printed, showed and left behind, kept for later reading, of all runs together.
    pub kept_output_bytes_max: usize,
    /// Own ones of the operator's, besides one for each interpreter of the host.
    pub templates: Vec<Template>,
}

/// What a sandbox begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pub name: String,
    /// By their names in [`belljar_core::Capabilities::interpreters`].
    pub interpreters: Vec<String>,
    /// A caller's own wish goes before it.
    pub wish: Wish,
    pub env: Vec<(String, String)>,
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
            wall_max: Duration::from_secs(24 * 60 * 60),
            ceiling: Limits {
                memory_bytes: 8 * 1024 * MIB,
                cpu_milli: 8000,
                processes: 1024,
                open_files: 65536,
                disk_bytes: 4 * 1024 * MIB,
                output_bytes: 16 * MIB,
            },
            kept_output_bytes_max: 24 * 1024 * 1024,
            templates: Vec::new(),
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

impl Wish {
    /// This wish, and where it says nothing, the other.
    pub(crate) fn over(&self, other: &Wish) -> Wish {
        Wish {
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            cpu_milli: self.cpu_milli.or(other.cpu_milli),
            processes: self.processes.or(other.processes),
            open_files: self.open_files.or(other.open_files),
            disk_bytes: self.disk_bytes.or(other.disk_bytes),
            output_bytes: self.output_bytes.or(other.output_bytes),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateRequest {
    pub template: Option<String>,
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

/// How long a caller stays for its answer.
#[derive(Debug, Clone)]
pub struct Attendance {
    pub stays: Stays,
    pub departure: Departure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// Then the run goes on as a job.
    For(Duration),
    /// Not at all: the run is a job from the beginning.
    Away(Away),
}

/// What a job without a caller means to its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Away {
    /// It has a time limit of its own, and its sandbox is in use for so long.
    KeepsSandbox,
    /// It would run for ever. A sandbox that nobody calls any more goes, and takes it along.
    LetsSandboxExpire,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Finished(Arc<Run>),
    Job(JobView),
}

/// What went down with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    Sandbox,
    /// Files and the other kernels stay.
    Kernel {
        language: Language,
        /// What was in it, as far as it is known.
        names: Names,
    },
}

/// A file that a throw-away sandbox left, and that is kept for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftFile {
    pub path: String,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub id: RunId,
    pub report: Report,
    pub rich: Rich,
    pub changes: Changes,
    /// Of a throw-away sandbox, those of its changed files that are small enough.
    pub left: Vec<LeftFile>,
    pub lost: Option<Lost>,
    /// When its sandbox goes if nothing uses it from now on.
    pub expires_in: Option<Duration>,
    /// What it ran under.
    pub limits: Limits,
    /// The sandbox it ran in, if that was not a throw-away one.
    pub sandbox: Option<SandboxId>,
}

impl Run {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let left: usize = self.left.iter().map(|file| file.path.len() + file.bytes.len()).sum();
        let changed: usize = self.changes.entries.iter().map(|entry| entry.path.len() + 64).sum();
        self.report.stdout.len() + self.report.stderr.len() + self.rich.bytes() + left + changed
    }
}
