//! Figures laid out for a reader: columns that line up, numbers to the right.

use super::report::{Column, Findings, Group, Outcome, Report};
use super::targets::Verdict;

/// The whole report as text.
pub(super) fn report(report: &Report, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let machine = report.machine.iter().map(|(name, value)| format!("{name} {}", value.to_string().replace('"', "")));
    text += &format!("belljar {}: {}\n", env!("CARGO_PKG_VERSION"), machine.collect::<Vec<_>>().join(", "));
    for group in &report.groups {
        text += &format!("\n{}: {}\n", group.name, group.about);
        text += &group_body(group);
    }
    if !verdicts.is_empty() {
        text += "\ntargets\n";
        let head = ["", "target", "found", ""].map(str::to_owned).to_vec();
        let line = |verdict: &Verdict| {
            vec![verdict.measure.clone(), verdict.target.clone(), verdict.found.clone(), verdict.word().to_owned()]
        };
        text += &lay_out(&[vec![head], verdicts.iter().map(line).collect()].concat());
    }
    text
}

fn group_body(group: &Group) -> String {
    match &group.outcome {
        Outcome::Measured(findings) => {
            let mut text = lay_out(&cells(findings));
            for note in &findings.notes {
                text += &format!("  note: {note}\n");
            }
            text
        }
        Outcome::Absent(why) | Outcome::Failed(why) => format!("  not measured: {why}\n"),
    }
}

/// A line for each row below a line of heads, with every column that any row has.
fn cells(findings: &Findings) -> Vec<Vec<String>> {
    let mut columns: Vec<Column> = Vec::new();
    for (column, _) in findings.rows.iter().flat_map(|row| &row.figures) {
        if !columns.contains(column) {
            columns.push(*column);
        }
    }
    let head = std::iter::once(String::new()).chain(columns.iter().map(|column| column.head().to_owned())).collect();
    let lines = findings.rows.iter().map(|row| {
        let figure = |column: &Column| row.get(*column).map(|value| column.show(value)).unwrap_or_default();
        std::iter::once(row.name.clone()).chain(columns.iter().map(figure)).collect()
    });
    std::iter::once(head).chain(lines).collect()
}

/// The first column to the left, the others to the right, two spaces between, none at the end.
fn lay_out(lines: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        for (index, cell) in line.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(index) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(index, (cell, width))| match index {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += &format!("  {}\n", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::Row;
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![
            Row::new("bare python3 -c").with(Column::Runs, 200.0).with(Column::P50, 10.823),
            Row::new("fresh").with(Column::P50, 2.5).with(Column::Ratio, 0.0312).with(Column::Success, 99.5),
        ];
        let outcome = Outcome::Measured(Findings { rows, notes: vec!["busy".to_owned()] });
        let text = group_body(&Group { name: "fresh", about: "", outcome });
        let expected = [
            "                   runs  p50 ms  p50 × bare      ok",
            "  bare python3 -c   200   10.82",
            "  fresh                    2.50       0.031  99.5 %",
            "  note: busy",
            "",
        ];
        assert_eq!(text.split('\n').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_was_not_measured_says_why() {
        let group = Group { name: "fork", about: "", outcome: Outcome::Failed("no such flag".to_owned()) };
        assert_eq!(group_body(&group), "  not measured: no such flag\n");
    }
}
