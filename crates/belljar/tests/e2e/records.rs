//! What is remembered, and a look at a running server: `ps`, `logs`, `kill`, `history`, and the audit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Caller;
use crate::host::{signal, until};
use crate::network::Web;
use crate::server::{User, folder, private_file};

const SOON: Duration = Duration::from_secs(20);

/// A user whose state, sockets and configuration nobody else has.
fn alone(config: &str) -> (User, TempDir) {
    let home = folder(0o700);
    let mut user = User::same();
    let config = private_file(home.path(), "belljar.toml", config);
    for (name, place) in [("XDG_STATE_HOME", "state"), ("XDG_RUNTIME_DIR", "runtime")] {
        let path = home.path().join(place);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        user.env.push((name.to_owned(), path.to_str().unwrap().to_owned()));
    }
    user.env.push(("XDG_CONFIG_HOME".to_owned(), home.path().join("config").to_str().unwrap().to_owned()));
    fs::create_dir_all(home.path().join("config/belljar")).unwrap();
    fs::rename(config, home.path().join("config/belljar/belljar.toml")).unwrap();
    (user, home)
}

fn ask(user: &User, words: &[&str]) -> Output {
    user.command(words).output().unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "too wide: {line}");
        assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    text
}

#[track_caller]
fn json_of(user: &User, words: &[&str]) -> Value {
    let output = ask(user, words);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sockets(home: &TempDir) -> usize {
    fs::read_dir(home.path().join("runtime/belljar")).map_or(0, |entries| entries.count())
}

#[test]
fn a_running_server_is_seen_and_a_hand_is_laid_on_it() {
    let (user, home) = alone("");
    assert!(text(&ask(&user, &["ps"])).starts_with("No server of yours is running."));
    assert!(text(&ask(&user, &["history"])).starts_with("No runs are remembered."));
    assert_eq!(ask(&user, &["history", "--limit", "0"]).status.code(), Some(2), "nothing is no answer");

    let mut server = user.serve();
    let sandbox = server.client.create(json!({}));
    let command = "printf 'seen\\033[31m so far\\n'; echo wrong >&2; sleep 1000";
    server.client.call("exec", json!({"sandbox_id": sandbox, "command": command, "background": true}));
    let loose = server.client.start("run_code", json!({"language": "shell", "code": "echo loose; sleep 1000"}));
    let seen = || json_of(&user, &["ps", "--json"])["servers"][0].clone();
    until("both run", SOON, || {
        let runs = seen()["runs"].clone();
        runs.as_array().is_some_and(|runs| runs.len() == 2 && runs.iter().all(|run| run["state"] != "waiting"))
    });
    let seen = seen();
    assert_eq!((&seen["pid"], &seen["backend"]), (&json!(server.pid()), &json!("native")));
    assert_eq!((&seen["sandboxes"][0]["id"], &seen["sandboxes"][0]["principal"]), (&json!(sandbox), &json!("local")));
    let runs = seen["runs"].as_array().unwrap();
    let of = |state: &str| runs.iter().find(|run| run["state"] == state).unwrap()["id"].as_str().unwrap().to_owned();
    let (job, running) = (of("job"), of("running"));
    let table = text(&ask(&user, &["ps"]));
    for word in [&sandbox, &job, &running] {
        assert!(table.contains(word.as_str()), "{word} is not in:\n{table}");
    }

    // By the run, and by the sandbox whose latest it is.
    for id in [&job, &sandbox] {
        until("it has printed", SOON, || !ask(&user, &["logs", id]).stdout.is_empty());
        let logs = ask(&user, &["logs", id]);
        assert_eq!(text(&logs), "seen so far\n", "what a terminal would obey is not shown");
        assert_eq!(String::from_utf8_lossy(&logs.stderr), "wrong\n");
    }
    assert_eq!(json_of(&user, &["logs", &running, "--json"])["stdout"], "loose\n");
    let unknown = ask(&user, &["logs", "run_nobody"]);
    assert_eq!(unknown.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("belljar ps"), "{unknown:?}");

    assert_eq!(text(&ask(&user, &["kill", &running])), format!("ended {running}\n"));
    let answer = server.client.answer(loose);
    assert!(answer.to_string().contains("cancelled"), "{answer}");
    let some = ask(&user, &["kill", "run_nobody", &sandbox]);
    assert_eq!(
        (some.status.code(), String::from_utf8_lossy(&some.stdout).into_owned()),
        (Some(125), format!("ended {sandbox}\n"))
    );
    assert!(json_of(&user, &["ps", "--json"])["servers"][0]["sandboxes"].as_array().unwrap().is_empty());
    server.client.still_runs();

    let mode = |path: &str| fs::metadata(home.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode("state/belljar/history.db"), mode(&format!("runtime/belljar/control-{}.sock", server.pid()))),
        (0o600, 0o600)
    );
    server.client.hang_up();
    assert_eq!(server.wait_exit(SOON).code(), Some(0));
    assert_eq!(sockets(&home), 0, "the socket goes with its server");

    let past = json_of(&user, &["history", "--json"]);
    let ending = |id: &str| {
        let runs = past["runs"].as_array().unwrap();
        let run = runs.iter().find(|run| run["id"] == id).unwrap_or_else(|| panic!("{id} is not in {past}"));
        (run["ending"].as_str().unwrap().to_owned(), run["sandbox"].as_str().map(str::to_owned))
    };
    assert_eq!(ending(&running), ("cancelled".to_owned(), None));
    assert_eq!(ending(&job), ("killed".to_owned(), Some(sandbox.clone())));
    assert_eq!(past["dropped"], 0);
    assert!(!past.to_string().contains("sleep 1000"), "the text of programs is not kept");
    let all = json_of(&user, &["ps", "--all", "--json"]);
    assert_eq!((&all["past"][0]["state"], &all["past"][0]["why"]), (&json!("closed"), &json!("destroyed")));
    assert!(text(&ask(&user, &["ps", "--all"])).contains(&sandbox));
}

