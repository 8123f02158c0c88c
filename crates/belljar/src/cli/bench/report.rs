//! What was found: rows of figures, in groups.

use serde_json::{Map, Value, json};

/// A kind of figure. Its name in JSON has its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Runs,
    Success,
    P50,
    P95,
    P99,
    Ratio,
    RatioP99,
    Rate,
    BareRate,
    RateRatio,
    Added,
    Sandboxes,
    Pss,
    PssEach,
    Rss,
    Peak,
    Processes,
    Cgroups,
    Mounts,
    JailMounts,
    Descriptors,
    Threads,
    Seconds,
    Minutes,
    Left,
}

impl Column {
    pub(super) fn json(self) -> &'static str {
        match self {
            Column::Runs => "runs",
            Column::Success => "success_percent",
            Column::P50 => "p50_ms",
            Column::P95 => "p95_ms",
            Column::P99 => "p99_ms",
            Column::Ratio => "ratio_p50",
            Column::RatioP99 => "ratio_p99_to_floor_p50",
            Column::Rate => "runs_per_second",
            Column::BareRate => "bare_runs_per_second",
            Column::RateRatio => "ratio_of_rates",
            Column::Added => "added_p50_ms",
            Column::Sandboxes => "sandboxes",
            Column::Pss => "pss_mib",
            Column::PssEach => "pss_each_mib",
            Column::Rss => "rss_mib",
            Column::Peak => "peak_mib",
            Column::Processes => "processes",
            Column::Cgroups => "cgroups",
            Column::Mounts => "mounts",
            Column::JailMounts => "jail_mounts",
            Column::Descriptors => "descriptors",
            Column::Threads => "threads",
            Column::Seconds => "seconds",
            Column::Minutes => "minutes",
            Column::Left => "left",
        }
    }

    pub(super) fn head(self) -> &'static str {
        match self {
            Column::Runs => "runs",
            Column::Success => "ok",
            Column::P50 => "p50 ms",
            Column::P95 => "p95 ms",
            Column::P99 => "p99 ms",
            Column::Ratio => "p50 × bare",
            Column::RatioP99 => "p99 × bare",
            Column::Rate => "runs/s",
            Column::BareRate => "bare/s",
            Column::RateRatio => "× bare",
            Column::Added => "added ms",
            Column::Sandboxes => "sandboxes",
            Column::Pss => "PSS MiB",
            Column::PssEach => "each MiB",
            Column::Rss => "RSS MiB",
            Column::Peak => "peak MiB",
            Column::Processes => "processes",
            Column::Cgroups => "cgroups",
            Column::Mounts => "mounts",
            Column::JailMounts => "jail's mounts",
            Column::Descriptors => "descriptors",
            Column::Threads => "threads",
            Column::Seconds => "s",
            Column::Minutes => "min",
            Column::Left => "left",
        }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Column::Success if value < 100.0 => format!("{value:.1} %"),
            Column::Success => "100 %".to_owned(),
            Column::Ratio | Column::RatioP99 | Column::RateRatio if value < 0.1 => format!("{value:.3}"),
            Column::P50 | Column::P95 | Column::P99 | Column::Ratio | Column::RatioP99 | Column::RateRatio => {
                format!("{value:.2}")
            }
            Column::PssEach | Column::Added | Column::Seconds | Column::Minutes => format!("{value:.2}"),
            Column::Rate | Column::BareRate | Column::Pss | Column::Rss | Column::Peak => format!("{value:.1}"),
            _ => format!("{value:.0}"),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) figures: Vec<(Column, f64)>,
}

impl Row {
    pub(super) fn new(name: impl Into<String>) -> Row {
        Row { name: name.into(), figures: Vec::new() }
    }

    pub(super) fn with(mut self, column: Column, value: f64) -> Row {
        self.figures.push((column, value));
        self
    }

    pub(super) fn get(&self, column: Column) -> Option<f64> {
        self.figures.iter().find(|(known, _)| *known == column).map(|(_, value)| *value)
    }
}

/// What a group found, or why it found nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Findings {
    pub(super) rows: Vec<Row>,
    /// What else a reader must know.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    Measured(Findings),
    /// This machine does not have what it takes, and the reason says how to get it.
    Absent(String),
    /// It should have worked.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) outcome: Outcome,
}

/// Everything that one bench found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Report {
    pub(super) machine: Vec<(&'static str, Value)>,
    pub(super) groups: Vec<Group>,
}

impl Report {
    pub(super) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    pub(super) fn rows(&self, group: &str) -> &[Row] {
        match self.group(group).map(|group| &group.outcome) {
            Some(Outcome::Measured(findings)) => &findings.rows,
            _ => &[],
        }
    }

    pub(super) fn row(&self, group: &str, name: &str) -> Option<&Row> {
        self.rows(group).iter().find(|row| row.name == name)
    }

    /// The first reason, if nothing at all could be measured.
    pub(super) fn why_nothing(&self) -> Option<String> {
        let mut failures = self.groups.iter().filter_map(|group| match &group.outcome {
            Outcome::Failed(why) => Some(why.clone()),
            _ => None,
        });
        let is_something = self.groups.iter().any(|group| matches!(group.outcome, Outcome::Measured(_)));
        if is_something { None } else { failures.next() }
    }

    pub(super) fn as_json(&self) -> Map<String, Value> {
        let groups = self.groups.iter().map(|group| (group.name.to_owned(), group.as_json())).collect();
        let machine = self.machine.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Map::from_iter([
            ("version".to_owned(), json!(env!("CARGO_PKG_VERSION"))),
            ("machine".to_owned(), Value::Object(machine)),
            ("groups".to_owned(), Value::Object(groups)),
        ])
    }
}

impl Group {
    pub(super) fn absent(name: &'static str, about: &'static str, why: &str) -> Group {
        Group { name, about, outcome: Outcome::Absent(why.to_owned()) }
    }

    fn as_json(&self) -> Value {
        match &self.outcome {
            Outcome::Measured(findings) => {
                let rows = findings.rows.iter().map(|row| (row.name.clone(), row.as_json())).collect();
                json!({ "rows": Value::Object(rows), "notes": findings.notes })
            }
            Outcome::Absent(why) | Outcome::Failed(why) => json!({ "not_measured": why }),
        }
    }
}

impl Row {
    fn as_json(&self) -> Value {
        // More digits than that nobody measured; and a count is a whole number.
        let rounded = |value: f64| match (value * 1e4).round() / 1e4 {
            whole if whole.fract() == 0.0 => json!(whole as i64),
            other => json!(other),
        };
        Value::Object(self.figures.iter().map(|(column, value)| (column.json().to_owned(), rounded(*value))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_every_row_by_its_name() {
        let row = Row::new("python, stdio, sequential").with(Column::P50, 1.23456).with(Column::Runs, 5.0);
        let outcome = Outcome::Measured(Findings { rows: vec![row], notes: vec![] });
        let report = Report {
            groups: vec![
                Group { name: "fresh", about: "", outcome },
                Group { name: "fork", about: "", outcome: Outcome::Failed("no".into()) },
            ],
            ..Report::default()
        };
        let json = Value::Object(report.as_json());
        let row = &json["groups"]["fresh"]["rows"]["python, stdio, sequential"];
        assert_eq!((&row["p50_ms"], &row["runs"]), (&json!(1.2346), &json!(5)));
        assert_eq!(json["groups"]["fork"]["not_measured"], "no");
        assert!(report.row("fresh", "python, stdio, sequential").is_some() && report.rows("fork").is_empty());
    }
}
