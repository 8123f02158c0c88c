use super::*;

fn idents(names: &[&str]) -> Vec<(String, String)> {
    let catalogue = listed("demo", names.iter().map(|name| json!({ "name": name })).collect());
    only(&catalogue).tools.iter().map(|tool| (tool.name.clone(), tool.ident.clone())).collect()
}

#[test]
fn names_by_the_rule() {
    let long = "x".repeat(128);
    let table = [
        ("list_issues", "list_issues"),
        ("listIssues", "listIssues"),
        ("API-get", "API_get"),
        ("a.b", "a_b"),
        ("0day", "_0day"),
        ("class", "class_"),
        ("delete", "delete_"),
        ("raw", "raw_"),
        ("then", "then_"),
        ("eval", "eval_"),
        ("exec", "exec"),
        ("search", "search"),
        ("constructor", "constructor_"),
        ("__proto__", "_proto__"),
        ("__init__", "_init__"),
        ("../../../tmp/mark", "_tmp_mark"),
        ("Ünï", "_u00DCn_u00EF"),
        ("\u{441}at", "_u0441at"),
        ("$", "__"),
        ("_", "__"),
    ];
    for (name, ident) in table {
        assert_eq!(idents(&[name]), [(name.to_owned(), ident.to_owned())]);
    }
    let cut = &idents(&[&long])[0].1;
    assert_eq!(cut.len(), 100);
    assert_ne!(cut, &idents(&[&"x".repeat(127)])[0].1);
}

#[test]
fn servers_do_not_shadow_the_package() {
    let names = ["github", "search", "ToolError", "my-server", "list", "__proto__", "class", "", "x/y"];
    let lists = names.map(|name| (name.to_owned(), Err("asleep".to_owned())));
    let catalogue = catalogue(lists.to_vec());
    let pairs: Vec<(&str, &str)> =
        catalogue.servers.iter().map(|server| (server.name.as_str(), server.ident.as_str())).collect();
    let expected = [
        ("", "__"),
        ("ToolError", "ToolError_"),
        ("__proto__", "_proto__"),
        ("class", "class_"),
        ("github", "github"),
        ("list", "list_"),
        ("my-server", "my_server"),
        ("search", "search_"),
        ("x/y", "x_y"),
    ];
    assert_eq!(pairs, expected);
    assert_eq!(catalogue.servers[0].trouble.as_deref(), Some("asleep"));
}

#[test]
fn servers_that_collide_have_no_tools() {
    let list = || Ok(Listed { instructions: None, tools: vec![json!({ "name": "echo" })] });
    let catalogue = catalogue(vec![("a-b".to_owned(), list()), ("a.b".to_owned(), list()), ("ab".to_owned(), list())]);
    let tools: Vec<usize> = catalogue.servers.iter().map(|server| server.tools.len()).collect();
    assert_eq!(tools, [0, 0, 1]);
    assert_ne!(catalogue.servers[0].ident, catalogue.servers[1].ident);
    let trouble = catalogue.servers[0].trouble.as_deref().unwrap_or_default();
    assert!(trouble.contains("a-b, a.b") && trouble.contains("give them other names"), "{trouble}");
}

/// The names of the battery's case cm-010.
#[test]
fn names_as_code_and_as_paths() {
    let long = "x".repeat(10_000);
    let names = [
        "../../../tmp/MARK",
        "a/b",
        "a b",
        "class",
        "import os; os.system('touch /tmp/MARK')",
        "x'\"\n",
        "__init__",
        "__proto__",
        "constructor",
        "toString",
        "0day",
        "def",
        "Ünï",
        long.as_str(),
        "",
        "echo",
        "Echo",
        "echo_",
        "e-c-h-o",
        "e.c.h.o",
        "rm -rf",
        "${IFS}",
        "\u{202e}ohce",
    ];
    let catalogue = listed("demo", names.iter().map(|name| json!({ "name": name })).collect());
    let server = only(&catalogue);
    let idents: Vec<&str> = server.tools.iter().map(|tool| tool.ident.as_str()).collect();
    let expected = [
        "_tmp_MARK",
        "class_",
        "import_os__os_system__touch__tmp_MARK__",
        "_init__",
        "_proto__",
        "constructor_",
        "toString_",
        "_0day",
        "def_",
        "_u00DCn_u00EF",
        "echo",
        "Echo",
        "echo_",
        "rm__rf",
        "_IFS_",
    ];
    assert_eq!(idents, expected);
    let refused: Vec<&str> = server.refused.iter().map(|(name, _)| name.as_str()).collect();
    let cut = format!("{}…", "x".repeat(79));
    assert_eq!(refused, ["x'\"", cut.as_str(), "(no name)", "ohce", "a/b", "a b", "e-c-h-o", "e.c.h.o"]);
    assert_eq!(server.refused[4].1, "programs would write it `a_b`, and a b as well");
    for path in super::files(&catalogue).keys() {
        assert!(path.split('/').all(|part| part != ".." && !part.is_empty()), "{path}");
        assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./".contains(&byte)), "{path}");
    }
}

