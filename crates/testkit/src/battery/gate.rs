//! What this build of Belljar offers, and hence which cases can be asked of it.

use super::action::{Action, Step};
use super::case::{Body, Case};
use super::check::Check;
use super::server::Transport;
use super::wall::Wall;

/// The idle time of the server that `config:idle_ttl_s=3` cases get.
pub(crate) const IDLE_SECONDS: u32 = 3;

/// For cases that come up against the bounds of one principal.
pub(crate) const QUOTA: &str = "config:quota";
/// For cases that read what the server wrote down.
pub(crate) const AUDIT: &str = "cap:audit";

/// For cases in which a call of the upstream may only take so long.
pub(crate) const UPSTREAM_TIMEOUT: &str = "config:upstream_timeout_s=5";

const OFFERS: &[&str] = &[
    "transport:http",
    "cap:auth",
    "config:idle_ttl_s=3",
    "cap:net.allowlist",
    "fixture:egress",
    "cap:codemode",
    "fixture:upstream",
    UPSTREAM_TIMEOUT,
    QUOTA,
    AUDIT,
    // A rule asks a person before the tool that destroys, and the driver's client cannot be asked.
    "config:deny_destructive=true",
];

/// One that needs HTTP gets a server of its own, where the others are asked over stdio; not the other way round.
fn is_offered(requirement: &str, transport: Transport) -> bool {
    match requirement.strip_prefix("arch:") {
        Some(arch) => arch == std::env::consts::ARCH,
        None if requirement == "transport:stdio" => transport == Transport::Stdio,
        None => OFFERS.contains(&requirement),
    }
}

/// The first reason why a case cannot be asked of this build.
pub(crate) fn first_closed(case: &Case, wall: &Wall, transport: Transport) -> Option<String> {
    let name = wall.kind.in_cases();
    if !case.applies_to.iter().any(|applies| applies == name) {
        return Some(format!("not for {name}"));
    }
    if let Some(why) = wall.guests_own(&case.id) {
        return Some(format!("the guest's own kernel answers: {why}"));
    }
    let closed = case.requires.iter().find(|requirement| !is_offered(requirement, transport));
    closed.map(|requirement| format!("requires {requirement}"))
}

/// The first word of a case that the driver has no code for.
pub(crate) fn first_unknown(case: &Case) -> Option<String> {
    const RPC: &[&str] =
        &["stdout_every_line_is_valid_jsonrpc", "exactly_one_response_per_id", "no_unsolicited_messages"];
    let expect = &case.expect;
    let host = expect.host.iter().find(|check| Check::parse(check).is_none());
    let rpc = expect.rpc.iter().find(|rule| !RPC.contains(&rule.as_str()));
    let net = case.limits.net.as_deref().filter(|_| case.limits.hosts().is_none());
    let word = expect
        .unknown
        .keys()
        .next()
        .map(|key| format!("expectation {key}"))
        .or_else(|| host.map(|check| format!("host check {check}")))
        .or_else(|| rpc.map(|rule| format!("rpc rule {rule}")))
        .or_else(|| net.map(|net| format!("network {net}")))
        .or_else(|| match &case.body {
            Body::Program { .. } => None,
            Body::Steps(steps) => steps.iter().find_map(unknown_in_step),
        });
    word.map(|word| format!("driver does not know {word}"))
}

fn unknown_in_step(step: &Step) -> Option<String> {
    match &step.action {
        Action::Unknown => Some(format!("op {}", step.op)),
        Action::As { step, .. }
        | Action::Repeat { step, .. }
        | Action::Parallel { step, .. }
        | Action::ParallelStart { step, .. } => unknown_in_step(step),
        Action::AssertHost { check } if Check::parse(check).is_none() => Some(format!("host check {check}")),
        Action::AssertRpc { check } if !check.starts_with("no_message_for:") => Some(format!("rpc check {check}")),
        Action::Exec { mode: Some(mode), .. } if mode != "code" => Some(format!("exec mode {mode}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn case(requires: &[&str], host: &[&str], op: &str) -> Case {
        serde_json::from_value(json!({
            "id": "x-1", "area": "x", "language": "rpc", "title": "", "why": "", "severity": "",
            "tier": "must", "applies_to": ["native"], "requires": requires, "limits": {}, "refs": [],
            "steps": [{"op": op, "s": 1}], "local_check": "", "naked_ok": false, "checked": {},
            "expect": {"finish_within_s": 1, "host": host},
        }))
        .unwrap()
    }

    #[test]
    fn a_gate_that_is_not_offered_is_named() {
        let closed =
            |requires: &[&str], transport| first_closed(&case(requires, &[], "sleep"), &Wall::native(), transport);
        assert_eq!(closed(&["transport:http"], Transport::Stdio), None);
        assert_eq!(closed(&["transport:http", "cap:teleport"], Transport::Http).unwrap(), "requires cap:teleport");
        assert!(closed(&["arch:pdp11"], Transport::Stdio).is_some());
        assert_eq!(closed(&["transport:stdio"], Transport::Stdio), None);
        assert_eq!(closed(&["transport:stdio"], Transport::Http).unwrap(), "requires transport:stdio");
    }

    #[test]
    fn unknown_words_are_named() {
        assert_eq!(first_unknown(&case(&[], &["server_alive"], "sleep")), None);
        let unknown = first_unknown(&case(&[], &["moon_is_full"], "sleep")).unwrap();
        assert_eq!(unknown, "driver does not know host check moon_is_full");
        let unknown = first_unknown(&case(&[], &[], "dance")).unwrap();
        assert_eq!(unknown, "driver does not know op dance");
    }
}
