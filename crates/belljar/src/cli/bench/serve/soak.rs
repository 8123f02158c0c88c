//! Full load for a long time: no error, and nothing that grows.

use std::time::{Duration, Instant};

use super::crowd::{Caller, beside};
use super::resident::rss_mib;
use super::{Measured, Stage};
use crate::cli::bench::client::Call;
use crate::cli::bench::processes;
use crate::cli::bench::report::{Column, Row};
use crate::cli::bench::server::{OnPort, ended_by};
use crate::cli::bench::targets::grown;

/// Looks at the server; the first tenth of them is warming up.
const LOOKS: u32 = 40;
const MIB_A_MINUTE_MAX: f64 = 1.0;
const GROWTH_MAX: f64 = 1.1;
/// In less time a single page more would be a mebibyte a minute.
const SLOPE_FROM: Duration = Duration::from_secs(180);

pub(super) fn measure(stage: &Stage) -> anyhow::Result<Measured> {
    let server = stage.launch.http(&[])?;
    let call = Call::fresh("python", "print(1)");
    let caller = Caller { address: server.address(), token: None, call: &call, expected: "1\n" };
    let whole = stage.plan.soak;
    let started = Instant::now();
    let (rows, tally) = beside(stage.plan.clients, caller, || watch(stage, &server, whole))?;
    let seconds = started.elapsed().as_secs_f64();

    let mut measured = Measured::default();
    let warm: Vec<&Row> = rows.iter().skip(LOOKS as usize / 10).collect();
    let (slope, growth) = (slope(&warm), growth(&warm));
    let grown: Vec<String> = grown(&warm).iter().map(|(column, by)| format!("{} +{by:.0}", column.head())).collect();
    let rate = tally.runs() as f64 / seconds;
    let failed = tally.failed();
    let what = format!("{:.1} minutes at full load", whole.as_secs_f64() / 60.0);
    measured.judge(format!("{what}, errors"), "0", format!("{failed} of {}", tally.runs()), failed == 0);
    measured.judge(
        format!("{what}, server's memory"),
        format!("< {MIB_A_MINUTE_MAX} MiB a minute and < +10 %"),
        format!("{slope:+.2} MiB a minute, {:+.1} %", (growth - 1.0) * 100.0),
        (slope < MIB_A_MINUTE_MAX || whole < SLOPE_FROM) && growth < GROWTH_MAX,
    );
    let found = if grown.is_empty() { "no growth".to_owned() } else { grown.join(", ") };
    measured.judge(format!("{what}, what else grows"), "nothing", found, grown.is_empty());
    measured.findings.notes.push(format!("{} clients, {rate:.0} runs a second", stage.plan.clients));
    measured.findings.notes.extend(tally.why.iter().map(|why| format!("the first that failed: {why}")));
    // Ten of the looks are enough to read.
    measured.findings.rows = rows.into_iter().skip(3).step_by(LOOKS as usize / 10).collect();
    measured.findings.rows.push(tally.spread().put(Row::new("each run").with(Column::Runs, tally.runs() as f64)));
    Ok(measured)
}

fn watch(stage: &Stage, server: &OnPort, whole: Duration) -> anyhow::Result<Vec<Row>> {
    let (started, pid) = (Instant::now(), server.pid());
    let mut rows = Vec::new();
    for look in 1..=LOOKS {
        std::thread::sleep((whole * look / LOOKS).saturating_sub(started.elapsed()));
        if ended_by().is_some() {
            break;
        }
        stage.progress.at("soak", look, LOOKS);
        let minutes = started.elapsed().as_secs_f64() / 60.0;
        let row = Row::new(format!("after {:.0} s", minutes * 60.0))
            .with(Column::Minutes, minutes)
            .with(Column::Rss, rss_mib(pid)?)
            .with(Column::Descriptors, processes::open_files(pid) as f64)
            .with(Column::Threads, processes::threads(pid) as f64)
            .with(Column::Processes, processes::family(pid).len() as f64)
            .with(Column::Cgroups, processes::cgroups(pid) as f64);
        rows.push(row);
    }
    Ok(rows)
}

/// MiB a minute, by least squares.
fn slope(rows: &[&Row]) -> f64 {
    let points: Vec<(f64, f64)> =
        rows.iter().filter_map(|row| Some((row.get(Column::Minutes)?, row.get(Column::Rss)?))).collect();
    let count = points.len().max(1) as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let covariance: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

fn growth(rows: &[&Row]) -> f64 {
    let rss = |row: Option<&&Row>| row.and_then(|row| row.get(Column::Rss)).unwrap_or(1.0);
    rss(rows.last()) / rss(rows.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_slope() {
        let row = |minutes: f64, rss: f64| Row::new("").with(Column::Minutes, minutes).with(Column::Rss, rss);
        let rows = [row(1.0, 20.0), row(2.0, 22.0), row(3.0, 24.0), row(4.0, 26.0)];
        let rows: Vec<&Row> = rows.iter().collect();
        assert!((slope(&rows) - 2.0).abs() < 1e-9);
        assert!((growth(&rows) - 1.3).abs() < 1e-9);
        assert_eq!((slope(&[]), growth(&[])), (0.0, 1.0));
    }
}
