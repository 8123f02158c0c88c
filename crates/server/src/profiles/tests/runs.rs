//! The surfaces that mainly run code: e2b, code-sandbox, run-python, agentexec.

use std::time::Duration;

use belljar_core::{Program, Source, Then};
use belljar_engine::{Run, RunRequest, Wants};
use serde_json::json;

use super::*;

#[tokio::test]
async fn e2b_tells_results_logs_and_the_error() {
    let agent = Agent::new("e2b");
    let chart = "application/vnd.belljar.chart+json";
    let value = json!({"text/plain": "42", "text/html": "<b>42</b>", "x/y": "z", chart: {"type": "line"}});
    let value = json!({"result": {"data": value}});
    let code = format!("print out\nerr complaint\n{}\nrecord {value}", shows_picture());
    let result = agent.call("run_code", json!({"code": code})).await;
    assert_eq!(result.is_error, Some(false));
    assert_eq!(
        parse(&result),
        json!({
            "results": [
                {"png": PNG, "text": "<Figure>", "isMainResult": false},
                {
                    "text": "42", "html": "<b>42</b>", "chart": {"type": "line"}, "extra": {"x/y": "z"},
                    "isMainResult": true,
                },
            ],
            "logs": {"stdout": ["out\n"], "stderr": ["complaint\n"]},
        })
    );
    assert_eq!(images(&result), ["image/png"]);

    let result = agent.call("run_code", json!({"code": RAISES, "unknown": 1})).await;
    assert_eq!(result.is_error, Some(true));
    assert_eq!(
        parse(&result),
        json!({
            "results": [],
            "logs": {"stdout": ["before\n"], "stderr": []},
            "error": {"name": "ValueError", "value": "no", "traceback": "Traceback\n  line 1\nValueError: no"},
        })
    );
}

#[tokio::test]
async fn e2b_keeps_one_sandbox_for_each_caller() {
    let agent = Agent::new("e2b");
    agent.json("run_code", json!({"code": "write kept hello"})).await;
    let read = agent.json("run_code", json!({"code": "cat kept"})).await;
    assert_eq!(read["logs"]["stdout"], json!(["hello"]));
    assert_eq!(agent.fake.opened(), 1);
    let bob = agent.other("bob");
    let foreign = bob.json("run_code", json!({"code": "cat kept"})).await;
    assert_eq!(foreign["error"]["name"], "SystemExit");
    assert_eq!(agent.fake.opened(), 2);

    // Calls that come at once share the one that the first makes.
    let ann = agent.other("ann");
    let run = || ann.json("run_code", json!({"code": "print x"}));
    let _ = tokio::join!(run(), run(), run());
    assert_eq!(agent.fake.opened(), 3);
}

#[tokio::test]
async fn a_shared_sandbox_that_is_gone_is_replaced_and_that_is_said() {
    let agent = Agent::new("e2b");
    agent.json("run_code", json!({"code": "write kept hello"})).await;
    let id = agent.engine.sandboxes(&agent.who)[0].id.as_str().to_owned();
    agent.engine.destroy(&agent.who, &id).await.unwrap();
    let result = agent.call("run_code", json!({"code": "print again"})).await;
    assert_eq!(parse(&result)["logs"]["stdout"], json!(["again\n"]));
    assert!(notes(&result).contains("the earlier sandbox is gone"), "{}", notes(&result));

    let crashed = agent.call("run_code", json!({"code": "print x\ncrash"})).await;
    assert_eq!(crashed.is_error, Some(true));
    assert!(notes(&crashed).contains("the sandbox went down in this run"), "{crashed:?}");
    let after = agent.call("run_code", json!({"code": "print new"})).await;
    assert_eq!((parse(&after)["logs"]["stdout"].clone(), after.is_error), (json!(["new\n"]), Some(false)));
    assert_eq!(agent.fake.started(), 4, "nothing is run twice");
}

