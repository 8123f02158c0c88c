use belljar_engine::Settings;
use belljar_testkit::fake::{Fake, Manners};
use serde_json::{Value, json};

use super::*;

struct Agent {
    engine: Engine,
    who: Principal,
}

impl Agent {
    fn new() -> Agent {
        let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
        Agent { engine, who: Principal::local() }
    }

    async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let arguments = arguments.as_object().cloned();
        let call = Call {
            engine: &self.engine,
            who: &self.who,
            progress: Progress::unwanted(),
            arguments,
            patience: Duration::from_secs(45),
            departure: Departure::default(),
            asking: None,
            log: crate::logging::Log::unwanted(),
            tasks: None,
        };
        match super::call(tool, call).await.expect("the tool exists") {
            CallToolResponse::Complete(result) => result,
            other => panic!("{other:?}"),
        }
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        result.content[0].as_text().unwrap().text.clone()
    }

    async fn structured(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.structured_content.expect("structured content")
    }

    async fn sandbox(&self) -> String {
        self.structured("create_sandbox", json!({})).await["sandbox_id"].as_str().unwrap().to_owned()
    }

    async fn refused(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!((result.is_error, &result.structured_content), (Some(true), &None), "{tool} {arguments}");
        let text = result.content[0].as_text().unwrap().text.clone();
        assert!(text.starts_with("error: ") && !text.contains('\n'), "{text}");
        text
    }
}

#[tokio::test]
async fn a_sandbox_from_beginning_to_end() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let wrote = agent.text("write_file", json!({"sandbox_id": sandbox, "path": "a/b.txt", "content": "hello\n"})).await;
    assert_eq!(wrote, "wrote 6 bytes to a/b.txt");
    assert_eq!(agent.text("read_file", json!({"sandbox_id": sandbox, "path": "a/b.txt"})).await, "hello\n");
    let listed = agent.text("list_files", json!({"sandbox_id": sandbox, "depth": 2})).await;
    assert!(listed.contains("file 6 a/b.txt"), "{listed}");

    let ran = agent.structured("exec", json!({"sandbox_id": sandbox, "command": "env X", "env": {"X": "seen"}})).await;
    assert_eq!((&ran["stdout"], &ran["sandbox_id"]), (&json!("seen\n"), &json!(sandbox)));
    assert_eq!(ran["state"], "fresh");
    let again = agent
        .structured("run_code", json!({"sandbox_id": sandbox, "language": "py", "code": "stdin", "stdin": "in"}))
        .await;
    assert_eq!((&again["stdout"], &again["state"]), (&json!("in"), &json!("fresh")), "its kernel was not there before");
    let again = agent.structured("run_code", json!({"sandbox_id": sandbox, "language": "py", "code": "exit 0"})).await;
    assert_eq!(again["state"], "preserved");

    assert_eq!(agent.text("destroy_sandbox", json!({"sandbox_id": sandbox})).await, "destroyed");
    let gone = agent.refused("exec", json!({"sandbox_id": sandbox, "command": "print x"})).await;
    assert!(gone.contains("create_sandbox"), "{gone}");
}

