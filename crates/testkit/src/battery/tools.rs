//! The words of the cases in the words of Belljar's tools.

use serde_json::{Map, Value, json};

use super::case::Limits;
use super::zones;

pub(crate) const CREATE: &str = "create_sandbox";
pub(crate) const DESTROY: &str = "destroy_sandbox";
pub(crate) const RUN: &str = "run_code";
pub(crate) const SEARCH: &str = "search_tools";

pub(crate) const SANDBOX: &str = "sandbox_id";
pub(crate) const SANDBOX_POINTER: &str = "/structuredContent/sandbox_id";

/// Belljar's tool for an operation of the cases; operations that it does not have go out under their own name.
pub(crate) fn tool_for(op: &str) -> &str {
    match op {
        "exec" => RUN,
        "destroy" => DESTROY,
        "create_session" => CREATE,
        other => other,
    }
}

/// Belljar's argument for one of the cases.
pub(crate) fn argument_for(name: &str) -> &str {
    match name {
        "session_id" | "session" => SANDBOX,
        "timeout_s" => "timeout",
        other => other,
    }
}

/// Belljar's name for something that a line of the audit says of a run.
pub(crate) fn audited_as(name: &str) -> &str {
    match name {
        "session" => "sandbox",
        "outcome" => "ending",
        other => other,
    }
}

pub(crate) fn language_for(language: &str) -> &str {
    match language {
        "js" => "javascript",
        "sh" => "shell",
        other => other,
    }
}

pub(crate) fn create_arguments(limits: &Limits) -> Value {
    let mut wanted = Map::new();
    let mut want = |name: &str, value: Option<Value>| {
        wanted.extend(value.map(|value| (name.to_owned(), value)));
    };
    want("memory_mb", limits.memory_mb.map(Value::from));
    want("processes", limits.pids.map(Value::from));
    want("disk_mb", limits.disk_mb.map(Value::from));
    want("cpus", limits.cpus.map(number));
    want("open_files", limits.files.map(Value::from));
    let mut arguments = if wanted.is_empty() { json!({}) } else { json!({"limits": wanted}) };
    if let Some(network) = network(limits) {
        arguments["network"] = network;
    }
    arguments
}

pub(crate) fn run_arguments(sandbox: Option<&str>, language: &str, code: &str, limits: &Limits) -> Value {
    let mut arguments = json!({"language": language_for(language), "code": code});
    if let Some(sandbox) = sandbox {
        arguments[SANDBOX] = sandbox.into();
    } else if let Some(network) = network(limits) {
        arguments["network"] = network;
    }
    if let Some(seconds) = limits.timeout_s {
        arguments["timeout"] = number(seconds);
    }
    arguments
}

fn network(limits: &Limits) -> Option<Value> {
    let hosts = limits.hosts().filter(|hosts| !hosts.is_empty())?;
    Some(zones::granted(&hosts, limits.host_port).into())
}

/// Whole numbers stay whole: a schema may well ask for an integer.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

/// Replaces `{i}` in every text, so that each of many runs can be told from the others.
pub(crate) fn number_off(value: &mut Value, index: usize) {
    match value {
        Value::String(text) => *text = text.replace("{i}", &index.to_string()),
        Value::Array(items) => items.iter_mut().for_each(|item| number_off(item, index)),
        Value::Object(map) => map.values_mut().for_each(|item| number_off(item, index)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_get_their_names() {
        let limits: Limits =
            serde_json::from_str(r#"{"timeout_s":3,"pids":64,"memory_mb":128,"cpus":1,"net":"none"}"#).unwrap();
        assert_eq!(create_arguments(&limits), json!({"limits": {"memory_mb": 128, "processes": 64, "cpus": 1}}));
        assert_eq!(
            run_arguments(Some("x"), "sh", "true", &limits),
            json!({"language": "shell", "code": "true", "sandbox_id": "x", "timeout": 3})
        );
        assert_eq!(create_arguments(&Limits::default()), json!({}));
    }

    #[test]
    fn runs_are_numbered() {
        let mut value = json!({"code": "print('R{i}R')", "n": [1, "{i}"]});
        number_off(&mut value, 12);
        assert_eq!(value, json!({"code": "print('R12R')", "n": [1, "12"]}));
    }
}
