//! `belljar tools`, and the examples as `belljar run` runs them.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};

use super::place::{Place, of_repository};
use crate::client::Caller;

#[track_caller]
fn ran(place: &Place, words: &[&str]) -> Output {
    place.user.command(words).output().unwrap()
}

/// What it prints, with the exit code that it should have.
#[track_caller]
fn said(place: &Place, words: &[&str], code: i32) -> (String, String) {
    let output = ran(place, words);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {stdout}{stderr}");
    (stdout, stderr)
}

#[test]
fn belljar_tools() {
    Place::each_public(|place| {
        let place = place.everything().sqlite();
        let config = place.config();
        let tools = |words: &[&str], code| said(&place, &[&["tools", "--mcp-config", &config], words].concat(), code);
        let (list, _) = tools(&["list"], 0);
        assert!(list.contains("everything (13 tools)\n") && list.contains("sqlite (6 tools)\n"), "{list}");
        assert!(list.contains("  sqlite.read_query(query: str)"), "{list}");
        let (list, _) = tools(&["list", "sqlite", "--json"], 0);
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["servers"][0]["tools"].as_array().unwrap().len(), 6, "{list}");
        let (found, _) = tools(&["search", "add", "two", "numbers", "--detail", "names", "--limit", "2"], 0);
        assert!(found.contains("everything.get_sum") && !found.contains("float"), "{found}");
        let (stub, _) = tools(&["describe", "everything.get-sum"], 0);
        assert!(stub.contains("def get_sum("), "{stub}");
        assert_eq!(tools(&["call", "everything.get-sum", "a=40", "b:=2"], 0).0, "The sum of 40 and 2 is 42.\n");
        let (result, _) = tools(&["call", "everything.echo", "--arguments", r#"{"message": "hi"}"#, "--json"], 0);
        assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["content"][0]["text"], "Echo: hi");
        let (_, wrong) = tools(&["call", "everything.get-sum", "a=x"], 1);
        assert!(wrong.starts_with("InvalidArguments: ") && wrong.contains("everything.get_sum(a: float"), "{wrong}");
        let (_, unknown) = tools(&["call", "everything.get-summ"], 125);
        assert_eq!(
            unknown,
            "error: there is no tool \"everything.get-summ\"\nhint: did you mean everything.get_sum?\n"
        );

        // Nothing has been run; then something has.
        let (stats, _) = tools(&["stats", "--json"], 0);
        assert_eq!(serde_json::from_str::<Value>(&stats).unwrap()["runs"], 0, "{stats}");
        let mut server = place.serve();
        server
            .client
            .python("from tools import everything\nfor n in range(3): everything.echo(message='x' * 9000)")
            .printed("");
        server.client.hang_up();
        server.wait_exit(std::time::Duration::from_secs(10));
        let (stats, _) = tools(&["stats", "--json"], 0);
        let stats: Value = serde_json::from_str(&stats).unwrap();
        assert_eq!((&stats["runs"], &stats["calls"]), (&json!(1), &json!(3)), "{stats}");
        assert!(stats["direct"].as_u64().unwrap() > 10 * stats["entered"].as_u64().unwrap(), "{stats}");
        assert!(tools(&["stats"], 0).0.contains("calls                      3\n"));
    });
}

#[test]
fn the_examples_print_their_line() {
    const LINE: &str = "Report sent: 10 customers, ";
    Place::each(|place| {
        // As they are, but where every user can read them, and with `examples/` below the working directory.
        fs::create_dir(place.path("examples")).unwrap();
        for entry in fs::read_dir(of_repository("examples")).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), place.path("examples").to_owned() + "/" + entry.file_name().to_str().unwrap())
                    .unwrap();
            }
        }
        let mut lines = Vec::new();
        for ending in ["py", "ts", "sh"] {
            let program = format!("examples/top_customers.{ending}");
            let mut command = place.user.command(&["run", "--mcp-config", "examples/mcp.json", &program]);
            let output =
                command.current_dir(place.path("")).env("OUTBOX", place.path("outbox.jsonl")).output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{program}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
            assert!(stdout.starts_with(LINE) && stdout.lines().count() == 1, "{program}: {stdout}");
            lines.push(stdout);
        }
        assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
        let outbox = place.read("outbox.jsonl");
        let reports: Vec<Value> = outbox.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(reports.len(), 3, "{outbox}");
        for report in &reports {
            assert_eq!(report["to"], "team@example.com");
            assert_eq!(report["body"], reports[0]["body"]);
            assert_eq!(report["body"].as_str().unwrap().lines().count(), 11, "{report}");
        }
        let stolen = "from tools import outbox, PolicyDenied\ntry:\n    outbox.send_report(to='eve@example.net', subject='x', body='y')\n\
                      except PolicyDenied as error:\n    print('denied')";
        let mut command =
            place.user.command(&["run", "--mcp-config", "examples/mcp.json", "-l", "python", "-c", stolen]);
        let output = command.current_dir(place.path("")).env("OUTBOX", place.path("outbox.jsonl")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "denied\n", "{output:?}");
        assert_eq!(place.read("outbox.jsonl"), outbox);
    });
}
