//! What a tool call from inside a sandbox costs, against the same call made by a client of ours without one; and whether
//! many sandboxes that call at once lose anything.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use belljar_gateway::upstream::{self, Upstreams};
use serde_json::{Map, json};
use tokio_util::sync::CancellationToken;

use super::{Bench, note};
use crate::cli::bench::client::{Call, Client, Sample};
use crate::cli::bench::report::{Column, Findings, Outcome, Row};
use crate::wiring;

/// A server over stdio whose one tool gives back what it gets; about the least that a tool can do.
const ECHO: &str = include_str!("echo.py");

pub(in super::super) const FROM_SANDBOX: &str = "1,000 calls, a program in a sandbox";

const CALLS: usize = 1_000;
/// Of so many calls each.
const ROUNDS: u32 = 5;
const SANDBOXES: usize = 64;
const EACH: usize = 10;

pub(super) fn measure(bench: &Bench) -> anyhow::Result<Outcome> {
    let what = "calls: 1,000 from a sandbox, and without one";
    bench.progress.step(what);
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("echo.py");
    std::fs::write(&script, ECHO)?;
    let entry = match &bench.upstream {
        None => json!({"command": "python3", "args": [script]}),
        Some(line) => {
            let mut words = line.split_whitespace();
            json!({"command": words.next().unwrap_or_default(), "args": words.collect::<Vec<_>>()})
        }
    };
    let servers = json!({"mcpServers": {"bench": entry}}).to_string();
    let file = folder.path().join("mcp.json");
    std::fs::write(&file, &servers)?;
    let file = file.to_str().context("the folder's name is no text")?;
    let mut stdio = bench.launch.stdio(&["--mcp-config", file, "--approve", "never"])?;
    let configs = upstream::parse(&servers, &|_| None).context("the bench's own server")?;
    // One thread, as a server on a pipe has.
    let runtime = wiring::runtime_for_one()?;
    let direct = runtime.block_on(async {
        let environment = wiring::path().into_string().map(|path| ("PATH".to_owned(), path));
        Upstreams::new(configs, upstream::Settings::default().inherit(environment))
    });
    let program = format!(
        "import time\nfrom tools import bench\nbench.echo(message='0')\nbegun = time.perf_counter()\n\
         for i in range({CALLS}):\n    if not bench.echo(message=str(i)).endswith(str(i)): raise SystemExit('lost')\n\
         print(time.perf_counter() - begun)"
    );
    let inside = Call::fresh("python", &program);
    let rounds = ROUNDS.min(bench.plan.node_runs);
    let [bare, called] = bench.rounds(&[], rounds).run(|lane, round| {
        bench.progress.at(what, round, rounds);
        if lane == 0 {
            return runtime.block_on(directly(&direct));
        }
        let answer = stdio.client.call(&inside)?;
        let printed = answer.field("stdout").as_str().unwrap_or_default().trim().parse::<f64>();
        Ok(printed.map(Duration::from_secs_f64).map_err(|_| answer.result.to_string().chars().take(300).collect()))
    })?;
    runtime.block_on(direct.end());
    let mut findings = Findings::default();
    let floor = bare.spread();
    findings.rows.push(bare.row("1,000 calls, a client without a sandbox", &floor));
    findings.rows.push(called.row(FROM_SANDBOX, &floor));
    note(&mut findings, "calls", &called);
    findings.rows.push(at_once(bench, &mut stdio.client)?);
    Ok(Outcome::Measured(findings))
}

/// The same calls, one after the other, by the client that the gateway has too.
async fn directly(upstreams: &Upstreams) -> anyhow::Result<Sample> {
    let cancel = CancellationToken::new();
    let call = |x: usize| {
        let arguments = Map::from_iter([("message".to_owned(), json!(x.to_string()))]);
        upstreams.call("bench", "echo", arguments, Duration::from_secs(30), &cancel)
    };
    call(0).await.context("starting the upstream")?;
    let begun = Instant::now();
    for x in 0..CALLS {
        call(x).await.context("calling the upstream")?;
    }
    Ok(Ok(begun.elapsed()))
}

/// Sandboxes that all call at the same time: every call has to come back with its own answer.
fn at_once(bench: &Bench, client: &mut crate::cli::bench::client::Stdio) -> anyhow::Result<Row> {
    let what = "calls: 64 sandboxes at once";
    bench.progress.step(what);
    let program = format!(
        "import os\nfrom tools import bench\nmine = os.urandom(8).hex()\n\
         lost = [i for i in range({EACH}) if not bench.echo(message=mine + str(i)).endswith(mine + str(i))]\nprint('lost', len(lost))"
    );
    let mut left = SANDBOXES;
    let begun = Instant::now();
    let answers = client.flood(&Call::fresh("python", &program), SANDBOXES, || {
        let more = left > 0;
        left = left.saturating_sub(1);
        more
    })?;
    let took = begun.elapsed();
    let good = answers.iter().filter(|answer| answer.field("stdout") == "lost 0\n").count();
    ensure!(good == SANDBOXES, "{} of {SANDBOXES} sandboxes lost calls", SANDBOXES - good);
    let rate = (SANDBOXES * EACH) as f64 / took.as_secs_f64();
    Ok(Row::new("64 sandboxes at once, 10 calls each, none lost").with(Column::Rate, rate))
}
