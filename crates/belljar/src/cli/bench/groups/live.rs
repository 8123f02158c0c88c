//! Calls in sandboxes that stay: the answer needs what an earlier call left there.

use std::path::Path;

use super::{Bench, note};
use crate::cli::bench::client::{Answer, Call, Client, Sample};
use crate::cli::bench::floors::{self, Interpreters};
use crate::cli::bench::measure::{Spread, Tally};
use crate::cli::bench::report::{Findings, Outcome};

/// A sandbox whose kernel has a value, and the call that asks for it.
struct Kept {
    call: Call,
}

impl Kept {
    fn open(client: &mut impl Client, language: &str, first: &str, then: &str) -> anyhow::Result<Kept> {
        let sandbox = client.create()?;
        client.call(&Call::within(&sandbox, language, first))?;
        Ok(Kept { call: Call::within(&sandbox, language, then) })
    }

    fn ask(&self, client: &mut impl Client) -> anyhow::Result<Sample> {
        let answer = client.call(&self.call)?;
        Ok(answer.is(is_42(&answer)))
    }
}

/// As the value of the last expression, or printed by a language that has none.
fn is_42(answer: &Answer) -> bool {
    answer.field("result")["text"] == "42" || answer.field("stdout") == "42\n"
}

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    bench.progress.step("live: starting servers");
    let (mut stdio, http) = (bench.launch.stdio(&[])?, bench.launch.http(&[])?);
    let interpreters = Interpreters::ask(&mut stdio.client);
    let (mut findings, plan) = (Findings::default(), &bench.plan);

    let (mut connection, python) = (http.connect()?, interpreters.python()?);
    let piped = Kept::open(&mut stdio.client, "python", "x = 41", "x+1")?;
    let posted = Kept::open(&mut connection, "python", "x = 41", "x+1")?;
    let what = "live: python";
    bench.progress.step(what);
    let [bare, piped, posted] = bench.rounds(&[], plan.runs).run(|lane, round| {
        bench.progress.at(what, round, plan.runs);
        match lane {
            0 => floors::run(python, &["-c", "x = 41; print(x+1)"], "42\n"),
            1 => piped.ask(&mut stdio.client),
            _ => posted.ask(&mut connection),
        }
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare python3 -c", &floor));
    add(&mut findings, "python, stdio", &piped, &floor);
    add(&mut findings, "python, http", &posted, &floor);

    if let Ok(node) = interpreters.node() {
        javascript_and_typescript(bench, &mut stdio.client, node, &mut findings)?;
    }
    if let Ok(bash) = interpreters.bash() {
        shell(bench, &mut stdio.client, bash, &mut findings)?;
    }
    Ok(Outcome::Measured(findings))
}

fn javascript_and_typescript(
    bench: &Bench,
    client: &mut impl Client,
    node: &Path,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    bench.progress.step("live: javascript and typescript");
    let javascript = Kept::open(client, "javascript", "let x = 41", "x+1")?;
    let typescript = Kept::open(client, "typescript", "let x: number = 41", "x+1")?;
    let [bare, plain, typed] = bench.rounds(&[], bench.plan.node_runs).run(|lane, _| match lane {
        0 => floors::run(node, &["-e", "let x = 41; console.log(x+1)"], "42\n"),
        1 => javascript.ask(client),
        _ => typescript.ask(client),
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare node -e", &floor));
    add(findings, "javascript, stdio", &plain, &floor);
    add(findings, "typescript, stdio", &typed, &floor);
    Ok(())
}

fn shell(bench: &Bench, client: &mut impl Client, bash: &Path, findings: &mut Findings) -> anyhow::Result<()> {
    bench.progress.step("live: shell");
    let kept = Kept::open(client, "shell", "x=41", "echo $((x+1))")?;
    let [bare, live] = bench.rounds(&[], bench.plan.runs).run(|lane, _| match lane {
        0 => floors::run(bash, &["-c", "x=41; echo $((x+1))"], "42\n"),
        _ => kept.ask(client),
    })?;
    let floor = bare.spread();
    findings.rows.push(bare.row("bare bash -c", &floor));
    add(findings, "shell, stdio", &live, &floor);
    Ok(())
}

fn add(findings: &mut Findings, name: &str, tally: &Tally, floor: &Spread) {
    findings.rows.push(tally.row(name, floor));
    note(findings, name, tally);
}
