//! Fresh runs of programs that are compiled first, against the compiler by hand. Fewer of them: each takes as long as many
//! of the others.

use anyhow::Context;

use super::{Bench, note, printed};
use crate::cli::bench::client::Call;
use crate::cli::bench::floors::Compiled;
use crate::cli::bench::measure::Rounds;
use crate::cli::bench::report::Findings;
use crate::cli::bench::server::OnPipe;

/// The first of each fills the compiler's cache.
const UNCOUNTED: u32 = 1;
/// A sandbox without Go's compiled library takes this many times longer than the compiler by hand, and more.
const COLD: u32 = 5;

pub(super) fn measure(
    bench: &Bench,
    stdio: &mut OnPipe,
    language: &'static str,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let runs = bench.plan.compiled_runs;
    if runs == 0 {
        return Ok(());
    }
    let what = format!("fresh: {language}, one after another");
    bench.progress.step(&what);
    let compiled = Compiled::find(&mut stdio.client, language)?;
    let compiled =
        compiled.with_context(|| format!("this machine has no {language}; belljar doctor says how to get it"))?;
    let server = stdio.pid();
    let [bare, sealed] = Rounds { uncounted: UNCOUNTED, ..bench.rounds(&[server], runs) }.run(|lane, round| {
        bench.progress.at(&what, round, runs);
        match lane {
            0 => compiled.run(round),
            _ => {
                let call = Call::fresh(language, &compiled.code(round));
                printed(&mut stdio.client, &call, &Compiled::expected(round))
            }
        }
    })?;
    let (floor, name) = (bare.spread(), format!("{language}, stdio, sequential"));
    findings.rows.push(bare.row(compiled.floor(), &floor));
    findings.rows.push(sealed.row(&name, &floor));
    note(findings, &name, &sealed);
    if language == "go" && sealed.spread().p50 > floor.p50 * COLD {
        findings.notes.push("go: each run compiles Go's library; belljar warmup does that once".to_owned());
    }
    Ok(())
}
