use serde_json::json;

use super::*;

async fn begin(agent: &Agent, code: &str) -> (String, Value) {
    let value = agent.json("execute_code", json!({"code": code})).await;
    let id = value["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    (id, value)
}

async fn read(agent: &Agent, uri: &str) -> Result<Value, ErrorData> {
    let read = agent.profile.read_resource(&agent.engine, &agent.who, &agent.memory, uri).await.expect("ours");
    read.map(|read| serde_json::to_value(&read.contents[0]).unwrap())
}

#[tokio::test]
async fn a_session_from_beginning_to_end() {
    let agent = Agent::new("interpreter");
    let value = json!({"result": {"data": {"text/plain": "42"}}});
    let code = format!("print hi\nerr e\nwrite d/t.csv 1,2\nrecord {value}");
    let result = agent.call("execute_code", json!({"code": code})).await;
    let value = parse(&result);
    assert_eq!(result.structured_content.as_ref(), Some(&value));
    let id = value["session_info"]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 16);
    assert_eq!(
        value,
        json!({
            "success": true,
            "output": ["hi\n", "e\n", "File created: d/t.csv (text/csv, 3 bytes)"],
            "result": "42",
            "error": null,
            "traceback": [],
            "files": [{"uri": format!("kernel://{id}/d/t.csv"), "mime_type": "text/csv", "name": "d/t.csv", "size": 3}],
            "session_info": {
                "session_id": id,
                "instructions": "Use this `session_id` in subsequent requests to maintain state. \
                                 Session will expire after 30 minutes of inactivity.",
            },
        })
    );
    let again = agent.json("execute_code", json!({"code": "cat d/t.csv", "session_id": id})).await;
    assert_eq!((&again["output"], &again["session_info"]), (&json!(["1,2"]), &Value::Null));
    assert_eq!(again["files"], json!([]), "only what this cell made");

    let files = agent.json("list_session_files", json!({"session_id": id})).await;
    assert_eq!(files, json!({"session_id": id, "files": value["files"]}));
    let contents = read(&agent, &format!("kernel://{id}/d/t.csv")).await.unwrap();
    assert_eq!((&contents["text"], &contents["mimeType"]), (&json!("1,2"), &json!("text/csv")));

    let cleared = agent.json("clear_session", json!({"session_id": id})).await;
    assert_eq!(cleared, json!({"success": true, "message": format!("Session {id} cleared and all files deleted")}));
    assert_eq!(agent.engine.sandboxes(&agent.who).len(), 0);
    let twice: Value = serde_json::from_str(&agent.fails("clear_session", json!({"session_id": id})).await).unwrap();
    assert_eq!(twice, json!({"success": false, "message": format!("Session {id} not found")}));
}

#[tokio::test]
async fn the_first_cell_may_raise_and_the_session_stays() {
    let agent = Agent::new("interpreter");
    let (id, value) = begin(&agent, RAISES).await;
    assert_eq!((&value["success"], &value["error"]), (&json!(false), &json!("ValueError: no")));
    assert_eq!(value["traceback"], json!(["Traceback", "  line 1", "ValueError: no"]));
    assert_eq!(value["output"], json!(["before\n"]));
    let next = agent.call("execute_code", json!({"code": "print on", "session_id": id})).await;
    assert_eq!((parse(&next)["output"].clone(), next.is_error), (json!(["on\n"]), Some(false)));
}

#[tokio::test]
async fn both_ways_of_saying_new_are_taken() {
    let agent = Agent::new("interpreter");
    for session in [json!(""), json!("0"), Value::Null] {
        let value = agent.json("execute_code", json!({"code": "print x", "session_id": session})).await;
        assert!(value["session_info"]["session_id"].is_string());
    }
    assert_eq!(agent.engine.sandboxes(&agent.who).len(), 3);
}

