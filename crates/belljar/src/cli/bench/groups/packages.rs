//! Fresh runs whose packages were installed before, against fresh runs that need none.

use std::time::Duration;

use super::{Bench, Rounds, note, printed};
use crate::cli::bench::client::{Call, Client};
use crate::cli::bench::processes;
use crate::cli::bench::report::{Findings, Outcome};

const NONE: &str = "print(1)";
const SMALL: &str = "import humanize; print(1)";
const LARGE: &str = "import pandas; print(1)";

/// Before this many a layer's packages are not loaded ahead; and then it takes a while.
const FIRST_RUNS: u32 = 3;
const LOADED_WITHIN: Duration = Duration::from_secs(20);
/// Each lane has sandboxes of its own kind prepared by then.
const UNCOUNTED: u32 = 5;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let what = "packages: the second fresh run";
    bench.progress.step(what);
    let folder = tempfile::tempdir()?;
    let launch = bench.launch.with(&folder, &format!("[packages]\ncache = {:?}\n", folder.path()))?;
    let mut stdio = launch.stdio(&[])?;
    let mut first = Vec::new();
    for (name, code) in [("humanize", SMALL), ("pandas", LARGE)] {
        let answer = stdio.client.call(&Call::fresh("python", code))?;
        if answer.field("stdout") != "1\n" {
            let why = answer.result["content"][0]["text"].as_str().unwrap_or_default();
            return Ok(Outcome::Absent(format!("{name} could not be installed: {why}")));
        }
        let took = answer.field("packages")["duration_ms"].as_u64().unwrap_or(0);
        first.push(format!("{name} installed in {:.1} s", took as f64 / 1000.0));
        for _ in 1..FIRST_RUNS {
            stdio.client.call(&Call::fresh("python", code))?;
        }
        processes::settle(&[stdio.pid()], LOADED_WITHIN);
    }
    let servers = [stdio.pid()];
    let calls = [NONE, SMALL, LARGE].map(|code| Call::fresh("python", code));
    let runs = bench.plan.slow_runs.max(20);
    let rounds = Rounds { uncounted: UNCOUNTED, ..bench.rounds(&servers, runs) };
    let [none, small, large] = rounds.run(|lane, round| {
        bench.progress.at(what, round, runs);
        printed(&mut stdio.client, &calls[lane], "1\n")
    })?;
    let (floor, mut findings) = (none.spread(), Findings::default());
    findings.rows.push(none.row("without packages", &floor));
    for (name, tally) in [("import humanize", &small), ("import pandas", &large)] {
        findings.rows.push(tally.row(name, &floor));
        note(&mut findings, name, tally);
    }
    findings.notes.push(format!("the first time: {}", first.join(", ")));
    Ok(Outcome::Measured(findings))
}
