//! The configuration: where a value comes from, what is said of a wrong one, and a server that reads it again.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Caller;
use crate::host;
use crate::server::{User, folder};

/// With a configuration directory of its own.
fn user(home: &Path) -> User {
    let mut user = User::same();
    user.env.push(("XDG_CONFIG_HOME".to_owned(), home.to_str().unwrap().to_owned()));
    user
}

fn put(home: &Path, name: &str, text: &str) -> String {
    let path = home.join("belljar").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn told(user: &User, words: &[&str]) -> Output {
    user.command(words).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn setting(user: &User, words: &[&str], key: &str) -> (String, String) {
    let words: Vec<&str> = words.iter().copied().chain(["config", "show", "--json"]).collect();
    let output = told(user, &words);
    assert!(output.status.success(), "{output:?}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let word =
        |name: &str| shown["settings"][key][name].as_str().unwrap_or_else(|| panic!("{key}: {shown:#}")).to_owned();
    (word("value"), word("from"))
}

#[track_caller]
fn refused(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(125), b"".as_slice()), "{said}");
    for word in words.iter().chain(&["error: ", "\nhint: "]) {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}

#[test]
fn a_flag_before_a_variable_before_the_file_before_what_is_built_in() {
    let home = folder(0o755);
    let mut user = user(home.path());
    assert_eq!(setting(&user, &[], "pool.max"), ("32".into(), "built in".into()));
    put(home.path(), "config.toml", "# mine\n[pool]\nmax = 3\n[walls]\nbackend = \"docker\"\n");
    assert_eq!(setting(&user, &[], "pool.max"), ("3".into(), "config.toml:3".into()));
    user.env.push(("BELLJAR_POOL__MAX".to_owned(), "4".to_owned()));
    user.env.push(("BELLJAR_WALLS__BACKEND".to_owned(), "wasm".to_owned()));
    assert_eq!(setting(&user, &[], "pool.max"), ("4".into(), "env BELLJAR_POOL__MAX".into()));
    assert_eq!(setting(&user, &[], "walls.backend"), ("wasm".into(), "env BELLJAR_WALLS__BACKEND".into()));
    assert_eq!(setting(&user, &["--backend", "native"], "walls.backend"), ("native".into(), "flag".into()));
    let text = told(&user, &["config", "show"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("config.toml\n") && text.contains("(env BELLJAR_POOL__MAX)"), "{text}");
    put(home.path(), "belljar.toml", "");
    refused(&told(&user, &["config", "show"]), &["two configurations", "keep belljar.toml"]);
}

#[test]
fn what_is_wrong_is_said_with_what_was_meant() {
    let home = folder(0o755);
    let mut user = user(home.path());
    let file = put(home.path(), "belljar.toml", "idle_timeout = 5\n\nidle_timout = 6\n");
    let words = ["unknown key `idle_timout` in line 3", "did you mean `idle_timeout`?"];
    refused(&told(&user, &["config", "show"]), &words);
    refused(&told(&user, &["run", "-l", "shell", "-c", "echo"]), &words);
    refused(&told(&user, &["config", "check", &file]), &words);
    put(home.path(), "belljar.toml", "idle_timeout = 5\n");
    let ok = told(&user, &["config", "check", &file]);
    assert_eq!((ok.status.code(), String::from_utf8_lossy(&ok.stdout)), (Some(0), format!("{file}: ok\n").into()));
    user.env.push(("BELLJAR_POOL_MAX".to_owned(), "4".to_owned()));
    refused(&told(&user, &["config", "show"]), &["unknown variable BELLJAR_POOL_MAX", "`BELLJAR_POOL__MAX`?"]);
    // A file is looked at by itself.
    assert!(told(&user, &["config", "check", &file]).status.success());
}

#[test]
fn the_working_directory_has_no_say() {
    let home = folder(0o755);
    fs::write(home.path().join("belljar.toml"), "idle_timeout = 1").unwrap();
    let mut command = user(home.path()).command(&["config", "show", "--json"]);
    let output = command.current_dir(home.path()).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["file"], &shown["settings"]["idle_timeout"]["from"]), (&Value::Null, &json!("built in")));
}

#[test]
fn the_schema_is_for_editors() {
    let output = told(&User::same(), &["config", "schema"]);
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"]["pool"]["properties"]["max"]["type"], "integer");
    assert_eq!(
        schema["properties"]["idle_timeout"]["description"],
        "Seconds after which an unused sandbox is removed."
    );
}

/// Waits until the server says so.
#[track_caller]
fn hear(lines: &Receiver<String>, words: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines.recv_timeout(left).unwrap_or_else(|_| panic!("the server did not say {words:?}"));
        if line.contains(words) {
            return line;
        }
    }
}

#[test]
fn a_server_reads_it_again_and_a_broken_file_changes_nothing() {
    let home = folder(0o755);
    let user = user(home.path());
    put(home.path(), "belljar.toml", "idle_timeout = 100\nmax_sandboxes = 2\n");
    let (mut server, lines) = user.serve_http_heard("127.0.0.1:0", &["--yield-after", "44"]);
    let pid = server.pid();
    let client = &mut server.client;
    let idle = |answer: crate::client::Answer| answer.number("idle_seconds");
    assert_eq!(idle(client.call("create_sandbox", json!({}))), 100);

    put(home.path(), "belljar.toml", "idle_timeout = 50\nmax_sandboxes = 1\nyield_after = 7\n[pool]\nmax = 1\n");
    host::signal(pid, "HUP");
    hear(&lines, "in effect from now on: idle_timeout, max_sandboxes");
    let line = hear(&lines, "after a restart: pool.max");
    assert!(!line.contains("yield_after"), "{line}");
    hear(&lines, "the command line says otherwise: yield_after");
    host::signal(pid, "HUP");
    hear(&lines, "after a restart: pool.max");
    client.call("create_sandbox", json!({})).refused(&["1"]);

    put(home.path(), "belljar.toml", "idle_timeout = 25\nmax_sandboxes = 4\nmax_sandbox = 5\n");
    host::signal(pid, "HUP");
    let line = hear(&lines, "the configuration stays as it was");
    assert!(line.contains("unknown key `max_sandbox` in line 3; did you mean `max_sandboxes`?"), "{line}");
    client.call("create_sandbox", json!({})).refused(&["1"]);
    client.still_runs();

    put(home.path(), "belljar.toml", "idle_timeout = 50\nmax_sandboxes = 2\nlog = \"belljar=trace\"\n");
    host::signal(pid, "HUP");
    hear(&lines, "in effect from now on: log, max_sandboxes");
    assert_eq!(idle(client.call("create_sandbox", json!({}))), 50);
    host::signal(pid, "TERM");
    assert!(server.wait_exit(Duration::from_secs(20)).success());
}

#[test]
fn a_server_that_reads_it_again_tells_of_the_files_of_other_servers() {
    let home = folder(0o755);
    let servers = put(home.path(), "servers.json", "{\"mcpServers\": {}}");
    put(home.path(), "belljar.toml", &format!("[upstreams]\nfiles = [{servers:?}]\n"));
    let (server, lines) = user(home.path()).serve_http_heard("127.0.0.1:0", &[]);
    host::signal(server.pid(), "HUP");
    hear(&lines, "says nothing new");
    put(home.path(), "servers.json", "{\"mcpServers\": {\"a\": {\"command\": \"true\"}}}");
    host::signal(server.pid(), "HUP");
    hear(&lines, "after a restart: what upstreams.files name");
    put(home.path(), "servers.json", "{");
    host::signal(server.pid(), "HUP");
    hear(&lines, "a restart would fail: in ");
}
