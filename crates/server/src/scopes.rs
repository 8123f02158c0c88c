//! Which scope a request needs, by its method and by the tool that it calls.

use belljar_access::Scope;
use serde_json::Value;

use crate::profiles::Profile;

/// What a method needs by itself; `None` when any token will do. What `tools/call` needs depends on the tool.
pub(crate) fn of_method(method: &str) -> Option<Scope> {
    match method {
        "tasks/update" | "tasks/cancel" => Some(Scope::Run),
        _ if method.starts_with("resources/") || method.starts_with("tasks/") => Some(Scope::Read),
        "subscriptions/listen" | "completion/complete" => Some(Scope::Read),
        _ => None,
    }
}

/// What one of our tools needs, or one of the profile's in their place; `None` when it is none of those.
pub(crate) fn of_tool(profile: Option<&Profile>, name: &str, action: Option<&Value>) -> Option<Scope> {
    if let Some(profile) = profile {
        return profile.scope(name);
    }
    Some(match name {
        "read_file" | "list_files" | "search_tools" => Scope::Read,
        "create_sandbox" | "write_file" | "destroy_sandbox" => Scope::Files,
        "run_code" | "exec" => Scope::Run,
        // To look at a job is to read; whatever else it is, it reaches into a program.
        "job" => match action.map(Value::as_str) {
            None | Some(Some("poll" | "wait")) => Scope::Read,
            _ => Scope::Run,
        },
        _ => return None,
    })
}

/// What a call needs besides that comes back with the answer to a question: as much as `tasks/update`.
pub(crate) const TO_COME_BACK: Scope = Scope::Run;

/// Whether what a client sends back to us answers a form. Other servers that are forwarded ask by forms as well.
pub(crate) fn answers_a_form(result: &Value) -> bool {
    result.get("action").is_some()
}

/// The same for a tool in a list: the least that a call of it can need.
pub(crate) fn least_of_tool(profile: Option<&Profile>, name: &str) -> Option<Scope> {
    of_tool(profile, name, None)
}

/// For whoever is told that a scope is missing.
pub(crate) fn missing(need: Scope) -> String {
    format!("this token may not do that: it needs the scope {need}; ask the operator for one that has it")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::profiles;

    #[test]
    fn every_tool_needs_a_scope() {
        for tool in crate::schema::tools(&belljar_core::Language::ALL, &[], true) {
            assert!(of_tool(None, &tool.name, None).is_some(), "{}", tool.name);
        }
        for name in profiles::NAMES {
            let profile = profiles::find(name).unwrap();
            for tool in profile.tools(&belljar_core::Language::ALL) {
                assert!(of_tool(Some(profile), &tool.name, None).is_some(), "{name}: {}", tool.name);
            }
        }
        assert_eq!(of_tool(None, "weather", None), None);
    }

    #[test]
    fn a_job_is_looked_at_by_readers_and_touched_by_those_who_may_run() {
        for action in [json!("poll"), json!("wait")] {
            assert_eq!(of_tool(None, "job", Some(&action)), Some(Scope::Read));
        }
        for action in [json!("stdin"), json!("signal"), json!("POLL"), json!(null), json!(["poll"])] {
            assert_eq!(of_tool(None, "job", Some(&action)), Some(Scope::Run), "{action}");
        }
    }

    #[test]
    fn methods_need_what_they_do() {
        assert_eq!(of_method("resources/read"), Some(Scope::Read));
        assert_eq!(of_method("subscriptions/listen"), Some(Scope::Read));
        assert_eq!(of_method("tasks/cancel"), Some(Scope::Run));
        for method in ["initialize", "server/discover", "tools/list", "tools/call", "ping", "no/such"] {
            assert_eq!(of_method(method), None);
        }
    }
}
