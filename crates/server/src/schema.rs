//! What `tools/list` says. Written by hand, because every token of it is paid by every conversation: a test holds the
//! whole list under its budget.

use std::sync::Arc;

use belljar_core::Language;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

const TEMPLATES_SHOWN: usize = 6;

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

/// How programs call other servers' tools, for whoever reads no more than this.
const HOW_TO_CALL: &str = "Programs call other servers' tools, many at once: Python `from tools import SERVER; \
     SERVER.TOOL(key=value)`, JS `import { SERVER } from \"tools\"; await SERVER.TOOL({key: value})`, shell `tools call \
     SERVER TOOL key=value`. Print only what you need. Stubs: /tools.";

/// Tells of other servers' tools where an agent looks for them.
pub(crate) fn add_note(tools: &mut [Tool], note: &str) {
    if let Some(tool) = tools.iter_mut().find(|tool| tool.name == "run_code") {
        let description = tool.description.as_deref().unwrap_or_default();
        tool.description = Some(format!("{description}\n\n{HOW_TO_CALL}\n{note}").trim_end().to_owned().into());
    }
}

/// The tools, in the order an agent meets them; `search_tools` only where there is something to find.
pub(crate) fn tools(languages: &[Language], templates: &[String], has_others: bool) -> Vec<Tool> {
    let languages: Vec<&str> = languages.iter().map(|language| language.name()).collect();
    // All of them would fill the budget on a host with many versions; a wrong one is answered with the whole list.
    let templates: Vec<&str> = templates.iter().map(String::as_str).take(TEMPLATES_SHOWN).collect();
    let mut tools = vec![
        tool(
            "run_code",
            "Run code",
            "Run code in a sandbox. Answers with output, last value, plots, files. What it imports is installed. With \
             sandbox_id variables and files stay for later calls.",
            Effect::Runs,
            json!({
                "language": {"type": "string", "enum": languages},
                "code": string(),
                "sandbox_id": sandbox_id(),
                "timeout": seconds("default 30"),
                "stdin": string(),
                "packages": list(),
                "network": list(),
                "background": {"type": "boolean", "description": "return a job_id"},
            }),
            &["language", "code"],
            run_result(),
        ),
        tool(
            "create_sandbox",
            "Create sandbox",
            "Make a sandbox that keeps variables, files (/workspace) and jobs between calls.",
            Effect::Adds,
            json!({
                "template": {"type": "string", "description": templates.join(", ")},
                "timeout": seconds("when unused"),
                "env": strings(),
                "network": list(),
                "limits": {"type": "object", "properties": {
                    "memory_mb": integer(),
                    "cpus": {"type": "number"},
                    "processes": integer(),
                    "open_files": integer(),
                    "disk_mb": integer(),
                    "output_kb": integer(),
                }},
                "files": {"type": "object", "additionalProperties": {"type": "string"},
                    "description": "path: text or data: URL"},
            }),
            &[],
            output(json!({"sandbox_id": string(), "expires_in_seconds": integer()}), &["sandbox_id"]),
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
                "background": boolean(),
            }),
            &["sandbox_id", "command"],
            short_result(),
        ),
        tool(
            "job",
            "Job",
            "Look at a background run: its new output, or its end.",
            Effect::Runs,
            json!({
                "job_id": string(),
                "action": {"type": "string", "enum": ["poll", "wait", "stdin", "signal"]},
                "offset": integer(),
                "timeout": seconds("for wait"),
                "stdin": string(),
                "eof": boolean(),
                "signal": {"type": "string", "description": "default INT"},
            }),
            &["job_id"],
            short_result(),
        ),
        tool(
            "write_file",
            "Write file",
            "Write a file of a sandbox; tar: unpack a base64 archive.",
            Effect::Replaces,
            json!({
                "sandbox_id": sandbox_id(),
                "path": string(),
                "content": string(),
                "encoding": {"type": "string", "enum": ["utf-8", "base64", "tar"]},
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
                "lines": {"type": "string", "description": "10-20"},
                "offset": integer(),
                "length": {"type": "integer", "description": "bytes"},
                "encoding": {"type": "string", "enum": ["auto", "utf-8", "base64"]},
            }),
            &["sandbox_id", "path"],
            output(json!({"content": string(), "size": integer(), "more": boolean()}), &["size", "more"]),
        ),
        tool(
            "list_files",
            "List files",
            "List a directory of a sandbox.",
            Effect::Reads,
            json!({
                "sandbox_id": sandbox_id(),
                "path": string(),
                "depth": integer(),
                "limit": integer(),
            }),
            &["sandbox_id"],
            output(json!({"entries": {"type": "array", "items": object()}, "truncated": boolean()}), &["entries"]),
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
    ];
    if has_others {
        tools.iter_mut().for_each(make_room);
        tools.insert(1, search_tools());
    }
    tools
}

