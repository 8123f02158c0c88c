//! Requests that come all at once, each on a connection of its own. One that is told to come again later has failed.

use super::crowd::at_once;
use super::{Measured, Stage};
use crate::cli::bench::client::{Call, Http};
use crate::cli::bench::report::{Column, Row};

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let count = stage.plan.requests;
    let server = stage.launch.http(&[])?;
    let clients = (0..count).map(|_| server.connect()).collect::<anyhow::Result<Vec<Http>>>()?;
    let (took, tally) = at_once(clients, &Call::fresh("python", "print(1)"), "1\n")?;
    let mut measured = Measured::default();
    let row = Row::new(format!("{count} at once"))
        .with(Column::Runs, tally.runs() as f64)
        .with(Column::Success, tally.success())
        .with(Column::Seconds, took.as_secs_f64())
        .with(Column::Rate, f64::from(count) / took.as_secs_f64());
    measured.findings.rows.push(tally.spread().put(row));
    measured.findings.notes.extend(tally.why.iter().map(|why| format!("the first that failed: {why}")));
    let found = format!("{} in {:.1} s", Column::Success.show(tally.success()), took.as_secs_f64());
    measured.judge(format!("{count} requests at once, answered"), "100 %", found, tally.success() >= 100.0);
    Ok(measured)
}
