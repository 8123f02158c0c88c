//! What the protocol has besides tools and resources: prompts, completion, log messages and tasks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Caller, Http, Reply};
use crate::server::{Server, User};

const TASKS: &str = "io.modelcontextprotocol/tasks";

#[test]
fn prompts_are_listed_and_filled_in() {
    let mut server = Server::start();
    let id = server.client.request("prompts/list", json!({}));
    let listed = server.client.answer(id);
    let names: Vec<&str> =
        listed["result"]["prompts"].as_array().unwrap().iter().filter_map(|prompt| prompt["name"].as_str()).collect();
    assert_eq!(names, ["analyse-data"], "nothing teaches code mode where there is nothing to call");
    let wanted = json!({"name": "analyse-data", "arguments": {"question": "How many rows?", "path": "a.csv"}});
    let id = server.client.request("prompts/get", wanted);
    let got = server.client.answer(id);
    let text = got["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.starts_with("How many rows?") && text.contains("a.csv"), "{text}");
    let id = server.client.request("prompts/get", json!({"name": "analyse-data"}));
    assert_eq!(server.client.answer(id)["error"]["code"], -32602);
}

/// Somebody else's sandbox is completed to nothing, as one that is not there.
#[test]
fn completion_knows_the_callers_own_sandboxes_and_their_files() {
    let mut server = Server::start();
    let sandbox = server.client.call("create_sandbox", json!({})).field("sandbox_id").as_str().unwrap().to_owned();
    let write = json!({"sandbox_id": sandbox, "path": "data/table.csv", "content": "a,b"});
    assert!(!server.client.call("write_file", write).is_error());
    let template = "belljar://{sandbox_id}/{+path}{?lines,offset,length,grep,context,regex}";
    let mut complete = |argument: &str, value: &str, sandbox: &str| {
        let params = json!({"ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": argument, "value": value}, "context": {"arguments": {"sandbox_id": sandbox}}});
        let id = server.client.request("completion/complete", params);
        server.client.answer(id)["result"]["completion"]["values"].clone()
    };
    assert_eq!(complete("sandbox_id", "sb_", ""), json!([sandbox]));
    assert_eq!(complete("path", "da", &sandbox), json!(["data/"]));
    assert_eq!(complete("path", "data/t", &sandbox), json!(["data/table.csv"]));
    assert_eq!(complete("path", "", "sb_00000000000000000000"), json!([]));
}

#[test]
fn what_is_printed_is_told_to_whoever_set_a_level() {
    let mut server = Server::start();
    let code = "echo out; echo err >&2; printf rest";
    server.client.shell(code).printed("out\nrest");
    let id = server.client.request("logging/setLevel", json!({"level": "info"}));
    assert_eq!(server.client.answer(id)["result"], json!({}));
    let id = server.client.start("run_code", json!({"language": "shell", "code": code}));
    let mut told: Vec<(String, String, String)> = Vec::new();
    let answer = loop {
        let message = server.client.next_answer();
        if message["id"] == id {
            break message;
        }
        assert_eq!(message["method"], "notifications/message", "{message}");
        let params = &message["params"];
        assert!(params["data"]["run_id"].as_str().unwrap().starts_with("run_"), "{message}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        told.push((text(&params["level"]), text(&params["logger"]), text(&params["data"]["text"])));
    };
    assert_eq!(answer["result"]["isError"], false);
    told.sort();
    let expected =
        [("info", "belljar.stdout", "out"), ("info", "belljar.stdout", "rest"), ("warning", "belljar.stderr", "err")];
    assert_eq!(told, expected.map(|(level, logger, text)| (level.into(), logger.into(), text.into())));
}

/// A request of a client that knows tasks, or of one that does not.
pub(crate) fn task_reply(http: &Http, method: &str, params: Value, name: &str, declares: bool) -> Reply {
    let headers = format!("Mcp-Name: {name}\r\n");
    let bytes = http.request_bytes(method, params, &headers);
    let text = String::from_utf8(bytes).unwrap();
    let declared = format!("\"io.modelcontextprotocol/clientCapabilities\":{{\"extensions\":{{\"{TASKS}\":{{}}}}}}");
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = match declares {
        true => body.replace("\"io.modelcontextprotocol/clientCapabilities\":{}", &declared),
        false => body.to_owned(),
    };
    let old = head.lines().find(|line| line.starts_with("Content-Length")).unwrap();
    let head = head.replace(old, &format!("Content-Length: {}", body.len()));
    http.raw(format!("{head}\r\n\r\n{body}").as_bytes())
}

fn task_request(http: &Http, method: &str, params: Value, name: &str, declares: bool) -> Value {
    let reply = task_reply(http, method, params, name, declares);
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

fn run(http: &Http, code: &str, declares: bool) -> Value {
    let call = json!({"name": "run_code", "arguments": {"language": "shell", "code": code}});
    task_request(http, "tools/call", call, "run_code", declares)
}

#[test]
fn a_run_that_takes_long_is_a_task_for_those_who_know_what_that_is() {
    let server = User::same().serve_http(&["--yield-after", "0.3"]);
    let http = &server.client;
    let get = |id: &str| task_request(http, "tasks/get", json!({"taskId": id}), id, true);
    let until_over = |id: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let task = get(id)["result"].clone();
            if task["status"] != "working" {
                return task;
            }
            assert!(Instant::now() < end, "{task}");
        }
    };

    let quick = run(http, "echo quick", true);
    assert_eq!(quick["result"]["structuredContent"]["stdout"], "quick\n", "{quick}");
    let job = run(http, "sleep 2; echo done", false);
    assert!(
        job["result"]["structuredContent"]["job_id"].is_string(),
        "who does not know tasks is told of a job: {job}"
    );

    let begun = run(http, "sleep 1; echo done", true)["result"].clone();
    assert_eq!((&begun["resultType"], &begun["status"]), (&json!("task"), &json!("working")), "{begun}");
    let id = begun["taskId"].as_str().unwrap();
    let task = until_over(id);
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(task["result"]["structuredContent"]["stdout"], "done\n", "{task}");

    let begun = run(http, "sleep 60", true)["result"].clone();
    let id = begun["taskId"].as_str().unwrap();
    let cancelled = task_request(http, "tasks/cancel", json!({"taskId": id}), id, true);
    assert_eq!(cancelled["result"]["resultType"], "complete", "{cancelled}");
    assert_eq!(until_over(id)["status"], "cancelled");

    let unknown = get("run_00000000000000000000");
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let undeclared = task_request(http, "tasks/get", json!({"taskId": id}), id, false);
    assert_eq!(undeclared["error"]["code"], -32021, "{undeclared}");
}

