//! Whole files, as people and models read them. `golden/` holds what is expected.

use super::*;

fn realistic() -> Vec<Value> {
    vec![
        json!({
            "name": "list_issues",
            "description": "List issues in a GitHub repository. For pagination, use the 'endCursor' from the previous response's 'pageInfo' in the 'after' parameter.",
            "annotations": { "readOnlyHint": true, "title": "List issues" },
            "inputSchema": {
                "type": "object",
                "properties": {
                    "after": { "type": "string", "description": "Cursor for pagination." },
                    "direction": { "type": "string", "enum": ["ASC", "DESC"], "description": "Order direction." },
                    "labels": { "type": "array", "items": { "type": "string" }, "description": "Filter by labels" },
                    "owner": { "type": "string", "description": "Repository owner" },
                    "perPage": { "type": "number", "minimum": 1, "maximum": 100, "description": "Results per page" },
                    "repo": { "type": "string", "description": "Repository name" },
                    "since": { "type": "string", "format": "date-time", "description": "Filter by date" },
                    "state": { "type": "string", "enum": ["OPEN", "CLOSED"], "description": "Filter by state" },
                },
                "required": ["owner", "repo"],
            },
        }),
        json!({
            "name": "edit_file",
            "description": "Make line-based edits to a text file.\n\nEach edit replaces exact line sequences.",
            "annotations": { "readOnlyHint": false, "idempotentHint": false, "destructiveHint": true },
            "inputSchema": {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {
                    "path": { "type": "string" },
                    "edits": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "oldText": { "type": "string", "description": "Text to search for - must match exactly" },
                                "newText": { "type": "string", "description": "Text to replace with" },
                            },
                            "required": ["oldText", "newText"],
                            "additionalProperties": false,
                        },
                    },
                    "dryRun": { "type": "boolean", "default": false, "description": "Preview changes using git-style diff format" },
                },
                "required": ["path", "edits"],
                "additionalProperties": false,
            },
            "outputSchema": { "type": "object", "properties": { "content": { "type": "string" } }, "required": ["content"], "additionalProperties": false },
        }),
        json!({
            "name": "directory-tree",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "from": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
                    "x-filter": { "$ref": "#/$defs/Filter" },
                    "at": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "number" }], "items": false },
                },
                "required": ["from"],
                "$defs": {
                    "Filter": {
                        "oneOf": [
                            { "type": "object", "properties": { "op": { "const": "not" }, "arg": { "$ref": "#/$defs/Filter" } }, "required": ["op", "arg"] },
                            { "type": "object", "properties": { "op": { "const": "name" }, "glob": { "type": "string" } }, "required": ["op", "glob"] },
                        ],
                    },
                },
            },
            "outputSchema": {
                "type": "object",
                "properties": { "result": { "type": "array", "items": { "$ref": "#/$defs/Node" } } },
                "required": ["result"],
                "x-fastmcp-wrap-result": true,
                "$defs": {
                    "Node": {
                        "type": "object",
                        "properties": { "name": { "type": "string" }, "size": { "type": ["integer", "null"] }, "children": { "type": "array", "items": { "$ref": "#/$defs/Node" } }, "meta": { "type": "object", "additionalProperties": { "type": "string" } } },
                        "required": ["name"],
                    },
                },
            },
        }),
    ]
}

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("golden/", $name)))),*]
    };
}

#[test]
fn files_are_as_expected() {
    let catalogue = listed("files", realistic());
    let files = files(&catalogue);
    let expected = golden![
        "README.md",
        "index.json",
        "files/README.md",
        "files/list_issues.pyi",
        "files/list_issues.d.ts",
        "files/edit_file.pyi",
        "files/edit_file.d.ts",
        "files/directory_tree.pyi",
        "files/directory_tree.d.ts",
    ];
    for (path, expected) in expected {
        assert_eq!(String::from_utf8_lossy(&files[path]), expected, "{path}");
    }
    assert_eq!(files.len(), 12);
    let definition: Value = serde_json::from_slice(&files["files/edit_file.json"]).expect("JSON");
    assert_eq!(definition, realistic()[1]);
}

