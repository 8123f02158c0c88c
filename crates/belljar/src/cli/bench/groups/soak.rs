//! Whether anything is left behind that only shows after thousands of runs.

use std::time::Instant;

use anyhow::Context;

use super::{Bench, LONG_REST, note};
use crate::cli::bench::client::Call;
use crate::cli::bench::floors::SUM;
use crate::cli::bench::measure::Tally;
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Findings, Outcome, Row};

const POINTS: u32 = 10;
/// At once, so that runs begin, end and are cleared away in every order.
const IN_FLIGHT: usize = 4;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let total = bench.plan.soak;
    bench.progress.step(&format!("soak: {total} fresh runs"));
    let mut stdio = bench.launch.stdio(&[])?;
    let (server, call) = (stdio.pid(), Call::fresh("python", SUM));
    let mut findings = Findings::default();
    let (mut all, mut done) = (Tally::default(), 0);
    let started = Instant::now();
    for point in 1..=POINTS {
        let until = u32::try_from(u64::from(total) * u64::from(point) / u64::from(POINTS)).unwrap_or(total);
        let answers = stdio.client.flood(&call, IN_FLIGHT, || {
            let more = done < until;
            done += u32::from(more);
            bench.progress.at("soak", done, total);
            more
        })?;
        all.merge(Tally::of(&answers, "2\n"));
        processes::settle(&[server], LONG_REST);
        findings.rows.push(look(server, done)?);
    }
    let rate = f64::from(total) / started.elapsed().as_secs_f64();
    findings.notes.push(format!("{:.2} % as they should be, {rate:.0} runs a second", all.success()));
    note(&mut findings, "soak", &all);
    Ok(Outcome::Measured(findings))
}

fn look(server: u32, runs: u32) -> anyhow::Result<Row> {
    let family = processes::family(server);
    let jail = family.iter().find(|process| processes::program(process.pid).contains("jail"));
    let mounts_of_jail = jail.map_or(0, |jail| processes::mounts(jail.pid));
    let rss = processes::status_kib(server, "VmRSS:").context("the server after many runs")?;
    Ok(Row::new(format!("after {runs}"))
        .with(Column::Runs, f64::from(runs))
        .with(Column::Processes, family.len() as f64)
        .with(Column::Cgroups, processes::cgroups(server) as f64)
        .with(Column::Mounts, processes::mounts(std::process::id()) as f64)
        .with(Column::JailMounts, mounts_of_jail as f64)
        .with(Column::Descriptors, processes::open_files(server) as f64)
        .with(Column::Rss, rss as f64 / 1024.0))
}
