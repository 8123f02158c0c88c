//! Fresh runs, in the three modes in which ComputeSDK measures sandboxes: one after another, staggered, all at once.

use std::path::Path;
use std::time::Duration;

use super::{Bench, LONG_REST, compiled, note, printed};
use crate::cli::bench::client::{Answer, Call, Http};
use crate::cli::bench::floors::{self, Interpreters, SUM};
use crate::cli::bench::measure::{Spread, Tally};
use crate::cli::bench::plan::STAGGER;
use crate::cli::bench::processes;
use crate::cli::bench::report::{Findings, Outcome};
use crate::cli::bench::server::{OnPipe, OnPort};

const TWO: &str = "2\n";
const JAVASCRIPT: &str = "console.log(1+1)";
const TYPESCRIPT: &str = "const one: number = 1; console.log(one + 1)";
const SHELL: &str = "echo $((1+1))";

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    bench.progress.step("fresh: starting servers");
    let (mut stdio, http) = (bench.launch.stdio(&[])?, bench.launch.http(&[])?);
    let interpreters = Interpreters::ask(&mut stdio.client);
    let mut findings = Findings::default();
    // A machine without one of them still has figures for the others.
    let measured = [
        interpreters.python().and_then(|python| python_both_ways(bench, &mut stdio, &http, python, &mut findings)),
        interpreters.node().and_then(|node| javascript_and_typescript(bench, &mut stdio, node, &mut findings)),
        interpreters.bash().and_then(|bash| shell(bench, &mut stdio, bash, &mut findings)),
        compiled::measure(bench, &mut stdio, "go", &mut findings),
        compiled::measure(bench, &mut stdio, "rust", &mut findings),
    ];
    findings.notes.extend(measured.into_iter().filter_map(Result::err).map(|error| format!("not measured: {error:#}")));
    Ok(Outcome::Measured(findings))
}

fn python_both_ways(
    bench: &Bench,
    stdio: &mut OnPipe,
    http: &OnPort,
    python: &Path,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let what = "fresh: python, one after another";
    bench.progress.step(what);
    let call = Call::fresh("python", SUM);
    let mut connection = http.connect()?;
    let (plan, servers) = (&bench.plan, [stdio.pid(), http.pid()]);
    let [bare, piped, posted] = bench.rounds(&servers, plan.runs).run(|lane, round| {
        bench.progress.at(what, round, plan.runs);
        match lane {
            0 => floors::run(python, &["-c", SUM], TWO),
            1 => printed(&mut stdio.client, &call, TWO),
            _ => printed(&mut connection, &call, TWO),
        }
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare python3 -c", &floor));
    add(findings, "python, stdio, sequential", &piped, &floor);
    at_once(bench, stdio, "python", &call, &floor, findings)?;
    add(findings, "python, http, sequential", &posted, &floor);
    let mut modes = Modes { bench, language: "python", way: "http", floor: &floor, findings };
    modes.measure(|count, gap| {
        let clients = (0..count).map(|_| http.connect()).collect::<anyhow::Result<Vec<Http>>>()?;
        let answers = Http::paced(clients, &call, gap)?;
        processes::settle(&[http.pid()], LONG_REST);
        Ok(answers)
    })
}

fn javascript_and_typescript(
    bench: &Bench,
    stdio: &mut OnPipe,
    node: &Path,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let what = "fresh: javascript and typescript, one after another";
    bench.progress.step(what);
    let (javascript, typescript) = (Call::fresh("javascript", JAVASCRIPT), Call::fresh("typescript", TYPESCRIPT));
    let (plan, server) = (&bench.plan, stdio.pid());
    let [bare, plain, typed] = bench.rounds(&[server], plan.node_runs).run(|lane, round| {
        bench.progress.at(what, round, plan.node_runs);
        match lane {
            0 => floors::run(node, &["-e", JAVASCRIPT], TWO),
            1 => printed(&mut stdio.client, &javascript, TWO),
            _ => printed(&mut stdio.client, &typescript, TWO),
        }
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare node -e", &floor));
    add(findings, "javascript, stdio, sequential", &plain, &floor);
    at_once(bench, stdio, "javascript", &javascript, &floor, findings)?;
    add(findings, "typescript, stdio, sequential", &typed, &floor);
    at_once(bench, stdio, "typescript", &typescript, &floor, findings)
}

fn shell(bench: &Bench, stdio: &mut OnPipe, bash: &Path, findings: &mut Findings) -> anyhow::Result<()> {
    let what = "fresh: shell, one after another";
    bench.progress.step(what);
    let call = Call::fresh("shell", SHELL);
    let (plan, server) = (&bench.plan, stdio.pid());
    let [bare, sealed] = bench.rounds(&[server], plan.runs).run(|lane, round| {
        bench.progress.at(what, round, plan.runs);
        match lane {
            0 => floors::run(bash, &["-c", SHELL], TWO),
            _ => printed(&mut stdio.client, &call, TWO),
        }
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare bash -c", &floor));
    add(findings, "shell, stdio, sequential", &sealed, &floor);
    at_once(bench, stdio, "shell", &call, &floor, findings)
}

/// The modes in which runs overlap, over a pipe.
fn at_once(
    bench: &Bench,
    stdio: &mut OnPipe,
    language: &str,
    call: &Call,
    floor: &Spread,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let mut modes = Modes { bench, language, way: "stdio", floor, findings };
    modes.measure(|count, gap| {
        let answers = stdio.client.paced(call, count, gap)?;
        processes::settle(&[stdio.pid()], LONG_REST);
        Ok(answers)
    })
}

struct Modes<'a> {
    bench: &'a Bench,
    language: &'a str,
    way: &'a str,
    floor: &'a Spread,
    findings: &'a mut Findings,
}

impl Modes<'_> {
    fn measure(&mut self, mut paced: impl FnMut(u32, Duration) -> anyhow::Result<Vec<Answer>>) -> anyhow::Result<()> {
        let plan = &self.bench.plan;
        let burst = format!("burst of {}", plan.burst);
        for (mode, count, gap) in [("staggered", plan.staggered, STAGGER), (&burst, plan.burst, Duration::ZERO)] {
            let name = format!("{}, {}, {mode}", self.language, self.way);
            self.bench.progress.step(&format!("fresh: {name}"));
            add(self.findings, &name, &Tally::of(&paced(count, gap)?, TWO), self.floor);
        }
        Ok(())
    }
}

fn add(findings: &mut Findings, name: &str, tally: &Tally, floor: &Spread) {
    findings.rows.push(tally.row(name, floor));
    note(findings, name, tally);
}

/// Fresh Python, one after another, by a server with these flags.
pub(super) fn python_with(bench: &Bench, group: &str, flags: &[&str]) -> anyhow::Result<Outcome> {
    let what = format!("{group}: python, one after another");
    bench.progress.step(&what);
    let mut stdio = bench.launch.stdio(flags)?;
    let interpreters = Interpreters::ask(&mut stdio.client);
    let (python, call, server) = (interpreters.python()?, Call::fresh("python", SUM), stdio.pid());
    let [bare, sealed] = bench.rounds(&[server], bench.plan.runs).run(|lane, round| {
        bench.progress.at(&what, round, bench.plan.runs);
        match lane {
            0 => floors::run(python, &["-c", SUM], TWO),
            _ => printed(&mut stdio.client, &call, TWO),
        }
    })?;
    let (floor, mut findings) = (bare.spread(), Findings::default());
    findings.rows.push(bare.row("bare python3 -c", &floor));
    add(&mut findings, "python, stdio, sequential", &sealed, &floor);
    Ok(Outcome::Measured(findings))
}