#[tokio::test]
async fn a_session_that_is_gone_is_expired() {
    let agent = Agent::new("interpreter");
    let (id, _) = begin(&agent, "print x").await;
    let sandbox = agent.engine.sandboxes(&agent.who)[0].id.as_str().to_owned();
    agent.engine.destroy(&agent.who, &sandbox).await.unwrap();
    for session in [id.as_str(), "neverwasaround00"] {
        let failed = agent.fails("execute_code", json!({"code": "print x", "session_id": session})).await;
        let value: Value = serde_json::from_str(&failed).unwrap();
        assert_eq!(
            value["error"],
            format!(
                "SessionExpiredError: Session {session} not found or has expired. Sessions expire after 30 minutes of \
                 inactivity. Please create a new session (use session_id=\"\" or session_id=\"0\") and run your setup \
                 code again."
            )
        );
        assert_eq!((&value["success"], &value["session_info"]), (&json!(false), &Value::Null));
        let listed: Value =
            serde_json::from_str(&agent.fails("list_session_files", json!({"session_id": session})).await).unwrap();
        assert_eq!((&listed["session_id"], &listed["files"]), (&json!(session), &json!([])));
        assert!(listed["error"].as_str().unwrap().contains("has expired"));
        let unread = read(&agent, &format!("kernel://{session}/x")).await.unwrap_err();
        assert_eq!(unread.code, rmcp::model::ErrorCode::RESOURCE_NOT_FOUND);
    }
}

#[tokio::test]
async fn nobody_reaches_the_session_of_another() {
    let agent = Agent::new("interpreter");
    let (id, _) = begin(&agent, "write secret s").await;
    let bob = agent.other("bob");
    assert!(
        bob.fails("execute_code", json!({"code": "cat secret", "session_id": id}))
            .await
            .contains("SessionExpiredError")
    );
    assert!(bob.fails("list_session_files", json!({"session_id": id})).await.contains("has expired"));
    assert!(bob.fails("clear_session", json!({"session_id": id})).await.contains("not found"));
    assert!(read(&bob, &format!("kernel://{id}/secret")).await.is_err());
    assert_eq!(read(&agent, &format!("kernel://{id}/secret")).await.unwrap()["text"], "s");
    // Nor is an id of the engine's a session.
    let sandbox = agent.engine.sandboxes(&agent.who)[0].id.as_str().to_owned();
    assert!(read(&agent, &format!("kernel://{sandbox}/secret")).await.is_err());
}

#[tokio::test]
async fn a_picture_is_a_file_and_an_image_block() {
    let agent = Agent::new("interpreter");
    let code = format!("{}\nrecord {{\"show\": {{\"data\": {{\"image/svg+xml\": \"<svg/>\"}}}}}}", shows_picture());
    let result = agent.call("execute_code", json!({"code": code})).await;
    let value = parse(&result);
    assert_eq!(images(&result), ["image/png"]);
    let files = value["files"].as_array().unwrap();
    assert_eq!(
        (files[0]["mime_type"].as_str(), files[1]["mime_type"].as_str()),
        (Some("image/png"), Some("image/svg+xml"))
    );
    let read = read(&agent, files[0]["uri"].as_str().unwrap()).await.unwrap();
    assert_eq!((read["blob"].as_str(), read["mimeType"].as_str()), (Some(PNG), Some("image/png")));
    let output = value["output"].as_array().unwrap();
    assert_eq!(output[0], "<Figure>");
    assert!(output[1].as_str().unwrap().starts_with("File created: inline_"), "{value}");
}

#[tokio::test]
async fn what_is_lost_is_told() {
    let agent = Agent::new("interpreter");
    let (id, _) = begin(&agent, "print x").await;
    let died = agent.call("execute_code", json!({"code": "signal 9", "session_id": id})).await;
    assert_eq!(parse(&died)["error"], "Killed: by signal 9");
    assert!(notes(&died).contains("variables are gone"), "{died:?}");
    let fell = agent.call("execute_code", json!({"code": "crash", "session_id": id})).await;
    assert!(notes(&fell).contains("went down"), "{fell:?}");
    let after = agent.fails("execute_code", json!({"code": "print x", "session_id": id})).await;
    assert!(after.contains("SessionExpiredError"), "{after}");
}

#[tokio::test]
async fn a_session_that_could_not_begin_leaves_nothing() {
    let agent = Agent::new("interpreter");
    let failed = agent.fails("execute_code", json!({"code": " "})).await;
    assert!(failed.contains("empty"), "{failed}");
    assert_eq!(agent.engine.sandboxes(&agent.who).len(), 0);
    let broken = Agent::with("interpreter", Manners { open_fails: Some("no"), ..Manners::default() });
    let failed = broken.fails("execute_code", json!({"code": "print x"})).await;
    assert!(failed.contains("ServerError: a sandbox or program could not be set up"), "{failed}");
}
