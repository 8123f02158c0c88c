//! The expectations as pure rules: an answer in, reasons why it is not good enough out.

use std::collections::HashSet;

use regex_lite::Regex;
use serde_json::Value;

use super::case::{EachResult, IdsExpect};
use super::client::{Answer, Lost};

/// An answer may be longer than the output in it: JSON escapes, and the text stands twice.
const ENVELOPE_FACTOR: f64 = 1.4;
const ENVELOPE_BYTES: usize = 65536;
/// Fewer handles than this say nothing about how they are made.
const IDS_MIN: usize = 10;

pub(crate) fn contains(text: &str, must: &[String], must_not: &[String]) -> Vec<String> {
    let missing = must.iter().filter(|word| !text.contains(word.as_str())).map(|word| format!("missing {word}"));
    let found = must_not.iter().filter(|word| text.contains(word.as_str())).map(|word| format!("found {word}"));
    missing.chain(found).collect()
}

pub(crate) fn matches(text: &str, must_not: &[String]) -> Vec<String> {
    let verdict = |pattern: &String| match Regex::new(pattern) {
        Ok(regex) => regex.is_match(text).then(|| format!("matched {pattern}")),
        Err(error) => Some(format!("driver: bad pattern {pattern}: {error}")),
    };
    must_not.iter().filter_map(verdict).collect()
}

/// The cases' word for how a run ended. `refused` is in no case's list: what did not run proves nothing.
pub(crate) fn status(answer: &Answer) -> &'static str {
    if answer.lost.is_some() {
        return "lost";
    }
    let ending = answer.field("/structuredContent/ending").and_then(Value::as_str);
    match ending {
        Some("exited") if exit_code(answer) == Some(0) => "ok",
        Some("exited") => "error",
        Some("killed" | "cancelled") => "killed",
        Some("timeout") => "timeout",
        Some("memory") => "oom",
        Some("output") => "limit",
        Some(_) => "unknown",
        None => "refused",
    }
}

pub(crate) fn exit_code(answer: &Answer) -> Option<i64> {
    answer.field("/structuredContent/exit_code")?.as_i64()
}

pub(crate) fn is_truncated(answer: &Answer) -> bool {
    answer.field("/structuredContent/truncated") == Some(&Value::Bool(true))
}

pub(crate) fn output_fits(bytes: usize, most: usize) -> bool {
    bytes as f64 <= most as f64 * ENVELOPE_FACTOR + ENVELOPE_BYTES as f64
}

/// A pattern such as `401|403` against a whole status.
pub(crate) fn status_matches(status: u16, pattern: &str) -> Result<bool, String> {
    let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|error| format!("driver: {error}"))?;
    Ok(regex.is_match(&status.to_string()))
}

/// Names of results in a case: exact, `*`, or a prefix with `*`.
pub(crate) fn name_matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

/// Many runs at once: none shows another's nonce, each shows its own or was refused, and enough of them ran.
pub(crate) fn each_result(rule: &EachResult, answers: &[Answer], min_ok_fraction: f64) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut ran = 0;
    for (index, answer) in answers.iter().enumerate() {
        let own = rule.nonce().replace("{i}", &index.to_string());
        let text = answer.text();
        if answer.lost == Some(Lost::Timeout) {
            reasons.push(format!("#{index}: no answer"));
        } else if let Some(other) = nonces(&text, rule.nonce()).into_iter().find(|nonce| *nonce != own) {
            reasons.push(format!("#{index}: shows {other}, another's output"));
        } else if text.contains(&own) {
            ran += 1;
        } else if !answer.is_error() {
            reasons.push(format!("#{index}: neither its output nor an error"));
        }
    }
    let needed = (min_ok_fraction * answers.len() as f64).max(1.0);
    if (ran as f64) < needed {
        reasons.push(format!("only {ran} of {} ran", answers.len()));
    }
    // One line stays readable when all thousand went wrong.
    reasons.truncate(5);
    reasons
}

/// Everything in a text that looks like the nonce of some run.
fn nonces(text: &str, nonce: &str) -> Vec<String> {
    let Some((start, end)) = nonce.split_once("{i}") else {
        return Vec::new();
    };
    let place = |(at, _): (usize, &str)| {
        let rest = &text[at + start.len()..];
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty() && rest[digits.len()..].starts_with(end)).then(|| format!("{start}{digits}{end}"))
    };
    text.match_indices(start).filter_map(place).collect()
}

