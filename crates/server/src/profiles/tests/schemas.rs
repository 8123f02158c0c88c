//! Names, parameters, types, defaults and what is required, written down again from what is known of the other systems.

use serde_json::json;

use super::*;

/// A schema without its words.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            // A property may be called "description": only a text is one.
            let kept = map.iter().filter(|(key, value)| *key != "description" || !value.is_string());
            kept.map(|(key, value)| (key.clone(), bare(value))).collect::<JsonObject>().into()
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        other => other.clone(),
    }
}

fn offered(profile: &str) -> Vec<(String, Value)> {
    let tools = find(profile).unwrap().tools(&Language::ALL);
    tools
        .into_iter()
        .map(|tool| {
            assert!(tool.output_schema.is_none(), "none of them declares one");
            assert!(tool.description.as_ref().is_some_and(|text| !text.is_empty()));
            (tool.name.into_owned(), bare(&Value::Object(tool.input_schema.as_ref().clone())))
        })
        .collect()
}

fn expect(profile: &str, tools: &[(&str, Value)]) {
    let offered = offered(profile);
    let names: Vec<&str> = offered.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, tools.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for ((name, schema), (_, expected)) in offered.iter().zip(tools) {
        let sorted = |schema: &Value| {
            let mut schema = schema.clone();
            if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
                required.sort_by_key(|name| name.to_string());
            }
            schema
        };
        assert_eq!(sorted(schema), sorted(expected), "{profile} {name}");
    }
}

fn strings(names: &[&str], optional: &[&str]) -> Value {
    let properties: JsonObject =
        names.iter().chain(optional).map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "object", "properties": properties, "required": names})
}

#[test]
fn e2b() {
    expect("e2b", &[("run_code", strings(&["code"], &[]))]);
}

#[test]
fn code_sandbox() {
    expect(
        "code-sandbox",
        &[("run_python_code", strings(&["code"], &[])), ("run_javascript_code", strings(&["code"], &[]))],
    );
}

#[test]
fn run_python() {
    expect(
        "run-python",
        &[(
            "run_python_code",
            json!({
                "type": "object",
                "properties": {
                    "python_code": {"type": "string"},
                    "global_variables": {"type": "object", "additionalProperties": {}, "default": {}},
                },
                "required": ["python_code"],
                "additionalProperties": false,
            }),
        )],
    );
}

#[test]
fn agentexec() {
    let request = |inner: Value, required: &[&str]| {
        json!({
            "type": "object",
            "properties": {"request": {"type": "object", "properties": inner, "required": required}},
            "required": ["request"],
        })
    };
    let timeout = json!({"type": "integer", "default": 60, "maximum": 300});
    expect(
        "agentexec",
        &[
            (
                "shell",
                request(
                    json!({
                        "command": {"type": "string"},
                        "timeout": timeout,
                        "cwd": {"type": "string", "default": "/workspace"},
                    }),
                    &["command"],
                ),
            ),
            (
                "execute_code",
                request(
                    json!({
                        "code": {"type": "string"},
                        "language": {"type": "string", "enum": ["python", "node", "go"]},
                        "timeout": timeout,
                    }),
                    &["code", "language"],
                ),
            ),
            (
                "install_package",
                request(
                    json!({
                        "package": {"type": "string"},
                        "package_manager": {"type": "string", "enum": ["pip", "npm", "go"], "default": "pip"},
                        "timeout": timeout,
                    }),
                    &["package"],
                ),
            ),
        ],
    );
}

#[test]
fn morph() {
    expect(
        "morph",
        &[
            (
                "create_sandbox",
                json!({
                    "type": "object",
                    "properties": {
                        "template": {"type": "string", "enum": ["python-3.12", "node-20", "go", "rust"]},
                        "timeout": {"type": "number"},
                    },
                }),
            ),
            ("exec", strings(&["sandbox_id", "command"], &[])),
            ("write_file", strings(&["sandbox_id", "path", "content"], &[])),
            ("read_file", strings(&["sandbox_id", "path"], &[])),
            ("destroy_sandbox", strings(&["sandbox_id"], &[])),
        ],
    );
}