#[test]
fn definitions_that_are_none() {
    let twice = || json!({ "name": "twice" });
    let large = json!({ "name": "large", "description": "x".repeat(300_000) });
    let tools = vec![
        json!(3),
        json!({}),
        json!({ "name": 7 }),
        twice(),
        twice(),
        large,
        json!({ "name": "ok", "inputSchema": 1 }),
    ];
    let catalogue = listed("demo", tools);
    let server = only(&catalogue);
    assert_eq!(server.tools.len(), 1);
    assert_eq!(Value::Object(server.tools[0].input_schema.clone()), json!({ "type": "object", "properties": {} }));
    let reasons: Vec<&str> = server.refused.iter().map(|(_, reason)| reason.as_str()).collect();
    let expected = [
        "its definition is no JSON object",
        "it has no name",
        "it has no name",
        "its definition has 293 KiB, which is over the 256 KiB allowed",
        "the server lists several tools of this name",
        "the server lists several tools of this name",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn a_list_without_end_is_cut() {
    let tools = (0..50_000).map(|number| json!({ "name": format!("tool_{number}") })).collect();
    let catalogue = listed("demo", tools);
    let server = only(&catalogue);
    assert_eq!(server.tools.len(), 5000);
    assert_eq!(server.refused[0].0, "45000 more");
}

/// The descriptions of the battery's case cm-012.
#[test]
fn descriptions_are_cleaned_and_bounded() {
    let table = [
        ("ok\u{1b}[8m hidden\u{1b}[0m", "ok hidden"),
        ("zero\u{200b}width\u{200d}", "zerowidth"),
        ("tags\u{e0069}\u{e0067}\u{e006e}\u{e0020}", "tags"),
        ("<IMPORTANT>Before</IMPORTANT>", "<IMPORTANT>Before</IMPORTANT>"),
        ("\u{202e}reversed", "reversed"),
        ("a\u{1b}]0;title\u{7}b\u{1b}]8;;http://x\u{1b}\\c\u{9b}31md\u{1b}(Be", "abcde"),
        ("two\r\nlines\tand\0 more\u{fe0f}\u{e000}\u{feff}", "two\nlines\tand more"),
        ("Grüße, 世界 🎉", "Grüße, 世界 🎉"),
    ];
    for (said, kept) in table {
        assert_eq!(tool(json!({ "name": "t", "description": said })).description, kept);
    }
    let long = tool(json!({ "name": "t", "description": "x".repeat(50_000) })).description;
    assert_eq!(long, format!("{}… (45904 more characters left out)", "x".repeat(4096)));
    let instructions = Some("do\u{200b} this".to_owned());
    let catalogue = catalogue(vec![("demo".to_owned(), Ok(Listed { instructions, tools: Vec::new() }))]);
    assert_eq!(only(&catalogue).instructions.as_deref(), Some("do this"));
}

#[test]
fn the_digest_is_of_the_definition_whatever_its_order() {
    let one = tool(json!({ "name": "t", "inputSchema": { "type": "object", "x": [1, { "a": 1, "b": 2 }] } }));
    let same = tool(json!({ "inputSchema": { "x": [1, { "b": 2, "a": 1 }], "type": "object" }, "name": "t" }));
    let other = tool(json!({ "inputSchema": { "x": [1, { "b": 2, "a": 3 }], "type": "object" }, "name": "t" }));
    assert_eq!(one.digest, same.digest);
    assert_ne!(one.digest, other.digest);
    assert_eq!(one.digest.len(), 64);
}

#[test]
fn annotations_are_read() {
    let hints = json!({ "readOnlyHint": true, "destructiveHint": "yes", "openWorldHint": false });
    let tool = tool(json!({ "name": "t", "annotations": hints }));
    assert_eq!(tool.annotations.read_only, Some(true));
    assert_eq!(tool.annotations.destructive, None);
    assert_eq!(tool.annotations.open_world, Some(false));
}
