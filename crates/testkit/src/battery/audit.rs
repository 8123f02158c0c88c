//! What the server wrote down of a case: lines that are whole, nothing forged, nothing secret, and one line for each run.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::case::AuditExpect;
use super::client::strings_in;
use super::tools::audited_as;

/// Everything that a line may be about.
const EVENTS: &[&str] = &["run", "sandbox-opened", "sandbox-closed", "egress", "egress-ended", "call", "audit-resumed"];

/// A program of the case that was run.
#[derive(Debug)]
pub(crate) struct Ran<'a> {
    pub(crate) code: &'a str,
    pub(crate) sandbox: &'a str,
}

/// Reasons why an audit is not what it should be. Stricter than the cases' words: no program's text is in it, escaped or
/// not, no control character, and what it says of a run is told of that run's sandbox and code, once.
pub(crate) fn judge(text: &str, rule: &AuditExpect, ran: &[Ran<'_>]) -> Vec<String> {
    let mut reasons = Vec::new();
    let found = rule.lacks.iter().filter(|word| text.contains(word.as_str()));
    reasons.extend(found.map(|word| format!("audit: found {word:?}")));
    if text.chars().any(|letter| letter.is_control() && letter != '\n') {
        reasons.push("audit: a control character".to_owned());
    }
    if !text.ends_with('\n') {
        reasons.push("audit: its last line is not whole".to_owned());
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(line) if line["event"].as_str().is_some_and(|event| EVENTS.contains(&event)) => lines.push(line),
            _ if rule.every_line_json => reasons.push(format!("audit: no line of ours: {line:?}")),
            _ => {}
        }
    }
    let mut strings = Vec::new();
    lines.iter().for_each(|line| strings_in(line, &mut strings));
    if ran.iter().any(|ran| strings.iter().any(|string| string.contains(ran.code))) {
        reasons.push("audit: a program's text".to_owned());
    }
    let runs: Vec<&Value> = lines.iter().filter(|line| line["event"] == "run").collect();
    if runs.len() != ran.len() || ran.is_empty() {
        reasons.push(format!("audit: {} lines for {} runs", runs.len(), ran.len()));
    }
    for Ran { code, sandbox } in ran {
        let digest = digest(code);
        let is_of = |line: &&&Value| line["code_sha256"] == digest.as_str() && line["sandbox"] == *sandbox;
        let own: Vec<&&Value> = runs.iter().filter(is_of).collect();
        let [line] = own[..] else {
            reasons.push(format!("audit: {} lines for the run of {}", own.len(), &digest[..8]));
            continue;
        };
        let empty = rule.has_fields.iter().filter(|field| !says_something(&line[audited_as(field)]));
        reasons.extend(empty.map(|field| format!("audit: a run without {field}")));
    }
    reasons
}

fn says_something(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
        _ => false,
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CODE: &str = "print(1)\n\u{1b}";

    fn rule() -> AuditExpect {
        let text =
            r#"{"every_line_json":true,"lacks":["S3CRET"],"has_fields":["time","session","outcome","duration_ms"]}"#;
        serde_json::from_str(text).unwrap()
    }

    fn run() -> Value {
        json!({"event": "run", "time": "now", "sandbox": "sb_1", "ending": "exited", "duration_ms": 0,
            "code_sha256": digest(CODE)})
    }

    fn reasons(lines: &[Value]) -> Vec<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        judge(&text, &rule(), &[Ran { code: CODE, sandbox: "sb_1" }])
    }

    fn with(name: &str, value: Value) -> Value {
        let mut run = run();
        run[name] = value;
        run
    }

    #[test]
    fn a_run_has_one_line_and_that_line_has_all() {
        assert_eq!(reasons(&[json!({"event": "sandbox-opened"}), run()]), Vec::<String>::new());
        assert!(reasons(&[]).iter().any(|reason| reason.contains("0 lines")));
        assert_eq!(reasons(&[run(), run()]).len(), 2);
        for (field, value) in [("ending", json!("")), ("duration_ms", json!(null)), ("time", json!({}))] {
            assert_eq!(reasons(&[with(field, value)]).len(), 1, "{field}");
        }
        for field in ["sandbox", "code_sha256"] {
            assert!(reasons(&[with(field, json!("another"))])[0].contains("0 lines for the run"), "{field}");
        }
    }

    #[test]
    fn what_must_not_be_in_it_is_found() {
        for line in [with("error", json!("S3CRET")), with("code", json!(CODE))] {
            assert_eq!(reasons(&[line]).len(), 1);
        }
        let whole = format!("{}\n", run());
        let ran = || [Ran { code: CODE, sandbox: "sb_1" }];
        for (text, word) in [
            (format!("{whole}{{\"half\""), "not whole"),
            (format!("{whole}{{\"forged\":1}}\n"), "no line of ours"),
            (format!("{whole}{{\"event\":\"exec\"}}\n"), "no line of ours"),
            (whole.replace("now", "n\u{7f}w"), "control"),
        ] {
            let reasons = judge(&text, &rule(), &ran());
            assert!(reasons.iter().any(|reason| reason.contains(word)), "{word}: {reasons:?}");
        }
    }
}
