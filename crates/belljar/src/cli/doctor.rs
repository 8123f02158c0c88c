//! `belljar doctor`: every wall and language, whether it stands here, why not, and the way to get it.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use belljar_backends::{Choice, Preload};
use belljar_core::{Backend, BackendError, Probe, Spec, Wall, WallState};
use clap::Args;
use serde_json::{Value, json};

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

impl Doctor {
    /// Exits with 0 when programs can be run here, 1 when not.
    pub(super) fn execute(self, choice: Choice) -> anyhow::Result<ExitCode> {
        let runtime = wiring::runtime_for_one()?;
        let guard = runtime.enter();
        let backend = wiring::backend(choice, Preload::No);
        let probe = backend.probe();
        drop(guard);
        let trial = runtime.block_on(try_one(backend.as_ref()));
        let usable = probe.usable() && matches!(trial, Trial::Opened { .. });
        let mut stdout = std::io::stdout().lock();
        if self.json {
            writeln!(stdout, "{:#}", as_json(backend.name(), &probe, &trial, usable))?;
        } else {
            write_text(&mut stdout, backend.name(), &probe, &trial)?;
        }
        Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(1) })
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

fn write_text(out: &mut impl Write, backend: &str, probe: &Probe, trial: &Trial) -> std::io::Result<()> {
    writeln!(out, "backend {backend}")?;
    for wall in &probe.walls {
        write_wall(out, wall)?;
    }
    match trial {
        Trial::Opened { took } => writeln!(out, "  ok       sandbox     opened and closed ({took:.1?})")?,
        Trial::Failed { why, fix } => writeln!(out, "  MISSING  sandbox     {why}\n           fix: {fix}")?,
    }
    writeln!(out, "languages")?;
    for language in &probe.languages {
        write_wall(out, language)?;
    }
    Ok(())
}

fn write_wall(out: &mut impl Write, wall: &Wall) -> std::io::Result<()> {
    let name = wall.name;
    match &wall.state {
        WallState::Stands { detail } => writeln!(out, "  ok       {name:<11} {detail}"),
        WallState::Weaker { why, fix } => writeln!(out, "  weaker   {name:<11} {why}\n           fix: {fix}"),
        WallState::Missing { why, fix } => writeln!(out, "  MISSING  {name:<11} {why}\n           fix: {fix}"),
    }
}

fn as_json(backend: &str, probe: &Probe, trial: &Trial, usable: bool) -> Value {
    let walls = |walls: &[Wall]| -> Vec<Value> { walls.iter().map(wall_json).collect() };
    let trial = match trial {
        Trial::Opened { took } => json!({ "state": "ok", "open_ms": took.as_secs_f64() * 1000.0 }),
        Trial::Failed { why, fix } => json!({ "state": "missing", "why": why, "fix": fix }),
    };
    json!({
        "backend": backend,
        "usable": usable,
        "walls": walls(&probe.walls),
        "sandbox": trial,
        "languages": walls(&probe.languages),
    })
}

fn wall_json(wall: &Wall) -> Value {
    match &wall.state {
        WallState::Stands { detail } => json!({ "name": wall.name, "state": "ok", "detail": detail }),
        WallState::Weaker { why, fix } => json!({ "name": wall.name, "state": "weaker", "why": why, "fix": fix }),
        WallState::Missing { why, fix } => json!({ "name": wall.name, "state": "missing", "why": why, "fix": fix }),
    }
}
