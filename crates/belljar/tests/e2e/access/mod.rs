//! Who may call the built program over HTTP, and what: tokens that it issued itself, and tokens of an authorization server.

mod issuer;
mod reach;

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use self::issuer::Issuer;
use crate::client::{Caller, Http, Reply, assert_sentence};
use crate::server::{Server, User, folder, private_file};

/// An operator, whose files are in a place of their own.
struct Operator {
    user: User,
    folder: TempDir,
}

impl Operator {
    fn new() -> Operator {
        let (mut user, folder) = (User::same(), folder(0o700));
        for (name, below) in [("XDG_DATA_HOME", "data"), ("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")] {
            user.env.push((name.to_owned(), folder.path().join(below).to_str().unwrap().to_owned()));
        }
        Operator { user, folder }
    }

    fn token(&self, words: &[&str]) -> Output {
        let words: Vec<&str> = ["token"].into_iter().chain(words.iter().copied()).collect();
        self.user.command(&words).stdin(Stdio::null()).output().unwrap()
    }

    /// The token that it prints, and nothing else.
    #[track_caller]
    fn add(&self, words: &[&str]) -> String {
        let output = self.token(&[&["add"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let token = String::from_utf8(output.stdout).unwrap();
        let token = token.strip_suffix('\n').unwrap().to_owned();
        assert!(token.starts_with("blj_") && token.len() == 47 && !said.contains(&token), "{token} {said}");
        token
    }

    #[track_caller]
    fn listed(&self) -> Value {
        let output = self.token(&["list", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn serve(&self, words: &[&str]) -> Server<Http> {
        self.user.serve_http(words)
    }
}

fn call(client: &Http, tool: &str, arguments: Value) -> Reply {
    client.raw(&client.call_bytes(tool, arguments, ""))
}

fn run(client: &Http) -> Reply {
    call(client, "run_code", json!({"language": "shell", "code": "echo ran"}))
}

#[track_caller]
fn assert_no(reply: &Reply, status: u16, head: &[&str], words: &[&str]) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_sentence(reply.body.trim_end(), words);
    for word in head {
        assert!(reply.head.contains(word), "{word:?} is not in {}", reply.head);
    }
}

#[test]
fn a_token_is_issued_used_listed_and_revoked() {
    let operator = Operator::new();
    let (first, second) = (operator.add(&["ann"]), operator.add(&["ann"]));
    let bob = operator.add(&["bob", "--scope", "read", "--expires", "30d", "--quota", "runs=2"]);
    let server = operator.serve(&[]);
    let (mut old, mut new) = (server.client.with_token(&first), server.client.with_token(&second));
    assert_no(&run(&server.client), 401, &["www-authenticate: bearer"], &["token"]);
    // Both are Ann.
    let sandbox = old.create(json!({}));
    new.shell_in(&sandbox, "echo ran").printed("ran\n");

    let listed = operator.listed();
    assert_eq!(listed[2]["name"], "bob");
    assert_eq!((&listed[2]["scopes"], &listed[2]["quota"]), (&json!(["read"]), &json!({"runs": 2})));
    assert_eq!((&listed[0]["scopes"], &listed[0]["expires"]), (&json!(["run", "tools"]), &Value::Null));
    let shown = String::from_utf8(operator.token(&["list"]).stdout).unwrap();
    assert!(shown.contains("bob") && shown.contains("runs=2") && !shown.contains("blj_"), "{shown}");
    let file = std::fs::read_to_string(operator.folder.path().join("data/belljar/access.json")).unwrap();
    assert!([&first, &second, &bob].iter().all(|token| !file.contains(token.as_str())));

    let id = listed[0]["id"].as_str().unwrap();
    assert!(operator.token(&["revoke", id]).status.success());
    assert_no(&run(&old), 401, &["error=\"invalid_token\"", "revoked"], &["revoked"]);
    new.shell_in(&sandbox, "echo still").printed("still\n");
    assert!(operator.token(&["revoke", "ann"]).status.success());
    assert_eq!(run(&new).status, 401);
    let again = operator.token(&["revoke", "ann"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(125) && said.contains("no token") && said.contains("hint: "), "{said}");
    // One that is issued while the server runs is good at once, and finds what its name left.
    server.client.with_token(&operator.add(&["ann"])).shell_in(&sandbox, "echo back").printed("back\n");
    // Without its file nobody comes in, and nobody throws a token away for that.
    std::fs::remove_file(operator.folder.path().join("data/belljar/access.json")).unwrap();
    assert_no(&run(&server.client.with_token(&bob)), 503, &["retry-after: "], &["try again later"]);
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let operator = Operator::new();
    for (words, said) in [
        (&["add", "a b"][..], "a name has"),
        (&["add", "oauth:ann"], "a name has"),
        (&["add", "ann", "--scope", "everything"], "read, files, run, tools"),
        (&["add", "ann", "--expires", "yesterday"], "30d"),
        (&["add", "ann", "--expires", "2001-01-01"], "over already"),
        (&["add", "ann", "--quota", "sandbox=1"], "requests_per_second"),
        (&["revoke", "nobody"], "no token"),
    ] {
        let output = operator.token(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty() && told.contains(said), "{words:?}: {told}");
    }
    assert_eq!(operator.listed(), json!([]));
    let lines = private_file(operator.folder.path(), "lines", "ann:0123456789abcdef\n");
    let output = operator.token(&["add", "bob", "--token-file", lines.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("by hand"), "{told}");
}

#[test]
fn scopes_bound_what_a_token_can_do_and_what_it_is_shown() {
    let operator = Operator::new();
    let server = {
        let _any = operator.add(&["ann", "--scope", "run"]);
        operator.serve(&[])
    };
    let with = |scope: &str| server.client.with_token(&operator.add(&["ann", "--scope", scope]));
    let (reader, writer, mut runner) = (with("read"), with("files"), with("run"));
    let sandbox = runner.create(json!({}));
    let job = runner.call("exec", json!({"sandbox_id": sandbox, "command": "sleep 60", "background": true}));
    let job = job.field("job_id").as_str().unwrap().to_owned();
    let (here, read) = (json!(sandbox), ["list_files", "read_file", "job", "search_tools"]);
    for (tool, arguments, reads, writes) in [
        ("list_files", json!({"sandbox_id": here}), true, true),
        ("write_file", json!({"sandbox_id": here, "path": "a", "content": "x"}), false, true),
        ("read_file", json!({"sandbox_id": here, "path": "a"}), true, true),
        ("create_sandbox", json!({}), false, true),
        ("exec", json!({"sandbox_id": here, "command": "echo"}), false, false),
        ("run_code", json!({"language": "shell", "code": "echo"}), false, false),
        ("job", json!({"job_id": job, "action": "poll"}), true, true),
        ("job", json!({"job_id": job, "action": "stdin", "stdin": "x"}), false, false),
        ("job", json!({"job_id": job, "action": "signal", "signal": "KILL"}), false, false),
        ("destroy_sandbox", json!({"sandbox_id": "sb_0123456789abcdef0123456789abcdef"}), false, true),
    ] {
        for (client, may) in [(&reader, reads), (&writer, writes), (&runner, true)] {
            let reply = call(client, tool, arguments.clone());
            if may {
                assert_eq!(reply.status, 200, "{tool}: {reply:?}");
            } else {
                assert_no(&reply, 403, &["error=\"insufficient_scope\"", "scope=\""], &["scope", "operator"]);
            }
        }
    }
    let tools = |client: &Http| -> Vec<String> {
        let listed = client.request("tools/list", json!({}), "")["result"]["tools"].clone();
        listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(tools(&reader).iter().all(|tool| read.contains(&tool.as_str())), "{:?}", tools(&reader));
    assert!(tools(&reader).len() >= 3 && tools(&writer).len() > tools(&reader).len());
    assert!(tools(&runner).contains(&"run_code".to_owned()) && !tools(&writer).contains(&"run_code".to_owned()));
    // Resources are for readers, and a token for tools alone is none.
    assert_eq!(
        reader.request("resources/list", json!({}), "")["result"]["resources"][0]["uri"],
        format!("belljar://{sandbox}/")
    );
    let caller = with("tools");
    let listing = caller.raw(&caller.request_bytes("resources/list", json!({}), ""));
    assert_no(&listing, 403, &["insufficient_scope", "scope=\"read\""], &["read"]);
    assert_eq!(tools(&caller), Vec::<String>::new());
}

#[test]
fn a_token_expires_and_says_so() {
    let operator = Operator::new();
    let token = operator.add(&["ann", "--expires", "3s"]);
    let server = operator.serve(&[]);
    let client = server.client.with_token(&token);
    let deadline = Instant::now() + Duration::from_secs(30);
    // Until it does: nothing but the clock can tell.
    let refused = loop {
        let reply = client.raw(&client.request_bytes("tools/list", json!({}), ""));
        if reply.status != 200 || Instant::now() > deadline {
            break reply;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_no(&refused, 401, &["error=\"invalid_token\"", "the token has expired"], &["expired"]);
    assert_eq!(operator.listed()[0]["expired"], true);
}

#[test]
fn too_many_requests_are_told_when_to_come_back() {
    let operator = Operator::new();
    let ann = operator.add(&["ann", "--quota", "requests_per_second=3"]);
    let bob = operator.add(&["bob"]);
    let server = operator.serve(&[]);
    let (ann, bob) = (server.client.with_token(&ann), server.client.with_token(&bob));
    let list = |client: &Http| client.raw(&client.request_bytes("tools/list", json!({}), ""));
    let replies: Vec<Reply> = (0..20).map(|_| list(&ann)).collect();
    assert!(replies.iter().take(3).all(|reply| reply.status == 200), "{replies:?}");
    let refused = replies.iter().find(|reply| reply.status == 429).expect("one of twenty is too many");
    assert_no(refused, 429, &["retry-after: 1"], &["too many requests", "1 s"]);
    assert_eq!(list(&bob).status, 200);
    let deadline = Instant::now() + Duration::from_secs(30);
    while list(&ann).status != 200 {
        assert!(Instant::now() < deadline, "she is let in again");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_token_in_an_address_is_refused() {
    let operator = Operator::new();
    let token = operator.add(&["ann"]);
    let server = operator.serve(&[]);
    let client = server.client.with_token(&token);
    for query in [format!("access_token={token}"), format!("x=1&token={token}"), format!("acc%65ss_token={token}")] {
        let bytes = String::from_utf8(client.request_bytes("tools/list", json!({}), "")).unwrap();
        let reply = client.raw(bytes.replacen("POST /mcp ", &format!("POST /mcp?{query} "), 1).as_bytes());
        assert_no(&reply, 400, &[], &["address", "Authorization: Bearer"]);
        assert!(!reply.body.contains(&token));
    }
    assert_eq!(client.raw(&client.request_bytes("tools/list", json!({}), "")).status, 200);
}

/// A handle of the same shape that never was.
fn other(handle: &str) -> String {
    let (kind, rest) = handle.rsplit_once('_').unwrap();
    format!("{kind}_{}", rest.chars().map(|c| if c == '0' { '1' } else { '0' }).collect::<String>())
}

/// For every tool that takes a handle, a foreign one is one that never was.
#[test]
fn a_foreign_handle_is_an_unknown_one() {
    let operator = Operator::new();
    let (ann, bob) = (operator.add(&["ann"]), operator.add(&["bob"]));
    let server = operator.serve(&[]);
    let (mut ann, mut bob) = (server.client.with_token(&ann), server.client.with_token(&bob));
    let sandbox = ann.create(json!({}));
    let job = ann.call("exec", json!({"sandbox_id": sandbox, "command": "sleep 60", "background": true}));
    let job = job.field("job_id").as_str().unwrap().to_owned();
    let output = ann.shell("seq 10000").field("output_uris")["stdout"].as_str().unwrap().to_owned();
    for (tool, arguments) in [
        ("run_code", json!({"language": "shell", "code": "echo"})),
        ("exec", json!({"command": "echo"})),
        ("read_file", json!({"path": "note"})),
        ("write_file", json!({"path": "note", "content": "x"})),
        ("list_files", json!({})),
        ("destroy_sandbox", json!({})),
    ] {
        let mut with = |id: &str| {
            let mut arguments = arguments.clone();
            arguments["sandbox_id"] = id.into();
            bob.call(tool, arguments)
        };
        let (foreign, unknown) = (with(&sandbox), with(&other(&sandbox)));
        foreign.refused(&["no such sandbox"]);
        assert_eq!(foreign.result, unknown.result, "{tool}");
    }
    for action in ["poll", "wait", "stdin", "signal"] {
        let mut with = |id: &str| bob.call("job", json!({"job_id": id, "action": action, "stdin": "x", "timeout": 1}));
        let (foreign, unknown) = (with(&job), with(&other(&job)));
        assert!(foreign.is_error(), "{action}: {foreign:?}");
        assert_eq!(foreign.result, unknown.result, "{action}");
    }
    let swapped = |uri: &str, from: &str| uri.replace(from, &other(from));
    let run = output.split('/').find(|part| part.starts_with("run_")).unwrap().to_owned();
    for (uri, handle) in
        [(format!("belljar://{sandbox}/"), &sandbox), (format!("belljar://{sandbox}/note"), &sandbox), (output, &run)]
    {
        let read = |uri: &str| {
            let answer = bob.request("resources/read", json!({"uri": uri}), &format!("Mcp-Name: {uri}\r\n"));
            answer["error"].to_string().replace(uri, "URI")
        };
        let (foreign, unknown) = (read(&uri), read(&swapped(&uri, handle)));
        assert!(foreign.contains("code"), "{uri}: {foreign}");
        assert_eq!(foreign, unknown);
    }
    // Still there, and hers.
    ann.shell_in(&sandbox, "echo hers").printed("hers\n");
    assert_eq!(ann.call("job", json!({"job_id": job, "action": "poll"})).field("ending"), "running");
}

#[test]
fn tokens_of_an_authorization_server_are_checked_by_its_keys() {
    let (operator, issuer) = (Operator::new(), Issuer::start());
    let audience = "https://bell.example/mcp";
    let config = format!("[oauth]\nissuer = \"{}\"\naudience = \"{audience}\"\n", issuer.name);
    let config = private_file(operator.folder.path(), "oauth.toml", &config);
    let own = operator.add(&["ann"]);
    let server = operator.serve(&["--config", config.to_str().unwrap()]);
    let metadata = "resource_metadata=\"https://bell.example/.well-known/oauth-protected-resource/mcp\"";
    assert_no(&run(&server.client), 401, &[metadata, "scope=\"belljar:run\""], &["token"]);
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let reply = server.client.get(path, "");
        let document: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(
            (&document["resource"], &document["authorization_servers"]),
            (&json!(audience), &json!([issuer.name]))
        );
    }

    let good = |scope: &str| json!({"sub": "ann", "aud": audience, "scope": scope});
    let with = |claims: Value| server.client.with_token(&issuer.token(claims));
    let mut agent = with(good("belljar:run"));
    let sandbox = agent.create(json!({}));
    agent.shell_in(&sandbox, "echo ran").printed("ran\n");
    // A subject is nobody whom the operator named.
    let mut ann = server.client.with_token(&own);
    ann.call("list_files", json!({"sandbox_id": sandbox})).refused(&["no such sandbox"]);
    let reader = with(good("belljar:read"));
    assert_no(&run(&reader), 403, &["insufficient_scope", "scope=\"belljar:run\"", metadata], &["scope"]);
    assert_no(&run(&with(good("openid"))), 403, &["insufficient_scope"], &["scope"]);
    for (claims, words) in [
        (json!({"sub": "ann", "aud": "https://other.example", "scope": "run"}), "not meant for this server"),
        (json!({"sub": "ann", "aud": audience, "scope": "run", "exp": 1000}), "expired"),
        (json!({"sub": "ann", "aud": audience, "scope": "run", "iss": "https://evil.example"}), "issuer"),
    ] {
        assert_no(&run(&with(claims)), 401, &["error=\"invalid_token\"", metadata], &[words]);
    }
    let forged = Issuer::start().token_as(&issuer.name, good("run"));
    assert_no(&run(&server.client.with_token(&forged)), 401, &["invalid_token"], &["signature"]);
    let unsigned = issuer.unsigned(good("run"));
    assert_no(&run(&server.client.with_token(&unsigned)), 401, &["invalid_token"], &["algorithm"]);
    assert_eq!(issuer.asked(), 1, "keys are asked for once");
}

/// What a caller shows at our door is not shown at anybody else's.
#[test]
fn no_token_is_passed_on_to_other_servers() {
    let operator = Operator::new();
    let token = operator.add(&["ann"]);
    let (heard, upstream) = issuer::recorder();
    let servers = json!({"mcpServers": {"other": {"url": format!("http://{upstream}/mcp")}}}).to_string();
    let file = private_file(operator.folder.path(), "mcp.json", &servers);
    let server = operator.serve(&["--mcp-config", file.to_str().unwrap(), "--direct"]);
    let client = server.client.with_token(&token);
    client.request("tools/list", json!({}), "");
    call(&client, "search_tools", json!({"query": "x"}));
    run(&client);
    let mut all = vec![heard.recv_timeout(Duration::from_secs(60)).expect("the other server was asked")];
    while let Ok(more) = heard.try_recv() {
        all.push(more);
    }
    for text in all {
        assert!(!text.contains(&token) && !text.to_lowercase().contains("authorization:"), "{text}");
    }
}

/// Without the scope `tools` programs see no tools, and can call none.
#[test]
fn tools_are_for_those_who_have_the_scope() {
    let operator = Operator::new();
    let (all, some) = (operator.add(&["ann"]), operator.add(&["bob", "--scope", "run"]));
    let mock =
        private_file(operator.folder.path(), "mock.py", include_str!("../../../../gateway/tests/upstreams/mock.py"));
    let servers = json!({"mcpServers": {"mock": {"command": "python3", "args": [mock]}}}).to_string();
    let file = private_file(operator.folder.path(), "mcp.json", &servers);
    let server = operator.serve(&["--mcp-config", file.to_str().unwrap(), "--direct", "--approve", "never"]);
    let (mut all, mut some) = (server.client.with_token(&all), server.client.with_token(&some));
    let names = |client: &Http| client.request("tools/list", json!({}), "")["result"]["tools"].to_string();
    assert!(names(&all).contains("mock") && !names(&some).contains("mock"), "{}", names(&some));
    let direct = call(&some, "mock__echo", json!({"text": "x"}));
    assert!(direct.body.contains("scope tools"), "{direct:?}");
    let code = "import tools\nfrom tools import mock\nprint(mock.echo(text='called'))";
    all.python(code).printed("called\n");
    let refused = some.python(code);
    assert!(refused.is_error() || !refused.stdout().contains("called"), "{refused:?}");
    let by_hand = some.shell("tools call mock.echo text=called");
    assert!(!by_hand.stdout().contains("called"), "{by_hand:?}");
}
