//! What the upstream was asked, as it wrote that down itself.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::case::UpstreamExpect;

/// What the mock wrote down.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) text: String,
}

impl Log {
    pub(crate) fn lines(&self) -> impl Iterator<Item = Value> {
        self.text.lines().filter_map(|line| serde_json::from_str(line).ok())
    }

    pub(crate) fn was_listed(&self, serial: u64) -> bool {
        self.lines().any(|line| line["listed"] == serial)
    }

    /// Reasons why the calls of a case are not what they should be. `ended` is when its last run was answered.
    pub(crate) fn judge(&self, rule: &UpstreamExpect, ended: Option<SystemTime>) -> Vec<String> {
        let calls: Vec<Value> = self.lines().filter(|line| line["tool"].is_string()).collect();
        let of = |tool: &str| calls.iter().filter(|call| call["tool"] == tool).count();
        let late = |call: &&Value| {
            let time = call["time"].as_f64().unwrap_or(f64::MAX);
            let ended = ended.and_then(|ended| ended.duration_since(UNIX_EPOCH).ok());
            // Without an answer to go by, all of them are.
            let after = ended.is_none_or(|ended| time > ended.as_secs_f64());
            after && call["tool"] == "echo" && call["arguments"].to_string().contains("LATE")
        };
        let late = calls.iter().filter(late).count();
        let exact = [
            ("forbidden calls", rule.forbidden_calls, of("forbidden")),
            ("calls of delete_all", rule.delete_all_calls, of("delete_all")),
            // The case that asks for this makes no call that is its own.
            ("calls for another session", rule.foreign_session_calls, calls.len()),
            ("calls after the run", rule.late_calls, late),
        ];
        let mut reasons: Vec<String> = exact
            .into_iter()
            .filter_map(|(what, wanted, count)| {
                wanted.filter(|wanted| *wanted != count).map(|wanted| (what, wanted, count))
            })
            .map(|(what, wanted, count)| format!("upstream: {count} {what}, not {wanted}"))
            .collect();
        if let Some(most) = rule.max_calls.filter(|most| calls.len() > *most) {
            reasons.push(format!("upstream: {} calls, {most} allowed", calls.len()));
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn log(lines: &[Value]) -> Log {
        Log { text: lines.iter().map(|line| format!("{line}\n")).collect() }
    }

    fn rule(text: &str) -> UpstreamExpect {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn calls_are_counted_by_tool() {
        let some = log(&[
            json!({"listed": 3}),
            json!({"tool": "echo", "arguments": {}, "time": 1}),
            json!({"tool": "forbidden", "arguments": {}, "time": 2}),
        ]);
        let none = log(&[json!({"listed": 3, "arguments": "forbidden"})]);
        for text in [r#"{"forbidden_calls":0}"#, r#"{"foreign_session_calls":0}"#, r#"{"max_calls":1}"#] {
            assert_eq!(some.judge(&rule(text), None).len(), 1, "{text}");
            assert!(none.judge(&rule(text), None).is_empty(), "{text}");
        }
        assert!(some.judge(&rule(r#"{"delete_all_calls":0,"max_calls":2}"#), None).is_empty());
        assert!(serde_json::from_str::<UpstreamExpect>(r#"{"forbiden_calls":0}"#).is_err());
    }

    #[test]
    fn only_calls_after_the_answer_are_late() {
        let call = |time: f64| json!({"tool": "echo", "arguments": {"x": "LATE"}, "time": time});
        let ended = Some(UNIX_EPOCH + Duration::from_secs(100));
        let late = rule(r#"{"late_calls":0}"#);
        assert!(log(&[call(99.5)]).judge(&late, ended).is_empty());
        assert_eq!(log(&[call(99.5), call(100.5)]).judge(&late, ended).len(), 1);
        assert_eq!(log(&[call(99.5)]).judge(&late, None).len(), 1);
    }
}
