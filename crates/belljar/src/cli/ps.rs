//! `belljar ps`: what stands and runs at the moment, in every server of this user.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::ExitCode;

use belljar_store::{PastSandbox, Reader, Wanted, now_ms};
use clap::Args;
use serde_json::json;

use super::table::{cell, count, time};
use crate::config::Config;
use crate::control::{self, Answer, Overview, Request};
use crate::wiring;

/// Of sandboxes that are gone, the latest.
const PAST_MAX: u32 = 50;

#[derive(Debug, Args)]
pub(super) struct Ps {
    /// Also sandboxes of late that are gone, closed or lost with their server
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Ps {
    pub(super) fn execute(self, config: &Config) -> anyhow::Result<ExitCode> {
        let reached = control::reach(wiring::usual_runtime().as_deref());
        let mut heard = control::ask_all(&reached, &Request::Overview);
        let servers: Vec<Overview> = std::mem::take(&mut heard.answers)
            .into_iter()
            .filter_map(|answer| match answer {
                Answer::Overview(overview) => Some(overview),
                _ => None,
            })
            .collect();
        let past = if self.all { past(config, &servers)? } else { Vec::new() };
        let mut out = std::io::stdout().lock();
        if self.json {
            let answer = if self.all { json!({"servers": servers, "past": past}) } else { json!({"servers": servers}) };
            writeln!(out, "{answer:#}")?;
            heard.all()?;
            return Ok(ExitCode::SUCCESS);
        }
        if servers.is_empty() {
            heard.all()?;
            writeln!(out, "No server of yours is running.")?;
            if !self.all {
                writeln!(out, "`belljar serve` starts one; `belljar ps --all` and `belljar history` tell what was.")?;
            }
        }
        for server in &servers {
            show(&mut out, server)?;
        }
        if !past.is_empty() {
            if !servers.is_empty() {
                writeln!(out)?;
            }
            writeln!(out, "gone: sandboxes do not outlive their server")?;
            head(&mut out)?;
            for sandbox in &past {
                let age = u64::try_from(now_ms().saturating_sub(sandbox.opened_ms)).unwrap_or(0);
                let why = sandbox.why.as_deref().filter(|why| *why != "lost");
                let runs = count(sandbox.runs.unsigned_abs(), "run");
                let detail = why.map_or_else(|| runs.clone(), |why| format!("{why}, {runs}"));
                row(&mut out, [&sandbox.id, "sandbox", &sandbox.principal, sandbox.state], age, &detail)?;
            }
        } else if self.all && servers.is_empty() {
            writeln!(out, "No sandbox of late is remembered either; `belljar history` lists runs.")?;
        }
        heard.all()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Those that are not in a server any more.
fn past(config: &Config, servers: &[Overview]) -> anyhow::Result<Vec<PastSandbox>> {
    let Some(file) = wiring::history_file(config) else { return Ok(Vec::new()) };
    let complain = |error| wiring::complain_of_history(&error);
    let Some(reader) = Reader::open(&file).map_err(complain)? else { return Ok(Vec::new()) };
    let live: BTreeSet<&str> =
        servers.iter().flat_map(|server| &server.sandboxes).map(|sandbox| sandbox.id.as_str()).collect();
    let past = reader.sandboxes(&Wanted { limit: PAST_MAX, ..Wanted::default() }).map_err(complain)?;
    Ok(past.into_iter().filter(|sandbox| sandbox.state != "open" && !live.contains(sandbox.id.as_str())).collect())
}

fn show(out: &mut impl Write, server: &Overview) -> std::io::Result<()> {
    let Overview { pid, backend, uptime_ms, sandboxes, runs, waiting, prepared, .. } = server;
    let (stand, run) = (count(sandboxes.len() as u64, "sandbox"), count((runs.len() - waiting) as u64, "run"));
    let backend = cell(backend, 12);
    writeln!(
        out,
        "server {pid}: {backend}, up {}; {stand}, {run}, {waiting} waiting, {prepared} prepared",
        time(*uptime_ms)
    )?;
    if sandboxes.is_empty() && runs.is_empty() {
        return Ok(());
    }
    head(out)?;
    for sandbox in sandboxes {
        let detail = format!("{}, {} MiB", count(sandbox.runs, "run"), sandbox.memory_bytes >> 20);
        row(out, [&sandbox.id, "sandbox", &sandbox.principal, "open"], sandbox.age_ms, &detail)?;
        for run in runs.iter().filter(|run| run.sandbox.as_ref() == Some(&sandbox.id)) {
            row(out, [&run.id, &run.kind, &run.principal, &run.state], run.age_ms, "in the one above")?;
        }
    }
    for run in runs {
        if !sandboxes.iter().any(|sandbox| run.sandbox.as_ref() == Some(&sandbox.id)) {
            row(out, [&run.id, &run.kind, &run.principal, &run.state], run.age_ms, "")?;
        }
    }
    Ok(())
}

fn head(out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{:<36} {:<10} {:<14} {:<8} {:>7}  DETAIL", "ID", "WHAT", "PRINCIPAL", "STATE", "AGE")
}

fn row(
    out: &mut impl Write,
    [id, what, principal, state]: [&str; 4],
    age_ms: u64,
    detail: &str,
) -> std::io::Result<()> {
    let (id, what, principal, state) = (cell(id, 36), cell(what, 10), cell(principal, 14), cell(state, 8));
    let line = format!("{id:<36} {what:<10} {principal:<14} {state:<8} {:>7}  {}", time(age_ms), cell(detail, 19));
    writeln!(out, "{}", line.trim_end())
}