#[tokio::test]
async fn a_kernel_that_ended_is_told() {
    let agent = Agent::new("e2b");
    agent.json("run_code", json!({"code": "print x"})).await;
    let killed = agent.call("run_code", json!({"code": "signal 9"})).await;
    assert_eq!(parse(&killed)["error"], json!({"name": "Killed", "value": "by signal 9", "traceback": ""}));
    assert!(notes(&killed).contains("variables are gone"), "{killed:?}");
    let memory = agent.json("run_code", json!({"code": "oom"})).await;
    assert_eq!(memory["error"]["name"], "MemoryError");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_told_everywhere() {
    let said = |result: &CallToolResult| text(result);
    let agent = Agent::new("e2b");
    let result = agent.call("run_code", json!({"code": "print x\nsleep 100000"})).await;
    assert_eq!(parse(&result)["error"]["name"], "TimeoutError");
    assert_eq!(parse(&result)["logs"]["stdout"], json!(["x\n"]));
    assert_eq!(result.is_error, Some(true));

    let agent = Agent::new("code-sandbox");
    let result = agent.call("run_python_code", json!({"code": "print x\nsleep 100000"})).await;
    assert_eq!((&parse(&result)["exit_code"], &parse(&result)["stdout"]), (&json!(124), &json!("x")));
    assert!(said(&result).contains("TimeoutError: stopped after 30 s"), "{result:?}");

    let agent = Agent::new("agentexec");
    let arguments = json!({"request": {"command": "print x\nsleep 100000", "timeout": 2}});
    let result = parse(&agent.call("shell", arguments).await);
    assert_eq!((&result["exit_code"], &result["success"]), (&json!(124), &json!(false)));
    assert!(result["stderr"].as_str().unwrap().contains("stopped after 2 s"), "{result}");
    assert!(result["duration"].as_f64().unwrap() >= 2.0, "{result}");
}

#[tokio::test]
async fn code_sandbox_answers_with_plain_output_or_json() {
    let agent = Agent::new("code-sandbox");
    for tool in ["run_python_code", "run_javascript_code", "run_js_code"] {
        let result = agent.call(tool, json!({"code": "print hi\nerr warned"})).await;
        assert_eq!((text(&result).as_str(), result.is_error), ("hi", Some(false)));
        assert_eq!(notes(&result), "[stderr]\nwarned");
    }
    let failed = agent.call("run_python_code", json!({"code": "print a\nerr b\nexit 3"})).await;
    assert_eq!(parse(&failed), json!({"exit_code": 3, "stderr": "b", "stdout": "a"}));
    assert_eq!(failed.is_error, Some(true));
    let raised = agent.call("run_python_code", json!({"code": RAISES})).await;
    assert_eq!(
        parse(&raised),
        json!({"exit_code": 1, "stderr": "Traceback\n  line 1\nValueError: no", "stdout": "before"})
    );
    let quiet = agent.call("run_python_code", json!({"code": "exit 0"})).await;
    assert_eq!(parse(&quiet), json!({"exit_code": 1, "stderr": "No output, forgot print()?", "stdout": ""}));
    let quiet = agent.json("run_javascript_code", json!({"code": "exit 0"})).await;
    assert_eq!(quiet["stderr"], "No output, forgot console.logs?");
    let drawn = agent.call("run_python_code", json!({"code": shows_picture()})).await;
    assert_eq!((images(&drawn), drawn.is_error), (vec!["image/png".to_owned()], Some(false)));
}

#[tokio::test]
async fn code_sandbox_begins_anew_each_time() {
    let agent = Agent::new("code-sandbox");
    agent.call("run_python_code", json!({"code": "write kept x\nprint y"})).await;
    let failed = agent.fails("run_python_code", json!({"code": "cat kept"})).await;
    assert!(failed.contains("no such file"), "{failed}");
    assert!(agent.engine.sandboxes(&agent.who).is_empty());
}

#[tokio::test]
async fn code_sandbox_tells_of_its_environments() {
    let agent = Agent::new("code-sandbox");
    let read = agent.profile.read_resource(&agent.engine, &agent.who, &agent.memory, "sandbox://environments").await;
    let contents = serde_json::to_value(&read.unwrap().unwrap().contents[0]).unwrap();
    let map: Value = serde_json::from_str(contents["text"].as_str().unwrap()).unwrap();
    assert_eq!(map["python"]["installed_libraries"], "standard library", "the fake has none to tell of");
    assert!(map["javascript"]["installed_libraries"].is_string());
}

/// What the wrapped code would have told, acted out.
async fn outcome(agent: &Agent, script: &str) -> Run {
    let source = Source::Cell { language: Language::Python, code: script.into(), then: Then::End };
    let program: Program = act::program(source, Duration::from_millis(300));
    agent.engine.run(&agent.who, RunRequest { sandbox: None, program, wants: Wants::default() }).await.unwrap()
}

fn xml(run: &Run) -> (String, Option<bool>) {
    let result = wrap::answer(run, Duration::from_millis(300)).finish();
    (text(&result), result.is_error)
}

fn tells(value: Value) -> String {
    format!("record {}", json!({"result": {"data": {"application/vnd.belljar.outcome+json": value, "text/plain": ""}}}))
}

#[tokio::test]
async fn run_python_answers_in_xml() {
    let agent = Agent::new("run-python");
    let told = tells(json!({"status": "success", "dependencies": ["numpy"], "return_value": "[\n  1\n]"}));
    let (text, is_error) = xml(&outcome(&agent, &format!("print a </output> b\nerr w\n{told}")).await);
    assert_eq!(
        text,
        "<status>success</status>\n<dependencies>[\"numpy\"]</dependencies>\n\
         <output>\na &lt;/output&gt; b\nw\n</output>\n\
         <return_value>\n[\n  1\n]\n</return_value>"
    );
    assert_eq!(is_error, Some(false));

    let (text, _) = xml(&outcome(&agent, &tells(json!({"status": "success", "dependencies": []}))).await);
    assert_eq!(text, "<status>success</status>");

    let told = tells(json!({"status": "run-error", "dependencies": [], "error": "ValueError: </error>"}));
    let (text, is_error) = xml(&outcome(&agent, &told).await);
    assert_eq!(text, "<status>run-error</status>\n<error>\nValueError: &lt;/error&gt;\n</error>");
    assert_eq!(is_error, Some(true));

    let told = tells(json!({"status": "install-error", "dependencies": ["nope"], "error": "not installed: nope"}));
    let (text, is_error) = xml(&outcome(&agent, &told).await);
    assert!(
        text.starts_with("<status>install-error</status>\n<dependencies>[\"nope\"]</dependencies>\n<error>"),
        "{text}"
    );
    assert_eq!(is_error, Some(true));
}

#[tokio::test]
async fn run_python_says_what_the_code_could_not() {
    let agent = Agent::new("run-python");
    for (script, said) in [
        ("print x\nsleep 60000", "TimeoutError: stopped after 0.3 s"),
        ("print x\nsignal 11", "Killed: by signal 11"),
        ("print x\noom", "MemoryError: stopped at the limit of 1024 MiB"),
        ("print x\nflood", "OutputError: stopped for more than 1024 KiB"),
        ("print x\nexit 4", "SystemExit: 4"),
        ("print x\nexit 0", "the code ended the interpreter"),
    ] {
        let (text, is_error) = xml(&outcome(&agent, script).await);
        assert!(text.starts_with("<status>run-error</status>\n<output>\nx\n"), "{script}: {text}");
        assert!(text.contains(said), "{script}: {text}");
        assert_eq!(is_error, Some(true));
    }
    // A record of success from a program that was then killed is not believed.
    let lied = format!("{}\nsignal 9", tells(json!({"status": "success", "return_value": "1"})));
    assert!(xml(&outcome(&agent, &lied).await).0.starts_with("<status>run-error</status>"));
    let run = outcome(
        &agent,
        &format!("flood 900000\n{}", tells(json!({"status": "success", "return_value": "v".repeat(90000)}))),
    )
    .await;
    assert!(xml(&run).0.chars().count() < 20_000);
}

#[tokio::test]
async fn run_python_takes_code_and_variables_and_nothing_else() {
    let agent = Agent::new("run-python");
    let fails = |arguments: Value| async { agent.fails("run_python_code", arguments).await };
    let unknown = fails(json!({"python_code": "1", "code": "2"})).await;
    assert_eq!(unknown, "<status>run-error</status>\n<error>\nunknown argument code\n</error>");
    assert!(fails(json!({})).await.contains("python_code is required"));
    assert!(fails(json!({"python_code": " "})).await.contains("empty"));
    assert!(fails(json!({"python_code": "1", "global_variables": []})).await.contains("must be an object"));
    assert_eq!(agent.fake.started(), 0);
}

#[tokio::test]
async fn agentexec_takes_its_arguments_wrapped_and_flat() {
    let agent = Agent::new("agentexec");
    for arguments in [json!({"request": {"command": "print hi\nerr e"}}), json!({"command": "print hi\nerr e"})] {
        let result = agent.call("shell", arguments).await;
        let value = parse(&result);
        assert_eq!(result.structured_content.as_ref(), Some(&value));
        assert_eq!((&value["stdout"], &value["stderr"]), (&json!("hi\n"), &json!("e\n")));
        assert_eq!((&value["exit_code"], &value["success"]), (&json!(0), &json!(true)));
        assert!(value["duration"].is_f64());
        assert_eq!(value.as_object().unwrap().len(), 5);
    }
    for language in ["python", "node", "go"] {
        let value =
            agent.json("execute_code", json!({"request": {"code": "print x\nexit 2", "language": language}})).await;
        assert_eq!((&value["exit_code"], &value["success"]), (&json!(2), &json!(false)), "{language}");
    }
    assert_eq!(agent.fake.opened(), 1, "one workspace");
    agent.json("shell", json!({"command": "write f data"})).await;
    let read = agent.json("execute_code", json!({"code": "cat f", "language": "python"})).await;
    assert_eq!(read["stdout"], "data");
}

#[tokio::test]
async fn agentexec_refuses_in_its_own_shape() {
    let agent = Agent::new("agentexec");
    for (tool, arguments, said) in [
        (
            "shell",
            json!({"request": {"command": "print x", "timeout": 301}}),
            "timeout must be a number from 0.001 to 300",
        ),
        ("shell", json!({"request": {"command": "print x", "timeout": -1}}), "timeout must be a number"),
        ("shell", json!({"request": {}}), "command is required"),
        ("shell", json!({"request": "print x"}), "request must be an object"),
        ("shell", json!({"command": "print x", "cwd": "/no/such"}), "cwd: no such file or directory"),
        ("execute_code", json!({"code": "x", "language": "cobol"}), "unknown language"),
        ("execute_code", json!({"code": "", "language": "python"}), "empty"),
        ("install_package", json!({"request": {}}), "package is required"),
        ("install_package", json!({"package": "x", "package_manager": "brew"}), "one of: pip, npm, go"),
    ] {
        let value: Value = serde_json::from_str(&agent.fails(tool, arguments.clone()).await).unwrap();
        assert!(value["stderr"].as_str().unwrap().contains(said), "{arguments}: {value}");
        assert_eq!((&value["exit_code"], &value["success"]), (&json!(-1), &json!(false)), "{arguments}");
    }
    // The fake has no package to find, and says so by failing.
    let missing = agent.json("install_package", json!({"request": {"package": "requests"}})).await;
    assert_eq!(missing["success"], false);
}