#[test]
fn signatures_of_typescript() {
    let catalogue = listed("files", realistic());
    let lines: Vec<String> = catalogue.tools().map(|tool| signature(tool, Dialect::TypeScript)).collect();
    let expected = [
        "files.list_issues({ owner: string, repo: string, after?: string, direction?: \"ASC\" | \"DESC\", labels?: \
         Array<string>, perPage?: number, since?: string, state?: \"OPEN\" | \"CLOSED\" }): Promise<unknown>",
        "files.edit_file({ path: string, edits: Array<{ oldText: string; newText: string }>, dryRun?: boolean }): \
         Promise<{ content: string }>",
        "files.directory_tree({ from: string | null, \"x-filter\"?: { op: \"not\"; arg: {...} } | { op: \"name\"; glob: string }, \
         at?: [number, number] }): Promise<Array<{...}>>",
    ];
    assert_eq!(lines, expected);
}

/// What a schema becomes: in Python, and in TypeScript.
#[test]
fn types_of_schemas() {
    let table = [
        (json!({ "type": "integer" }), "int", "number"),
        (json!({ "type": ["string", "null"] }), "str | None", "string | null"),
        (json!({ "type": "string", "nullable": true }), "str | None", "string | null"),
        (json!({ "enum": ["a", 1, null, true] }), "Literal[\"a\", 1, True] | None", "\"a\" | 1 | true | null"),
        (json!({ "const": "x\"y" }), "Literal[\"x\\\"y\"]", "\"x\\\"y\""),
        (json!({ "enum": [1.5, 2.5] }), "float", "number"),
        (json!({ "enum": (0..31).collect::<Vec<_>>() }), "int", "number"),
        (json!({ "type": "array" }), "list[Any]", "Array<unknown>"),
        (json!({ "type": "array", "items": { "type": "string" } }), "list[str]", "Array<string>"),
        (
            json!({ "items": [{ "type": "string" }, { "type": "integer" }], "additionalItems": false }),
            "tuple[str, int]",
            "[string, number]",
        ),
        (json!({ "type": "object" }), "dict", "Record<string, unknown>"),
        (json!({ "additionalProperties": { "type": "number" } }), "dict", "Record<string, number>"),
        (json!({ "allOf": [{ "type": "string" }, { "enum": ["a", 1] }] }), "Literal[\"a\"]", "\"a\""),
        (json!({ "allOf": [{ "type": "number" }, { "type": "integer" }] }), "int", "number"),
        (json!({ "anyOf": [{ "type": "string" }, true] }), "Any", "unknown"),
        (json!({ "type": "string", "anyOf": [{ "minLength": 1 }, { "format": "uri" }] }), "str", "string"),
        (json!(true), "Any", "unknown"),
        (json!(false), "Never", "never"),
        (json!({ "$ref": "#/$defs/One~1Two" }), "str", "string"),
        (json!({ "$ref": "#/$defs/One%7E1Two" }), "str", "string"),
        (json!({ "$ref": "#/properties/p" }), "Any", "unknown"),
        (json!({ "$ref": "https://example.com/x" }), "Any", "unknown"),
        (
            json!({ "allOf": [{ "properties": { "a": { "type": "string" } } }, { "required": ["a"] }] }),
            "dict",
            "{ a: string }",
        ),
    ];
    for (schema, python, script) in table {
        let tool = with_schema(json!({
            "$defs": { "One/Two": { "type": "string" } },
            "type": "object",
            "properties": { "p": schema },
            "required": ["p"],
        }));
        let expected =
            (format!("demo.probe(p: {python}) -> Any"), format!("demo.probe({{ p: {script} }}): Promise<unknown>"));
        assert_eq!((signature(&tool, Dialect::Python), signature(&tool, Dialect::TypeScript)), expected, "{schema}");
    }
}

