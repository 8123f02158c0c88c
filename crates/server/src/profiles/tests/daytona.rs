use std::time::Duration;

use serde_json::json;

use super::*;

async fn created(agent: &Agent, arguments: Value) -> String {
    let said = agent.text("create_sandbox", arguments).await;
    said.strip_prefix("Created new sandbox ").unwrap_or_else(|| panic!("{said}")).to_owned()
}

#[tokio::test]
async fn a_sandbox_from_beginning_to_end() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({"env": {"A": "1"}, "labels": {"team": "x"}, "target": "us", "gpu": 0})).await;
    assert_eq!(agent.text("create_sandbox", json!({"id": id})).await, format!("Reusing existing sandbox {id}"));
    let ran = agent.call("execute_command", json!({"id": id, "command": "env A\nerr e"})).await;
    assert_eq!(parse(&ran), json!({"stdout": "1\n", "stderr": "e\n", "exitCode": 0}));
    assert_eq!((ran.is_error, ran.structured_content), (Some(false), None));
    let failed = agent.call("execute_command", json!({"id": id, "command": "exit 7"})).await;
    assert_eq!((parse(&failed), failed.is_error), (json!({"stdout": "", "stderr": "", "exitCode": 7}), Some(true)));
    let killed = agent.json("execute_command", json!({"id": id, "command": "signal 11"})).await;
    assert_eq!(
        killed,
        json!({"stdout": "", "stderr": "Killed: by signal 11\n", "exitCode": 139, "errorType": "Killed"})
    );

    let destroyed = agent.text("destroy_sandbox", json!({"id": id})).await;
    assert_eq!(destroyed, format!("Destroyed sandbox with ID {id}"));
    let gone: Value =
        serde_json::from_str(&agent.fails("execute_command", json!({"id": id, "command": "print x"})).await).unwrap();
    assert_eq!((&gone["exitCode"], &gone["errorType"]), (&json!(-1), &json!("SandboxError")));
    assert!(gone["stderr"].as_str().unwrap().contains("create_sandbox"), "{gone}");
    assert!(agent.fails("create_sandbox", json!({"id": id})).await.contains("not found or is not running"));
}

#[tokio::test]
async fn an_environment_is_for_the_callers_own_programs() {
    let agent = Agent::new("daytona");
    let env = json!({"A": "1", "BASH_ENV": "/workspace/evil", "BASH_FUNC_stat%%": "() { id > /workspace/o; }"});
    let id = created(&agent, json!({"env": env, "name": "mine"})).await;
    // What the sandbox itself has, our commands have too.
    let specs = (0..agent.fake.opened()).filter_map(|number| agent.fake.spec_of(number));
    assert!(specs.map(|spec| spec.env).all(|env| env.is_empty()));
    for name in [id.as_str(), "mine"] {
        let ran = agent.json("execute_command", json!({"id": name, "command": "env A\nenv BASH_ENV"})).await;
        assert_eq!(ran["stdout"], "1\n/workspace/evil\n", "{name}");
    }
    let plain = created(&agent, json!({})).await;
    let ran = agent.json("execute_command", json!({"id": plain, "command": "env A"})).await;
    assert_eq!(ran["stdout"], "\n", "each has its own");
}

#[tokio::test]
async fn what_can_be_honoured_is() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({"cpu": 1, "memory": 2, "disk": 1, "autoStopInterval": 5})).await;
    let info = &agent.engine.sandboxes(&agent.who)[0];
    assert_eq!(info.id.as_str(), id);
    assert_eq!((info.limits.cpu_milli, info.limits.memory_bytes, info.limits.disk_bytes), (1000, 2 << 30, 1 << 30));
    assert_eq!(info.idle, Duration::from_secs(300));
    created(&agent, json!({})).await;
    created(&agent, json!({"autoStopInterval": 0})).await;
    let mut idle: Vec<u64> = agent.engine.sandboxes(&agent.who).iter().map(|info| info.idle.as_secs()).collect();
    idle.sort_unstable();
    assert_eq!(idle, [300, 900, 86_400]);
}