#[tokio::test]
async fn results_keep_to_their_schemas() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let schemas = crate::schema::tools(&agent.engine.languages(), &agent.engine.templates(), false);
    for (tool, arguments) in [
        ("run_code", json!({"language": "python", "code": "flood 50000\nexit 1"})),
        ("create_sandbox", json!({})),
        ("exec", json!({"sandbox_id": sandbox, "command": "print x"})),
        ("write_file", json!({"sandbox_id": sandbox, "path": "f", "content": "x"})),
        ("read_file", json!({"sandbox_id": sandbox, "path": "f"})),
        ("list_files", json!({"sandbox_id": sandbox})),
        ("destroy_sandbox", json!({"sandbox_id": sandbox})),
    ] {
        let result = agent.structured(tool, arguments).await;
        let schema = schemas.iter().find(|schema| schema.name == tool).unwrap().output_schema.clone().unwrap();
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            assert!(result.get(name.as_str().unwrap()).is_some(), "{tool} has no {name}: {result}");
        }
        for (name, value) in result.as_object().unwrap() {
            let Some(property) = schema.get("properties").and_then(|all| all.get(name)) else { continue };
            let fits = match property["type"].as_str() {
                Some("string") => value.is_string(),
                Some("integer") => value.is_i64(),
                Some("boolean") => value.is_boolean(),
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                other => panic!("{tool}.{name} has type {other:?}"),
            };
            assert!(fits, "{tool}.{name} is {value}");
            if let Some(choices) = property["enum"].as_array() {
                assert!(choices.contains(value), "{tool}.{name} is {value}");
            }
        }
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_in_a_sentence() {
    let agent = Agent::new();
    for (tool, arguments, said) in [
        ("run_code", json!({}), "language is missing"),
        ("run_code", json!({"language": "python"}), "code is missing"),
        ("run_code", json!({"language": "cobol", "code": "x"}), "unknown language \"cobol\"; use one of"),
        ("run_code", json!({"language": "PYTHON\u{0}", "code": "x"}), "unknown language"),
        ("run_code", json!({"language": 5, "code": "x"}), "language must be a string, not 5"),
        ("run_code", json!({"language": "python", "code": ["x"]}), "code must be a string, not an array"),
        ("run_code", json!({"language": "python", "code": "x", "timeout": "NaN"}), "timeout must be a number"),
        ("run_code", json!({"language": "python", "code": "x", "timeout": []}), "timeout must be a number"),
        ("run_code", json!({"language": "python", "code": "x", "timeout": -1}), "timeout must be a number"),
        ("run_code", json!({"language": "python", "code": "x", "timeout": 1e18}), "timeout must be a number"),
        ("run_code", json!({"language": "python", "code": "x", "timeout": 1e7}), "at most 86400 seconds"),
        ("run_code", json!({"language": "python", "code": "x", "session": 1}), "use only: language, code, sandbox_id"),
        ("run_code", json!({"language": "python", "code": ""}), "empty"),
        ("create_sandbox", json!({"limits": {"memory_mb": -5}}), "limits.memory_mb must be a whole number"),
        (
            "create_sandbox",
            json!({"limits": {"memory_mb": 1_000_000_000}}),
            "memory_mb is more than this server allows",
        ),
        ("create_sandbox", json!({"limits": {"gpus": 1}}), "unknown argument limits.gpus"),
        ("create_sandbox", json!({"limits": []}), "limits must be an object"),
        ("create_sandbox", json!({"env": {"A=B": "x"}}), "environment"),
        ("exec", json!({"command": "x"}), "sandbox_id is missing"),
        ("exec", json!({"sandbox_id": "../../etc", "command": "x"}), "no such sandbox"),
        ("exec", json!({"sandbox_id": "\u{0}", "command": "x"}), "no such sandbox"),
        ("list_files", json!({"sandbox_id": "sb_1", "depth": 17}), "depth must be a whole number from 1 to 16"),
        ("read_file", json!({"sandbox_id": "sb_1", "path": "x", "length": 9_000_000}), "length must be a whole number"),
        ("write_file", json!({"sandbox_id": "sb_1", "path": "x", "content": "$", "encoding": "base64"}), "not base64"),
    ] {
        let sentence = agent.refused(tool, arguments.clone()).await;
        assert!(sentence.contains(said), "{tool} {arguments}: {sentence}");
    }
}

#[tokio::test]
async fn too_large_a_file_is_refused() {
    let agent = Agent::new();
    let content = "x".repeat(8 * 1024 * 1024 + 1);
    let said = agent.refused("write_file", json!({"sandbox_id": "sb_1", "path": "x", "content": content})).await;
    assert!(said.contains("longer than 8388608 bytes"), "{said}");
}

#[tokio::test]
async fn what_a_program_did_is_a_result_however_it_ended() {
    let agent = Agent::new();
    for (code, ending, exit_code) in [
        ("print x\nexit 7", "exited", 7),
        ("print x\nsignal 11", "killed", 139),
        ("print x\noom", "memory", 137),
        ("print x\nsleep 60000", "timeout", 124),
        ("print x\nflood", "output", 137),
    ] {
        let arguments = json!({"language": "python", "code": code, "timeout": 0.3});
        let result = agent.call("run_code", arguments).await;
        let structured = result.structured_content.unwrap();
        assert_eq!((&structured["ending"], &structured["exit_code"]), (&json!(ending), &json!(exit_code)), "{code}");
        assert!(structured["stdout"].as_str().unwrap().starts_with("x\n"), "{code}");
        assert_eq!(result.is_error, Some(true));
    }
}