/// Far more at once than one principal may have: some are run, every other is told that it is past a bound of its own, and
/// both kinds of bound are met, of requests and of what programs take.
pub(crate) fn bounded(answers: &[Answer]) -> Vec<String> {
    let [mut ran, mut too_often, mut too_much] = [0; 3];
    let mut reasons = Vec::new();
    for (index, answer) in answers.iter().enumerate() {
        let status = answer.http.as_ref().map(|reply| reply.status);
        let waits = answer.http.as_ref().and_then(|reply| reply.header("retry-after"));
        let text = answer.text();
        if answer.ran() {
            ran += 1;
        } else if status == Some(429) && waits.is_some_and(|seconds| seconds.parse::<u32>().is_ok()) {
            too_often += 1;
        } else if answer.is_error() && text.contains("your quota") {
            too_much += 1;
        } else {
            let said: String = text.chars().take(80).collect();
            reasons.push(format!("#{index}: neither run nor told of a quota: {said}"));
        }
    }
    for (what, count) in [("was run", ran), ("was too often", too_often), ("was over its quota", too_much)] {
        if count == 0 {
            reasons.push(format!("none of {} {what}", answers.len()));
        }
    }
    reasons.truncate(5);
    reasons
}

pub(crate) fn ids(rule: &IdsExpect, ids: &[String]) -> Vec<String> {
    if ids.len() < IDS_MIN {
        return vec![format!("only {} handles were given out", ids.len())];
    }
    let mut reasons = Vec::new();
    if rule.unique && ids.iter().collect::<HashSet<_>>().len() != ids.len() {
        reasons.push("a handle was given out twice".to_owned());
    }
    // What all of them share is a label, or the part of a counter that has not moved yet.
    let shared = (1..ids.len()).map(|index| common_prefix(&ids[0], &ids[index])).min().unwrap_or(0);
    let tails: Vec<&str> = ids.iter().map(|id| &id[shared..]).collect();
    let alphabet = tails.iter().flat_map(|tail| tail.chars()).collect::<HashSet<_>>().len().max(2);
    let shortest = tails.iter().map(|tail| tail.chars().count()).min().unwrap_or(0);
    let bits = shortest as f64 * (alphabet as f64).log2();
    // The first place may be shared by chance.
    let bits_most = bits + (alphabet as f64).log2();
    if bits_most < rule.min_entropy_bits {
        reasons.push(format!("handles hold at most {bits_most:.0} bits: {}", ids[0]));
    }
    let alike = ids.windows(2).filter(|pair| common_prefix(&pair[0], &pair[1]) - shared > shortest / 2).count();
    if rule.not_sequential && alike * 2 > ids.len() {
        reasons.push(format!("handles follow each other: {}, {}", ids[0], ids[1]));
    }
    reasons
}

fn common_prefix(one: &str, other: &str) -> usize {
    one.char_indices()
        .zip(other.chars())
        .find(|((_, a), b)| a != b)
        .map_or(one.len().min(other.len()), |((at, _), _)| at)
}

