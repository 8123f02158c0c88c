//! What the figures should be, and whether they are. The targets are ratios within one run, on a machine with two cores.

use serde_json::{Value, json};

use super::groups::{FROM_SANDBOX, NO_POOL, PREPARED, PREPARED_SCIENCE, WALL_NO_POOL, WALL_POOL};
use super::report::{Column, Outcome, Report, Row};

/// From this many runs on nothing may grow any more.
const SOAK_WARM: f64 = 1000.0;
/// Before there are two points to compare on each side, nothing can be said.
const SOAK_POINTS_MIN: usize = 4;
const SOAK_RSS: f64 = 1.05;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Yes,
    No,
    /// Nobody asked, or this machine cannot.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) measure: String,
    pub(super) target: String,
    pub(super) found: String,
    pub(super) met: Met,
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self.met {
            Met::Yes => "met",
            Met::No => "MISSED",
            Met::Unknown => "not measured",
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let met = match self.met {
            Met::Yes => json!(true),
            Met::No => json!(false),
            Met::Unknown => Value::Null,
        };
        json!({ "measure": self.measure, "target": self.target, "found": self.found, "met": met })
    }
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

struct Target {
    measure: &'static str,
    group: &'static str,
    row: &'static str,
    column: Column,
    bound: Bound,
    unit: &'static str,
}

const fn ratio(measure: &'static str, group: &'static str, row: &'static str, most: f64) -> Target {
    Target { measure, group, row, column: Column::Ratio, bound: Bound::AtMost(most), unit: "× bare" }
}

const fn mib(measure: &'static str, row: &'static str, column: Column, most: f64) -> Target {
    Target { measure, group: "memory", row, column, bound: Bound::AtMost(most), unit: "MiB" }
}

const fn second(measure: &'static str, row: &'static str) -> Target {
    Target { unit: "× without packages", ..ratio(measure, "packages", row, 1.3) }
}

const fn way_out(measure: &'static str, row: &'static str, column: Column, bound: Bound, unit: &'static str) -> Target {
    Target { measure, group: "egress", row, column, bound, unit }
}

const SEQUENTIAL: &str = "python, stdio, sequential";

const TARGETS: [Target; 20] = [
    Target { unit: "× the engine's own", ..ratio("fresh python behind the wall, p50", "wall", WALL_POOL, 0.2) },
    Target {
        unit: "× the engine's own",
        ..ratio("fresh python behind the wall, pool off, p50", "wall", WALL_NO_POOL, 1.2)
    },
    Target { unit: "× a client without a sandbox", ..ratio("1,000 tool calls", "calls", FROM_SANDBOX, 1.3) },
    ratio("fresh python, p50", "fresh", SEQUENTIAL, 0.25),
    Target {
        column: Column::RatioP99,
        bound: Bound::AtMost(1.0),
        ..ratio("fresh python, p99 to bare p50", "fresh", SEQUENTIAL, 1.0)
    },
    ratio("fresh python, pool off, p50", "fork", SEQUENTIAL, 0.7),
    ratio("fresh import pandas, p50", "pandas", SEQUENTIAL, 0.1),
    ratio("fresh javascript, p50", "fresh", "javascript, stdio, sequential", 0.25),
    ratio("fresh shell, p50", "fresh", "shell, stdio, sequential", 0.8),
    ratio("live python, p50", "live", "python, stdio", 0.1),
    Target {
        measure: "fresh python, runs per second, 16 clients",
        group: "throughput",
        row: "16 over http",
        column: Column::RateRatio,
        bound: Bound::AtLeast(1.5),
        unit: "× bare",
    },
    second("second fresh run with a small package, p50", "import humanize"),
    second("second fresh run with pandas, p50", "import pandas"),
    way_out(
        "200 MB out of a sandbox, transparent",
        "large, transparent",
        Column::RateRatio,
        Bound::AtLeast(0.5),
        "× direct",
    ),
    way_out("200 MB out of a sandbox, CONNECT", "large, CONNECT", Column::RateRatio, Bound::AtLeast(0.5), "× direct"),
    way_out("small request, transparent, added to p50", "small, transparent", Column::Added, Bound::AtMost(5.0), "ms"),
    way_out("small request, CONNECT, added to p50", "small, CONNECT", Column::Added, Bound::AtMost(5.0), "ms"),
    mib("prepared sandbox, PSS, bare Python", PREPARED, Column::PssEach, 3.0),
    mib("prepared sandbox, PSS, scientific", PREPARED_SCIENCE, Column::PssEach, 12.0),
    mib("server idle, pool off, resident", NO_POOL, Column::Rss, 25.0),
];

