//! The figures as people read them, and whether they are what was promised.

use std::fmt::Write as _;

use belljar_gateway::tokens::Encoding;
use belljar_gateway::tokens::arms::Arm;
use belljar_gateway::tokens::recorded::Recorded;
use belljar_gateway::tokens::transcript::saved;

use super::Row;

#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) target: String,
    pub(super) percent: f64,
    pub(super) wanted: f64,
    pub(super) met: bool,
}

/// What was promised: a workflow, with how many tools (all that there are, where none is said), and the percent saved.
const TARGETS: [(&str, Option<usize>, f64); 2] = [("documents", None, 98.7), ("chain", Some(30), 73.0)];

/// Billed tokens of code mode as measured, against all tools called directly, by o200k.
pub(super) fn judge(rows: &[Row]) -> Vec<Verdict> {
    let verdict = |(name, size, wanted): (&str, Option<usize>, f64)| {
        let fits = |row: &&Row| row.workflow.name == name && size.is_none_or(|size| row.tools == size);
        let row = rows.iter().filter(fits).max_by_key(|row| row.tools)?;
        let (direct, code) = (row.bill(Encoding::O200k, Arm::Direct)?, row.bill(Encoding::O200k, Arm::Code)?);
        let percent = saved(direct.total(), code.total());
        let target = format!("{name} with {} tools: fewer billed tokens than direct calls", row.tools);
        Some(Verdict { target, percent, wanted, met: percent >= wanted })
    };
    TARGETS.into_iter().filter_map(verdict).collect()
}

pub(super) fn draw(all: &[Recorded], rows: &[Row], verdicts: &[Verdict]) -> String {
    let mut out = String::new();
    let tools: usize = all.iter().map(|server| server.tools.len()).sum();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{} public servers, {tools} tools, as recorded; no model is asked anything\n", all.len());
    for encoding in Encoding::ALL {
        let _ = writeln!(out, "{} (billed tokens over all turns / peak context / turns)", encoding.name());
        let _ = writeln!(
            out,
            "{:<20}{:>6}  {:>24}{:>24}{:>24}{:>24}  {:>9}{:>10}",
            "workflow", "tools", "direct", "deferred", "code", "pessimistic", "vs direct", "deferred"
        );
        for row in rows {
            let _ = write!(out, "{:<20}{:>6}  ", row.workflow.name, row.tools);
            for arm in Arm::ALL {
                let cell =
                    row.bill(encoding, arm).map(|bill| format!("{} / {} / {}", bill.total(), bill.peak, bill.turns));
                let _ = write!(out, "{:>24}", cell.unwrap_or_default());
            }
            for other in [Arm::Direct, Arm::Deferred] {
                let percent = row.bill(encoding, other).zip(row.bill(encoding, Arm::Code)).map(|(other, code)| {
                    let percent = saved(other.total(), code.total());
                    format!("{}{:.1} %", if percent > 0.0 { "-" } else { "+" }, percent.abs())
                });
                let _ = write!(out, "{:>10}", percent.unwrap_or_default());
            }
            out.push('\n');
        }
        out.push('\n');
    }
    let loses = |row: &&Row, than: Arm| {
        let bills = row.bill(Encoding::O200k, than).zip(row.bill(Encoding::O200k, Arm::Code));
        bills.is_some_and(|(other, code)| code.total() > other.total())
    };
    for (than, words) in [(Arm::Direct, "direct calls"), (Arm::Deferred, "deferred tools")] {
        let losing: Vec<String> = rows
            .iter()
            .filter(|row| loses(row, than))
            .map(|row| format!("{} with {} tools", row.workflow.name, row.tools))
            .collect();
        let losing = if losing.is_empty() { "nowhere".to_owned() } else { losing.join(", ") };
        let _ = writeln!(out, "code mode costs more than {words}: {losing}");
    }
    for verdict in verdicts {
        let word = if verdict.met { "met" } else { "MISSED" };
        let _ = writeln!(out, "{word}: {}: {:.1} % (wanted {} %)", verdict.target, verdict.percent, verdict.wanted);
    }
    out
}