/// To say that nothing is there would be wrong.
#[test]
fn a_server_that_does_not_answer_is_named() {
    let (user, _home) = alone("");
    let mut server = user.serve();
    server.client.still_runs();
    signal(server.pid(), "STOP");
    let silent = [ask(&user, &["ps"]), ask(&user, &["logs", "run_nobody"])];
    signal(server.pid(), "CONT");
    for output in silent {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(stderr.contains(&format!("server {} does not answer", server.pid())), "{stderr}");
        assert!(stderr.contains("hint: ") && output.stdout.is_empty(), "{output:?}");
    }
    assert!(text(&ask(&user, &["ps"])).contains(&server.pid().to_string()), "and is asked again");
}

#[test]
fn what_went_with_a_killed_server_is_told_as_lost() {
    let (user, home) = alone("");
    let mut server = user.serve();
    let sandbox = server.client.create(json!({}));
    server.client.start("run_code", json!({"language": "shell", "code": "sleep 1000", "sandbox_id": sandbox}));
    let run = || {
        let past = json_of(&user, &["history", "--json"]);
        past["runs"][0]["id"].as_str().map(str::to_owned)
    };
    until("its run is written down", SOON, || run().is_some());
    let run = run().unwrap();
    signal(server.pid(), "KILL");
    assert!(server.wait_exit(SOON).code().is_none());
    assert_eq!(sockets(&home), 1, "nothing of it could clean up");

    let mut next = user.serve();
    next.client.still_runs();
    assert_eq!(sockets(&home), 1, "the dead one's socket is gone, and the new one's is there");
    let all = json_of(&user, &["ps", "--all", "--json"]);
    assert_eq!(all["servers"].as_array().unwrap().len(), 1);
    assert_eq!((&all["past"][0]["id"], &all["past"][0]["state"]), (&json!(sandbox), &json!("lost")));
    assert!(text(&ask(&user, &["ps", "--all"])).contains(" lost "));
    until("both runs are written down", SOON, || {
        let past = json_of(&user, &["history", "--json"]);
        let ending = |id: &Value| past["runs"].as_array().unwrap().iter().find(|run| run["id"] == *id).cloned();
        past["runs"].as_array().unwrap().len() == 2 && ending(&json!(run)).unwrap()["ending"] == "lost"
    });
    let lost = "the sandbox was lost with the server that it was in; call create_sandbox";
    let told = next.client.shell_in(&sandbox, "echo on");
    assert!(told.is_error() && told.text().contains(lost), "{}", told.result);
    let told = next.client.call("destroy_sandbox", json!({"sandbox_id": sandbox}));
    assert!(told.text().contains("lost with the server"), "{}", told.result);
    let unknown = next.client.shell_in("sb_0000000000000000000000", "echo on");
    assert!(unknown.text().contains("no such sandbox"), "{}", unknown.result);
}