/// A verdict for each target whose group had its turn.
pub(super) fn judge(report: &Report) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = TARGETS.iter().filter_map(|target| target.judge(report)).collect();
    verdicts.extend(burst(report));
    verdicts.extend(soak(report));
    verdicts
}

impl Target {
    fn judge(&self, report: &Report) -> Option<Verdict> {
        let found = report.row(self.group, self.row).and_then(|row| row.get(self.column));
        let (found, met) = match found {
            None => nothing(report, self.group)?,
            Some(value) => (self.shown(report, value), if self.bound.holds(value) { Met::Yes } else { Met::No }),
        };
        let (word, number) = match self.bound {
            Bound::AtMost(most) => ("≤", most),
            Bound::AtLeast(least) => ("≥", least),
        };
        let target = format!("{word} {number} {}", self.unit);
        Some(Verdict { measure: self.measure.to_owned(), target, found, met })
    }

    /// On a busy machine the last percent of the bare program is slow as well, so it is told, too.
    fn shown(&self, report: &Report, value: f64) -> String {
        let shown = self.column.show(value);
        let floor = report.row(self.group, "bare python3 -c").and_then(|row| row.get(Column::P99));
        let own = report.row(self.group, self.row).and_then(|row| row.get(Column::P99));
        match own.zip(floor) {
            Some((own, floor)) if self.column == Column::RatioP99 => {
                format!("{shown} ({:.2} to bare p99)", own / floor)
            }
            _ => shown,
        }
    }
}

impl Bound {
    fn holds(self, value: f64) -> bool {
        match self {
            Bound::AtMost(most) => value <= most,
            Bound::AtLeast(least) => value >= least,
        }
    }
}

/// What to say where there is no figure: `None` if nobody asked for the group. A group that failed keeps no target.
fn nothing(report: &Report, group: &str) -> Option<(String, Met)> {
    let met = match &report.group(group)?.outcome {
        Outcome::Failed(_) => Met::No,
        Outcome::Absent(_) | Outcome::Measured(_) => Met::Unknown,
    };
    Some(("–".to_owned(), met))
}

/// Every run of every burst.
fn burst(report: &Report) -> Option<Verdict> {
    let bursts: Vec<&Row> = report.rows("fresh").iter().filter(|row| row.name.contains(", burst of ")).collect();
    let (found, met) = if bursts.is_empty() {
        nothing(report, "fresh")?
    } else {
        let worst = bursts.iter().filter_map(|row| row.get(Column::Success)).fold(100.0, f64::min);
        let python =
            bursts.iter().find(|row| row.name.starts_with("python, stdio")).and_then(|row| row.get(Column::P99));
        let p99 = python.map(|p99| format!(", python p99 {p99:.0} ms")).unwrap_or_default();
        (format!("{}{p99}", Column::Success.show(worst)), if worst >= 100.0 { Met::Yes } else { Met::No })
    };
    let (measure, target) = ("bursts, all languages, success".to_owned(), "100 %".to_owned());
    Some(Verdict { measure, target, found, met })
}

/// A leak only rises: then the least of the later points is above the most of the earlier ones. What only differs from
/// look to look, such as how many sandboxes wait, is none.
fn soak(report: &Report) -> Option<Verdict> {
    let runs = |row: &&Row| row.get(Column::Runs).unwrap_or_default();
    let rows: Vec<&Row> = report.rows("soak").iter().filter(|row| runs(row) >= SOAK_WARM).collect();
    let last = report.rows("soak").last().map(|row| runs(&row)).unwrap_or_default();
    let measure = match last {
        0.0 => "many fresh runs, what is left".to_owned(),
        last => format!("{last:.0} fresh runs, what is left"),
    };
    let target = "no growth, RSS +5 %".to_owned();
    let (found, met) = if rows.len() < SOAK_POINTS_MIN {
        nothing(report, "soak")?
    } else {
        let grown = grown(&rows);
        let words: Vec<String> = grown.iter().map(|(column, by)| format!("{} +{by:.0}", column.head())).collect();
        let rss = |row: Option<&&Row>| row.and_then(|row| row.get(Column::Rss)).unwrap_or_default();
        let growth = rss(rows.last()) / rss(rows.first());
        let is_flat = grown.is_empty() && growth <= SOAK_RSS;
        let words = if words.is_empty() { "no growth".to_owned() } else { words.join(", ") };
        (format!("{words}, RSS {growth:.2} ×"), if is_flat { Met::Yes } else { Met::No })
    };
    Some(Verdict { measure, target, found, met })
}

