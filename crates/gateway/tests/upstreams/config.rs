//! The file that operators share between clients.

use std::time::Duration;

use belljar_gateway::upstream::{ConfigError, Flavour, UpstreamConfig, Way, parse};
use serde_json::{Value, json};

fn lookup(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("ghp_verysecret".into()),
        "ROOT" => Some("/srv".into()),
        _ => None,
    }
}

fn read(file: Value) -> Result<Vec<UpstreamConfig>, ConfigError> {
    parse(&file.to_string(), &lookup)
}

fn problem(entry: Value) -> String {
    read(json!({ "mcpServers": { "one": entry } })).unwrap_err().to_string()
}

#[test]
fn both_kinds_are_read_with_their_variables_and_nothing_secret_is_shown() {
    let servers = json!({
        "github": {
            "command": "npx", "args": ["-y", "server-github", "--root=${ROOT}", "${TOKEN}"],
            "env": { "GITHUB_TOKEN": "${TOKEN}", "REGION": "${REGION:-eu}" }, "cwd": "${ROOT}/work", "alwaysAllow": ["x"],
        },
        "linear": {
            "type": "http", "url": "https://mcp.example.org/mcp?key=${TOKEN}", "headers": { "Authorization": "Bearer ${TOKEN}" },
            "trusted": true, "timeout": 5, "allow": ["list_*"], "ask": ["create_*"], "deny": ["delete_*"],
            "max_result_mb": 2, "parse": false,
            "oauth": { "client_id": "me", "client_secret": "${TOKEN}", "scopes": ["read"] },
        },
        "old": { "transport": "sse", "url": "http://127.0.0.1:1/sse" },
        "off": { "command": "${NOT_SET}", "disabled": true },
    });
    for key in ["mcpServers", "servers"] {
        let configs = read(json!({ key: servers, "inputs": [] })).unwrap();
        assert_eq!(configs.iter().map(|config| config.name.as_str()).collect::<Vec<_>>(), ["github", "linear", "old"]);
        let shown = format!("{configs:?}");
        assert!(!shown.contains("verysecret"), "{shown}");
        let Way::Stdio { command, args, env, cwd } = &configs[0].way else { panic!() };
        assert_eq!((command.as_str(), cwd.as_deref()), ("npx", Some(std::path::Path::new("/srv/work"))));
        assert_eq!(
            args.iter().map(|arg| arg.reveal()).collect::<Vec<_>>(),
            ["-y", "server-github", "--root=/srv", "ghp_verysecret"]
        );
        let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.reveal())).collect();
        assert_eq!(env, [("GITHUB_TOKEN", "ghp_verysecret"), ("REGION", "eu")]);
        assert_eq!((configs[0].timeout, configs[0].result_bytes_max), (Duration::from_secs(60), 16 << 20));
        assert!(configs[0].parse && !configs[0].trusted);
        let linear = &configs[1];
        let Way::Http { url, headers, flavour } = &linear.way else { panic!() };
        assert_eq!(url.reveal(), "https://mcp.example.org/mcp?key=ghp_verysecret");
        assert_eq!((headers[0].1.reveal(), *flavour), ("Bearer ghp_verysecret", Flavour::Streamable));
        assert!(linear.trusted && !linear.parse);
        assert_eq!((linear.timeout, linear.result_bytes_max), (Duration::from_secs(5), 2 << 20));
        assert_eq!([&linear.allow, &linear.ask, &linear.deny], [&["list_*"], &["create_*"], &["delete_*"]]);
        assert_eq!((linear.oauth.client_id.as_deref(), linear.oauth.scopes.len()), (Some("me"), 1));
        assert!(matches!(&configs[2].way, Way::Http { flavour: Flavour::Sse, .. }));
    }
}

#[test]
fn mistakes_name_the_server_and_the_key_and_no_value() {
    let unset = problem(json!({ "command": "x", "env": { "A": "${API_KEY}" } }));
    assert!(unset.contains("\"one\"") && unset.contains("the variable API_KEY is not set"), "{unset}");
    for (entry, key) in [
        (json!({}), "neither \"command\""),
        (json!("hunter2"), "is not an object"),
        (json!({ "command": "" }), "\"command\" is empty"),
        (json!({ "command": "x", "args": "hunter2" }), "\"args\""),
        (json!({ "command": "x", "env": { "A": ["hunter2"] } }), "\"env\""),
        (json!({ "command": "x", "env": { "A=": "hunter2" } }), "\"env\""),
        (json!({ "url": "hunter2" }), "\"url\""),
        (json!({ "url": "file:///hunter2" }), "\"url\""),
        (json!({ "url": "http://h", "type": "hunter2" }), "\"type\""),
        (json!({ "url": "http://h", "headers": { "A": "hunter2\n" } }), "\"headers\""),
        (json!({ "url": "http://h", "oauth": { "client_secret": "hunter2" } }), "\"client_id\""),
        (json!({ "command": "x", "timeout": 0 }), "\"timeout\""),
        (json!({ "command": "x", "trusted": "hunter2" }), "\"trusted\""),
    ] {
        let problem = problem(entry);
        assert!(problem.contains(key) && !problem.contains("hunter2"), "{problem}");
    }
    assert_eq!(parse("{ \"hunter2", &lookup).unwrap_err(), ConfigError::NotJson("line 1, column 10".into()));
    assert_eq!(read(json!({ "mcp": {} })).unwrap_err(), ConfigError::NoServers);
}

#[test]
fn names_that_programs_could_not_tell_apart_are_refused() {
    let server = json!({ "command": "x" });
    let two = read(json!({ "mcpServers": { "my-server": server, "my.server": server } })).unwrap_err().to_string();
    assert!(two.contains("`my_server`") && two.contains("\"my-server\"") && two.contains("\"my.server\""), "{two}");
    assert!(read(json!({ "mcpServers": { "class": server, "Class": server } })).is_ok());
    for name in ["", "a\nb", &"n".repeat(65)] {
        assert!(read(json!({ "mcpServers": { name: server } })).is_err(), "{name:?}");
    }
    assert!(read(json!({ "mcpServers": { "n".repeat(64): server } })).is_ok());
}
