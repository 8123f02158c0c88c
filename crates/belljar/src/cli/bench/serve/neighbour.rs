//! One caller floods the server, and another wants what it always wants.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use super::crowd::{Caller, beside};
use super::{Measured, Stage};
use crate::cli::bench::client::{Call, Client};
use crate::cli::bench::measure::Tally;
use crate::cli::bench::report::{Column, Row};
use crate::cli::bench::server::OnPort;

const P99_MAX: Duration = Duration::from_secs(2);
/// A flood that does something, so that turns are worth waiting for.
const GREEDY: &str = "print(sum(range(1_000_000)))";
const GREEDY_SUM: &str = "499999500000\n";

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let [greedy, modest] = [token(1), token(2)];
    let file = stage.home.join("tokens");
    write_private(&file, &format!("greedy:{greedy}\nmodest:{modest}\n"))?;
    let server = stage.launch.http(&["--token-file", &file.display().to_string()])?;
    let alone = calls(stage, &server, &modest)?;
    let call = Call::fresh("python", GREEDY);
    let caller = Caller { address: server.address(), token: Some(&greedy), call: &call, expected: GREEDY_SUM };
    let (beside, flood) = beside(stage.plan.flood, caller, || calls(stage, &server, &modest))?;

    let mut measured = Measured::default();
    let floods = format!("{} of the other in flight", stage.plan.flood);
    for (name, tally) in [("alone", &alone), ("beside the flood", &beside), (&floods, &flood)] {
        let row = Row::new(name).with(Column::Runs, tally.runs() as f64).with(Column::Success, tally.success());
        measured.findings.rows.push(tally.spread().put(row));
        measured.findings.notes.extend(tally.why.iter().map(|why| format!("{name}: {why}")));
    }
    let p99 = beside.spread().p99;
    let holds = p99 < P99_MAX && beside.success() >= 100.0;
    let found = format!("{:.2} s, {} answered", p99.as_secs_f64(), Column::Success.show(beside.success()));
    measured.judge("print(1) beside another's flood, p99", format!("< {} s", P99_MAX.as_secs()), found, holds);
    Ok(measured)
}

fn calls(stage: &Stage, server: &OnPort, token: &str) -> anyhow::Result<Tally> {
    let (mut client, call) = (server.connect()?.with_token(token), Call::fresh("python", "print(1)"));
    let mut tally = Tally::default();
    for number in 0..stage.plan.calls {
        stage.progress.at("neighbour", number, stage.plan.calls);
        tally.add(client.call(&call)?.printed("1\n"));
    }
    Ok(tally)
}

/// Nobody but this machine can reach the server, for the minute that it lives.
fn token(number: u8) -> String {
    use std::hash::BuildHasher;
    let random = std::hash::RandomState::new();
    format!("{:016x}{:016x}", random.hash_one(number), random.hash_one(u16::from(number) << 8))
}

fn write_private(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)?;
    Ok(file.write_all(text.as_bytes())?)
}
