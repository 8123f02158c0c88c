//! The cases as data: what a line of `cases.jsonl` may say. Running them is not here.
//!
//! Unknown fields are refused, so that a misspelt expectation cannot turn into no expectation at all. Unknown
//! operations are kept as such, because they make a case SKIP rather than spoil the file.

use std::time::Duration;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::action::{Action, Step};
use super::check::Check;

pub(crate) const CASES: &str = include_str!("../../battery/cases.jsonl");

/// How much a failure weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    Must,
    Should,
    Info,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RawCase")]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) area: String,
    pub(crate) title: String,
    pub(crate) tier: Tier,
    pub(crate) applies_to: Vec<String>,
    pub(crate) requires: Vec<String>,
    pub(crate) limits: Limits,
    pub(crate) body: Body,
    pub(crate) expect: Expect,
}

#[derive(Debug, Clone)]
pub(crate) enum Body {
    Program { language: String, code: String },
    Steps(Vec<Step>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCase {
    id: String,
    area: String,
    language: String,
    title: String,
    tier: Tier,
    applies_to: Vec<String>,
    requires: Vec<String>,
    limits: Limits,
    code: Option<String>,
    steps: Option<Vec<Step>>,
    expect: Expect,
    #[serde(rename = "why")]
    _why: IgnoredAny,
    #[serde(rename = "severity")]
    _severity: IgnoredAny,
    #[serde(rename = "refs")]
    _refs: IgnoredAny,
    #[serde(rename = "local_check")]
    _local_check: IgnoredAny,
    #[serde(rename = "naked_ok")]
    _naked_ok: IgnoredAny,
    #[serde(rename = "checked")]
    _checked: IgnoredAny,
}

impl TryFrom<RawCase> for Case {
    type Error = String;

    fn try_from(raw: RawCase) -> Result<Self, String> {
        let body = match (raw.code, raw.steps) {
            (Some(code), None) => Body::Program { language: raw.language, code },
            (None, Some(steps)) => Body::Steps(steps),
            _ => return Err(format!("{}: either code or steps", raw.id)),
        };
        Ok(Case {
            id: raw.id,
            area: raw.area,
            title: raw.title,
            tier: raw.tier,
            applies_to: raw.applies_to,
            requires: raw.requires,
            limits: raw.limits,
            body,
            expect: raw.expect,
        })
    }
}

impl Case {
    /// For walls whose sandboxes are slower than the cases reckon with.
    pub(crate) fn allow_time(&mut self, times: u32) {
        /// What every program that came to its end has printed.
        const FINISHED: &str = "PROBE-DONE";
        /// What a run has that says nothing of its time.
        const USUAL_SECONDS: f64 = 30.0;
        if times == 1 {
            return;
        }
        let expect = &mut self.expect;
        expect.finish_within_s *= f64::from(times);
        expect.each_within_s = expect.each_within_s.map(|seconds| seconds * f64::from(times));
        let times = f64::from(times);
        match &mut self.body {
            // One that is to be stopped is stopped as soon as ever.
            Body::Program { .. } if expect.must_contain.iter().any(|words| words == FINISHED) => {
                self.limits.timeout_s = self.limits.timeout_s.map(|seconds| seconds * times);
            }
            Body::Program { .. } => {}
            Body::Steps(steps) => {
                for step in steps.iter_mut().filter(|step| step.within.is_some()) {
                    step.within = step.within.map(|within| within.mul_f64(times));
                    if let Action::Exec { limits, .. } = &mut step.action {
                        limits.timeout_s = Some(limits.timeout_s.unwrap_or(USUAL_SECONDS) * times);
                    }
                }
            }
        }
    }

    /// Whether something is measured of the whole host, or all of it is kept busy.
    pub(crate) fn wants_the_host_alone(&self) -> bool {
        const LONG: Duration = Duration::from_secs(30);
        let checks = self.expect.host.iter().filter_map(|text| Check::parse(text));
        let measures = |check: Check| {
            check.needs_watch()
                || matches!(
                    check,
                    Check::OtherSessionOk { .. }
                        | Check::NoLeftoverMount
                        | Check::NoLeftoverSessionDir
                        | Check::ServerFdsBounded
                )
        };
        let is_heavy = |step: &Step| {
            let many = |n: usize| n >= 20;
            // It reads every file there is, and has half a minute for it.
            let is_long = step.within.is_some_and(|within| within >= LONG);
            match &step.action {
                _ if is_long => true,
                Action::SnapshotHost { .. } => true,
                Action::Repeat { n, .. } | Action::Parallel { n, .. } | Action::ParallelStart { n, .. } => many(*n),
                Action::CreateSessions { n, .. } => many(*n),
                _ => false,
            }
        };
        let heavy = matches!(&self.body, Body::Steps(steps) if steps.iter().any(is_heavy));
        heavy || self.area == "resources" || checks.into_iter().any(measures)
    }
}

/// What a run asks for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) timeout_s: Option<f64>,
    pub(crate) memory_mb: Option<u64>,
    pub(crate) pids: Option<u64>,
    pub(crate) disk_mb: Option<u64>,
    pub(crate) cpus: Option<f64>,
    pub(crate) files: Option<u64>,
    /// `none`, or `allowlist:` and hosts with commas between them.
    pub(crate) net: Option<String>,
    /// A port of the host's that hosts are granted too, so that a name which leads there gives itself away.
    #[serde(skip)]
    pub(crate) host_port: u16,
}

impl Limits {
    /// The hosts that it names; `None` if it says something else.
    pub(crate) fn hosts(&self) -> Option<Vec<String>> {
        match self.net.as_deref() {
            None | Some("none") => Some(Vec::new()),
            Some(net) => {
                let hosts = net.strip_prefix("allowlist:")?.split(',').filter(|host| !host.is_empty());
                Some(hosts.map(str::to_owned).collect())
            }
        }
    }

