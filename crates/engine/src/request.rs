//! What callers ask for, and what they are answered.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Calls, Changes, Isolation, Language, Limits, Program, Reached, Report, Stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::departure::Departure;
use crate::log::Piece;
use crate::phase::Phase;
use crate::rich::{Names, Rich};
use crate::settings::Wish;
use crate::{RunId, SandboxId};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CreateRequest {
    pub template: Option<String>,
    pub wish: Wish,
    /// Environment of every program in the sandbox.
    pub env: Vec<(String, String)>,
    pub wants: Wants,
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

/// The prepared sandboxes of one spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolInfo {
    /// The language whose kernel waits in each.
    pub waiting: Option<Language>,
    pub ready: usize,
    /// How many there should be by what was asked of late, within the budget.
    pub wanted: usize,
    /// How often one was ready for who asked, and how often not.
    pub taken: u64,
    pub missed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRequest {
    /// As the caller wrote it; without one, a throw-away sandbox is used.
    pub sandbox: Option<String>,
    pub program: Program,
    pub wants: Wants,
}

/// What a program needs around it, in the caller's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wants {
    /// Requirements as the language's own package manager reads them, besides what its code tells by itself.
    pub packages: Vec<String>,
    /// Hosts, as [`belljar_core::Grant`] reads them, or [`belljar_core::PACKAGES`].
    pub network: Vec<String>,
}

/// The other ends of a program's streams, for someone who is there while it runs.
#[derive(Debug)]
pub struct Console {
    /// Gets the output as it comes, besides its being kept. The output limit bounds what can wait here.
    pub output: mpsc::UnboundedSender<(Stream, Vec<u8>)>,
    /// Passed to a program whose standard input is [`belljar_core::Stdin::Live`]; its end is the end of the input.
    pub input: mpsc::Receiver<Vec<u8>>,
    pub phase: Phase,
}

/// How long a caller stays for its answer.
#[derive(Debug, Clone)]
pub struct Attendance {
    pub stays: Stays,
    pub departure: Departure,
    /// Where it is told what the run is at.
    pub phase: Phase,
    /// By which the caller is asked when a person has to decide on a call of the program's.
    pub occasion: Option<u64>,
    /// Once cancelled, the caller stays no longer: the run goes on as a job at once.
    pub leave: Option<CancellationToken>,
    /// Who hears what the program prints as it prints it.
    pub listener: Option<mpsc::UnboundedSender<Piece>>,
}

impl Attendance {
    /// Of a caller that nobody can be asked by.
    pub fn new(stays: Stays) -> Attendance {
        let (departure, phase) = (Departure::default(), Phase::default());
        Attendance { stays, departure, phase, occasion: None, leave: None, listener: None }
    }
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
    /// What was put there for it.
    pub installed: Option<Installation>,
    /// Hosts that its sandbox asked for meanwhile and was not given, as `host:port`.
    pub refused: Vec<String>,
    /// Hosts that its sandbox reached meanwhile.
    pub reached: Vec<Reached>,
    /// What it called of other servers' tools.
    pub calls: Calls,
}

/// Packages that a run got, apart from its own time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// Names and versions of what was not there before.
    pub packages: Vec<(String, String)>,
    /// Imports that nothing could be found for, and why.
    pub left_out: Vec<(String, String)>,
    pub took: Duration,
    /// Whether they had to be fetched; otherwise somebody had asked for the same before.
    pub was_built: bool,
}

impl Run {
    /// About how much memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let left: usize = self.left.iter().map(|file| file.path.len() + file.bytes.len()).sum();
        let changed: usize = self.changes.entries.iter().map(|entry| entry.path.len() + 64).sum();
        let called: usize = self.calls.made.iter().map(|made| made.tool.len() + made.outcome.len() + 64).sum();
        self.report.stdout.len() + self.report.stderr.len() + self.rich.bytes() + left + changed + called
    }
}

/// What a caller wants of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobAction {
    /// Look.
    Poll,
    /// Look when it has ended, or after this long.
    Wait(Duration),
    /// Bytes for its standard input.
    Stdin {
        bytes: Vec<u8>,
        then: StdinThen,
    },
    Signal(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinThen {
    Open,
    End,
}

/// A job as its owner sees it.
#[derive(Debug, Clone)]
pub struct JobView {
    pub id: RunId,
    pub sandbox: Option<SandboxId>,
    /// What it came to, once it has ended.
    pub ended: Option<Arc<Run>>,
    pub age: Duration,
    /// What it printed from the offset on.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Bytes from the offset on that are forgotten.
    pub missed: u64,
    /// Where the next look begins.
    pub next_offset: u64,
}
