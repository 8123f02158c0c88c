//! What HTTP adds to a call: the same call in a live sandbox, over HTTP and on a pipe, in turn.

use std::time::Duration;

use super::{Measured, Stage};
use crate::cli::bench::client::{Call, Client};
use crate::cli::bench::measure::Rounds;
use crate::cli::bench::report::{Column, Row};

const ADDED_MS_MAX: f64 = 1.0;
const UNCOUNTED: u32 = 5;
const BUDGET: Duration = Duration::from_secs(60);

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let (mut pipe, port) = (stage.launch.stdio(&[])?, stage.launch.http(&[])?);
    let mut connection = port.connect()?;
    let print = |sandbox: &str| Call::within(sandbox, "python", "print(1)");
    let (piped, posted) = (print(&pipe.client.create()?), print(&connection.create()?));
    let rounds = Rounds { servers: &[], count: stage.plan.rounds, uncounted: UNCOUNTED, budget: BUDGET };
    let [on_pipe, over_http] = rounds.run(|lane, round| {
        stage.progress.at("http", round, stage.plan.rounds);
        let answer = if lane == 0 { pipe.client.call(&piped)? } else { connection.call(&posted)? };
        Ok(answer.printed("1\n"))
    })?;
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    let added = millis(over_http.spread().p50) - millis(on_pipe.spread().p50);
    let mut measured = Measured::default();
    for (name, tally) in [("on a pipe", &on_pipe), ("over http", &over_http)] {
        let row = Row::new(name).with(Column::Runs, tally.runs() as f64).with(Column::Success, tally.success());
        measured.findings.rows.push(tally.spread().put(row));
        measured.findings.notes.extend(tally.why.iter().map(|why| format!("{name}: {why}")));
    }
    let all_well = on_pipe.success() >= 100.0 && over_http.success() >= 100.0;
    let (target, found) = (format!("≤ {ADDED_MS_MAX} ms"), format!("{added:.2} ms"));
    measured.judge("what HTTP adds to a call, p50", target, found, all_well && added <= ADDED_MS_MAX);
    Ok(measured)
}