    /// Whether there is one that belongs to a sandbox, and not to a run.
    pub(crate) fn are_a_sandboxs(&self) -> bool {
        self.cpus.is_some() || [self.memory_mb, self.pids, self.disk_mb, self.files].iter().any(Option::is_some)
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Expect {
    #[serde(default)]
    pub(crate) must_contain: Vec<String>,
    #[serde(default)]
    pub(crate) must_not_contain: Vec<String>,
    #[serde(default)]
    pub(crate) must_not_match: Vec<String>,
    pub(crate) finish_within_s: f64,
    pub(crate) host: Vec<String>,
    #[serde(default)]
    pub(crate) results: BTreeMap<String, TextExpect>,
    #[serde(default)]
    pub(crate) status_any_of: Vec<String>,
    #[serde(default)]
    pub(crate) rpc: Vec<String>,
    #[serde(default)]
    pub(crate) http: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) http_headers: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(default)]
    pub(crate) rpc_error: BTreeMap<String, i64>,
    pub(crate) max_output_bytes: Option<usize>,
    pub(crate) truncated: Option<bool>,
    pub(crate) valid_json: Option<bool>,
    pub(crate) valid_utf8: Option<bool>,
    pub(crate) exit: Option<i64>,
    pub(crate) structured_exit_code: Option<i64>,
    pub(crate) each_within_s: Option<f64>,
    pub(crate) each_result: Option<EachResult>,
    pub(crate) min_ok_fraction: Option<f64>,
    pub(crate) ids: Option<IdsExpect>,
    #[serde(default)]
    pub(crate) same_error_as_unknown_handle: Vec<String>,
    #[serde(default)]
    pub(crate) quota_error_seen: bool,
    pub(crate) upstream: Option<UpstreamExpect>,
    pub(crate) audit: Option<AuditExpect>,
    /// Expectations that the driver does not know; a case that has one is skipped.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TextExpect {
    #[serde(default)]
    pub(crate) must_contain: Vec<String>,
    #[serde(default)]
    pub(crate) must_not_contain: Vec<String>,
    #[serde(default)]
    pub(crate) must_not_match: Vec<String>,
    pub(crate) max_bytes: Option<usize>,
}

/// What the upstream's log must show of the case; numbers are exact but for the one that says most.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamExpect {
    pub(crate) forbidden_calls: Option<usize>,
    pub(crate) foreign_session_calls: Option<usize>,
    pub(crate) delete_all_calls: Option<usize>,
    /// Calls after the answer to the run that made them.
    pub(crate) late_calls: Option<usize>,
    pub(crate) max_calls: Option<usize>,
    /// Whether a token of the server's own callers reached it in any way.
    pub(crate) saw_client_token: Option<bool>,
}

/// What the server's audit must be like, and what its line on a run must have, in the cases' words.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditExpect {
    #[serde(default)]
    pub(crate) every_line_json: bool,
    #[serde(default)]
    pub(crate) lacks: Vec<String>,
    #[serde(default)]
    pub(crate) has_fields: Vec<String>,
}

