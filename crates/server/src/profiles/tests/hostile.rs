//! Arguments and output that mean harm, through every tool of every profile.

use serde_json::json;

use super::*;

fn evil() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1e308),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"a": {"b": null}}),
        json!(""),
        json!("\u{0}"),
        json!("../../etc/passwd"),
        json!("-rf"),
        json!("'; rm -rf / #"),
        json!("\u{1b}[31m\u{202e}"),
        json!("x".repeat(100_000)),
    ]
}

#[tokio::test]
async fn no_argument_of_any_tool_makes_it_panic_or_answer_in_disorder() {
    for name in NAMES {
        let agent = Agent::new(name);
        for tool in agent.profile.tools(&Language::ALL) {
            let schema = Value::Object(tool.input_schema.as_ref().clone());
            let properties = match schema["properties"]["request"]["properties"].as_object() {
                Some(inner) => inner.clone(),
                None => schema["properties"].as_object().unwrap().clone(),
            };
            let mut plain: JsonObject = properties.keys().map(|key| (key.clone(), json!("print x"))).collect();
            for (number, key) in [(30, "timeout"), (8000, "port")] {
                if plain.contains_key(key) {
                    plain.insert(key.into(), json!(number));
                }
            }
            for key in properties.keys() {
                for value in evil() {
                    let mut arguments = plain.clone();
                    arguments.insert(key.clone(), value.clone());
                    // Within its bounds, which the call checks, and clean.
                    let result = agent.call(&tool.name, Value::Object(arguments.clone())).await;
                    let said = text(&result);
                    assert!(
                        !said.contains('\u{1b}') && !said.contains('\u{202e}'),
                        "{name} {} {key} {value}",
                        tool.name
                    );
                }
            }
        }
        agent.engine.shutdown().await;
        assert_eq!(agent.fake.programs(), 0);
    }
}

#[tokio::test]
async fn no_output_floods_an_answer_or_reaches_a_terminal() {
    let script = "flood 900000\nprint \u{1b}[31mred\u{1b}]0;t\u{7}\nerr \u{202e}";
    for (profile, tool, arguments) in [
        ("e2b", "run_code", json!({"code": script})),
        ("code-sandbox", "run_python_code", json!({"code": script})),
        ("agentexec", "shell", json!({"request": {"command": script}})),
        ("interpreter", "execute_code", json!({"code": script})),
    ] {
        let agent = Agent::new(profile);
        let result = agent.call(tool, arguments).await;
        for block in result.content.iter().filter_map(|block| block.as_text()) {
            assert!(!block.text.contains('\u{1b}') && !block.text.contains("\\u001b"), "{profile}");
        }
        assert!(text(&result).contains("left out"), "{profile}");
        assert!(notes(&result).contains("whole output: belljar://runs/"), "{profile}: {}", notes(&result));
    }
}

#[tokio::test]
async fn what_a_kernel_tells_is_not_believed() {
    let agent = Agent::new("e2b");
    for record in [
        json!({"show": {"data": {"image/png": "not base64 <script>"}}}),
        json!({"show": {"data": {"image/png": 5}}}),
        json!({"show": {"data": {"image/png": "aGVsbG8="}}}),
        json!({"show": {"data": {"image/jpeg": {"a": 1}}}}),
    ] {
        let result = agent.call("run_code", json!({"code": format!("record {record}")})).await;
        assert!(images(&result).is_empty(), "{record}");
        assert_eq!(parse(&result)["results"], json!([{"isMainResult": false}]), "{record}");
    }
    let long = json!({"result": {"data": {"text/html": "<p>".repeat(100_000), "text/plain": "\u{1b}[31mx"}}});
    let result = agent.call("run_code", json!({"code": format!("record {long}")})).await;
    assert_eq!(parse(&result)["results"], json!([{"text": "x", "isMainResult": true}]));
    assert!(notes(&result).contains("text/html of result 0 was left out"), "{}", notes(&result));
    let shows = format!("record {}\n", json!({"show": {"data": {"a/b": "y".repeat(3000)}}})).repeat(128);
    agent.call("run_code", json!({"code": shows})).await;
}

#[tokio::test]
async fn many_pictures_fit() {
    let agent = Agent::new("e2b");
    let result = agent.call("run_code", json!({"code": format!("{}\n", shows_picture()).repeat(100)})).await;
    assert_eq!(images(&result).len(), 16);
    assert!(notes(&result).contains("is in an image block"), "{}", notes(&result));
}
