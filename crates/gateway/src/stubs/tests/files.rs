use super::super::files::{Room, fitted};
use super::*;

#[test]
fn no_servers_no_files() {
    assert!(files(&Catalogue::default()).is_empty());
}

#[test]
fn the_same_catalogue_makes_the_same_files() {
    let definition =
        json!({ "name": "t", "inputSchema": { "properties": { "z": {}, "a": {}, "m": { "enum": [1, 2] } } } });
    let one = files(&listed("demo", vec![definition.clone()]));
    assert_eq!(one, files(&listed("demo", vec![definition])));
    let paths: Vec<&str> = one.keys().map(String::as_str).collect();
    assert_eq!(paths, ["README.md", "demo/README.md", "demo/t.d.ts", "demo/t.json", "demo/t.pyi", "index.json"]);
}

#[test]
fn what_is_refused_and_what_is_in_trouble_is_said() {
    let tools = vec![json!({ "name": "a-b" }), json!({ "name": "a.b" }), json!({ "name": "c" })];
    let listed = Listed { instructions: Some("Use c.\nAlways.".to_owned()), tools };
    let catalogue =
        catalogue(vec![("one".to_owned(), Ok(listed)), ("two".to_owned(), Err("it does not start".to_owned()))]);
    let files = files(&catalogue);
    let readme = String::from_utf8_lossy(&files["README.md"]);
    assert!(readme.ends_with("- `one`: 1 tool, 2 refused\n- `two`: not available: it does not start\n"), "{readme}");
    let readme = String::from_utf8_lossy(&files["one/README.md"]);
    assert!(readme.contains("\n> Use c.\n> Always.\n"), "{readme}");
    assert!(readme.contains("\n## Refused\n\n- a-b: programs would write it `a_b`, and a.b as well\n"), "{readme}");
    assert!(files.contains_key("two/README.md"));
}

#[test]
fn definitions_are_lossless_and_visible() {
    let definition =
        json!({ "name": "t", "description": "a\u{200b}b\u{e0041}\u{1b}c\"\\ 世界", "x": { "\u{202e}": 1.5 } });
    let files = files(&listed("demo", vec![definition.clone()]));
    let text = std::str::from_utf8(&files["demo/t.json"]).expect("UTF-8");
    assert!(!text.chars().any(text::is_hidden), "{text}");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), definition);
}

#[test]
fn too_many_tools_have_definitions_before_stubs() {
    let tools = |server: &str| -> (String, Result<Listed, String>) {
        let tools = (0..4000).map(|number| json!({ "name": format!("tool_{number}") })).collect();
        (server.to_owned(), Ok(Listed { instructions: None, tools }))
    };
    let catalogue = catalogue(vec![tools("one"), tools("two")]);
    let files = files(&catalogue);
    assert_eq!(files.len(), 10_000);
    assert_eq!(files.keys().filter(|path| path.ends_with(".json")).count(), 8001);
    for server in ["one/", "two/"] {
        assert_eq!(files.keys().filter(|path| path.starts_with(server)).count(), 4999);
    }
    let readme = String::from_utf8_lossy(&files["README.md"]);
    assert!(readme.contains("14004 files found no room here"), "{readme}");
}

/// A server that takes all the room takes it from itself.
#[test]
fn a_server_that_floods_costs_only_its_own_files() {
    let flood = |number: usize| json!({ "name": format!("t{number}"), "x": "x".repeat(2000) });
    let flood = Listed { instructions: None, tools: (0..100).map(flood).collect() };
    let quiet = Listed { instructions: None, tools: vec![json!({ "name": "echo" })] };
    let catalogue = catalogue(vec![("flood".to_owned(), Ok(flood)), ("quiet".to_owned(), Ok(quiet))]);
    let files = fitted(&catalogue, Room { files: 1000, bytes: 100_000 });
    for path in
        ["quiet/echo.pyi", "quiet/echo.d.ts", "quiet/echo.json", "index.json", "flood/README.md", "flood/t9.json"]
    {
        assert!(files.contains_key(path), "{path}");
    }
    assert!(!files.contains_key("flood/t99.json"));
    let bytes: usize = files.iter().filter(|(path, _)| *path != "README.md").map(|(_, content)| content.len()).sum();
    assert!(bytes <= 100_000, "{bytes}");
}

#[test]
fn the_index_stays_small() {
    let names =
        |tool: usize| (0..900).map(move |number| (format!("{tool}_{number}_{}", "x".repeat(100)), json!({}))).collect();
    let tools = (0..100).map(|tool| -> Value {
        json!({ "name": format!("t{tool}"), "inputSchema": { "properties": Value::Object(names(tool)) } })
    });
    let files = files(&listed("demo", tools.collect()));
    let index: Value = serde_json::from_slice(&files["index.json"]).expect("JSON");
    assert_eq!(index["servers"]["demo"]["tools"]["t7"], json!({ "name": "t7" }));
    assert!(files["index.json"].len() < 4 * 1024 * 1024);
}