#[tokio::test]
async fn the_rest_of_a_long_output_is_a_resource() {
    let agent = Agent::new();
    let result = agent.structured("run_code", json!({"language": "python", "code": "flood 100000"})).await;
    let uri = result["output_uris"]["stdout"].as_str().unwrap();
    let read = crate::resources::read(&agent.engine, &agent.who, uri).await.unwrap();
    let contents = serde_json::to_value(&read.contents[0]).unwrap();
    assert_eq!(contents["text"].as_str().unwrap().len(), 100_000);
    let foreign = crate::resources::read(&agent.engine, &Principal::new("bob"), uri).await.unwrap_err();
    assert_eq!(foreign.code, rmcp::model::ErrorCode::RESOURCE_NOT_FOUND);
}

#[tokio::test]
async fn a_picture_is_read_whole() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.resize(400_000, 7);
    agent.engine.write(&agent.who, &sandbox, "a.png", png).await.unwrap();
    let result = agent.call("read_file", json!({"sandbox_id": sandbox, "path": "a.png"})).await;
    assert_eq!(result.content[1].as_image().unwrap().mime_type, "image/png");
    let part = agent.structured("read_file", json!({"sandbox_id": sandbox, "path": "a.png", "length": 10})).await;
    assert_eq!((&part["encoding"], &part["more"]), (&json!("base64"), &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_long_becomes_a_job() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let arguments =
        json!({"sandbox_id": sandbox, "language": "python", "code": "print a\nsleep 60000\nprint b", "timeout": 100});
    let first = agent.call("run_code", arguments).await;
    let told = first.structured_content.unwrap();
    assert_eq!((&told["ending"], &told["stdout"], first.is_error), (&json!("running"), &json!("a\n"), Some(false)));
    let job = told["job_id"].as_str().unwrap();
    let busy = agent.refused("run_code", json!({"sandbox_id": sandbox, "language": "py", "code": "print x"})).await;
    assert!(busy.contains(job), "{busy}");
    let other = agent.structured("run_code", json!({"sandbox_id": sandbox, "language": "js", "code": "print y"})).await;
    assert_eq!(other["stdout"], "y\n", "another kernel is free");
    let poll = agent.structured("job", json!({"job_id": job})).await;
    assert_eq!((&poll["ending"], &poll["stdout"]), (&json!("running"), &json!("")));
    let end = agent.structured("job", json!({"job_id": job, "action": "wait"})).await;
    assert_eq!((&end["ending"], &end["stdout"], &end["state"]), (&json!("exited"), &json!("b\n"), &json!("fresh")));
    let whole = agent.structured("job", json!({"job_id": job, "offset": 0})).await;
    assert_eq!(whole["stdout"], "a\nb\n");
}

#[tokio::test(start_paused = true)]
async fn a_job_in_the_background_is_talked_to() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let begun = json!({"sandbox_id": sandbox, "command": "print up\nstdin\nprint end", "background": true});
    let job = agent.structured("exec", begun.clone()).await["job_id"].as_str().unwrap().to_owned();
    let typed = json!({"job_id": job, "action": "stdin", "stdin": "typed", "eof": true});
    agent.structured("job", typed).await;
    let end = agent.structured("job", json!({"job_id": job, "action": "wait", "offset": 0})).await;
    assert_eq!((&end["stdout"], &end["ending"]), (&json!("up\ntypedend\n"), &json!("exited")));

    let begun = json!({"sandbox_id": sandbox, "command": "sleep 9000000", "background": true});
    let job = agent.structured("exec", begun).await["job_id"].as_str().unwrap().to_owned();
    agent.structured("job", json!({"job_id": job, "action": "signal"})).await;
    let end = agent.structured("job", json!({"job_id": job, "action": "wait"})).await;
    assert_eq!((&end["ending"], &end["exit_code"]), (&json!("exited"), &json!(130)));
    let said = agent.refused("job", json!({"job_id": "run_0"})).await;
    assert!(said.contains("no such job"), "{said}");
}

