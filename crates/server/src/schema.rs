//! What `tools/list` says. Written by hand, because every token of it is paid by every conversation: a test holds the
//! whole list under its budget.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Language;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a call of a tool can change. Every tool works on a closed world: there is no network.
#[derive(Debug, Clone, Copy)]
enum Effect {
    Reads,
    /// Makes something new; nothing there before is lost.
    Adds,
    /// Can overwrite or remove what is in a sandbox. Twice is the same as once.
    Replaces,
    /// Runs code that can do anything within the walls.
    Runs,
}

/// The tools, in the order an agent meets them.
pub(crate) fn tools(languages: &[Language], idle: Duration) -> Vec<Tool> {
    let languages: Vec<&str> = languages.iter().map(|language| language.name()).collect();
    vec![
        tool(
            "run_code",
            "Run code",
            "Run code in an isolated sandbox without network. Each call is a new process: print what you want to see. \
             Without sandbox_id nothing is kept; with it files stay, variables and background processes do not.",
            Effect::Runs,
            json!({
                "language": {"type": "string", "enum": languages},
                "code": string(),
                "sandbox_id": sandbox_id(),
                "timeout": seconds("default 30"),
                "stdin": string(),
            }),
            &["language", "code"],
            run_result(),
        ),
        tool(
            "create_sandbox",
            "Create sandbox",
            "Make a sandbox whose files (/workspace) stay between calls.",
            Effect::Adds,
            json!({
                "timeout": seconds(&format!("removed when unused this long; default {}", idle.as_secs())),
                "env": strings(),
                "limits": {"type": "object", "properties": {
                    "memory_mb": integer(),
                    "cpus": {"type": "number"},
                    "processes": integer(),
                    "open_files": integer(),
                    "disk_mb": integer(),
                    "output_kb": integer(),
                }},
            }),
            &[],
            output(
                json!({
                    "sandbox_id": string(),
                    "idle_seconds": integer(),
                    "expires_in_seconds": integer(),
                    "limits": object(),
                    "isolation": object(),
                }),
                &["sandbox_id"],
            ),
        ),
        tool(
            "exec",
            "Run command",
            "Run a shell command in a sandbox.",
            Effect::Runs,
            json!({
                "sandbox_id": sandbox_id(),
                "command": string(),
                "cwd": string(),
                "env": strings(),
                "stdin": string(),
                "timeout": seconds("default 30"),
            }),
            &["sandbox_id", "command"],
            run_result(),
        ),
        tool(
            "write_file",
            "Write file",
            "Write a file of a sandbox, making its directories.",
            Effect::Replaces,
            json!({
                "sandbox_id": sandbox_id(),
                "path": string(),
                "content": string(),
                "encoding": {"type": "string", "enum": ["utf-8", "base64"]},
            }),
            &["sandbox_id", "path", "content"],
            output(json!({"path": string(), "size": integer()}), &["size"]),
        ),
        tool(
            "read_file",
            "Read file",
            "Read a file of a sandbox: text, picture or base64.",
            Effect::Reads,
            json!({
                "sandbox_id": sandbox_id(),
                "path": string(),
                "offset": integer(),
                "length": {"type": "integer", "description": "bytes, default 262144"},
                "encoding": {"type": "string", "enum": ["auto", "utf-8", "base64"]},
            }),
            &["sandbox_id", "path"],
            output(
                json!({
                    "content": string(),
                    "encoding": string(),
                    "mime_type": string(),
                    "size": integer(),
                    "offset": integer(),
                    "length": integer(),
                    "more": {"type": "boolean"},
                }),
                &["size", "more"],
            ),
        ),
        tool(
            "list_files",
            "List files",
            "List a directory of a sandbox.",
            Effect::Reads,
            json!({
                "sandbox_id": sandbox_id(),
                "path": {"type": "string", "description": "default ."},
                "depth": {"type": "integer", "description": "default 1, max 16"},
            }),
            &["sandbox_id"],
            output(
                json!({
                    "entries": {"type": "array", "items": {"type": "object", "properties": {
                        "path": string(),
                        "kind": string(),
                        "size": integer(),
                        "modified": integer(),
                    }}},
                    "truncated": {"type": "boolean"},
                }),
                &["entries"],
            ),
        ),
        tool(
            "destroy_sandbox",
            "Destroy sandbox",
            "Remove a sandbox and all that is in it.",
            Effect::Replaces,
            json!({"sandbox_id": sandbox_id()}),
            &["sandbox_id"],
            output(json!({"sandbox_id": string()}), &["sandbox_id"]),
        ),
    ]
}

fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
    properties: Value,
    required: &[&str],
    output: Value,
) -> Tool {
    let mut input = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        input["required"] = json!(required);
    }
    Tool::new(name, description, map(input))
        .with_title(title)
        .with_raw_output_schema(Arc::new(map(output)))
        .with_annotations(annotations(effect))
}

/// Only what differs from the protocol's defaults (not read-only, destructive, not idempotent, open world).
fn annotations(effect: Effect) -> ToolAnnotations {
    let closed = ToolAnnotations::new().open_world(false);
    match effect {
        Effect::Reads => closed.read_only(true).destructive(false).idempotent(true),
        Effect::Adds => closed.read_only(false).destructive(false).idempotent(false),
        Effect::Replaces => closed.read_only(false).destructive(true).idempotent(true),
        Effect::Runs => closed.read_only(false).destructive(true).idempotent(false),
    }
}

fn run_result() -> Value {
    output(
        json!({
            "stdout": string(),
            "stderr": string(),
            "exit_code": integer(),
            "ending": {"type": "string", "enum": ["exited", "killed", "timeout", "memory", "output", "cancelled"]},
            "sandbox_id": string(),
            "state": {"type": "string", "enum": ["fresh", "preserved", "reset", "lost"]},
            "duration_ms": integer(),
            "usage": object(),
            "isolation": object(),
            "truncated": {"type": "boolean"},
            "output_uris": object(),
        }),
        &["stdout", "stderr", "exit_code", "ending", "state"],
    )
}

fn output(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn string() -> Value {
    json!({"type": "string"})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

fn object() -> Value {
    json!({"type": "object"})
}

fn strings() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

/// The header lets a load balancer find the machine that a sandbox lives on without reading the body.
fn sandbox_id() -> Value {
    json!({"type": "string", "x-mcp-header": "Sandbox"})
}

fn seconds(description: &str) -> Value {
    json!({"type": "number", "description": format!("seconds, {description}")})
}

fn map(value: Value) -> JsonObject {
    match value {
        Value::Object(map) => map,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the contract (design.md) allows for all of `tools/list`.
    const TOKENS_MAX: usize = 1500;

    #[test]
    fn the_list_fits_its_budget() {
        let list = rmcp::model::ListToolsResult::with_all_items(tools(&Language::ALL, Duration::from_secs(1800)));
        let text = serde_json::to_string(&list).unwrap();
        let tokens = bpe_openai::o200k_base().count(&text);
        println!("tools/list: {tokens} tokens (o200k), {} bytes", text.len());
        assert!(tokens <= TOKENS_MAX, "{tokens} tokens:\n{text}");
    }

    #[test]
    fn every_client_can_read_the_schemas() {
        fn walk(value: &Value, at: &str) {
            match value {
                Value::Object(map) => {
                    for (key, inner) in map {
                        assert!(
                            !["format", "$ref", "$defs", "anyOf", "oneOf", "nullable"].contains(&key.as_str()),
                            "{at}.{key}"
                        );
                        if key == "type" && !at.ends_with("properties") {
                            assert!(inner.is_string(), "{at}.type is {inner}");
                        }
                        walk(inner, &format!("{at}.{key}"));
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, at)),
                _ => {}
            }
        }
        for tool in tools(&Language::ALL, Duration::from_secs(1800)) {
            walk(&Value::Object(tool.input_schema.as_ref().clone()), &tool.name);
            walk(&Value::Object(tool.output_schema.unwrap().as_ref().clone()), &tool.name);
        }
    }

    #[test]
    fn required_properties_exist() {
        for tool in tools(&Language::ALL, Duration::from_secs(1800)) {
            for schema in [tool.input_schema.as_ref(), tool.output_schema.as_deref().unwrap()] {
                for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
                    assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{} {name}", tool.name);
                }
            }
        }
    }

    #[test]
    fn only_the_languages_of_this_host_are_offered() {
        let tools = tools(&[Language::Shell], Duration::from_secs(60));
        assert_eq!(tools[0].input_schema["properties"]["language"]["enum"], json!(["shell"]));
    }
}