pub(super) fn grown(rows: &[&Row]) -> Vec<(Column, f64)> {
    let (earlier, later) = rows.split_at(rows.len() / 2);
    let counted =
        [Column::Processes, Column::Cgroups, Column::Mounts, Column::JailMounts, Column::Descriptors, Column::Threads]
            .into_iter();
    let by = |column: Column| {
        let most = earlier.iter().filter_map(|row| row.get(column)).fold(0.0, f64::max);
        let least = later.iter().filter_map(|row| row.get(column)).fold(f64::INFINITY, f64::min);
        (least.is_finite() && least > most).then_some((column, least - most))
    };
    counted.filter_map(by).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::{Findings, Group};
    use super::*;

    fn measured(name: &'static str, rows: Vec<Row>) -> Group {
        Group { name, about: "", outcome: Outcome::Measured(Findings { rows, notes: Vec::new() }) }
    }

    fn of(groups: Vec<Group>) -> Vec<(String, String, Met)> {
        let verdicts = judge(&Report { groups, ..Report::default() });
        verdicts.into_iter().map(|verdict| (verdict.measure, verdict.found, verdict.met)).collect()
    }

    #[test]
    fn a_bound_is_met_or_missed() {
        let fresh = measured(
            "fresh",
            vec![
                Row::new("bare python3 -c").with(Column::P99, 20.0),
                Row::new(SEQUENTIAL).with(Column::P99, 12.0).with(Column::Ratio, 0.25).with(Column::RatioP99, 1.2),
                Row::new("python, stdio, burst of 100").with(Column::Success, 100.0).with(Column::P99, 412.3),
                Row::new("shell, stdio, burst of 100").with(Column::Success, 99.0),
            ],
        );
        let throughput = measured("throughput", vec![Row::new("16 over http").with(Column::RateRatio, 1.49)]);
        let verdicts = of(vec![fresh, throughput]);
        let expected = [
            ("fresh python, p50", "0.25", Met::Yes),
            ("fresh python, p99 to bare p50", "1.20 (0.60 to bare p99)", Met::No),
            ("fresh javascript, p50", "–", Met::Unknown),
            ("fresh shell, p50", "–", Met::Unknown),
            ("fresh python, runs per second, 16 clients", "1.49", Met::No),
            ("bursts, all languages, success", "99.0 %, python p99 412 ms", Met::No),
        ];
        assert_eq!(verdicts, expected.map(|(measure, found, met)| (measure.to_owned(), found.to_owned(), met)));
    }

    #[test]
    fn what_failed_is_missed_and_what_cannot_be_is_not() {
        let failed = Group { name: "fork", about: "", outcome: Outcome::Failed("no".to_owned()) };
        let absent = Group { name: "pandas", about: "", outcome: Outcome::Absent("none here".to_owned()) };
        let met: Vec<Met> = of(vec![failed, absent]).into_iter().map(|(_, _, met)| met).collect();
        assert_eq!(met, [Met::No, Met::Unknown]);
    }

    fn points(descriptors: [u32; 10], rss: [f64; 10]) -> Group {
        let point = |(index, (descriptors, rss)): (usize, (u32, f64))| {
            Row::new(format!("after {}", index * 1000 + 1000))
                .with(Column::Runs, (index * 1000 + 1000) as f64)
                .with(Column::Processes, 9.0)
                .with(Column::Descriptors, f64::from(descriptors))
                .with(Column::Rss, rss)
        };
        measured("soak", descriptors.into_iter().zip(rss).enumerate().map(point).collect())
    }

    #[test]
    fn a_soak_tells_a_leak_from_a_ripple() {
        let flat = [15.0; 10];
        let ripple = of(vec![points([20, 24, 22, 20, 24, 22, 24, 20, 22, 24], flat)]);
        let expected = ("10000 fresh runs, what is left".to_owned(), "no growth, RSS 1.00 ×".to_owned(), Met::Yes);
        assert_eq!(ripple, [expected]);
        let leak = of(vec![points([20, 21, 21, 22, 22, 23, 23, 24, 24, 25], flat)]);
        assert_eq!((leak[0].1.as_str(), leak[0].2), ("descriptors +1, RSS 1.00 ×", Met::No));
        let mut fat = flat;
        fat[9] = 16.0;
        assert_eq!(of(vec![points([20; 10], fat)])[0].2, Met::No);
    }

    #[test]
    fn too_short_a_soak_says_nothing() {
        let mut group = points([20; 10], [15.0; 10]);
        if let Outcome::Measured(findings) = &mut group.outcome {
            findings.rows.truncate(3);
        }
        assert_eq!(of(vec![group])[0].2, Met::Unknown);
    }
}
