//! How far a token reaches beyond our own tools: tasks, prompts, completion, other servers, subscriptions, and the event streams
//! of older clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Operator, assert_no, call, other};
use crate::client::{Caller, Http, Reply};
use crate::events::Events;
use crate::protocol::{UPSTREAM, task_reply};
use crate::server::{Server, private_file};

fn message(reply: &Reply) -> Value {
    serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
}

/// Refused at the door, with the scope that is missing.
#[track_caller]
fn assert_lacks(reply: &Reply, scope: &str) {
    assert_no(reply, 403, &["error=\"insufficient_scope\"", &format!("scope=\"{scope}\"")], &["scope", scope]);
}

#[test]
fn a_task_is_looked_at_by_readers_and_ended_by_those_who_may_run() {
    let operator = Operator::new();
    let [runner, reader, caller] = ["run", "read", "tools"].map(|scope| operator.add(&["ann", "--scope", scope]));
    let bob = operator.add(&["bob"]);
    let server = operator.serve(&["--yield-after", "0.3"]);
    let [runner, reader, caller, bob] = [runner, reader, caller, bob].map(|token| server.client.with_token(&token));
    let run = json!({"name": "run_code", "arguments": {"language": "shell", "code": "sleep 60"}});
    let begun = message(&task_reply(&runner, "tools/call", run, "run_code", true));
    let id = begun["result"]["taskId"].as_str().unwrap_or_else(|| panic!("no task: {begun}")).to_owned();
    let ask = |who: &Http, method: &str, id: &str| {
        let mut params = json!({"taskId": id});
        if method == "tasks/update" {
            params["inputResponses"] = json!({});
        }
        task_reply(who, method, params, id, true)
    };
    let status = |who: &Http| message(&ask(who, "tasks/get", &id))["result"]["status"].clone();

    assert_eq!(status(&reader), "working");
    for method in ["tasks/cancel", "tasks/update"] {
        assert_lacks(&ask(&reader, method, &id), "run");
        assert_lacks(&ask(&caller, method, &id), "run");
    }
    assert_lacks(&ask(&caller, "tasks/get", &id), "read");
    // Whoever may do all of it, but is somebody else, learns nothing.
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let told = |id: &str| {
            let reply = ask(&bob, method, id);
            (reply.status, reply.body.replace(id, "ID"))
        };
        let foreign = told(&id);
        assert!(foreign.1.contains("\"error\""), "{method}: {foreign:?}");
        assert_eq!(foreign, told(&other(&id)), "{method}");
    }
    assert_eq!(status(&runner), "working", "nobody has ended it");

    assert_eq!(ask(&runner, "tasks/cancel", &id).status, 200);
    let deadline = Instant::now() + Duration::from_secs(30);
    while status(&reader) != "cancelled" {
        assert!(Instant::now() < deadline, "{}", status(&reader));
    }
}

#[test]
fn completion_is_for_readers_and_our_prompts_are_for_all() {
    let operator = Operator::new();
    let [reader, caller] = ["read", "tools"].map(|scope| operator.add(&["ann", "--scope", scope]));
    let server = operator.serve(&[]);
    let [reader, caller] = [reader, caller].map(|token| server.client.with_token(&token));
    let reference = json!({"type": "ref/prompt", "name": "analyse-data"});
    let params = json!({"ref": reference, "argument": {"name": "language", "value": "py"}});
    let complete = |who: &Http| who.raw(&who.request_bytes("completion/complete", params.clone(), ""));
    assert_eq!(message(&complete(&reader))["result"]["completion"]["values"], json!(["python"]));
    assert_lacks(&complete(&caller), "read");
    for who in [&reader, &caller] {
        let listed = who.request("prompts/list", json!({}), "");
        assert_eq!(listed["result"]["prompts"][0]["name"], "analyse-data", "{listed}");
    }
}