/// One tool more has to fit into the same budget. What goes is said elsewhere: an argument that there is not is refused in a
/// sentence, and an answer's fields are in the answer.
fn make_room(tool: &mut Tool) {
    Arc::make_mut(&mut tool.input_schema).remove("additionalProperties");
    let Some(output) = tool.output_schema.as_mut().map(Arc::make_mut) else { return };
    match (tool.name.as_ref(), output.get_mut("properties").and_then(Value::as_object_mut)) {
        ("run_code", Some(properties)) => {
            properties.retain(|name, _| !["duration_ms", "usage", "isolation"].contains(&name.as_str()));
            properties.insert("calls".into(), json!({"type": "array", "items": object()}));
        }
        ("write_file" | "destroy_sandbox", _) => output.retain(|name, _| name == "type"),
        _ => {}
    }
}

fn search_tools() -> Tool {
    let input = json!({
        "type": "object",
        "properties": {
            "query": string(),
            "detail": {"type": "string", "enum": ["names", "signatures", "full"]},
            "server": string(),
            "limit": integer(),
        },
    });
    Tool::new("search_tools", "Find other servers' tools for programs to call.", map(input))
        .with_annotations(annotations(Effect::Reads))
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

/// What differs from the protocol's defaults (not read-only, destructive, not idempotent, open world), and of the rest
/// only whether a tool destroys: some catalogues of servers want that said.
fn annotations(effect: Effect) -> ToolAnnotations {
    let closed = ToolAnnotations::new().open_world(false);
    match effect {
        Effect::Reads => closed.read_only(true),
        Effect::Adds => closed.destructive(false),
        Effect::Replaces => closed.destructive(true).idempotent(true),
        Effect::Runs => closed.destructive(true),
    }
}

/// What an agent may look for. There can be more: what a schema does not name is allowed.
fn run_result() -> Value {
    output(
        json!({
            "stdout": string(),
            "stderr": string(),
            "exit_code": integer(),
            "ending": {"type": "string",
                "enum": ["exited", "killed", "timeout", "memory", "output", "cancelled", "running", "install-error"]},
            "result": object(),
            "shown": {"type": "array", "items": object()},
            "error": object(),
            "files": {"type": "array", "items": object()},
            "packages": object(),
            "job_id": string(),
            "sandbox_id": string(),
            "state": {"type": "string", "enum": ["fresh", "preserved", "reset", "lost"]},
            "duration_ms": integer(),
            "usage": object(),
            "isolation": object(),
        }),
        &["stdout", "stderr", "ending"],
    )
}

/// The same result, of which the rest is told at `run_code`: an agent pays for every word of this.
fn short_result() -> Value {
    output(json!({"stdout": string(), "stderr": string(), "ending": string()}), &["stdout", "stderr", "ending"])
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

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn object() -> Value {
    json!({"type": "object"})
}

fn list() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
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

    fn templates() -> Vec<String> {
        let all = ["python", "python-3.11", "python-3.12", "node", "node-20", "go", "go-1.22", "rust", "rust-1.95"];
        all.map(str::to_owned).to_vec()
    }

    /// What the contract (design.md) allows for all of `tools/list`.
    const TOKENS_MAX: usize = 1500;

    #[test]
    fn the_list_fits_its_budget() {
        for has_others in [false, true] {
            let tools = tools(&Language::ALL, &templates(), has_others);
            assert_eq!(tools.iter().any(|tool| tool.name == "search_tools"), has_others);
            let text = serde_json::to_string(&rmcp::model::ListToolsResult::with_all_items(tools)).unwrap();
            let tokens = bpe_openai::o200k_base().count(&text);
            println!("tools/list: {tokens} tokens (o200k), {} bytes; other servers: {has_others}", text.len());
            assert!(tokens <= TOKENS_MAX, "{tokens} tokens:\n{text}");
        }
    }

    #[test]
    fn how_to_call_costs_little() {
        let tokens = bpe_openai::o200k_base().count(HOW_TO_CALL);
        println!("how to call: {tokens} tokens (o200k)");
        assert!(tokens <= 100, "{tokens}");
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
        for tool in tools(&Language::ALL, &templates(), true) {
            walk(&Value::Object(tool.input_schema.as_ref().clone()), &tool.name);
            walk(&Value::Object(tool.output_schema.unwrap_or_default().as_ref().clone()), &tool.name);
        }
    }

    #[test]
    fn required_properties_exist() {
        for tool in tools(&Language::ALL, &templates(), true) {
            for schema in [tool.input_schema.as_ref(), tool.output_schema.as_deref().unwrap_or(&JsonObject::new())] {
                for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
                    assert!(schema["properties"].get(name.as_str().unwrap()).is_some(), "{} {name}", tool.name);
                }
            }
        }
    }

    #[test]
    fn only_the_languages_of_this_host_are_offered() {
        let tools = tools(&[Language::Shell], &[], false);
        assert_eq!(tools[0].input_schema["properties"]["language"]["enum"], json!(["shell"]));
    }
}
