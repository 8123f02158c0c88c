//! Many sandboxes in which nothing happens: first as they are created, then each with a live Python.
//!
//! As PSS of everything below the server and the server itself, in which a page that many have is divided among them.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;

use super::{Measured, Stage};
use crate::cli::bench::client::{Call, Client, Http};
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Row};

const GIB_MAX: f64 = 8.0;
/// No machine is brought to where it ends programs at random.
const SPARE_KIB: u64 = 1024 * 1024;
const REST: Duration = Duration::from_secs(30);

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let count = stage.plan.sandboxes;
    let most = (count + 8).to_string();
    // Without those that wait for callers to come, which would be counted, too.
    let server = stage.launch.http(&["--no-pool", "--max-sandboxes", &most])?;
    let mut client = server.connect()?;
    let mut measured = Measured::default();
    let before = look(server.pid(), "before", 0, 0.0)?;
    let empty = before.get(Column::Pss).unwrap_or_default();
    measured.findings.rows.push(before);

    let mut made = Vec::new();
    for number in 0..count {
        stage.progress.at("idle: sandboxes", number, count);
        has_room()?;
        let answer = client.call(&Call::new("create_sandbox", json!({})))?;
        let id = answer.field("sandbox_id").as_str().context("a sandbox could not be created")?;
        made.push(id.to_owned());
    }
    processes::settle(&[server.pid()], REST);
    measured.findings.rows.push(look(server.pid(), "created", count, empty)?);

    for (number, sandbox) in (0..).zip(&made) {
        stage.progress.at("idle: a python in each", number, count);
        has_room()?;
        let answer = client.call(&Call::within(sandbox, "python", "print(1)"))?;
        answer.printed("1\n").map_err(|why| anyhow::anyhow!("in sandbox {number}: {why}"))?;
    }
    processes::settle(&[server.pid()], REST);
    let seen = processes::sandboxes(server.pid()).len();
    if seen < made.len() {
        measured.findings.notes.push(format!("only {seen} of {count} sandboxes can be seen from here"));
    }
    let full = look(server.pid(), "with a live python", count, empty)?;
    let gib = full.get(Column::Pss).unwrap_or_default() / 1024.0;
    let each = full.get(Column::PssEach).unwrap_or_default();
    measured.findings.rows.push(full);

    let left = destroy(stage, &mut client, &made, server.pid())?;
    measured.findings.rows.push(look(server.pid(), "destroyed", 0, empty)?);
    let found = format!("{gib:.2} GiB, {each:.2} MiB each");
    measured.judge(format!("{count} idle sandboxes, memory"), format!("≤ {GIB_MAX} GiB"), found, gib <= GIB_MAX);
    measured.judge("idle sandboxes that outlive their end", "0", left.to_string(), left == 0);
    Ok(measured)
}

/// How many are still there, when all of them should be gone.
fn destroy(stage: &Stage, client: &mut Http, made: &[String], server: u32) -> anyhow::Result<usize> {
    for (number, sandbox) in (0..).zip(made) {
        stage.progress.at("idle: destroying", number, made.len() as u32);
        let answer = client.call(&Call::new("destroy_sandbox", json!({ "sandbox_id": sandbox })))?;
        if answer.result["isError"] == true {
            bail!("sandbox {number} could not be destroyed");
        }
    }
    processes::settle(&[server], REST);
    Ok(processes::sandboxes(server).len())
}

fn look(server: u32, name: &str, sandboxes: u32, empty: f64) -> anyhow::Result<Row> {
    let family = processes::family(server);
    // One that ends while we look is none.
    let kib: u64 = family.iter().filter_map(|process| processes::pss_kib(process.pid).ok()).sum();
    let mib = kib as f64 / 1024.0;
    if kib == 0 {
        bail!("the memory of the server cannot be read; be root, or the server's user");
    }
    let row = Row::new(name)
        .with(Column::Sandboxes, f64::from(sandboxes))
        .with(Column::Pss, mib)
        .with(Column::Rss, super::resident::rss_mib(server)?)
        .with(Column::Processes, family.len() as f64)
        .with(Column::Descriptors, processes::open_files(server) as f64);
    Ok(if sandboxes > 0 { row.with(Column::PssEach, (mib - empty) / f64::from(sandboxes)) } else { row })
}

fn has_room() -> anyhow::Result<()> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading how much memory there is")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: u64 = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(u64::MAX);
    if kib < SPARE_KIB {
        bail!("this machine has less than 1 GiB of memory left; ask for fewer --sandboxes");
    }
    Ok(())
}