/// Whether a stranger's handle and a handle that never was are refused in the same words.
pub(crate) fn same_refusal(strange: (&Answer, &str), unknown: (&Answer, &str)) -> Result<(), String> {
    let told = |(answer, id): (&Answer, &str)| answer.text().replace(id, "HANDLE");
    if !strange.0.is_error() {
        return Err("was not refused".into());
    }
    let (strange, unknown) = (told(strange), told(unknown));
    if strange == unknown { Ok(()) } else { Err(format!("differs from an unknown handle: {strange} / {unknown}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::wire::Reply;
    use serde_json::json;

    fn run(structured: Value) -> Answer {
        Answer::new(json!({"result": {"structuredContent": structured}}), 0)
    }

    fn said(text: &str) -> Answer {
        Answer::new(json!({"result": {"content": [{"type": "text", "text": text}]}}), 0)
    }

    fn refused(text: &str) -> Answer {
        Answer::new(json!({"error": {"code": -1, "message": text}}), 0)
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn texts_are_searched() {
        assert!(contains("a PROBE-DONE", &words(&["PROBE-DONE"]), &words(&["LEAK"])).is_empty());
        assert_eq!(contains("LEAK", &words(&["PROBE-DONE"]), &words(&["LEAK"])).len(), 2);
        assert!(matches("plain", &words(&["\\x1b", "\\x9b", "\\x07"])).is_empty());
        assert_eq!(matches("\u{1b}[0m \u{9b}", &words(&["\\x1b", "\\x9b", "\\x07"])).len(), 2);
        assert_eq!(matches("x", &words(&["("])).len(), 1);
    }

    #[test]
    fn endings_become_the_words_of_the_cases() {
        let status_of = |structured| status(&run(structured));
        assert_eq!(status_of(json!({"ending": "exited", "exit_code": 0})), "ok");
        assert_eq!(status_of(json!({"ending": "exited", "exit_code": 7})), "error");
        assert_eq!(status_of(json!({"ending": "killed"})), "killed");
        assert_eq!(status_of(json!({"ending": "timeout"})), "timeout");
        assert_eq!(status_of(json!({"ending": "memory"})), "oom");
        assert_eq!(status_of(json!({"ending": "output"})), "limit");
        assert_eq!(status_of(json!({"ending": "cancelled"})), "killed");
        assert_eq!(status_of(json!({})), "refused");
        assert_eq!(status(&refused("busy")), "refused");
        assert_eq!(status(&Answer::lost(Lost::Timeout)), "lost");
        assert_eq!(exit_code(&run(json!({"exit_code": 7}))), Some(7));
        assert!(is_truncated(&run(json!({"truncated": true}))));
        assert!(!is_truncated(&run(json!({"truncated": "yes"}))));
    }

    #[test]
    fn sizes_and_statuses_are_bounded() {
        assert!(output_fits(4 << 20, 4 << 20));
        assert!(!output_fits(8 << 20, 4 << 20));
        assert_eq!(status_matches(403, "401|403"), Ok(true));
        assert_eq!(status_matches(200, "401|403"), Ok(false));
        assert_eq!(status_matches(4031, "401|403"), Ok(false));
        assert!(status_matches(200, "(").is_err());
        assert!(name_matches("r1", "*") && name_matches("r1", "r*") && name_matches("r1", "r1"));
        assert!(!name_matches("r1", "r") && !name_matches("r1", "s*"));
    }

    #[test]
    fn each_run_shows_its_own_nonce() {
        let rule = EachResult::OnlyOwnNonce("N{i}N".into());
        let own = |index: usize| said(&format!("N{index}N\nN{index}N"));
        assert!(each_result(&rule, &[own(0), own(1), refused("busy")], 0.5).is_empty());
        assert!(each_result(&rule, &[own(0), own(0)], 0.0)[0].contains("another's output"));
        assert!(each_result(&rule, &[own(0), said("nothing")], 0.0)[0].contains("neither"));
        assert!(each_result(&rule, &[own(0), Answer::lost(Lost::Timeout)], 0.0)[0].contains("no answer"));
        assert!(each_result(&rule, &[refused("busy"), refused("busy")], 0.0)[0].contains("only 0"));
        assert!(each_result(&rule, &[own(0), refused("x"), refused("x")], 0.9)[0].contains("only 1"));
    }

    #[test]
    fn a_flood_is_run_in_part_and_the_rest_is_told_why_not() {
        let ran = || run(json!({"ending": "exited", "exit_code": 0}));
        let over = || {
            let content = json!([{"type": "text", "text": "error: your quota of 2 runs is used up"}]);
            Answer::new(json!({"result": {"isError": true, "content": content}}), 0)
        };
        let with = |status, headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Answer { http: Some(Reply { status, headers, ..Reply::default() }), ..Answer::new(Value::Null, 0) }
        };
        let often = || with(429, &[("Retry-After", "1")]);
        assert_eq!(bounded(&[ran(), over(), often(), often()]), Vec::<String>::new());
        for (answers, word) in [
            (vec![over(), often()], "none of 2 was run"),
            (vec![ran(), over()], "too often"),
            (vec![ran(), often()], "over its quota"),
            (vec![ran(), over(), often(), with(429, &[])], "#3"),
            (vec![ran(), over(), often(), with(503, &[("Retry-After", "1")])], "#3"),
            (vec![ran(), over(), often(), Answer::lost(Lost::Closed)], "#3"),
            (vec![ran(), over(), often(), refused("busy")], "#3"),
            (vec![ran(), over(), often(), said("your quota of nothing")], "#3"),
        ] {
            let reasons = bounded(&answers);
            assert!(reasons.len() == 1 && reasons[0].contains(word), "{word}: {reasons:?}");
        }
    }

    #[test]
    fn handles_are_weighed() {
        let rule = IdsExpect { min_entropy_bits: 122.0, unique: true, not_sequential: true };
        let good: Vec<String> = (0..20).map(|_| format!("sb_{}", crate::battery::host::random_hex(16))).collect();
        assert_eq!(ids(&rule, &good), Vec::<String>::new());
        let short: Vec<String> = (0..20).map(|_| crate::battery::host::random_hex(8)).collect();
        assert!(ids(&rule, &short)[0].contains("bits"));
        let counted: Vec<String> = (0..20).map(|index| format!("{:032x}", 1_000_000 + index)).collect();
        assert!(!ids(&rule, &counted).is_empty());
        let mut twice = good.clone();
        twice[1] = twice[0].clone();
        assert!(ids(&rule, &twice)[0].contains("twice"));
        assert!(ids(&rule, &good[..3])[0].contains("only 3"));
        // A long random start and a counter at its end.
        let start = crate::battery::host::random_hex(32);
        let mut tail: Vec<String> = (0..20).map(|index| format!("x{start}{index:02}")).collect();
        tail.push(format!("y{start}99"));
        assert!(ids(&rule, &tail).iter().any(|reason| reason.contains("follow")));
    }

    #[test]
    fn a_strange_handle_must_look_unknown() {
        let strange = refused("no sandbox abc");
        assert_eq!(same_refusal((&strange, "abc"), (&refused("no sandbox xyz"), "xyz")), Ok(()));
        assert!(same_refusal((&refused("not yours: abc"), "abc"), (&refused("no sandbox xyz"), "xyz")).is_err());
        assert!(same_refusal((&said("ok"), "abc"), (&said("ok"), "xyz")).is_err());
    }
}
