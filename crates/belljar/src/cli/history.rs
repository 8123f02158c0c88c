//! `belljar history`: the runs that were, and what people decided.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use belljar_store::{PastDecision, PastRun, Reader, Wanted, now_ms, rfc3339};
use clap::Args;
use serde_json::json;

use super::table::{cell, time};
use super::values;
use crate::config::Config;
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct History {
    /// Only what began within this time, such as 90s, 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = values::back)]
    since: Option<Duration>,
    /// Only this principal's
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// At most so many, the latest
    #[arg(long, value_name = "NUMBER", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print JSON, with all that is known of each
    #[arg(long)]
    json: bool,
}

impl History {
    pub(super) fn execute(self, config: &Config) -> anyhow::Result<ExitCode> {
        let complain = |error| wiring::complain_of_history(&error);
        let since_ms =
            self.since.map(|time| now_ms().saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)));
        let is_narrow = self.since.is_some() || self.principal.is_some();
        let wanted = Wanted { since_ms, principal: self.principal, limit: self.limit };
        let reader = match wiring::history_file(config) {
            Some(file) => Reader::open(&file).map_err(complain)?,
            None => None,
        };
        let (runs, mut decisions, dropped) = match &reader {
            Some(reader) => (
                reader.runs(&wanted).map_err(complain)?,
                reader.decisions(&wanted).map_err(complain)?,
                reader.dropped().map_err(complain)?,
            ),
            None => (Vec::new(), Vec::new(), 0),
        };
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{:#}", json!({"runs": runs, "decisions": decisions, "dropped": dropped}))?;
            return Ok(ExitCode::SUCCESS);
        }
        if runs.is_empty() && decisions.is_empty() {
            let hint = match (config.history.enabled.value, is_narrow) {
                (false, _) => "Nothing is remembered: enabled = false stands below [history].",
                (true, true) => "Ask for more: a longer --since, or without --principal.",
                (true, false) => "It begins with the next run: `belljar run -l python -c 'print(1)'`.",
            };
            writeln!(out, "No runs are remembered{}.\n{hint}", if is_narrow { " that fit" } else { "" })?;
            return Ok(ExitCode::SUCCESS);
        }
        let words = ["BEGAN (UTC)", "RUN", "PRINCIPAL", "WHAT", "ENDING"];
        let [began, run, principal, what, ending] = words;
        writeln!(out, "{began:<14} {run:<36} {principal:<11} {what:<10} {ending:<14} {:>8}", "TOOK")?;
        // Where the oldest runs are cut off, so are the decisions of before: both are the latest of their time.
        if let Some(oldest) = runs.last().filter(|_| runs.len() as u64 >= u64::from(self.limit)) {
            decisions.retain(|decision| decision.at_ms >= oldest.began_ms);
        }
        let mut decisions = decisions.iter().peekable();
        for run in &runs {
            while let Some(decision) = decisions.next_if(|decision| decision.at_ms >= run.began_ms) {
                show_decision(&mut out, decision)?;
            }
            show(&mut out, run)?;
        }
        for decision in decisions {
            show_decision(&mut out, decision)?;
        }
        if dropped > 0 {
            writeln!(out, "{dropped} events are missing: more happened than could be written")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `2026-03-01T12:00:00.000Z`, of which a person needs the middle.
fn day_and_time(ms: i64) -> String {
    rfc3339(ms).get(5..19).unwrap_or_default().replace('T', " ")
}

/// A line among the runs', which says what was decided on in the place of a run's id.
fn show_decision(out: &mut impl Write, decision: &PastDecision) -> std::io::Result<()> {
    let at = day_and_time(decision.at_ms);
    let subject = match decision.what.as_str() {
        "program" => format!("approval of {} {}", decision.name, decision.sha256.get(..12).unwrap_or_default()),
        _ => format!("approval of {}", decision.name),
    };
    let (subject, principal) = (cell(&subject, 36), cell(&decision.principal, 11));
    let (what, outcome) = (cell(&decision.what, 10), cell(&decision.outcome, 14));
    writeln!(out, "{at:<14} {subject:<36} {principal:<11} {what:<10} {outcome:<14} {:>8}", "-")
}

fn show(out: &mut impl Write, run: &PastRun) -> std::io::Result<()> {
    let began = day_and_time(run.began_ms);
    let what = run.language.as_deref().unwrap_or("command");
    let ending = match (run.ending.as_str(), run.exit_code, &run.error_kind) {
        ("exited", Some(code), _) => format!("exited {code}"),
        ("refused", _, Some(kind)) => format!("refused {kind}"),
        (ending, ..) => ending.to_owned(),
    };
    let (id, principal, what) = (cell(&run.id, 36), cell(&run.principal, 11), cell(what, 10));
    if run.ending == "refused" {
        // What was refused took no time, and why it was needs the room.
        return writeln!(out, "{began:<14} {id:<36} {principal:<11} {what:<10} {}", cell(&ending, 23));
    }
    let took = run.duration_ms.map_or_else(|| "-".to_owned(), |ms| time(ms.unsigned_abs()));
    writeln!(out, "{began:<14} {id:<36} {principal:<11} {what:<10} {:<14} {took:>8}", cell(&ending, 14))
}