/// A server of the older revisions, in a few lines.
pub(crate) const UPSTREAM: &str = r#"
import json, sys
def tool(name): return {"name": name, "description": name, "inputSchema": {"type": "object"}}
def send(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "things", "version": "1"},
                  "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}}
    elif method == "tools/list":
        result = {"tools": [tool("run_code"), tool("count"), tool("wipe")]}
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        for step in (1, 2):
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        result = {"content": [{"type": "text", "text": params["name"]}], "structuredContent": {"n": 2},
                  "_meta": {"things/x": 1}}
    elif method == "prompts/list":
        result = {"prompts": [{"name": "theirs"}]}
    elif method == "prompts/get":
        result = {"messages": [{"role": "user", "content": {"type": "text", "text": params["name"]}}]}
    elif method == "completion/complete":
        result = {"completion": {"values": ["by-them"]}}
    elif method == "resources/read" and params["uri"] == "things://1":
        result = {"contents": [{"uri": params["uri"], "text": "one"}]}
    else:
        send({"id": message["id"], "error": {"code": -32601, "message": "no"}})
        continue
    send({"id": message["id"], "result": result})
"#;

#[test]
fn a_server_is_forwarded_whole_but_for_what_is_denied() {
    let folder = crate::server::folder(0o755);
    let script = crate::server::private_file(folder.path(), "things.py", UPSTREAM);
    let entry = json!({"command": "python3", "args": [script], "forward": true, "allow": ["*"], "deny": ["wipe"]});
    let file = json!({"mcpServers": {"things": entry}}).to_string();
    let config = crate::server::private_file(folder.path(), "servers.json", &file);
    let mut server = User::same().serve_with(&["--mcp-config", config.to_str().unwrap()]);
    let client = &mut server.client;
    let id = client.request("tools/list", json!({}));
    let listed = client.answer(id);
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    assert!(names.contains(&"count") && names.contains(&"things__run_code") && !names.contains(&"wipe"), "{names:?}");

    let call = json!({"name": "count", "arguments": {}, "_meta": {"progressToken": "mine"}});
    let id = client.request("tools/call", call);
    for step in [1, 2] {
        let progress = client.next_answer();
        let (token, at) = (&progress["params"]["progressToken"], &progress["params"]["progress"]);
        assert_eq!((token, at.as_f64()), (&json!("mine"), Some(f64::from(step))), "{progress}");
    }
    let result = client.answer(id)["result"].clone();
    assert_eq!((&result["structuredContent"], &result["_meta"]["things/x"]), (&json!({"n": 2}), &json!(1)), "{result}");
    let id = client.start("things__run_code", json!({}));
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "run_code", "under its own name there");
    client.shell("echo ours").printed("ours\n");
    let id = client.start("wipe", json!({}));
    assert_eq!(client.answer(id)["error"]["code"], -32602);

    let id = client.request("prompts/get", json!({"name": "theirs"}));
    assert_eq!(client.answer(id)["result"]["messages"][0]["content"]["text"], "theirs");
    let id = client.request("resources/read", json!({"uri": "things://1"}));
    assert_eq!(client.answer(id)["result"]["contents"][0]["text"], "one");
}
