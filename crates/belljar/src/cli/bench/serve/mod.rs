//! `belljar bench serve`: what one server bears: many sandboxes, many callers, a long time, a greedy neighbour, and being killed.
//!
//! It starts the real server over HTTP on loopback, with folders of its own, and calls it as a client. Nothing is compared with
//! other programs here; each group has targets that hold on a machine with two cores. docs/performance.md has the figures.

mod added;
mod burst;
mod crowd;
mod idle;
mod kill;
mod neighbour;
mod plan;
mod resident;
mod soak;

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use belljar_backends::Choice;
use clap::{Args, ValueEnum};
use serde_json::json;

use self::plan::Plan;
use super::progress::Progress;
use super::report::{Findings, Group, Outcome, Report};
use super::server::{self, Launch};
use super::targets::{Met, Verdict};
use super::{as_json, machine, table};
use crate::complaint::Complaint;
use crate::config::Config;

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Measure little, in about a minute, to see that all of it works
    #[arg(long)]
    quick: bool,
    /// Measure only these groups
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<Name>,
    /// Idle sandboxes at once [default: 1000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sandboxes: Option<u32>,
    /// Requests at once [default: 1000]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: Option<u32>,
    /// How long the server is under full load [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1440))]
    minutes: Option<u32>,
    /// How often the server is killed [default: 200]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    kills: Option<u32>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a target is missed
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Rss,
    Http,
    Neighbour,
    Burst,
    Idle,
    Kill,
    Soak,
}

impl Name {
    /// The longest last.
    const ALL: [Name; 7] = [Name::Rss, Name::Http, Name::Neighbour, Name::Burst, Name::Idle, Name::Kill, Name::Soak];

    fn word(self) -> &'static str {
        match self {
            Name::Rss => "rss",
            Name::Http => "http",
            Name::Neighbour => "neighbour",
            Name::Burst => "burst",
            Name::Idle => "idle",
            Name::Kill => "kill",
            Name::Soak => "soak",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Name::Rss => "what the server itself takes when nobody asks",
            Name::Http => "print(1) in a live sandbox, over HTTP and on a pipe",
            Name::Neighbour => "one caller's print(1) while another floods the server",
            Name::Burst => "requests that come all at once, each on a connection of its own",
            Name::Idle => "sandboxes that are there, and in which nothing happens",
            Name::Kill => "the server killed in the midst of its work, and started again",
            Name::Soak => "full load for a long time",
        }
    }
}

/// What a group found, and whether it is what it should be.
#[derive(Debug, Default)]
struct Measured {
    findings: Findings,
    verdicts: Vec<Verdict>,
}

impl Measured {
    fn judge(&mut self, measure: impl Into<String>, target: impl Into<String>, found: impl Into<String>, holds: bool) {
        let met = if holds { Met::Yes } else { Met::No };
        self.verdicts.push(Verdict { measure: measure.into(), target: target.into(), found: found.into(), met });
    }
}

/// What every group needs.
#[derive(Debug)]
struct Stage {
    launch: Launch,
    plan: Plan,
    progress: Progress,
    home: PathBuf,
}

impl Serve {
    pub(super) fn execute(&self, choice: Choice, config: &Config, named: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        server::end_servers_on_signal()?;
        // Each connection takes a descriptor of ours, too.
        belljar_backends::raise_open_files();
        let folder = tempfile::tempdir().context("making a folder for the servers")?;
        let stage = self.stage(choice, config, named, folder.path())?;
        let mut machine = machine(self.quick);
        let (mut groups, mut verdicts) = (Vec::new(), Vec::new());
        for name in Name::ALL.into_iter().filter(|name| self.only.is_empty() || self.only.contains(name)) {
            if server::ended_by().is_some() {
                break;
            }
            let (group, judged) = stage.measure(name);
            groups.push(group);
            verdicts.extend(judged);
        }
        if let Some(number) = server::ended_by() {
            // As a shell tells of a program that a signal ended.
            return Ok(ExitCode::from(128 + u8::try_from(number).unwrap_or_default()));
        }
        machine.push(("seconds", json!(stage.progress.elapsed().as_secs())));
        drop(stage);
        let report = Report { machine, groups };
        if let Some(why) = report.why_nothing() {
            return Err(Complaint::new(why, "belljar doctor says what this machine lacks").into());
        }
        let mut stdout = std::io::stdout().lock();
        if self.json {
            writeln!(stdout, "{:#}", as_json(&report, &verdicts))?;
        } else {
            write!(stdout, "{}", table::report(&report, &verdicts))?;
        }
        let is_missed = verdicts.iter().any(|verdict| verdict.met == Met::No);
        Ok(if self.check && is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn stage(&self, choice: Choice, config: &Config, named: Option<PathBuf>, folder: &Path) -> anyhow::Result<Stage> {
        let home = folder.join("home");
        for part in ["", "config", "cache", "data", "state", "run"] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home.join(part))?;
        }
        let built_in = folder.join("config.toml");
        std::fs::write(&built_in, "").context("making an empty configuration")?;
        // As for the other figures: only a wall that has an engine needs the operator's own.
        let own = config.file.clone().filter(|_| choice != Choice::Native);
        let file = named.or(own).unwrap_or(built_in);
        let whole = if self.quick { Plan::quick() } else { Plan::whole() };
        let plan = Plan {
            sandboxes: self.sandboxes.unwrap_or(whole.sandboxes),
            requests: self.requests.unwrap_or(whole.requests),
            kills: self.kills.unwrap_or(whole.kills),
            soak: self.minutes.map_or(whole.soak, |minutes| std::time::Duration::from_secs(60 * u64::from(minutes))),
            ..whole
        };
        let launch = Launch { backend: choice.name(), config: file, path: None, home: Some(home.clone()) };
        Ok(Stage { launch, plan, progress: Progress::new(), home })
    }
}

impl Stage {
    fn measure(&self, name: Name) -> (Group, Vec<Verdict>) {
        self.progress.step(name.word());
        let measured = match name {
            Name::Rss => resident::measure(self),
            Name::Http => added::measure(self),
            Name::Neighbour => neighbour::measure(self),
            Name::Burst => burst::measure(self),
            Name::Idle => idle::measure(self),
            Name::Kill => kill::measure(self),
            Name::Soak => soak::measure(self),
        };
        let (outcome, verdicts) = match measured {
            Ok(measured) => (Outcome::Measured(measured.findings), measured.verdicts),
            Err(error) => {
                // A group that failed keeps no target.
                let mut missed = Measured::default();
                missed.judge(name.about(), "measured", "–", false);
                (Outcome::Failed(format!("{error:#}")), missed.verdicts)
            }
        };
        (Group { name: name.word(), about: name.about(), outcome }, verdicts)
    }
}