#[test]
fn interpreter() {
    expect(
        "interpreter",
        &[
            (
                "execute_code",
                json!({
                    "type": "object",
                    "properties": {"code": {"type": "string"}, "session_id": {"type": "string", "default": ""}},
                    "required": ["code"],
                }),
            ),
            ("list_session_files", strings(&["session_id"], &[])),
            ("clear_session", strings(&["session_id"], &[])),
        ],
    );
}

#[test]
fn daytona() {
    let number = |more: Value| {
        let mut schema = json!({"type": "number"});
        more.as_object().unwrap().iter().for_each(|(key, value)| schema[key] = value.clone());
        schema
    };
    let text = json!({"type": "string"});
    let map = json!({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}});
    let create = json!({
        "type": "object",
        "properties": {
            "id": text, "name": text, "target": {"type": "string", "default": "us"}, "snapshot": text, "user": text,
            "env": map, "labels": map, "public": {"type": "boolean"},
            "cpu": number(json!({"maximum": 4})), "gpu": number(json!({"maximum": 1})),
            "memory": number(json!({"maximum": 8})), "disk": number(json!({"maximum": 10})),
            "autoStopInterval": number(json!({"default": 15, "minimum": 0})),
            "autoArchiveInterval": number(json!({"default": 10080, "minimum": 0})),
            "autoDeleteInterval": number(json!({"default": -1})),
            "volumes": {"type": "array", "items": {
                "type": "object", "properties": {"volumeId": text, "mountPath": text},
            }},
            "buildInfo": {"type": "object", "properties": {
                "dockerfileContent": text, "contextHashes": {"type": "array", "items": text},
            }},
            "networkBlockAll": {"type": "boolean"}, "networkAllowList": text,
        },
    });
    let mut upload = strings(&["filePath", "content", "encoding", "overwrite", "id"], &[]);
    upload["properties"]["overwrite"] = json!({"type": "boolean"});
    let mut preview = strings(&["port", "description", "checkServer", "id"], &[]);
    preview["properties"]["port"] = json!({"type": "number"});
    preview["properties"]["checkServer"] = json!({"type": "boolean"});
    expect(
        "daytona",
        &[
            ("create_sandbox", create),
            ("destroy_sandbox", strings(&["id"], &[])),
            ("execute_command", strings(&["id", "command"], &[])),
            ("file_upload", upload),
            ("file_download", strings(&["id", "filePath"], &[])),
            ("list_files", strings(&["id"], &["path"])),
            ("get_file_info", strings(&["id", "filePath"], &[])),
            ("move_file", strings(&["id", "sourcePath", "destPath"], &[])),
            ("delete_file", strings(&["id", "filePath"], &[])),
            ("create_folder", strings(&["id", "folderPath"], &["mode"])),
            ("git_clone", strings(&["id", "url"], &["path", "branch", "commitId", "username", "password"])),
            ("preview_link", preview),
        ],
    );
}

#[tokio::test]
async fn resources_are_only_those_that_they_had() {
    for name in NAMES {
        let profile = find(name).unwrap();
        let templates: Vec<String> = profile.templates().into_iter().map(|t| t.uri_template.clone()).collect();
        let agent = Agent::new(name);
        let listed = profile.list_resources(&agent.engine, &agent.who, &agent.memory).await;
        let listed: Vec<String> = listed.into_iter().map(|resource| resource.uri.clone()).collect();
        match *name {
            "interpreter" => assert_eq!(templates, ["kernel://{session_id}/{filename}"]),
            "code-sandbox" => assert_eq!(listed, ["sandbox://environments"]),
            _ => assert!(templates.is_empty() && listed.is_empty(), "{name}"),
        }
    }
}
