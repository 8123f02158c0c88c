//! A library that takes long to import, fresh each time.

use super::{Bench, note, printed};
use crate::cli::bench::client::Call;
use crate::cli::bench::floors::{self, Interpreters};
use crate::cli::bench::measure::Rounds;
use crate::cli::bench::report::{Findings, Outcome};

const CODE: &str = r#"import pandas as pd; print(pd.DataFrame({"a":[1]}).sum())"#;
/// One reads the library's files into memory, for both sides.
const UNCOUNTED: u32 = 1;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let what = "pandas: one after another";
    bench.progress.step(what);
    let mut stdio = bench.scientific().stdio(&[])?;
    let interpreters = Interpreters::ask(&mut stdio.client);
    let python = interpreters.python()?;
    let Some(expected) = floors::output(python, &["-c", CODE]) else {
        let hint = "name one that can with --science, or put it first in PATH";
        return Ok(Outcome::Absent(format!("{} cannot import pandas; {hint}", python.display())));
    };
    let (call, server, runs) = (Call::fresh("python", CODE), stdio.pid(), bench.plan.slow_runs);
    let [bare, sealed] = Rounds { uncounted: UNCOUNTED, ..bench.rounds(&[server], runs) }.run(|lane, round| {
        bench.progress.at(what, round, runs);
        match lane {
            0 => floors::run(python, &["-c", CODE], &expected),
            _ => printed(&mut stdio.client, &call, &expected),
        }
    })?;
    let (floor, mut findings) = (bare.spread(), Findings::default());
    findings.rows.push(bare.row("bare python3 -c", &floor));
    findings.rows.push(sealed.row("python, stdio, sequential", &floor));
    note(&mut findings, "python, stdio, sequential", &sealed);
    findings.notes.push(format!("with {}", python.display()));
    Ok(Outcome::Measured(findings))
}
