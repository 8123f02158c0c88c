//! What can be measured, a group at a time. Each group starts servers of its own and measures its own floors.

mod calls;
mod compiled;
mod egress;
mod files;
mod fresh;
mod live;
mod memory;
mod packages;
mod pandas;
mod soak;
mod throughput;
mod wall;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use belljar_backends::{Choice, Host};
use clap::ValueEnum;

pub(super) use self::calls::FROM_SANDBOX;
pub(super) use self::memory::{NO_POOL, PREPARED, PREPARED_SCIENCE};
pub(super) use self::wall::{NO_POOL as WALL_NO_POOL, POOL as WALL_POOL};
use super::client::{Call, Client, Sample};
use super::measure::{Rounds, Tally};
use super::plan::Plan;
use super::progress::Progress;
use super::report::{Findings, Group, Outcome};
use super::server::Launch;
use crate::wiring;

/// How long a server may take to put things away after many runs.
const LONG_REST: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Name {
    Wall,
    Fresh,
    Fork,
    Exec,
    Live,
    Pandas,
    Packages,
    Egress,
    Calls,
    Throughput,
    Memory,
    Files,
    Output,
    Soak,
}

impl Name {
    pub(super) const ALL: &[Name] = &[
        Name::Wall,
        Name::Fresh,
        Name::Fork,
        Name::Exec,
        Name::Live,
        Name::Pandas,
        Name::Packages,
        Name::Egress,
        Name::Calls,
        Name::Throughput,
        Name::Memory,
        Name::Files,
        Name::Output,
        Name::Soak,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Name::Wall => "wall",
            Name::Fresh => "fresh",
            Name::Fork => "fork",
            Name::Exec => "exec",
            Name::Live => "live",
            Name::Pandas => "pandas",
            Name::Packages => "packages",
            Name::Egress => "egress",
            Name::Calls => "calls",
            Name::Throughput => "throughput",
            Name::Memory => "memory",
            Name::Files => "files",
            Name::Output => "output",
            Name::Soak => "soak",
        }
    }

    pub(super) fn about(self) -> &'static str {
        match self {
            Name::Wall => "each run in a sandbox of its own, against the engine's own way to run one program",
            Name::Fresh => "each run in a sandbox of its own, which is thrown away",
            Name::Fork => "the same without prepared sandboxes (serve --no-pool)",
            Name::Exec => "the same without prepared interpreters, too (serve --no-pool --no-zygote)",
            Name::Live => "x+1 in a sandbox that stays and has an x",
            Name::Pandas => "fresh: import pandas, and the sum of a data frame",
            Name::Packages => "fresh, with packages that were installed before, against a run without any",
            Name::Egress => "by the way out of a sandbox, against no sandbox: 200 MB, and 100 bytes",
            Name::Calls => "tools of another server, called by a program, against a client without a sandbox",
            Name::Throughput => "fresh python again and again, by so many clients at once",
            Name::Memory => "what waits and what stays",
            Name::Files => "1 MB written and read",
            Name::Output => "10 MB printed",
            Name::Soak => "many fresh python runs, and what they leave behind",
        }
    }
}

/// What every group needs.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) choice: Choice,
    pub(super) host: Host,
    pub(super) launch: Launch,
    /// A Python with scientific libraries, besides the one in `PATH`.
    pub(super) science: Option<PathBuf>,
    /// A server with a tool `echo`, in place of our own.
    pub(super) upstream: Option<String>,
    pub(super) plan: Plan,
    pub(super) progress: Progress,
}

impl Bench {
    pub(super) fn measure(&self, name: Name) -> Group {
        let measured = match name {
            Name::Wall => wall::measure(self),
            Name::Fresh => fresh::measure(self),
            Name::Fork => fresh::python_with(self, "fork", &["--no-pool"]),
            Name::Exec => fresh::python_with(self, "exec", &["--no-pool", "--no-zygote"]),
            Name::Live => live::measure(self),
            Name::Pandas => pandas::measure(self),
            Name::Packages => packages::measure(self),
            Name::Egress => egress::measure(self),
            Name::Calls => calls::measure(self),
            Name::Throughput => throughput::measure(self),
            Name::Memory => memory::measure(self),
            Name::Files => files::round_trip(self),
            Name::Output => files::print_much(self),
            Name::Soak => soak::measure(self),
        };
        let outcome = measured.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        Group { name: name.word(), about: name.about(), outcome }
    }

    fn rounds<'a>(&self, servers: &'a [u32], count: u32) -> Rounds<'a> {
        Rounds { servers, count, uncounted: self.plan.uncounted, budget: self.plan.budget }
    }

    /// How to start a server whose Python has scientific libraries, if any has.
    fn scientific(&self) -> Launch {
        let Some(folder) = self.science.as_deref().and_then(|python| python.parent()) else {
            return self.launch.clone();
        };
        let mut path = OsString::from(folder);
        path.push(":");
        path.push(wiring::path());
        Launch { path: Some(path), ..self.launch.clone() }
    }
}

/// One call of a program that prints just this.
fn printed(client: &mut impl Client, call: &Call, expected: &str) -> anyhow::Result<Sample> {
    Ok(client.call(call)?.printed(expected))
}

/// Tells of runs that went wrong.
fn note(findings: &mut Findings, name: &str, tally: &Tally) {
    if let Some(why) = &tally.why {
        findings.notes.push(format!("{name}: {why}"));
    }
}
