//! What servers, prepared sandboxes and idle ones take.
//!
//! As PSS, in which a page that many processes have is divided among them: with forked interpreters the sum of RSS counts
//! the same page once for each sandbox. `each` of prepared sandboxes is the median; `each` of idle ones is what the whole
//! grew by.

use std::time::Duration;

use anyhow::Context;

use super::{Bench, LONG_REST};
use crate::cli::bench::client::{Call, Client};
use crate::cli::bench::floors::{self, Interpreters, SUM};
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Findings, Outcome, Row};
use crate::cli::bench::server::{Launch, OnPipe};

pub(in crate::cli::bench) const NO_POOL: &str = "server, no pool";
pub(in crate::cli::bench) const PREPARED: &str = "prepared python";
pub(in crate::cli::bench) const PREPARED_SCIENCE: &str = "prepared python, scientific";

/// Calls at once, more than a pool holds.
const BURST: u32 = 40;

/// Programs of kernels, by the beginnings of their names, and what to call their sandboxes.
const KERNELS: [(&str, &str); 4] =
    [("python", PREPARED), ("node", "prepared javascript"), ("bash", "prepared shell"), ("sh", "prepared shell")];
const OTHER: &str = "prepared, no kernel";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let mut findings = Findings::default();
    bench.progress.step("memory: the server and what it prepares");
    let mut stdio = prepared(&bench.launch, &mut findings)?;
    if bench.science.is_some() {
        prepared(&bench.scientific(), &mut findings)?;
    }
    if let Err(error) = idle(bench, &mut stdio, &mut findings) {
        findings.notes.push(format!("idle sandboxes: {error:#}"));
    }
    drop(stdio);
    bench.progress.step("memory: a server without a pool");
    match bench.launch.stdio(&["--no-pool"]) {
        Ok(server) => findings.rows.push(Row::new(NO_POOL).with(Column::Rss, rss(server.pid())?)),
        Err(error) => findings.notes.push(format!("{NO_POOL}: not measured: {error:#}")),
    }
    Ok(Outcome::Measured(findings))
}

/// A server at rest, and when a burst has filled its pool: of the pages that prepared sandboxes share with each other and
/// with what they are forked from, each has a smaller part the more there are.
fn prepared(launch: &Launch, findings: &mut Findings) -> anyhow::Result<OnPipe> {
    let mut stdio = launch.stdio(&[])?;
    processes::settle(&[stdio.pid()], LONG_REST);
    let is_first = findings.rows.is_empty();
    let is_scientific = imports_pandas(&mut stdio);
    if is_first {
        let inside: Vec<u32> = processes::sandboxes(stdio.pid()).into_iter().flatten().collect();
        let family = processes::family(stdio.pid()).into_iter().map(|process| process.pid);
        let own: Vec<u32> = family.filter(|pid| !inside.contains(pid)).collect();
        findings.rows.push(Row::new("server").with(Column::Rss, rss(stdio.pid())?).with(Column::Pss, pss(&own)?));
    }
    waiting(&stdio, is_scientific, ", at rest", findings)?;
    stdio.client.paced(&Call::fresh("python", SUM), BURST, Duration::ZERO)?;
    processes::settle(&[stdio.pid()], LONG_REST);
    waiting(&stdio, is_scientific, "", findings)?;
    Ok(stdio)
}

/// The prepared sandboxes of each kind.
fn waiting(stdio: &OnPipe, is_scientific: bool, when: &str, findings: &mut Findings) -> anyhow::Result<()> {
    let sandboxes = processes::sandboxes(stdio.pid());
    let kinds: Vec<(&str, f64)> =
        sandboxes.iter().map(|pids| Ok((kind(pids), pss(pids)?))).collect::<anyhow::Result<_>>()?;
    let none = "this server prepares no sandboxes".to_owned();
    if kinds.is_empty() && !findings.notes.contains(&none) {
        findings.notes.push(none);
    }
    for known in KERNELS.iter().take(3).map(|(_, name)| *name).chain([OTHER]) {
        let sizes: Vec<f64> = kinds.iter().filter(|(kind, _)| *kind == known).map(|(_, size)| *size).collect();
        let name = if known == PREPARED && is_scientific { PREPARED_SCIENCE } else { known };
        let name = format!("{name}{when}");
        if sizes.is_empty() || findings.rows.iter().any(|row| row.name == name) {
            continue;
        }
        let row = Row::new(name).with(Column::Sandboxes, sizes.len() as f64).with(Column::Pss, sizes.iter().sum());
        findings.rows.push(row.with(Column::PssEach, median(sizes)));
    }
    Ok(())
}

fn imports_pandas(stdio: &mut OnPipe) -> bool {
    let interpreters = Interpreters::ask(&mut stdio.client);
    interpreters.python().is_ok_and(|python| floors::output(python, &["-c", "import pandas"]).is_some())
}

/// Sandboxes with a live Python kernel in which nothing happens, more and more of them.
fn idle(bench: &Bench, stdio: &mut OnPipe, findings: &mut Findings) -> anyhow::Result<()> {
    processes::settle(&[stdio.pid()], LONG_REST);
    let all = |server: u32| -> anyhow::Result<f64> {
        pss(&processes::family(server).iter().map(|process| process.pid).collect::<Vec<_>>())
    };
    let before = all(stdio.pid())?;
    let mut made = 0;
    for &wanted in bench.plan.sandboxes {
        let what = format!("memory: {wanted} idle sandboxes");
        bench.progress.step(&what);
        while made < wanted {
            let sandbox = stdio.client.create()?;
            stdio.client.call(&Call::within(&sandbox, "python", "x = 1"))?;
            made += 1;
            bench.progress.at(&what, made as u32, wanted as u32);
        }
        processes::settle(&[stdio.pid()], LONG_REST);
        let seen = processes::sandboxes(stdio.pid()).len();
        if seen < wanted {
            findings.notes.push(format!("only {seen} of {wanted} sandboxes can be seen from here"));
        }
        let grown = all(stdio.pid())? - before;
        let row = Row::new(format!("{wanted} idle, live python")).with(Column::Sandboxes, wanted as f64);
        findings.rows.push(row.with(Column::Pss, grown).with(Column::PssEach, grown / wanted as f64));
    }
    Ok(())
}

fn kind(pids: &[u32]) -> &'static str {
    let programs: Vec<String> = pids.iter().map(|pid| processes::program(*pid)).collect();
    let has = |(beginning, _): &&(&str, &str)| programs.iter().any(|program| program.starts_with(beginning));
    KERNELS.iter().find(has).map_or(OTHER, |(_, name)| name)
}

fn pss(pids: &[u32]) -> anyhow::Result<f64> {
    let kib = pids.iter().map(|pid| processes::pss_kib(*pid)).sum::<anyhow::Result<u64>>()?;
    Ok(kib as f64 / 1024.0)
}

fn rss(server: u32) -> anyhow::Result<f64> {
    Ok(processes::status_kib(server, "VmRSS:").context("an idle server")? as f64 / 1024.0)
}

fn median(mut sizes: Vec<f64>) -> f64 {
    sizes.sort_by(f64::total_cmp);
    sizes.get(sizes.len() / 2).copied().unwrap_or_default()
}
