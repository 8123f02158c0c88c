use std::time::Duration;

use serde_json::{Value, json};

use super::fake::{Client, FakeMode, NOTE, SECRET, TOKEN, refused, said};
use super::{Detail, Search};
use crate::Surface;

async fn client(surface: Surface) -> Client {
    Client::older(FakeMode::default(), surface, "2025-11-25", json!({})).await
}

fn names(listed: &Value) -> Vec<&str> {
    listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn other_servers_are_told_of_where_an_agent_looks() {
    let mut client = client(Surface::default()).await;
    let listed = client.ask(1, "tools/list", json!({})).await;
    assert_eq!(names(&listed)[..2], ["run_code", "search_tools"]);
    let description = listed["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(description.ends_with(NOTE) && description.contains("from tools import"), "{description}");
    assert!(!names(&listed).contains(&"github__echo"));
    let unknown = client.call(2, "github__echo", json!({})).await;
    assert!(refused(&unknown).contains("search_tools"), "{unknown}");
}

#[tokio::test]
async fn the_model_searches() {
    let mut client = client(Surface::default()).await;
    let arguments = json!({"query": "issue", "detail": "full", "server": "github", "limit": 3});
    let found = client.call(1, "search_tools", arguments).await;
    assert_eq!(said(&found), "found \"issue\"");
    client.call(2, "search_tools", json!({})).await;
    let wrong = client.call(3, "search_tools", json!({"detail": "some"})).await;
    assert!(said(&wrong).contains("one of: signatures, names, full"), "{wrong}");
    let wanted = |query: &str, detail, server: Option<&str>, limit| Search {
        query: query.into(),
        detail,
        server: server.map(Into::into),
        limit,
    };
    let searched = client.mode.searched.lock().unwrap().clone();
    assert_eq!(searched, [wanted("issue", Detail::Full, Some("github"), 3), wanted("", Detail::Signatures, None, 10)]);
}

#[tokio::test]
async fn direct_tools_are_called_as_if_they_were_ours() {
    let mut client = client(Surface { direct: true, ..Surface::default() }).await;
    let listed = client.ask(1, "tools/list", json!({})).await;
    let names = names(&listed);
    assert_eq!(names[names.len() - 3..], ["github__ask", "github__echo", "github__fail"]);
    assert_eq!(names[0], "run_code");
    let theirs = listed["result"]["tools"].as_array().unwrap().last().unwrap();
    assert_eq!(theirs["inputSchema"]["properties"]["x"]["anyOf"][1]["type"], "null", "as they are");
    let echoed = client.call(2, "github__echo", json!({"x": "y"})).await;
    assert_eq!(echoed["result"]["structuredContent"]["got"], json!({"x": "y"}));
    let failed = client.call(3, "github__fail", json!({})).await;
    assert_eq!(said(&failed), "InvalidArguments: wrong arguments\n- x must be a string");
    assert_eq!(failed["result"]["isError"], true);
    let alone = client.call(4, "github__ask", json!({})).await;
    assert_eq!(said(&alone), "ApprovalDenied: not approved", "nobody can be asked");
    assert!(refused(&client.call(5, "github__none", json!({})).await).contains("github__echo"));
    let own = client.call(6, "run_code", json!({"language": "python", "code": "print x"})).await;
    assert_eq!(said(&own), "x\n");
}

#[tokio::test]
async fn personal_data_does_not_reach_the_model() {
    let mut client = client(Surface { direct: true, ..Surface::default() }).await;
    let code = format!("print {SECRET}\nwrite {SECRET}.txt x\nflood 50000");
    let ran = client.call(1, "run_code", json!({"language": "python", "code": code})).await;
    assert!(said(&ran).starts_with(TOKEN), "{ran}");
    let echoed = client.call(2, "github__echo", json!({})).await;
    assert_eq!(
        (said(&echoed), &echoed["result"]["structuredContent"]["mail"]),
        (format!("mail {TOKEN}").as_str(), &json!(TOKEN))
    );
    let made = client.call(3, "create_sandbox", json!({"files": {"a.txt": SECRET}})).await;
    let sandbox = made["result"]["structuredContent"]["sandbox_id"].as_str().unwrap();
    let read = client.ask(4, "resources/read", json!({"uri": format!("belljar://{sandbox}/a.txt")})).await;
    assert_eq!(read["result"]["contents"][0]["text"], TOKEN, "{read}");
    let uri = ran["result"]["structuredContent"]["output_uris"]["stdout"].as_str().unwrap();
    let whole = client.ask(5, "resources/read", json!({"uri": uri})).await;
    assert!(whole["result"]["contents"][0]["text"].as_str().unwrap().starts_with(TOKEN), "{whole}");
    let wrong = client.call(6, "run_code", json!({"language": SECRET, "code": "x"})).await;
    for answer in [ran, echoed, read, whole, wrong] {
        let text = answer.to_string();
        assert!(!text.contains(SECRET), "{}", &text[..2000.min(text.len())]);
    }
}

#[tokio::test(start_paused = true)]
async fn personal_data_does_not_reach_the_model_by_a_task() {
    let surface = Surface { yield_after: Duration::from_millis(50), ..Surface::default() };
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let mut client = Client::newest(FakeMode::default(), surface, tasks);
    let code = format!("print {SECRET}\nsleep 1000");
    let begun = client.call(1, "run_code", json!({"language": "python", "code": code})).await;
    let id = begun["result"]["taskId"].clone();
    client.until("it has ended", |fake| fake.programs() == 0).await;
    let mut task = json!({"result": {"status": "working"}});
    while task["result"]["status"] == "working" {
        task = client.ask(2, "tasks/get", json!({"taskId": id})).await;
    }
    assert_eq!(task["result"]["result"]["structuredContent"]["stdout"], format!("{TOKEN}\n"), "{task}");
    assert!(!task.to_string().contains(SECRET), "{task}");
}

#[tokio::test]
async fn a_connection_is_told_when_the_tools_change() {
    let mut client = client(Surface::default()).await;
    // Answered, so that the server has heard that it is initialized.
    client.ask(1, "resources/subscribe", json!({"uri": "belljar://sb_x/"})).await;
    client.mode.changes.send_modify(|changes| *changes += 1);
    assert_eq!(client.next().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_listener_is_told_when_the_tools_change() {
    let mut client = Client::newest(FakeMode::default(), Surface::default(), json!({}));
    let filter = json!({"notifications": {"toolsListChanged": true}});
    client.request(1, "subscriptions/listen", filter).await;
    let accepted = client.next().await;
    assert_eq!(accepted["params"]["notifications"]["toolsListChanged"], true, "{accepted}");
    client.mode.changes.send_modify(|changes| *changes += 1);
    assert_eq!(client.next().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn what_there_is_is_declared() {
    let mut client = Client::new(FakeMode::default(), Surface::default());
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"}});
    let answer = client.ask(0, "initialize", params).await;
    assert_eq!(answer["result"]["capabilities"]["tools"]["listChanged"], true);
    assert!(answer["result"]["instructions"].as_str().unwrap().contains("other servers' tools"), "{answer}");
}
