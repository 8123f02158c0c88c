//! `belljar bench`: what sandboxed runs cost over MCP, as ratios to the bare programs on the same machine.
//!
//! It starts the real server and calls it as a client. What is compared is measured in turn, so that a busy neighbour slows
//! all alike; only the ratios are worth comparing between machines. docs/performance.md has the method and the figures.

mod chart;
mod client;
mod floors;
mod groups;
mod measure;
mod plan;
mod processes;
mod progress;
mod report;
mod serve;
mod server;
mod table;
mod targets;
mod tokens;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use belljar_backends::{Choice, WishedWall};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::groups::Name;
use self::plan::Plan;
use self::progress::Progress;
use self::report::{Group, Report};
use self::server::Launch;
use self::targets::{Met, Verdict};
use crate::complaint::Complaint;
use crate::config::Config;
use crate::wiring;

/// What the issue that set the targets asks for.
const SOAK: u32 = 10_000;
const RUNS: u32 = 200;
const RUNS_QUICK: u32 = 3;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    /// Runs of each kind; of slow kinds fewer [default: 200]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(5..=100_000))]
    runs: Option<u32>,
    /// Measure little, in some seconds, to see that all of it works
    #[arg(long)]
    quick: bool,
    /// Measure only these groups
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    only: Vec<Name>,
    /// Make so many fresh runs more and look whether anything is left behind; 10000 take some minutes
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    soak: Option<u32>,
    /// A Python with pandas, for what is measured with it [default: the one in PATH]
    #[arg(long, value_name = "FILE")]
    science: Option<PathBuf>,
    /// The command of an MCP server with a tool echo(message), for the group calls, in place of one that does next to nothing
    #[arg(long, value_name = "COMMAND")]
    upstream: Option<String>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Draw a chart into this SVG file, too
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Exit with 1 if a target is missed
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What work costs a model in tokens: direct calls, deferred tools, and programs
    Tokens(tokens::Tokens),
    /// What one server bears: many sandboxes, many callers, a long time, and being killed
    Serve(serve::Serve),
}

impl Bench {
    pub(super) fn execute(self, config: &Config, named: Option<PathBuf>) -> anyhow::Result<ExitCode> {
        let WishedWall::Named(choice) = config.walls.backend.value else {
            return Err(Complaint::new("figures are of one wall", "name it, such as --backend gvisor").into());
        };
        match &self.what {
            Some(What::Tokens(tokens)) => return tokens.execute(choice),
            Some(What::Serve(serve)) => return serve.execute(choice, config, named),
            None => {}
        }
        server::end_servers_on_signal()?;
        let report = self.measure(choice, config, named);
        if let Some(number) = server::ended_by() {
            // As a shell tells of a program that a signal ended.
            return Ok(ExitCode::from(128 + u8::try_from(number).unwrap_or_default()));
        }
        let report = report?;
        let verdicts = targets::judge(&report);
        if let Some(file) = &self.chart {
            save_chart(file, &report)?;
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

    fn measure(&self, choice: Choice, config: &Config, named: Option<PathBuf>) -> anyhow::Result<Report> {
        let soak = self.soak.unwrap_or(SOAK);
        let plan = if self.quick {
            Plan::quick(self.runs.unwrap_or(RUNS_QUICK), soak)
        } else {
            Plan::whole(self.runs.unwrap_or(RUNS), soak)
        };
        if let Some(python) = self.science.as_deref().filter(|python| !python.is_file() || python.is_relative()) {
            let what = format!("--science {} is not the absolute path of a Python", python.display());
            return Err(Complaint::new(what, "give one such as /opt/science/bin/python3").into());
        }
        // What is built in, unless told otherwise: figures of two machines compare only if nobody's own settings are in them.
        let built_in = tempfile::NamedTempFile::new().context("making an empty configuration")?;
        // A wall that has an engine needs the operator's, since these say where the engine is.
        let own = config.file.clone().filter(|_| choice != Choice::Native);
        let file = named.or(own).unwrap_or_else(|| built_in.path().to_owned());
        let bench = groups::Bench {
            choice,
            host: wiring::host(config),
            launch: Launch { backend: choice.name(), config: file, path: None, home: None },
            science: self.science.clone(),
            upstream: self.upstream.clone(),
            plan,
            progress: Progress::new(),
        };
        let mut machine = machine(self.quick);
        let groups = Name::ALL.iter().filter_map(|name| self.turn(&bench, *name)).collect();
        machine.push(("seconds", json!(bench.progress.elapsed().as_secs())));
        let report = Report { machine, groups };
        match report.why_nothing() {
            Some(why) => Err(Complaint::new(why, "belljar doctor says what this machine lacks").into()),
            None => Ok(report),
        }
    }

    /// A group that was asked for. The soak is asked for by its own flag, and without it the others say so.
    fn turn(&self, bench: &groups::Bench, name: Name) -> Option<Group> {
        let is_asked = self.only.contains(&name);
        if name == Name::Soak && self.soak.is_none() && !is_asked && bench.choice == Choice::Native {
            return self
                .only
                .is_empty()
                .then(|| Group::absent(name.word(), name.about(), "ask for it with --soak 10000"));
        }
        // The other groups compare with programs of the host, which only the native wall runs as they are.
        let is_usual = (bench.choice == Choice::Native) != (name == Name::Wall);
        let is_wanted = is_asked || self.only.is_empty() && is_usual || name == Name::Soak && self.soak.is_some();
        is_wanted.then(|| bench.measure(name))
    }
}

fn as_json(report: &Report, verdicts: &[Verdict]) -> Value {
    let mut object = report.as_json();
    object.insert("targets".to_owned(), verdicts.iter().map(Verdict::as_json).collect());
    Value::Object(object)
}

fn save_chart(file: &Path, report: &Report) -> anyhow::Result<()> {
    let svg = chart::draw(report).ok_or_else(|| {
        Complaint::new(
            "there is nothing to draw a chart of",
            "measure the group fresh, with --only fresh or without it",
        )
    })?;
    fs::write(file, svg).map_err(|error| {
        let what = format!("cannot write the chart {}: {error}", file.display());
        Complaint::new(what, "give another file with --chart").into()
    })
}

/// What a reader must know of the machine to judge the figures.
fn machine(is_quick: bool) -> Vec<(&'static str, Value)> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model =
        info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("?", |(_, name)| name);
    let load = read("/proc/loadavg");
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    vec![
        ("build", json!(build)),
        ("cores", json!(std::thread::available_parallelism().map_or(0, usize::from))),
        ("processor", json!(model)),
        ("kernel", json!(read("/proc/sys/kernel/osrelease").trim())),
        ("load", json!(load.split(' ').next().and_then(|load| load.parse::<f64>().ok()))),
        ("quick", json!(is_quick)),
    ]
}