#[test]
fn what_went_with_a_server_that_ended_in_order_is_lost_to_its_owner_alone() {
    let (user, _home) = alone("");
    let mut server = user.serve();
    let sandbox = server.client.create(json!({}));
    signal(server.pid(), "TERM");
    assert!(server.wait_exit(SOON).success());
    let mut next = user.serve();
    let told = next.client.shell_in(&sandbox, "echo on");
    assert!(told.text().contains("lost with the server that it was in"), "{}", told.result);
    // One that stands in another server is not lost, and here it is as if it were not.
    let mut other = user.serve();
    let there = other.client.create(json!({}));
    assert!(next.client.shell_in(&there, "echo on").text().contains("no such sandbox"));
    assert!(!other.client.shell_in(&there, "echo on").is_error());
}

#[test]
fn a_run_of_the_command_line_is_remembered_too() {
    let (user, _home) = alone("[history]\ncode = true");
    let ran = ask(&user, &["run", "-l", "shell", "-c", "exit 3 # \u{1b}[31m"]);
    assert_eq!(ran.status.code(), Some(3), "{ran:?}");
    let past = json_of(&user, &["history", "--json", "--since", "1h"]);
    let run = &past["runs"][0];
    assert_eq!((&run["principal"], &run["exit_code"], &run["language"]), (&json!("local"), &json!(3), &json!("shell")));
    assert_eq!(run["code"], "exit 3 # \u{1b}[31m");
    assert!(text(&ask(&user, &["history"])).contains("exited 3"));
    assert!(text(&ask(&user, &["history", "--principal", "nobody"])).starts_with("No runs are remembered that fit."));
}

#[test]
fn a_history_that_cannot_be_used_is_said_and_not_passed_over() {
    let (user, home) = alone("");
    fs::create_dir(home.path().join("state/belljar")).unwrap();
    let file = home.path().join("state/belljar/history.db");
    fs::write(&file, "not a database, but somebody's notes; ".repeat(40)).unwrap();
    let refused = ask(&user, &["run", "-l", "shell", "-c", "echo on"]);
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(125) && refused.stdout.is_empty(), "{refused:?}");
    assert!(words.contains("history.db") && words.contains("enabled = false"), "{words}");
    fs::write(home.path().join("config/belljar/belljar.toml"), "[history]\nenabled = false").unwrap();
    assert_eq!(text(&ask(&user, &["run", "-l", "shell", "-c", "echo on"])), "on\n");
    assert!(fs::read_to_string(&file).unwrap().starts_with("not a database"), "it was left as it is");
}

#[test]
fn runs_and_sandboxes_are_lines_of_the_audit() {
    let place = folder(0o700);
    let file = place.path().join("audit.jsonl");
    let (user, _home) = alone(&format!("[audit]\nfile = {:?}\nrequired = true", file.to_str().unwrap()));
    let mut server = user.serve();
    let sandbox = server.client.create(json!({}));
    server.client.shell_in(&sandbox, "echo secretword; exit 7");
    server.client.call("destroy_sandbox", json!({"sandbox_id": sandbox}));
    let lines: Vec<Value> =
        fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["sandbox-opened", "run", "sandbox-closed"], "written before the caller is answered");
    let run = &lines[1];
    for (key, value) in [
        ("principal", json!("local")),
        ("tool", json!("run_code")),
        ("sandbox", json!(sandbox)),
        ("backend", json!("native")),
        ("ending", json!("exited")),
        ("exit_code", json!(7)),
        ("network_bytes", json!(0)),
        ("refused", json!([])),
        ("calls", json!([])),
    ] {
        assert_eq!(run[key], value, "{key} in {run}");
    }
    assert!(run["time"].as_str().unwrap().ends_with('Z') && run["code_sha256"].as_str().unwrap().len() == 64, "{run}");
    assert!(!run.to_string().contains("secretword"), "{run}");
    assert_eq!(lines[2]["why"], "destroyed");

    // Where lines can no longer be written, nothing runs.
    drop(place);
    server.client.shell("echo unseen");
    server.client.shell("echo refused").refused(&["audit", "operator"]);
}

