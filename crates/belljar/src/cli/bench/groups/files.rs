//! Much data: a file there and back, and a program that prints without end.

use serde_json::json;

use super::{Bench, note};
use crate::cli::bench::client::{Call, Client};
use crate::cli::bench::floors::{self, Cat, Interpreters};
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Findings, Outcome};

const FILE_BYTES: usize = 1_000_000;
const PRINT: &str = "for _ in range(10_000): print('x' * 999)";

/// `write_file` and `read_file`, against `cat` into a file and out of it.
pub(super) fn round_trip(bench: &Bench) -> anyhow::Result<Outcome> {
    let what = "files: 1 MB there and back";
    bench.progress.step(what);
    let mut stdio = bench.launch.stdio(&[])?;
    let sandbox = stdio.client.create()?;
    let data: String = "a line of text, as files have them\n".chars().cycle().take(FILE_BYTES).collect();
    let cat = Cat::of(data.as_bytes())?;
    let write = Call::new("write_file", json!({ "sandbox_id": sandbox, "path": "data", "content": data }));
    let read = Call::new("read_file", json!({ "sandbox_id": sandbox, "path": "data", "length": FILE_BYTES }));
    let runs = bench.plan.node_runs;
    let [bare, sealed] = bench.rounds(&[], runs).run(|lane, round| {
        bench.progress.at(what, round, runs);
        if lane == 0 {
            return cat.round_trip();
        }
        let written = stdio.client.call(&write)?;
        let answer = stdio.client.call(&read)?;
        let is_all = answer.field("content").as_str().is_some_and(|content| content.len() == data.len());
        let is_right = written.result["isError"] != true && is_all;
        Ok(answer.is(is_right).map(|took| took + written.took))
    })?;
    let (floor, mut findings) = (bare.spread(), Findings::default());
    findings.rows.push(bare.row("bare cat, twice", &floor));
    findings.rows.push(sealed.row("write_file, read_file", &floor));
    note(&mut findings, "write_file, read_file", &sealed);
    Ok(Outcome::Measured(findings))
}

/// 10 MB printed, against the bare program on a pipe; and the most memory that the server had.
pub(super) fn print_much(bench: &Bench) -> anyhow::Result<Outcome> {
    bench.progress.step("output: 10 MB printed");
    let mut stdio = bench.launch.stdio(&[])?;
    let interpreters = Interpreters::ask(&mut stdio.client);
    let python = interpreters.python()?;
    let sandbox = stdio.client.create()?;
    let call = Call::within(&sandbox, "python", PRINT);
    let expected = format!("{}\n", "x".repeat(999)).repeat(10_000);
    let [bare, sealed] = bench.rounds(&[], bench.plan.slow_runs).run(|lane, _| {
        if lane == 0 {
            return floors::run(python, &["-c", PRINT], &expected);
        }
        let answer = stdio.client.call(&call)?;
        Ok(answer.is(answer.field("ending") == "exited"))
    })?;
    let (floor, mut findings) = (bare.spread(), Findings::default());
    let peak = processes::status_kib(stdio.pid(), "VmHWM:")? as f64 / 1024.0;
    findings.rows.push(bare.row("bare python3 -c", &floor));
    findings.rows.push(sealed.row("python, kept sandbox", &floor).with(Column::Peak, peak));
    note(&mut findings, "python, kept sandbox", &sealed);
    Ok(Outcome::Measured(findings))
}
