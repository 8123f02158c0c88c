//! A fresh run behind a wall that has an engine, against the engine's own way to run one program.

use belljar_backends::{Floor, floor};

use super::{Bench, note, printed};
use crate::cli::bench::client::Call;
use crate::cli::bench::floors::{self, SUM};
use crate::cli::bench::report::{Findings, Outcome};

pub(in crate::cli::bench) const POOL: &str = "python, prepared ahead";
pub(in crate::cli::bench) const NO_POOL: &str = "python, without the pool";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let Some(floor) = floor(bench.choice, &bench.host) else {
        return Ok(Outcome::Absent("native has no engine of its own; `fresh` has its figures".to_owned()));
    };
    let Floor { words, program, arguments, output } = match floor {
        Ok(floor) => floor,
        Err(why) => return Ok(Outcome::Absent(why)),
    };
    bench.progress.step("wall: starting servers");
    let (mut pooled, mut single) = (bench.launch.stdio(&[])?, bench.launch.stdio(&["--no-pool"])?);
    let what = format!("wall: {words}, and python with and without the pool");
    bench.progress.step(&what);
    let call = Call::fresh("python", SUM);
    let (plan, servers) = (&bench.plan, [pooled.pid(), single.pid()]);
    let words_of: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let [bare, ready, made] = bench.rounds(&servers, plan.wall_runs).run(|lane, round| {
        bench.progress.at(&what, round, plan.wall_runs);
        match lane {
            0 => floors::run(&program, &words_of, output),
            1 => printed(&mut pooled.client, &call, "2\n"),
            _ => printed(&mut single.client, &call, "2\n"),
        }
    })?;
    let floor = bare.spread();
    let mut findings = Findings::default();
    findings.rows.push(bare.row(words, &floor));
    for (name, tally) in [(POOL, &ready), (NO_POOL, &made)] {
        findings.rows.push(tally.row(name, &floor));
        note(&mut findings, name, tally);
    }
    Ok(Outcome::Measured(findings))
}