/// One that is offered whole: what it has is to those without the scope as if it were not.
#[test]
fn a_server_that_is_forwarded_is_for_those_who_have_the_scope() {
    let operator = Operator::new();
    let (all, some) = (operator.add(&["ann"]), operator.add(&["ann", "--scope", "run"]));
    let script = private_file(operator.folder.path(), "things.py", UPSTREAM);
    let entry = json!({"command": "python3", "args": [script], "forward": true, "allow": ["*"]});
    let file = private_file(operator.folder.path(), "mcp.json", &json!({"mcpServers": {"things": entry}}).to_string());
    let server = operator.serve(&["--mcp-config", file.to_str().unwrap(), "--approve", "never"]);
    let (all, some) = (server.client.with_token(&all), server.client.with_token(&some));
    let answer = |who: &Http, method: &str, params: Value| {
        let name = params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str);
        let name = name.map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
        who.raw(&who.request_bytes(method, params, &name)).body
    };
    for (method, theirs) in [("tools/list", "\"count\""), ("prompts/list", "\"theirs\"")] {
        assert!(answer(&all, method, json!({})).contains(theirs), "{method}");
        let less = answer(&some, method, json!({}));
        // Nobody may keep it for others, who are offered more.
        assert!(!less.contains(theirs) && less.contains("\"cacheScope\":\"private\""), "{method}: {less}");
    }
    assert!(call(&all, "count", json!({})).body.contains("\"n\":2"));
    let refused = call(&some, "count", json!({})).body;
    assert!(refused.contains("scope tools") && !refused.contains("\"n\":2"), "{refused}");

    let prompt = |name: &str| json!({"name": name});
    let complete =
        |name: &str| json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "x", "value": ""}});
    let resource = |name: &str| json!({"uri": format!("things://{name}")});
    for (method, there, missing, word) in [
        ("prompts/get", prompt("theirs"), prompt("nobody"), "\"text\":\"theirs\""),
        ("completion/complete", complete("theirs"), complete("nobody"), "by-them"),
        ("resources/read", resource("1"), resource("2"), "\"text\":\"one\""),
    ] {
        let got = answer(&all, method, there.clone());
        assert!(got.contains(word), "{method}: {got}");
        let refused = answer(&some, method, there);
        assert!(refused.contains("\"error\"") && !refused.contains(word), "{method}: {refused}");
        let unknown = answer(&some, method, missing);
        assert_eq!(refused.replace("things://1", "URI"), unknown.replace("things://2", "URI"), "{method}");
    }
}

fn direct_server(operator: &Operator) -> Server<Http> {
    let mock = include_str!("../../../../gateway/tests/upstreams/mock.py");
    let mock = private_file(operator.folder.path(), "mock.py", mock);
    let servers = json!({"mcpServers": {"mock": {"command": "python3", "args": [mock]}}}).to_string();
    let file = private_file(operator.folder.path(), "mcp.json", &servers);
    operator.serve(&["--mcp-config", file.to_str().unwrap(), "--direct", "--approve", "never"])
}

#[test]
fn no_address_is_a_way_around_the_scope_of_other_servers_tools() {
    let operator = Operator::new();
    let (all, some) = (operator.add(&["ann"]), operator.add(&["ann", "--scope", "run"]));
    let server = direct_server(&operator);
    let (all, some) = (server.client.with_token(&all), server.client.with_token(&some));
    for path in ["/mcp", "/mcp?codemode=false"] {
        let at = |who: &Http, bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            who.raw(text.replacen("POST /mcp ", &format!("POST {path} "), 1).as_bytes()).body
        };
        let list = |who: &Http| at(who, who.request_bytes("tools/list", json!({}), ""));
        let echo = |who: &Http| at(who, who.call_bytes("mock__echo", json!({"text": "called"}), ""));
        assert!(list(&all).contains("mock__echo") && !list(&some).contains("mock__"), "{path}: {}", list(&some));
        assert!(echo(&all).contains("called"), "{path}: {}", echo(&all));
        let refused = echo(&some);
        assert!(refused.contains("scope tools") && !refused.contains("called"), "{path}: {refused}");
    }
}

#[test]
fn event_streams_are_no_way_around_a_scope() {
    let operator = Operator::new();
    let [reader, runner, caller] = ["read", "run", "tools"].map(|scope| operator.add(&["ann", "--scope", scope]));
    let bob = operator.add(&["bob"]);
    let server = direct_server(&operator);
    let [reader, runner, caller, bob] = [reader, runner, caller, bob].map(|token| server.client.with_token(&token));
    assert_eq!(server.client.get("/sse", "").status, 401);

    let mut events = Events::begin(&reader, "/sse");
    let tool = |name: &str, arguments: Value| ("tools/call", json!({"name": name, "arguments": arguments}));
    let run = tool("run_code", json!({"language": "shell", "code": "echo ran"}));
    let forbidden = [
        (run.clone(), "run"),
        (tool("exec", json!({"sandbox_id": "sb_1", "command": "echo ran"})), "run"),
        (tool("create_sandbox", json!({})), "files"),
        (("tasks/cancel", json!({"taskId": "run_1"})), "run"),
    ];
    for ((method, params), need) in forbidden {
        let request = events.request(method, params);
        assert_lacks(&events.post(&reader, &request), need);
    }
    let listed = events.ask("tools/list", json!({}))["result"]["tools"].to_string();
    assert!(listed.contains("list_files") && !listed.contains("run_code") && !listed.contains("mock__"), "{listed}");
    assert_eq!(events.ask("resources/list", json!({}))["result"]["resources"], json!([]));
    for path in ["/sse", "/sse?codemode=false"] {
        let mut events = Events::begin(&reader, path);
        let (method, params) = tool("mock__echo", json!({"text": "called"}));
        let refused = events.ask(method, params).to_string();
        assert!(refused.contains("scope tools") && !refused.contains("called"), "{path}: {refused}");
    }

    // Who may call others' tools alone may do that, and look at nothing.
    let mut calling = Events::begin(&caller, "/sse");
    let (method, params) = tool("mock__echo", json!({"text": "called"}));
    assert!(calling.ask(method, params).to_string().contains("called"));
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/subscribe", json!({"uri": "belljar://sb_1/"})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "x", "value": ""}}),
        ),
    ] {
        let request = calling.request(method, params);
        assert_lacks(&calling.post(&caller, &request), "read");
    }

    // A stream that one with more opened lends nothing to one with less, and is nobody's but its opener's.
    let mut events = Events::begin(&runner, "/sse");
    let request = events.request(run.0, run.1.clone());
    assert_lacks(&events.post(&reader, &request), "run");
    let foreign = events.post(&bob, &request);
    let digit = events.target.pop().unwrap();
    events.target.push(if digit == '0' { '1' } else { '0' });
    let unknown = events.post(&bob, &request);
    assert_eq!((foreign.status, &foreign.body), (404, &unknown.body));
    assert_eq!(unknown.status, 404);
    events.target.pop();
    events.target.push(digit);
    assert_eq!(events.ask(run.0, run.1)["result"]["structuredContent"]["stdout"], "ran\n");
}

