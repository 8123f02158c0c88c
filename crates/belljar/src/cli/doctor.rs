//! `belljar doctor`: every wall and language, whether it stands here, why not, and the way to get it.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, WishedWall};
use belljar_core::{Backend, BackendError, Probe, Spec, Wall, WallState};
use clap::Args;
use serde_json::{Value, json};

use crate::config::Config;
use crate::selftest::{self, State, Verdict};
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What became of a real sandbox, opened to see.
enum Trial {
    Opened { took: Duration },
    Failed { why: String, fix: String },
}

/// A backend that was looked at.
struct Examined {
    backend: Arc<dyn Backend>,
    probe: Probe,
    trial: Trial,
    /// What the walls' self-test found; only of the wall that the server would have.
    probes: Option<Result<Vec<Verdict>, String>>,
}

impl Doctor {
    /// Exits with 0 when programs can be run here, 1 when not. Tells of the wall that the server would have, in full, and of
    /// each other in a line; or of the named one alone.
    pub(super) fn execute(self, named: Option<WishedWall>, config: &Config) -> anyhow::Result<ExitCode> {
        let runtime = wiring::runtime_for_one()?;
        let examine = |choice: Choice| {
            let guard = runtime.enter();
            let backend = wiring::backend(choice, config);
            let probe = backend.probe();
            drop(guard);
            // What a look has found missing need not be tried.
            let trial = match probe.walls.iter().find_map(missing) {
                Some(trial) => trial,
                None => runtime.block_on(try_one(backend.as_ref())),
            };
            Examined { backend, probe, trial, probes: None }
        };
        let (mut own, others) = match (named, config.walls.backend.value) {
            (Some(WishedWall::Named(choice)), _) => (examine(choice), Vec::new()),
            (_, wish) => {
                let mut all: Vec<Examined> = Choice::ALL.into_iter().map(examine).collect();
                let is_it = |examined: &Examined| match wish {
                    WishedWall::Named(choice) => examined.backend.name() == choice.name(),
                    WishedWall::Auto => {
                        examined.is_usable()
                            && config.walls.allow.value.iter().any(|choice| choice.name() == examined.backend.name())
                    }
                };
                let own = all.iter().rposition(is_it).unwrap_or(0);
                (all.remove(own), all)
            }
        };
        if own.is_usable() {
            own.probes = Some(runtime.block_on(selftest::examine(own.backend.as_ref())));
        }
        let mut stdout = std::io::stdout().lock();
        if self.json {
            writeln!(stdout, "{:#}", as_json(&own, &others))?;
        } else {
            write_text(&mut stdout, &own, &others)?;
        }
        Ok(if own.is_usable() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

impl Examined {
    fn is_usable(&self) -> bool {
        let holds = match &self.probes {
            None => true,
            Some(Ok(verdicts)) => verdicts.iter().all(|verdict| verdict.state != State::Fired),
            Some(Err(_)) => false,
        };
        holds && self.probe.usable() && matches!(self.trial, Trial::Opened { .. })
    }
}

fn missing(wall: &Wall) -> Option<Trial> {
    match &wall.state {
        WallState::Missing { why, fix } => Some(Trial::Failed { why: why.clone(), fix: fix.clone() }),
        WallState::Stands { .. } | WallState::Weaker { .. } => None,
    }
}

async fn try_one(backend: &dyn Backend) -> Trial {
    let started = Instant::now();
    match backend.open(&Spec::default()).await {
        Ok(sandbox) => {
            let took = started.elapsed();
            match sandbox.close().await {
                Ok(()) => Trial::Opened { took },
                Err(error) => failed(error),
            }
        }
        Err(error) => failed(error),
    }
}

fn failed(error: BackendError) -> Trial {
    match error {
        BackendError::Unavailable { why, fix } => Trial::Failed { why, fix },
        other => {
            Trial::Failed { why: other.to_string(), fix: "BELLJAR_LOG=debug belljar doctor tells more".to_owned() }
        }
    }
}

fn write_text(out: &mut impl Write, own: &Examined, others: &[Examined]) -> std::io::Result<()> {
    let Examined { backend, probe, trial, probes } = own;
    writeln!(out, "backend {}", backend.name())?;
    for wall in &probe.walls {
        write_wall(out, wall)?;
    }
    match trial {
        Trial::Opened { took } => writeln!(out, "  ok       sandbox     opened and closed ({took:.1?})")?,
        Trial::Failed { why, fix } => writeln!(out, "  MISSING  sandbox     {why}\n           fix: {fix}")?,
    }
    write_probes(out, probes.as_ref())?;
    writeln!(out, "languages")?;
    for language in &probe.languages {
        write_wall(out, language)?;
    }
    if !others.is_empty() {
        writeln!(out, "other backends (--backend NAME)")?;
    }
    for Examined { backend, trial, .. } in others {
        let name = backend.name();
        match trial {
            Trial::Opened { took } => writeln!(out, "  ok       {name:<11} a sandbox opened and closed ({took:.1?})")?,
            Trial::Failed { why, fix } => writeln!(out, "  missing  {name:<11} {why}\n           fix: {fix}")?,
        }
    }
    Ok(())
}

fn write_probes(out: &mut impl Write, probes: Option<&Result<Vec<Verdict>, String>>) -> std::io::Result<()> {
    match probes {
        None => Ok(()),
        Some(Err(why)) => writeln!(out, "self-test\n  MISSING  self-test   {why}"),
        Some(Ok(verdicts)) => {
            writeln!(out, "self-test (from inside a sandbox)")?;
            verdicts.iter().try_for_each(|Verdict { probe, state, words }| {
                let state = match state {
                    State::Passed => "ok      ",
                    State::Fired => "FIRED   ",
                    State::NotApplicable => "none    ",
                };
                writeln!(out, "  {state} {probe:<11} {words}")
            })
        }
    }
}

fn write_wall(out: &mut impl Write, wall: &Wall) -> std::io::Result<()> {
    let name = wall.name;
    match &wall.state {
        WallState::Stands { detail } => writeln!(out, "  ok       {name:<11} {detail}"),
        WallState::Weaker { why, fix } => writeln!(out, "  weaker   {name:<11} {why}\n           fix: {fix}"),
        WallState::Missing { why, fix } => writeln!(out, "  MISSING  {name:<11} {why}\n           fix: {fix}"),
    }
}

fn as_json(own: &Examined, others: &[Examined]) -> Value {
    let walls = |walls: &[Wall]| -> Vec<Value> { walls.iter().map(wall_json).collect() };
    let trial = |trial: &Trial| match trial {
        Trial::Opened { took } => json!({ "state": "ok", "open_ms": took.as_secs_f64() * 1000.0 }),
        Trial::Failed { why, fix } => json!({ "state": "missing", "why": why, "fix": fix }),
    };
    let others: Vec<Value> = others
        .iter()
        .map(|other| json!({ "backend": other.backend.name(), "usable": other.is_usable(), "sandbox": trial(&other.trial) }))
        .collect();
    json!({
        "backend": own.backend.name(),
        "usable": own.is_usable(),
        "walls": walls(&own.probe.walls),
        "sandbox": trial(&own.trial),
        "self_test": probes_json(own.probes.as_ref()),
        "languages": walls(&own.probe.languages),
        "others": others,
    })
}

fn probes_json(probes: Option<&Result<Vec<Verdict>, String>>) -> Value {
    match probes {
        None => Value::Null,
        Some(Err(why)) => json!({ "state": "undone", "why": why }),
        Some(Ok(verdicts)) => {
            let one = |verdict: &Verdict| {
                let state = match verdict.state {
                    State::Passed => "passed",
                    State::Fired => "fired",
                    State::NotApplicable => "none",
                };
                json!({ "probe": verdict.probe, "state": state, "words": verdict.words })
            };
            verdicts.iter().map(one).collect()
        }
    }
}

fn wall_json(wall: &Wall) -> Value {
    match &wall.state {
        WallState::Stands { detail } => json!({ "name": wall.name, "state": "ok", "detail": detail }),
        WallState::Weaker { why, fix } => json!({ "name": wall.name, "state": "weaker", "why": why, "fix": fix }),
        WallState::Missing { why, fix } => json!({ "name": wall.name, "state": "missing", "why": why, "fix": fix }),
    }
}
