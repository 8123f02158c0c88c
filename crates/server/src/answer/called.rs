//! What a run called of other servers' tools.

use belljar_core::{Calls, Made};
use belljar_gateway::error::CallError;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::shorten::shorten_text;
use crate::clean;

/// Entries that are told; calls of the same tool with the same outcome, one after the other, are one.
const TOLD_MAX: usize = 40;
const NOTED_MAX: usize = 20;
const ERROR_BYTES_MAX: usize = 8_000;

/// Some calls in a row that came to the same.
#[derive(Debug)]
struct Row<'a> {
    tool: &'a str,
    outcome: &'a str,
    milliseconds: u64,
    count: u64,
}

fn rows(made: &[Made]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for Made { tool, outcome, milliseconds } in made {
        match rows.last_mut() {
            Some(row) if row.tool == tool && row.outcome == outcome => {
                row.count += 1;
                row.milliseconds = row.milliseconds.saturating_add(*milliseconds);
            }
            _ => rows.push(Row { tool, outcome, milliseconds: *milliseconds, count: 1 }),
        }
    }
    rows
}

/// In the structured part.
pub(super) fn structured(calls: &Calls, into: &mut Map<String, Value>) {
    if calls.made.is_empty() {
        return;
    }
    let rows = rows(&calls.made);
    let told = rows.iter().take(TOLD_MAX).map(|row| {
        let mut told = json!({"tool": word(row.tool), "outcome": word(row.outcome), "ms": row.milliseconds});
        if row.count > 1 {
            told["count"] = row.count.into();
        }
        told
    });
    into.insert("calls".into(), told.collect());
    let untold: u64 = rows.iter().skip(TOLD_MAX).map(|row| row.count).sum();
    if calls.more + untold > 0 {
        into.insert("calls_more".into(), (calls.more + untold).into());
    }
}

/// In the text of a run that failed: whoever tries again should not do twice what was done.
pub(crate) fn note(calls: &Calls) -> Option<String> {
    let rows = rows(&calls.made);
    let mut words: Vec<String> = Vec::new();
    for row in rows.iter().take(NOTED_MAX) {
        let times = if row.count > 1 { format!(" x{}", row.count) } else { String::new() };
        words.push(format!("{} {}{times}", word(row.tool), word(row.outcome)));
    }
    let more = calls.more + rows.iter().skip(NOTED_MAX).map(|row| row.count).sum::<u64>();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    (!words.is_empty()).then(|| format!("[calls made before the error: {}]", words.join(", ")))
}

/// A call without a program that failed.
pub(crate) fn call_failed(error: &CallError) -> CallToolResult {
    let mut text = format!("{}: {}", error.kind.name(), error.message);
    for problem in error.problems.iter().filter(|problem| !error.message.contains(problem.as_str())) {
        text.push_str(&format!("\n- {problem}"));
    }
    if let Some(url) = &error.url {
        text.push_str(&format!("\n{url}"));
    }
    let text = shorten_text(&clean::clean(text.as_bytes()), ERROR_BYTES_MAX);
    CallToolResult::error(vec![ContentBlock::text(text)])
}

/// Names come from other servers.
fn word(text: &str) -> String {
    shorten_text(&clean::clean(text.as_bytes()), 130).replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(tool: &str, outcome: &str) -> Made {
        Made { tool: tool.into(), outcome: outcome.into(), milliseconds: 5 }
    }

    #[test]
    fn the_same_calls_in_a_row_are_one_entry() {
        let ok = made("github.create_issue", "ok");
        let made = vec![ok.clone(), ok.clone(), ok, made("slack.post", "ApprovalDenied"), made("x.y\nz", "ok")];
        let calls = Calls { made, more: 2, direct_tokens: 0 };
        let mut told = Map::new();
        structured(&calls, &mut told);
        assert_eq!(told["calls"][0], json!({"tool": "github.create_issue", "outcome": "ok", "ms": 15, "count": 3}));
        assert_eq!(told["calls"][1], json!({"tool": "slack.post", "outcome": "ApprovalDenied", "ms": 5}));
        assert_eq!(told["calls_more"], 2);
        assert_eq!(
            note(&calls).unwrap(),
            "[calls made before the error: github.create_issue ok x3, slack.post ApprovalDenied, x.y z ok, and 2 more]"
        );
        assert_eq!(note(&Calls::default()), None);
    }

    #[test]
    fn many_calls_do_not_fill_the_answer() {
        let made = (0..500).map(|number| made(&format!("server.tool_{number}"), "ok")).collect();
        let calls = Calls { made, more: 7, direct_tokens: 0 };
        let mut told = Map::new();
        structured(&calls, &mut told);
        assert_eq!((told["calls"].as_array().unwrap().len(), &told["calls_more"]), (TOLD_MAX, &json!(467)));
        assert!(note(&calls).unwrap().ends_with("and 487 more]"));
    }
}