#[tokio::test]
async fn many_files_come_at_once() {
    let agent = Agent::new();
    let files = json!({"a.txt": "one", "d/b.bin": "data:;base64,AAE="});
    let made = agent.structured("create_sandbox", json!({"files": files})).await;
    let sandbox = made["sandbox_id"].as_str().unwrap();
    assert_eq!(agent.text("read_file", json!({"sandbox_id": sandbox, "path": "a.txt"})).await, "one");
    assert_eq!(agent.text("read_file", json!({"sandbox_id": sandbox, "path": "d/b.bin"})).await, "AAE=");
    let said = agent.refused("create_sandbox", json!({"files": {"bad\u{0}name": "x"}})).await;
    assert!(said.contains("NUL"), "{said}");
    assert_eq!(agent.engine.sandboxes(&agent.who).len(), 1, "what was half made is gone");
}

#[tokio::test]
async fn lines_are_read_by_number() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    agent.engine.write(&agent.who, &sandbox, "f", b"one\ntwo\nthree\n".to_vec()).await.unwrap();
    for (lines, shown) in [
        ("2-3", "two\nthree\n[lines 2 to 3 of 3]"),
        ("1-2", "one\ntwo\n[lines 1 to 2 of 3]"),
        ("3", "three\n[lines 3 to 3 of 3]"),
        ("2-", "two\nthree\n[lines 2 to 3 of 3]"),
        ("9-12", "(nothing from line 9 on; the file has 3 lines)"),
    ] {
        let text = agent.text("read_file", json!({"sandbox_id": sandbox, "path": "f", "lines": lines})).await;
        assert_eq!(text, shown, "{lines}");
    }
    for lines in ["0", "x", "3-2", "-5", ""] {
        let said = agent.refused("read_file", json!({"sandbox_id": sandbox, "path": "f", "lines": lines})).await;
        assert!(said.contains("lines must be like"), "{said}");
    }
}

#[tokio::test]
async fn an_unknown_template_names_the_known_ones() {
    let said = Agent::new().refused("create_sandbox", json!({"template": "cobol-85"})).await;
    assert!(said.contains("cobol-85") && said.contains("use one of"), "{said}");
}

#[tokio::test]
async fn tokens_are_counted_where_there_were_calls() {
    use crate::approval::{Asking, CameBack, Desk, Way};
    use crate::gateway::CodeMode;
    use crate::gateway::fake::FakeMode;

    let agent = Agent::new();
    let program = Program {
        source: Source::Command("exit 0".into()),
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::empty(),
        wall: WALL_DEFAULT,
        changed_max: 0,
    };
    let request = RunRequest { sandbox: None, program, wants: Default::default() };
    let mut run = agent.engine.run(&agent.who, request).await.unwrap();
    let fake = std::sync::Arc::new(FakeMode::default());
    let code_mode: std::sync::Arc<dyn CodeMode> = fake.clone();
    let desk = Desk::default();
    let asking = Asking {
        code_mode: &code_mode,
        desk: &desk,
        way: Way::Nobody,
        call: [0; 32],
        came_back: CameBack::default(),
        approved: Default::default(),
    };
    let call = Call {
        engine: &agent.engine,
        who: &agent.who,
        progress: Progress::unwanted(),
        arguments: None,
        patience: Duration::from_secs(45),
        departure: Departure::default(),
        asking: Some(asking),
        log: crate::logging::Log::unwanted(),
        tasks: None,
    };
    let mut result = answer::ran(&whole(&call, &run, WALL_DEFAULT));
    account(&call, &run, &mut result);
    assert_eq!(result.meta, None, "no calls, nothing to count");
    run.calls.made.push(belljar_core::Made { tool: "a.b".into(), outcome: "ok".into(), milliseconds: 1 });
    run.calls.direct_tokens = 5000;
    account(&call, &run, &mut result);
    let told = &result.meta.unwrap().0["belljar/tokens"];
    let entered = belljar_gateway::tokens::count("(no output)") as u64;
    assert_eq!(told, &json!({"entered": entered, "direct": 5000}));
    assert_eq!(*fake.accounts.lock().unwrap(), [(run.id.to_string(), entered, 5000)]);
}