#[test]
fn arguments_of_several_forms() {
    let form = |name: &str| json!({ "properties": { "id": { "type": "integer" }, name: { "type": "string" } }, "required": ["id", name] });
    let tool = with_schema(json!({ "type": "object", "oneOf": [form("path"), form("url")] }));
    let line = "demo.probe(id: int, path: str = ..., url: str = ...) -> Any";
    assert_eq!(signature(&tool, Dialect::Python), line);
    let stub = stub(&tool, Dialect::TypeScript);
    assert!(stub.contains("path: string;\n} | {"), "{stub}");
}

#[test]
fn parameters_that_are_no_names() {
    let text = json!({ "type": "string" });
    let properties = json!({ "class": text, "import": text, "import_": text, "a-b": text, "others": text });
    let tool =
        with_schema(json!({ "type": "object", "properties": properties, "required": ["class", "a-b", "import"] }));
    let stub = stub(&tool, Dialect::Python);
    assert!(stub.contains("    class_: str,\n"), "{stub}");
    assert!(stub.contains("    **others_: Any,\n"), "{stub}");
    assert!(stub.contains("        \"a-b\": str, required\n"), "{stub}");
    let call = "demo.probe(class_=\"...\", **{\"import\": \"...\", \"a-b\": \"...\"})";
    assert_eq!(example(&tool, Dialect::Python), call);
    let call = "await demo.probe({ class: \"...\", import: \"...\", \"a-b\": \"...\" })";
    assert_eq!(example(&tool, Dialect::TypeScript), call);
}

#[test]
fn examples_from_what_the_schema_says() {
    let properties = json!({
        "a": { "type": "string", "examples": ["octocat"] },
        "b": { "type": "integer", "default": 30 },
        "c": { "enum": ["x", "y"] },
        "d": { "type": "string", "format": "date" },
        "e": { "type": "array", "items": { "$ref": "#/$defs/point" } },
        "f": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] },
        "g": { "type": "number", "minimum": 0.5 },
        "h": { "type": "string" },
    });
    let tool = with_schema(json!({
        "type": "object",
        "properties": properties,
        "required": ["a", "b", "c", "d", "e", "f", "g"],
        "$defs": { "point": { "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] } },
    }));
    let call = "demo.probe(a=\"octocat\", b=30, c=\"x\", d=\"2026-01-31\", e=[{\"x\": 1}], f=True, g=0.5)";
    assert_eq!(example(&tool, Dialect::Python), call);
}

#[test]
fn summaries() {
    let table = [
        ("Lists issues. Then more.", "Lists issues."),
        ("Reads v1.2 of a file", "Reads v1.2 of a file"),
        ("One\nline.\n\nNext paragraph", "One line."),
        ("", ""),
    ];
    for (description, expected) in table {
        assert_eq!(summary(&tool(json!({ "name": "t", "description": description }))), expected);
    }
    let long = summary(&tool(json!({ "name": "t", "description": "word ".repeat(100) })));
    assert_eq!(long.chars().count(), 120);
    assert!(long.ends_with('…'));
    assert_eq!(summary(&tool(json!({ "name": "t", "title": "Say so" }))), "Say so");
}

#[test]
fn long_signatures_lose_their_end() {
    let properties: Map<String, Value> =
        (0..40).map(|number| (format!("parameter_{number}"), json!({ "type": "string" }))).collect();
    let tool = with_schema(json!({ "properties": properties, "required": ["parameter_39"] }));
    let line = signature(&tool, Dialect::Python);
    assert!(line.starts_with("demo.probe(parameter_39: str, parameter_0: str = ..., "), "{line}");
    assert!(line.ends_with(", ...) -> Any") && line.len() <= 300 && line.len() > 240, "{line}");
}