#[tokio::test]
async fn what_cannot_be_honoured_is_refused_and_what_changes_nothing_is_not() {
    let agent = Agent::new("daytona");
    for (arguments, said) in [
        (json!({"gpu": 1}), "no GPU"),
        (json!({"target": "eu"}), "no regions"),
        (json!({"snapshot": "ubuntu"}), "no snapshots"),
        (json!({"user": "root"}), "same user"),
        (json!({"public": true}), "cannot be reached from outside"),
        (json!({"volumes": [{"volumeId": "v", "mountPath": "/v"}]}), "no volumes"),
        (json!({"buildInfo": {"dockerfileContent": "FROM x"}}), "not built from Dockerfiles"),
        (json!({"networkAllowList": "10.0.0.0/8"}), "no network"),
        (json!({"cpu": 5}), "cpu must be a number from 0.05 to 4"),
        (json!({"memory": 9}), "memory must be a number"),
        (json!({"memory": "much"}), "memory must be a number"),
        (json!({"disk": 10}), "disk is more than this server allows"),
        (json!({"autoStopInterval": 100_000}), "autoStopInterval is more than this server allows"),
        (json!({"autoStopInterval": -1}), "autoStopInterval must be a number"),
        (json!({"env": {"A": 1}}), "env.A must be a string"),
        (json!({"env": {"A=B": "x"}}), "environment"),
        (json!({"env": {"": "x"}}), "environment"),
        (json!({"env": {"A": "\u{0}"}}), "environment"),
        (json!({"env": {"A": "x".repeat(100_000)}}), "environment is too large"),
        (json!({"labels": []}), "labels must be an object"),
        (json!({"name": "sb_x"}), "name"),
    ] {
        let refused = agent.fails("create_sandbox", arguments.clone()).await;
        assert!(refused.starts_with("error: ") && refused.contains(said), "{arguments}: {refused}");
    }
    assert_eq!(agent.fake.opened(), 0);
    created(
        &agent,
        json!({"snapshot": "", "public": false, "volumes": [], "buildInfo": {}, "networkAllowList": "", "gpu": 0,
            "networkBlockAll": true, "autoArchiveInterval": 10080, "autoDeleteInterval": -1, "user": null, "other": 1}),
    )
    .await;
}

#[tokio::test]
async fn a_name_stands_for_its_sandbox() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({"name": "mine"})).await;
    assert!(agent.fails("create_sandbox", json!({"name": "mine"})).await.contains("another sandbox has it"));
    assert_eq!(agent.text("create_sandbox", json!({"id": "mine"})).await, format!("Reusing existing sandbox {id}"));
    let ran = agent.json("execute_command", json!({"id": "mine", "command": "print x"})).await;
    assert_eq!(ran["stdout"], "x\n");
    let foreign = agent.other("bob").fails("execute_command", json!({"id": "mine", "command": "print x"})).await;
    assert!(foreign.contains("no such sandbox"), "{foreign}");
    let foreign = agent.other("bob").fails("execute_command", json!({"id": id, "command": "print x"})).await;
    assert!(foreign.contains("no such sandbox"), "{foreign}");
    agent.text("destroy_sandbox", json!({"id": "mine"})).await;
    created(&agent, json!({"name": "mine"})).await;
}

#[tokio::test]
async fn files_go_up_and_down() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({})).await;
    let up = |path: &str, content: &str, encoding: &str, overwrite: bool| {
        let mut arguments = json!({"id": id, "filePath": path, "content": content});
        (arguments["encoding"], arguments["overwrite"]) = (json!(encoding), json!(overwrite));
        arguments
    };
    assert_eq!(
        agent.text("file_upload", up("a/b.txt", "hello", "text", false)).await,
        "File uploaded successfully: a/b.txt"
    );
    let twice = agent.fails("upload_file", up("a/b.txt", "again", "text", false)).await;
    assert_eq!(twice, "error: file 'a/b.txt' already exists and overwrite=false");
    assert!(agent.fails("file_upload", up("a", "x", "text", false)).await.contains("already exists"));
    agent.text("upload_file", up("a/b.txt", "newer", "text", true)).await;
    assert!(agent.fails("file_upload", up("c", "$$", "base64", true)).await.contains("invalid base64"));
    agent.text("file_upload", up("empty", "", "text", true)).await;

    let down = |path: &str| json!({"id": id, "filePath": path});
    assert_eq!(agent.json("file_download", down("a/b.txt")).await, json!([{"type": "text", "text": "newer"}]));
    assert_eq!(agent.json("download_file", json!({"id": id, "file_path": "a/b.txt"})).await[0]["text"], "newer");
    assert_eq!(agent.fails("file_download", down("nope")).await, "error: no such file or directory");

    agent.text("file_upload", up("p.png", PNG, "base64", true)).await;
    let picture = agent.call("file_download", down("p.png")).await;
    assert_eq!(parse(&picture), json!([{"type": "image", "data": PNG}]));
    assert_eq!(images(&picture), ["image/png"]);

    agent.text("file_upload", up("plot.json", &json!({"data": PNG}).to_string(), "text", true)).await;
    assert_eq!(images(&agent.call("file_download", down("plot.json")).await), ["image/png"]);
    agent.text("file_upload", up("n.json", "{\"data\": 5}", "text", true)).await;
    assert_eq!(agent.json("file_download", down("n.json")).await[0]["text"], "{\"data\": 5}");

    agent.text("file_upload", up("x.bin", "AP8A", "base64", true)).await;
    let binary = agent.call("file_download", down("x.bin")).await;
    assert_eq!(parse(&binary)[0]["text"], "AP8A");
    assert!(notes(&binary).contains("base64"), "{binary:?}");
}

