use serde_json::json;

use super::*;

#[tokio::test]
async fn a_sandbox_from_beginning_to_end() {
    let agent = Agent::new("morph");
    let created = agent.call("create_sandbox", json!({"template": "python-3.12", "timeout": 600})).await;
    let id = text(&created);
    assert_eq!(agent.engine.sandboxes(&agent.who)[0].id.as_str(), id, "the text is the bare id");
    assert_eq!(agent.engine.sandboxes(&agent.who)[0].idle.as_secs(), 600);
    assert!(notes(&created).contains("this host has no python-3.12"), "{created:?}");

    let wrote = agent.call("write_file", json!({"sandbox_id": id, "path": "a.txt", "content": "hi\n"})).await;
    assert_eq!((parse(&wrote), wrote.structured_content), (json!({"success": true}), Some(json!({"success": true}))));
    assert_eq!(agent.json("read_file", json!({"sandbox_id": id, "path": "a.txt"})).await, json!({"content": "hi\n"}));
    let ran = agent.call("exec", json!({"sandbox_id": id, "command": "cat a.txt\nerr e\nexit 3"})).await;
    assert_eq!((parse(&ran), ran.is_error), (json!({"stdout": "hi\n", "stderr": "e\n", "exit_code": 3}), Some(true)));
    assert_eq!(agent.json("destroy_sandbox", json!({"sandbox_id": id})).await, json!({"success": true}));

    let gone = json!({"sandbox_id": id, "command": "print x"});
    let gone: Value = serde_json::from_str(&agent.fails("exec", gone).await).unwrap();
    assert_eq!((&gone["stdout"], &gone["exit_code"]), (&json!(""), &json!(-1)));
    let gone: Value = serde_json::from_str(&agent.fails("destroy_sandbox", json!({"sandbox_id": id})).await).unwrap();
    assert_eq!(gone["success"], false);
    assert!(gone["error"].as_str().unwrap().contains("create_sandbox"), "{gone}");
}

#[tokio::test]
async fn pictures_and_bytes_are_read() {
    let agent = Agent::new("morph");
    let id = agent.text("create_sandbox", json!({})).await;
    let png = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, PNG).unwrap();
    agent.engine.write(&agent.who, &id, "p.png", png).await.unwrap();
    agent.engine.write(&agent.who, &id, "b", vec![0, 255]).await.unwrap();
    let picture = agent.call("read_file", json!({"sandbox_id": id, "path": "p.png"})).await;
    assert_eq!((parse(&picture)["content"].clone(), images(&picture)), (json!(PNG), vec!["image/png".to_owned()]));
    let bytes = agent.json("read_file", json!({"sandbox_id": id, "path": "b"})).await;
    assert_eq!(bytes, json!({"content": "AP8=", "encoding": "base64"}));
    agent.engine.write(&agent.who, &id, "long", "x\n".repeat(100_000).into_bytes()).await.unwrap();
    let long = agent.call("read_file", json!({"sandbox_id": id, "path": "long"})).await;
    assert!(text(&long).contains("bytes left out") && notes(&long).contains("shortened"), "{}", notes(&long));
}

#[tokio::test]
async fn templates_are_the_languages_that_are_there() {
    let agent = Agent::with("morph", Manners { languages: vec![Language::Python], ..Manners::default() });
    assert!(agent.fails("create_sandbox", json!({"template": "rust"})).await.contains("has no rust"));
    assert!(agent.fails("create_sandbox", json!({"template": "../x"})).await.contains("must be one of"));
    assert!(agent.fails("create_sandbox", json!({"timeout": 1e8})).await.contains("timeout"));
    assert!(agent.fails("create_sandbox", json!({"timeout": "soon"})).await.contains("timeout must be a number"));
}