/// One that listens for what changes.
struct Listening {
    stream: TcpStream,
    heard: String,
}

impl Listening {
    fn to(who: &Http, uris: &[String]) -> Listening {
        let params = json!({"notifications": {"resourceSubscriptions": uris, "resourcesListChanged": true}});
        let mut stream = TcpStream::connect(("127.0.0.1", who.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&who.request_bytes("subscriptions/listen", params, "")).unwrap();
        let mut listening = Listening { stream, heard: String::new() };
        listening.hear("acknowledged");
        listening
    }

    /// All that was told, to the message that has this in it.
    #[track_caller]
    fn hear(&mut self, wanted: &str) -> Vec<String> {
        loop {
            let whole = self.heard.rfind('\n').unwrap_or(0);
            let told = self.heard[..whole].lines().filter_map(|line| line.strip_prefix("data:"));
            let told: Vec<String> = told.map(|told| told.trim().to_owned()).filter(|told| !told.is_empty()).collect();
            if let Some(at) = told.iter().position(|told| told.contains(wanted)) {
                return told[..=at].to_vec();
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "{wanted} was not told: {}", self.heard);
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }
}

/// Byte for byte, but for the handle itself, and whatever its owner does meanwhile.
#[test]
fn to_watch_what_is_anothers_is_to_watch_what_is_not_there() {
    let operator = Operator::new();
    let (ann, bob) = (operator.add(&["ann"]), operator.add(&["bob"]));
    let server = operator.serve(&[]);
    let (mut ann, mut bob) = (server.client.with_token(&ann), server.client.with_token(&bob));
    let (hers, his) = (ann.create(json!({})), bob.create(json!({})));
    let nobodys = other(&hers);

    let mut events = Events::begin(&bob, "/sse");
    for (method, path) in [("resources/subscribe", ""), ("resources/subscribe", "note"), ("resources/unsubscribe", "")]
    {
        let mut told = |id: &str| {
            let mut answer = events.ask(method, json!({"uri": format!("belljar://{id}/{path}")}));
            answer["id"].take();
            answer.to_string().replace(id, "ID")
        };
        let foreign = told(&hers);
        assert_eq!(foreign.contains("\"error\""), method == "resources/subscribe", "{foreign}");
        assert_eq!(foreign, told(&nobodys), "{method} {path}");
    }
    let template = "belljar://{sandbox_id}/{+path}{?lines,offset,length,grep,context,regex}";
    let mut complete = |id: &str| {
        let params = json!({"ref": {"type": "ref/resource", "uri": template},
            "argument": {"name": "path", "value": ""}, "context": {"arguments": {"sandbox_id": id}}});
        let mut answer = events.ask("completion/complete", params);
        answer["id"].take();
        answer.to_string()
    };
    assert_eq!(complete(&hers), complete(&nobodys));

    let uri = |id: &str| format!("belljar://{id}/");
    let mut foreign = Listening::to(&bob, &[uri(&hers), uri(&his)]);
    let mut unknown = Listening::to(&bob, &[uri(&nobodys), uri(&his)]);
    let mut own = Listening::to(&ann, &[uri(&hers)]);
    let write = |id: &str| json!({"sandbox_id": id, "path": "note", "content": "x"});
    assert!(!ann.call("write_file", write(&hers)).is_error());
    let updated = "notifications/resources/updated";
    assert!(own.hear(updated).last().unwrap().contains(&hers), "she is told of it");
    assert!(!ann.call("destroy_sandbox", json!({"sandbox_id": hers})).is_error());
    own.hear("list_changed");
    assert!(!bob.call("write_file", write(&his)).is_error());
    // What comes is in order: had he been told of hers, that would be before his own.
    let (foreign, unknown) = (foreign.hear(updated), unknown.hear(updated));
    assert!(foreign.last().unwrap().contains(&his), "{foreign:?}");
    let unnamed = |told: Vec<String>, id: &str| told.join("\n").replace(id, "ID");
    assert_eq!(unnamed(foreign, &hers), unnamed(unknown, &nobodys));
}
