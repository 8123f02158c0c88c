//! What was put around a run: packages that were installed for it, and hosts that it was refused.

use std::time::Duration;

use belljar_engine::{Installation, Run};
use serde_json::{Map, Value, json};

use super::shorten::shorten_text;
use crate::clean;

/// Names that are told one by one; a resolved set may have hundreds.
const PACKAGES_SHOWN: usize = 20;
const LEFT_OUT_SHOWN: usize = 8;
const HOSTS_SHOWN: usize = 8;

/// In the structured part.
pub(super) fn structured(run: &Run, into: &mut Map<String, Value>) {
    if let Some(installed) = &run.installed {
        let mut told = json!({
            "count": installed.packages.len(),
            "duration_ms": u64::try_from(installed.took.as_millis()).unwrap_or(u64::MAX),
            "cached": !installed.was_built,
        });
        // What was there already was told to whoever brought it in.
        if installed.was_built {
            told["installed"] = named(installed).take(PACKAGES_SHOWN).collect();
        }
        if !installed.left_out.is_empty() {
            let left_out = installed.left_out.iter().take(LEFT_OUT_SHOWN);
            told["left_out"] = left_out.map(|(name, why)| format!("{}: {}", word(name), word(why))).collect();
        }
        into.insert("packages".into(), told);
    }
    if !run.refused.is_empty() {
        let hosts: Vec<String> = run.refused.iter().take(HOSTS_SHOWN).map(|host| word(host)).collect();
        into.insert("refused_hosts".into(), json!(hosts));
    }
}

/// In the text, a line each. What was there already is no news.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(installed) = &run.installed {
        if installed.was_built && !installed.packages.is_empty() {
            let shown: Vec<String> = named(installed).take(8).collect();
            let more = installed.packages.len().saturating_sub(shown.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            notes.push(format!("[installed {}{more} in {}]", shown.join(", "), seconds(installed.took)));
        }
        for (name, why) in installed.left_out.iter().take(LEFT_OUT_SHOWN) {
            notes.push(format!("[not installed: {}: {}]", word(name), word(why)));
        }
    }
    if !run.refused.is_empty() {
        let hosts: Vec<String> = run.refused.iter().take(HOSTS_SHOWN).map(|host| word(host)).collect();
        notes.push(format!(
            "[network: {} was refused; the sandbox reaches only hosts in network, which the operator must allow]",
            hosts.join(", ")
        ));
    }
    notes
}

fn named(installed: &Installation) -> impl Iterator<Item = String> + '_ {
    installed.packages.iter().map(|(name, version)| format!("{} {}", word(name), word(version)))
}

/// Names come from a registry, and from the program.
fn word(text: &str) -> String {
    shorten_text(&clean::clean(text.as_bytes()), 200).replace(['\n', '\r'], " ")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