#[test]
fn what_a_short_run_printed_is_there_after_its_end() {
    let (user, _home) = alone("");
    let mut server = user.serve();
    server.client.shell("echo brief; echo aside >&2").printed("brief\n");
    let latest = || json_of(&user, &["history", "--json"])["runs"][0].clone();
    until("it is written down", SOON, || latest()["ending"] == "exited");
    let logs = ask(&user, &["logs", latest()["id"].as_str().unwrap()]);
    assert_eq!((text(&logs), String::from_utf8_lossy(&logs.stderr).into_owned()), ("brief\n".into(), "aside\n".into()));
}

#[test]
fn what_was_refused_and_who_decided_is_remembered() {
    let place = folder(0o700);
    let file = place.path().join("audit.jsonl");
    let (user, _home) = alone(&format!("[audit]\nfile = {:?}", file.to_str().unwrap()));
    let mut server = user.serve_with(&["--approve", "ask"]);
    // This client has nobody to ask.
    server.client.shell("echo secretword").refused(&["--approve never"]);
    server.client.hang_up();
    assert_eq!(server.wait_exit(SOON).code(), Some(0));
    let past = json_of(&user, &["history", "--json"]);
    let (run, decision) = (&past["runs"][0], &past["decisions"][0]);
    assert_eq!((&run["ending"], &run["error_kind"]), (&json!("refused"), &json!("approval")), "{past}");
    assert_eq!(
        (&decision["what"], &decision["name"], &decision["outcome"], &decision["principal"]),
        (&json!("program"), &json!("shell"), &json!("nobody"), &json!("local"))
    );
    assert_eq!(decision["sha256"], run["code_sha256"]);
    let table = text(&ask(&user, &["history"]));
    assert!(table.contains("refused appro") && table.contains("approval of shell"), "{table}");
    let audit = fs::read_to_string(&file).unwrap();
    let events: Vec<_> = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["event"].as_str().unwrap().to_owned(), line["error_kind"].clone()))
        .collect();
    assert_eq!(events, [("decision".to_owned(), Value::Null), ("run".to_owned(), json!("approval"))]);
    assert!(!audit.contains("secretword") && !past.to_string().contains("secretword"));
}

#[test]
fn hosts_that_a_run_reached_are_remembered_beside_those_it_was_refused() {
    let web = Web::plain();
    let (user, _home) = alone(&web.configuration());
    let mut server = user.serve();
    let host = format!("api.test:{}", web.port);
    let code = format!(
        "curl -s -o /dev/null -w '%{{size_download}}' http://{host}/large; curl -s -o /dev/null http://evil.test/"
    );
    let run = json!({"language": "shell", "code": code, "network": [host]});
    assert_eq!(server.client.call("run_code", run).stdout(), "8388608");
    let latest = || json_of(&user, &["history", "--json"])["runs"][0].clone();
    until("it is written down", SOON, || latest()["ending"] == "exited");
    let run = latest();
    assert_eq!(run["refused"], json!(["evil.test:80"]), "{run}");
    let reached = &run["reached"][0];
    assert_eq!((&reached["host"], &reached["connections"]), (&json!(host), &json!(1)), "{run}");
    assert!(reached["bytes_in"].as_u64().unwrap() > 8_388_608 && reached["bytes_out"].as_u64().unwrap() > 20, "{run}");
    assert_eq!(run["reached"].as_array().unwrap().len(), 1);
}
