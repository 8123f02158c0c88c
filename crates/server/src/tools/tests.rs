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
        let call = Call { engine: &self.engine, who: &self.who, progress: Progress::unwanted(), arguments };
        super::call(tool, call).await.expect("the tool exists")
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
    assert_eq!((&again["stdout"], &again["state"]), (&json!("in"), &json!("preserved")));

    assert_eq!(agent.text("destroy_sandbox", json!({"sandbox_id": sandbox})).await, "destroyed");
    let gone = agent.refused("exec", json!({"sandbox_id": sandbox, "command": "print x"})).await;
    assert!(gone.contains("create_sandbox"), "{gone}");
}

#[tokio::test]
async fn results_keep_to_their_schemas() {
    let agent = Agent::new();
    let sandbox = agent.sandbox().await;
    let schemas = crate::schema::tools(&agent.engine.languages(), agent.engine.settings().idle);
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
        for name in schema["required"].as_array().unwrap() {
            assert!(result.get(name.as_str().unwrap()).is_some(), "{tool} has no {name}: {result}");
        }
        for (name, value) in result.as_object().unwrap() {
            let property = &schema["properties"][name];
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
        ("run_code", json!({"language": "python", "code": "x", "timeout": 1e7}), "at most 600 seconds"),
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