#[tokio::test]
async fn a_large_picture_is_an_image_block_only() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({})).await;
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    png.resize(300_000, 7);
    agent.engine.write(&agent.who, &id, "a.png", png).await.unwrap();
    let result = agent.call("file_download", json!({"id": id, "filePath": "a.png"})).await;
    assert_eq!(parse(&result), json!([{"type": "image", "data": ""}]));
    assert_eq!(
        (images(&result), notes(&result).as_str()),
        (vec!["image/png".into()], "[image/png, 300000 bytes: in the image block]")
    );
}

#[tokio::test]
async fn a_listing_has_the_shape_of_file_infos() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({})).await;
    agent.engine.write(&agent.who, &id, "d/x.txt", b"abc".to_vec()).await.unwrap();
    agent.engine.write(&agent.who, &id, "y", b"".to_vec()).await.unwrap();
    let listed = agent.json("list_files", json!({"id": id})).await;
    // The fake has no find, so neither owner nor mode is known.
    let info = |name: &str, is_dir: bool| {
        json!({"group": "", "isDir": is_dir, "modTime": "1970-01-01 00:00:00 +0000 UTC", "mode": "", "name": name,
            "owner": "", "permissions": "", "size": 0})
    };
    assert_eq!(listed, json!([info("d", true), info("y", false)]));
    assert_eq!(agent.json("list_files", json!({"id": id, "path": "d"})).await[0]["size"], 3);
    assert_eq!(agent.fails("list_files", json!({"id": id, "path": "nope"})).await, "error: no such file or directory");
    for n in 0..1200 {
        agent.engine.write(&agent.who, &id, &format!("many/file number {n}"), b"".to_vec()).await.unwrap();
    }
    let many = agent.call("list_files", json!({"id": id, "path": "many"})).await;
    assert!(parse(&many).as_array().unwrap().len() >= 50);
    assert!(notes(&many).contains("more files") && notes(&many).contains("shortened"), "{}", notes(&many));
}

#[tokio::test]
async fn commands_that_the_sandbox_fails_are_told() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({})).await;
    for (tool, arguments) in [
        ("get_file_info", json!({"id": id, "filePath": "a"})),
        ("move_file", json!({"id": id, "sourcePath": "a", "destPath": "b"})),
        ("delete_file", json!({"id": id, "filePath": "a"})),
        ("create_folder", json!({"id": id, "folderPath": "a"})),
        ("git_clone", json!({"id": id, "url": "/workspace/repo"})),
    ] {
        // The fake has no such command, and says so.
        let failed = agent.fails(tool, arguments).await;
        assert!(failed.contains("not an act"), "{tool}: {failed}");
    }
    let option = agent.fails("git_clone", json!({"id": id, "url": "/r", "commitId": "--help"})).await;
    assert!(option.contains("not an option"), "{option}");
    assert!(agent.fails("create_folder", json!({"id": id, "folderPath": "a", "mode": "u+x"})).await.contains("octal"));
}

#[tokio::test]
async fn there_is_no_network_and_no_link() {
    let agent = Agent::new("daytona");
    let id = created(&agent, json!({})).await;
    for url in ["https://example.com/r.git", "git@example.com:r.git", "ssh://h/r", "http://10.0.0.1/r"] {
        let refused = agent.fails("git_clone", json!({"id": id, "url": url, "password": "secret"})).await;
        assert!(refused.contains("no network") && !refused.contains("secret"), "{refused}");
    }
    assert!(agent.fails("git_clone", json!({"id": "sb_x", "url": "https://x/y"})).await.contains("no such sandbox"));
    let link = |port: Value, check: bool| json!({"id": id, "port": port, "description": "web", "checkServer": check});
    assert!(agent.fails("preview_link", link(json!(8000), false)).await.contains("no preview link"));
    let unheard = agent.fails("preview_link", link(json!("8000"), true)).await;
    assert!(unheard.contains("no server detected on port 8000. Process info:"), "{unheard}");
    for bad in [json!(0), json!(65536), json!(1.5), json!("x; rm -rf /"), json!(null)] {
        assert!(agent.fails("preview_link", link(bad.clone(), true)).await.contains("port"), "{bad}");
    }
}

#[tokio::test]
async fn what_is_required_is_asked_for() {
    let agent = Agent::new("daytona");
    for tool in agent.profile.tools(&Language::ALL) {
        let required = tool.input_schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        if !required.is_empty() {
            let said = agent.fails(&tool.name, json!({})).await;
            assert!(said.contains("is required"), "{}: {said}", tool.name);
        }
    }
}