/// `{i}` in a nonce is the number of the run that must print it, and that no other run may print.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EachResult {
    OnlyOwnNonce(String),
    OwnNonceOrBusyError(String),
}

impl EachResult {
    pub(crate) fn nonce(&self) -> &str {
        match self {
            EachResult::OnlyOwnNonce(nonce) | EachResult::OwnNonceOrBusyError(nonce) => nonce,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdsExpect {
    pub(crate) min_entropy_bits: f64,
    #[serde(default)]
    pub(crate) unique: bool,
    #[serde(default)]
    pub(crate) not_sequential: bool,
}

/// The lines of the battery, each as raw JSON: placeholders are filled in before a line becomes a [`Case`].
pub(crate) fn lines() -> impl Iterator<Item = Result<Value, serde_json::Error>> {
    CASES.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::action::Action;
    use crate::battery::check::Check;

    fn all() -> Vec<Case> {
        lines()
            .map(|line| {
                let line = line.unwrap();
                let id = line["id"].clone();
                serde_json::from_value(line).unwrap_or_else(|error| panic!("{id}: {error}"))
            })
            .collect()
    }

    /// Every word of a case that the driver would stumble over.
    fn unknown_words(case: &Case) -> Vec<String> {
        let mut words: Vec<String> = case.expect.unknown.keys().cloned().collect();
        words.extend(case.expect.host.iter().filter(|check| Check::parse(check).is_none()).cloned());
        if let Body::Steps(steps) = &case.body {
            words.extend(steps.iter().filter(|s| matches!(s.action, Action::Unknown)).map(|s| s.op.clone()));
        }
        words
    }

    #[test]
    fn every_case_parses() {
        let cases = all();
        assert_eq!(cases.len(), 166);
        let mut ids: Vec<_> = cases.iter().map(|case| &case.id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 166);
    }

    #[test]
    fn only_cases_behind_a_gate_hold_unknown_words() {
        for case in all() {
            let words = unknown_words(&case);
            let closed = crate::battery::gate::first_closed(
                &case,
                &crate::battery::Wall::native(),
                crate::battery::Transport::Stdio,
            )
            .is_some();
            assert!(words.is_empty() || closed, "{}: {words:?}", case.id);
        }
    }

    /// A gate that closes, or a word that is lost, would make a case a skip that nobody looks at.
    #[test]
    fn every_case_for_native_is_played_over_stdio() {
        let (wall, stdio) = (crate::battery::Wall::native(), crate::battery::Transport::Stdio);
        for mut case in all().into_iter().filter(|case| case.applies_to.iter().any(|wall| wall == "native")) {
            case.requires.retain(|requirement| !requirement.starts_with("arch:"));
            assert_eq!(crate::battery::gate::first_closed(&case, &wall, stdio), None, "{}", case.id);
            assert_eq!(crate::battery::gate::first_unknown(&case), None, "{}", case.id);
        }
    }

    #[test]
    fn every_case_of_code_mode_is_played() {
        let cases: Vec<Case> = all().into_iter().filter(|case| case.area == "codemode").collect();
        assert!(cases.len() >= 14, "{}", cases.len());
        for case in cases {
            assert_eq!(
                crate::battery::gate::first_closed(
                    &case,
                    &crate::battery::Wall::native(),
                    crate::battery::Transport::Stdio
                ),
                None,
                "{}",
                case.id
            );
            assert_eq!(crate::battery::gate::first_unknown(&case), None, "{}", case.id);
            assert!(crate::battery::codemode::concerns(&case), "{}", case.id);
        }
    }

    /// A pattern that means something else here than where the case was written would find nothing.
    #[test]
    fn every_pattern_of_a_case_can_be_used() {
        for case in all() {
            let patterns = case.expect.results.values().flat_map(|rule| &rule.must_not_match);
            for pattern in patterns.chain(&case.expect.must_not_match) {
                regex_lite::Regex::new(pattern).unwrap_or_else(|error| panic!("{}: {error}", case.id));
            }
            if case.id == "cm-012" {
                let rule = &case.expect.results["s"].must_not_match;
                let hits = crate::battery::expect::matches("\u{1b} \u{e0069} \u{200b} \u{202e}", rule);
                assert_eq!(hits.len(), rule.len(), "{hits:?}");
            }
        }
    }

    #[test]
    fn an_unknown_expectation_is_kept_to_skip_by() {
        let expect: Expect = serde_json::from_str(r#"{"finish_within_s":1,"host":[],"sings":true}"#).unwrap();
        assert!(expect.unknown.contains_key("sings"));
    }
}
