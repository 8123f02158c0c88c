//! Runs per second, sealed and bare, by as many clients at once.
//!
//! A client over HTTP is a connection of its own; over a pipe it is a request in flight. Sealed and bare take turns, and
//! the server comes to rest before a bare turn, which must not pay for what is cleared away.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::{Bench, LONG_REST, note};
use crate::cli::bench::client::{Call, Http};
use crate::cli::bench::floors::{self, Interpreters, SUM};
use crate::cli::bench::measure::Tally;
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Findings, Outcome, Row};

const TWO: &str = "2\n";
/// In flight on the one pipe.
const PIPED: usize = 16;

/// Runs, and how long they took together.
#[derive(Default)]
struct Flow {
    tally: Tally,
    took: Duration,
}

impl Flow {
    fn add(&mut self, tally: Tally, took: Duration) {
        self.tally.merge(tally);
        self.took += took;
    }

    fn per_second(&self) -> f64 {
        let good = self.tally.runs() as f64 * self.tally.success() / 100.0;
        good / self.took.as_secs_f64()
    }
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    bench.progress.step("throughput: starting servers");
    let (mut stdio, http) = (bench.launch.stdio(&[])?, bench.launch.http(&[])?);
    let interpreters = Interpreters::ask(&mut stdio.client);
    let (python, call, plan) = (interpreters.python()?, Call::fresh("python", SUM), &bench.plan);
    let mut findings = Findings::default();
    for &clients in plan.clients {
        let name = format!("{clients} over http");
        bench.progress.step(&format!("throughput: {name}"));
        let connect = || (0..clients).map(|_| http.connect()).collect::<anyhow::Result<Vec<Http>>>();
        let both = in_turn(bench, python, clients, http.pid(), || {
            let (connections, started) = (connect()?, Instant::now());
            let answers = Http::flood(connections, &call, started + plan.window)?;
            Ok((Tally::of(&answers, TWO), started.elapsed()))
        })?;
        add(&mut findings, &name, both);
    }
    let wide = PIPED.min(plan.clients.last().copied().unwrap_or(PIPED));
    let name = format!("{wide} over stdio");
    bench.progress.step(&format!("throughput: {name}"));
    let server = stdio.pid();
    let both = in_turn(bench, python, wide, server, || {
        let started = Instant::now();
        let answers = stdio.client.flood(&call, wide, || started.elapsed() < plan.window)?;
        Ok((Tally::of(&answers, TWO), started.elapsed()))
    })?;
    add(&mut findings, &name, both);
    Ok(Outcome::Measured(findings))
}

/// Bare and sealed, a window each, as often as planned.
fn in_turn(
    bench: &Bench,
    python: &Path,
    clients: usize,
    server: u32,
    mut sealed: impl FnMut() -> anyhow::Result<(Tally, Duration)>,
) -> anyhow::Result<(Flow, Flow)> {
    let (mut bare, mut fresh) = (Flow::default(), Flow::default());
    for _ in 0..bench.plan.windows {
        let (tally, took) = bare_flood(python, clients, bench.plan.window)?;
        bare.add(tally, took);
        let (tally, took) = sealed()?;
        fresh.add(tally, took);
        processes::settle(&[server], LONG_REST);
    }
    Ok((bare, fresh))
}

fn bare_flood(python: &Path, clients: usize, window: Duration) -> anyhow::Result<(Tally, Duration)> {
    let started = Instant::now();
    let one = || {
        let mut tally = Tally::default();
        while started.elapsed() < window {
            tally.add(floors::run(python, &["-c", SUM], TWO)?);
        }
        anyhow::Ok(tally)
    };
    let mut all = Tally::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients).map(|_| scope.spawn(one)).collect();
        for thread in threads {
            all.merge(thread.join().map_err(|_| anyhow!("a bare client failed"))??);
        }
        anyhow::Ok(())
    })?;
    Ok((all, started.elapsed()))
}

fn add(findings: &mut Findings, name: &str, (bare, fresh): (Flow, Flow)) {
    let row = Row::new(name)
        .with(Column::Runs, fresh.tally.runs() as f64)
        .with(Column::Success, fresh.tally.success())
        .with(Column::Rate, fresh.per_second())
        .with(Column::BareRate, bare.per_second())
        .with(Column::RateRatio, fresh.per_second() / bare.per_second());
    findings.rows.push(fresh.tally.spread().put(row));
    note(findings, name, &fresh.tally);
}
