use std::time::Duration;

use belljar_gateway::approval::Verdict;
use serde_json::{Value, json};

use crate::Surface;
use crate::gateway::fake::{Client, FakeMode, refused, said};

/// What the first run that somebody can be asked about has.
const OCCASION: u64 = 1;

fn can_ask() -> Value {
    json!({"elicitation": {}})
}

async fn older() -> Client {
    Client::older(FakeMode::default(), Surface::default(), "2025-11-25", can_ask()).await
}

fn newest() -> Client {
    Client::newest(FakeMode::default(), Surface::default(), can_ask())
}

fn says(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

fn comes_back(tool: &str, arguments: &Value, state: &Value, answer: Value) -> Value {
    json!({"name": tool, "arguments": arguments, "requestState": state, "inputResponses": {"approval": answer}})
}

/// What was written down of people's words.
fn decided(client: &Client) -> Vec<(String, &'static str)> {
    client.mode.decided.lock().unwrap().iter().map(|decided| (decided.name.clone(), decided.outcome)).collect()
}

fn named((name, outcome): (&str, &'static str)) -> (String, &'static str) {
    (name.to_owned(), outcome)
}

/// The handle of a question, which the answer must be.
fn state(answer: &Value) -> Value {
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    assert_eq!(answer["result"]["inputRequests"]["approval"]["method"], "elicitation/create", "{answer}");
    answer["result"]["requestState"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_form_is_answered_while_the_request_is_open() {
    let mut client = older().await;
    client.begin(7, "sleep 3000\nprint done").await;
    let verdict = client.mode.request(OCCASION, "create_issue");
    let form = client.answer_form(says("approve_run")).await;
    let message = form["message"].as_str().unwrap();
    assert!(message.contains("github.create_issue\n{\n  \"title\": \"by create_issue\"\n}"), "{message}");
    assert_eq!(form["requestedSchema"]["properties"]["decision"]["oneOf"][3]["const"], "deny");
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Run));
    let answer = client.next().await;
    assert_eq!((&answer["id"], said(&answer)), (&json!(7), "done\n"));
    assert_eq!(client.mode.request(OCCASION, "late").await.unwrap(), None, "its occasion is over");
}

#[tokio::test(start_paused = true)]
async fn several_calls_are_decided_by_one_form() {
    let mut client = older().await;
    client.begin(7, "sleep 3000\nprint done").await;
    let (one, two) = (client.mode.request(OCCASION, "a"), client.mode.request(OCCASION, "b"));
    let answer = json!({"action": "accept", "content": {"decision": "approve", "except": "2"}});
    let form = client.answer_form(answer).await;
    assert!(form["message"].as_str().unwrap().contains("\n2. github.b\n"), "{form}");
    assert_eq!((one.await.unwrap(), two.await.unwrap()), (Some(Verdict::Once), Some(Verdict::Deny)));
    let third = client.mode.request(OCCASION, "c");
    client.answer_form(says("approve_same")).await;
    assert_eq!(third.await.unwrap(), Some(Verdict::Same));
    assert_eq!(said(&client.next().await), "done\n");
}

#[tokio::test(start_paused = true)]
async fn who_declines_or_cannot_show_a_form_denies() {
    let mut client = older().await;
    client.begin(7, "sleep 9000").await;
    for answer in [json!({"action": "decline"}), json!({"action": "cancel"})] {
        let verdict = client.mode.request(OCCASION, "a");
        client.answer_form(answer).await;
        assert_eq!(verdict.await.unwrap(), Some(Verdict::Deny));
    }
    let verdict = client.mode.request(OCCASION, "a");
    let form = client.next().await;
    client.send(json!({"jsonrpc": "2.0", "id": form["id"], "error": {"code": -32603, "message": "no"}})).await;
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Deny));
}

#[tokio::test(start_paused = true)]
async fn an_older_client_reads_the_choices_its_own_way() {
    let mut client = Client::older(FakeMode::default(), Surface::default(), "2025-06-18", can_ask()).await;
    client.begin(7, "sleep 3000").await;
    let verdict = client.mode.request(OCCASION, "a");
    let form = client.answer_form(says("approve")).await;
    assert_eq!(form["requestedSchema"]["properties"]["decision"]["enumNames"][0], "Approve this call");
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_ask_has_no_occasion() {
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut client =
            Client::older(FakeMode::default(), Surface::default(), "2025-11-25", capabilities.clone()).await;
        client.begin(7, "sleep 3000\nprint done").await;
        assert_eq!(client.mode.request(OCCASION, "a").await.unwrap(), None);
        assert_eq!(said(&client.next().await), "done\n");
        let mut client = Client::newest(FakeMode::default(), Surface::default(), capabilities);
        client.begin(7, "sleep 3000\nprint done").await;
        assert_eq!(client.mode.request(OCCASION, "a").await.unwrap(), None);
        assert_eq!(said(&client.next().await), "done\n");
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_may_take_longer_than_the_client() {
    let mut client = older().await;
    let arguments = json!({"language": "python", "code": "sleep 200000\nprint done", "timeout": 1000});
    client.request(7, "tools/call", json!({"name": "run_code", "arguments": arguments})).await;
    client.until("it runs", |fake| fake.programs() > 0).await;
    let verdict = client.mode.request(OCCASION, "a");
    let form = client.next().await;
    let running = client.next().await;
    let job = running["result"]["structuredContent"]["job_id"].clone();
    client.send(json!({"jsonrpc": "2.0", "id": form["id"], "result": says("approve")})).await;
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once), "the form still counts");
    let again = client.mode.request(OCCASION, "b");
    client.request(8, "tools/call", json!({"name": "job", "arguments": {"job_id": job, "action": "wait"}})).await;
    client.answer_form(says("deny")).await;
    assert_eq!(again.await.unwrap(), Some(Verdict::Deny), "and whoever looks at the job is asked");
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_with_the_question_and_comes_again_with_the_answer() {
    let mut client = newest();
    let arguments = client.begin(1, "print a\nsleep 20000\nprint b").await;
    let verdict = client.mode.request(OCCASION, "create_issue");
    let asked = client.next().await;
    let handle = state(&asked);
    let form = &asked["result"]["inputRequests"]["approval"]["params"];
    assert!(form["message"].as_str().unwrap().contains("github.create_issue"), "{form}");
    assert_eq!(client.fake.programs(), 1, "it waits, and was not ended");

    // What is forged, or is of another call, decides nothing.
    let forged = json!("0".repeat(64));
    let wrong = client.ask(2, "tools/call", comes_back("run_code", &arguments, &forged, says("approve"))).await;
    assert!(refused(&wrong).contains("not one that waits"), "{wrong}");
    let other = json!({"language": "python", "code": "print evil"});
    let wrong = client.ask(3, "tools/call", comes_back("run_code", &other, &handle, says("approve"))).await;
    assert!(refused(&wrong).contains("another call"), "{wrong}");
    let wrong = client.ask(4, "tools/call", comes_back("exec", &arguments, &handle, says("approve"))).await;
    assert!(refused(&wrong).contains("another call"), "{wrong}");
    assert_eq!((client.mode.waiting(OCCASION).len(), client.fake.programs()), (1, 1));

    client.request(5, "tools/call", comes_back("run_code", &arguments, &handle, says("approve"))).await;
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once));
    // There may be more to ask.
    let second = client.mode.request(OCCASION, "close_issue");
    let next = state(&client.next().await);
    client.request(6, "tools/call", comes_back("run_code", &arguments, &next, json!({"action": "decline"}))).await;
    assert_eq!(second.await.unwrap(), Some(Verdict::Deny));
    let done = client.next().await;
    assert_eq!((said(&done), &done["id"], &done["result"]["resultType"]), ("a\nb\n", &json!(6), &json!("complete")));
    let used = client.ask(7, "tools/call", comes_back("run_code", &arguments, &next, says("approve"))).await;
    assert!(refused(&used).contains("used already"), "{used}");
}

#[tokio::test(start_paused = true)]
async fn who_never_comes_back_has_denied() {
    let mut client = newest();
    let arguments = json!({"language": "python", "code": "sleep 1500000\nprint b", "timeout": 3000});
    client.request(1, "tools/call", json!({"name": "run_code", "arguments": arguments})).await;
    client.until("it runs", |fake| fake.programs() > 0).await;
    let begun = tokio::time::Instant::now();
    let verdict = client.mode.request(OCCASION, "a");
    let handle = state(&client.next().await);
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Deny));
    assert!(begun.elapsed() >= Duration::from_secs(600), "{:?}", begun.elapsed());
    assert_eq!(client.mode.request(OCCASION, "b").await.unwrap(), None, "nobody is there");
    assert_eq!(client.fake.programs(), 1, "and it goes on");
    let late = client.ask(2, "tools/call", comes_back("run_code", &arguments, &handle, says("approve"))).await;
    assert!(refused(&late).contains("older than 10 minutes"), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_asked_about_when_it_is_looked_at() {
    let mut client = newest();
    let made = client.call(1, "create_sandbox", json!({})).await;
    let sandbox = made["result"]["structuredContent"]["sandbox_id"].clone();
    let arguments = json!({"sandbox_id": sandbox, "command": "sleep 100000\nprint b", "background": true});
    let job = client.call(2, "exec", arguments).await["result"]["structuredContent"]["job_id"].clone();
    let look = json!({"job_id": job});
    let quiet = client.call(3, "job", look.clone()).await;
    assert_eq!(quiet["result"]["structuredContent"]["ending"], "running");
    let verdict = client.mode.request(OCCASION, "a");
    client.until("it waits", |_| !client.mode.waiting(OCCASION).is_empty()).await;
    let handle = state(&client.call(4, "job", look.clone()).await);
    let looked = client.ask(5, "tools/call", comes_back("job", &look, &handle, says("approve"))).await;
    assert_eq!(looked["result"]["structuredContent"]["ending"], "running", "{looked}");
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once));
    let second = client.mode.request(OCCASION, "b");
    let wait = json!({"job_id": job, "action": "wait", "timeout": 40});
    let handle = state(&client.call(6, "job", wait.clone()).await);
    client.request(7, "tools/call", comes_back("job", &wait, &handle, says("deny"))).await;
    assert_eq!(second.await.unwrap(), Some(Verdict::Deny));
}

#[tokio::test(start_paused = true)]
async fn a_direct_call_waits_for_a_person_too() {
    let surface = Surface { direct: true, ..Surface::default() };
    let mut client = Client::newest(FakeMode::default(), surface.clone(), can_ask());
    for (decision, text) in [("approve", "asked and done"), ("deny", "ApprovalDenied: not approved")] {
        let handle = state(&client.call(1, "github__ask", json!({})).await);
        let done = client.ask(2, "tools/call", comes_back("github__ask", &json!({}), &handle, says(decision))).await;
        assert_eq!(said(&done), text);
    }
    let mut client = Client::older(FakeMode::default(), surface, "2025-11-25", can_ask()).await;
    client.request(3, "tools/call", json!({"name": "github__ask", "arguments": {}})).await;
    client.answer_form(says("approve")).await;
    assert_eq!(said(&client.next().await), "asked and done");
}

fn approves_code() -> FakeMode {
    FakeMode { approves_code: true, ..FakeMode::default() }
}

#[tokio::test(start_paused = true)]
async fn a_program_is_approved_before_it_runs() {
    let mut client = Client::older(approves_code(), Surface::default(), "2025-11-25", can_ask()).await;
    let arguments = json!({"language": "python", "code": "print ran"});
    let run = json!({"name": "run_code", "arguments": arguments});
    client.request(1, "tools/call", run.clone()).await;
    let form = client.answer_form(says("deny")).await;
    assert!(form["message"].as_str().unwrap().contains("print ran"), "{form}");
    let denied = client.next().await;
    assert!(said(&denied).contains("did not approve") && denied["result"]["isError"] == true, "{denied}");
    client.request(2, "tools/call", run.clone()).await;
    client.answer_form(says("approve_same")).await;
    assert_eq!(said(&client.next().await), "ran\n");
    assert_eq!(said(&client.ask(3, "tools/call", run).await), "ran\n", "always, exactly this one");
    let other = json!({"name": "run_code", "arguments": {"language": "javascript", "code": "print ran"}});
    client.request(4, "tools/call", other).await;
    client.answer_form(json!({"action": "cancel"})).await;
    assert!(said(&client.next().await).contains("did not approve"));
    assert_eq!(
        decided(&client),
        [("python", "denied"), ("python", "approved-same"), ("javascript", "denied")].map(named),
        "each once, and not what was approved before"
    );
    let first = client.mode.decided.lock().unwrap()[0].clone();
    // `printf 'print ran' | sha256sum`: the text alone, as its run has it.
    assert_eq!(first.sha256, "7d8312e61a7b17d6f96343cbb145829703b1c374fbe2fd8ec96fec571544ed76");
    assert_eq!((first.what, first.run), ("program", None));
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_before_the_request_comes_again() {
    let mut client = Client::newest(approves_code(), Surface::default(), can_ask());
    let arguments = json!({"language": "python", "code": "print ran"});
    let handle = state(&client.call(1, "run_code", arguments.clone()).await);
    assert_eq!(client.fake.opened(), 0, "nothing was opened for it");
    let other = json!({"language": "python", "code": "print other"});
    let wrong = client.ask(2, "tools/call", comes_back("run_code", &other, &handle, says("approve"))).await;
    assert!(refused(&wrong).contains("another call"), "{wrong}");
    let ran = client.ask(3, "tools/call", comes_back("run_code", &arguments, &handle, says("approve"))).await;
    assert_eq!(said(&ran), "ran\n");
    let handle = state(&client.call(4, "run_code", arguments.clone()).await);
    let denied = client.ask(5, "tools/call", comes_back("run_code", &arguments, &handle, says("deny"))).await;
    assert!(said(&denied).contains("did not approve"), "{denied}");
    assert_eq!(decided(&client), [("python", "approved"), ("python", "denied")].map(named));
}

#[tokio::test(start_paused = true)]
async fn programs_are_refused_where_nobody_can_be_asked() {
    for surface in [Surface::default(), Surface { profile: Some("e2b".into()), ..Surface::default() }] {
        let mut client = Client::older(approves_code(), surface, "2025-11-25", json!({})).await;
        let tools = client.ask(1, "tools/list", json!({})).await;
        let needs_language = tools["result"]["tools"][0]["inputSchema"]["properties"].get("language").is_some();
        let arguments =
            if needs_language { json!({"language": "python", "code": "print x"}) } else { json!({"code": "print x"}) };
        let refused = client.call(2, "run_code", arguments).await;
        assert!(said(&refused).contains("--approve never"), "{refused}");
        assert_eq!(client.fake.opened(), 0);
        assert_eq!(decided(&client), [("python", "nobody")].map(named));
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_asks_about_whatever_may_run_what_is_in_the_sandbox() {
    let surface = Surface { profile: Some("daytona".into()), ..Surface::default() };
    let mut client = Client::newest(approves_code(), surface, can_ask());
    let made = client.call(1, "create_sandbox", json!({"env": {"BASH_ENV": "/workspace/x"}})).await;
    let id = said(&made).strip_prefix("Created new sandbox ").unwrap().to_owned();
    let shown = |asked: &Value| {
        state(asked);
        asked["result"]["inputRequests"]["approval"]["params"]["message"].as_str().unwrap().to_owned()
    };
    let command = json!({"id": id, "command": "print ran"});
    let asked = client.call(2, "execute_command", command.clone()).await;
    assert!(shown(&asked).contains("print ran\n[environment] BASH_ENV=/workspace/x"), "{asked}");
    let ran =
        client.ask(3, "tools/call", comes_back("execute_command", &command, &state(&asked), says("approve"))).await;
    assert!(said(&ran).contains("ran"), "{ran}");
    let clone = json!({"id": id, "url": "/workspace/repo"});
    let asked = client.call(4, "git_clone", clone.clone()).await;
    let form = shown(&asked);
    assert!(form.contains("git clone") && form.contains("BELLJAR_URL=/workspace/repo"), "{form}");
    let denied = client.ask(5, "tools/call", comes_back("git_clone", &clone, &state(&asked), says("deny"))).await;
    assert!(said(&denied).contains("did not approve"), "{denied}");
    // Ours, which the fake has no act for.
    let own = client.call(6, "get_file_info", json!({"id": id, "filePath": "a"})).await;
    assert!(said(&own).contains("not an act"), "{own}");
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_profile_is_come_back_to() {
    let surface = Surface { profile: Some("interpreter".into()), ..Surface::default() };
    let mut client = Client::newest(FakeMode::default(), surface, can_ask());
    let arguments = json!({"code": "sleep 5000\nprint done"});
    client.request(1, "tools/call", json!({"name": "execute_code", "arguments": arguments})).await;
    client.until("it runs", |fake| fake.programs() > 0).await;
    let verdict = client.mode.request(OCCASION, "a");
    let handle = state(&client.next().await);
    let done = client.ask(2, "tools/call", comes_back("execute_code", &arguments, &handle, says("approve"))).await;
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once));
    assert!(said(&done).contains("done"), "{done}");
    assert_eq!(client.fake.opened(), 1, "no second session was made");
}

#[tokio::test(start_paused = true)]
async fn progress_says_that_a_person_is_waited_for() {
    let mut client = older().await;
    let arguments = json!({"language": "python", "code": "sleep 9000"});
    let params = json!({"name": "run_code", "arguments": arguments, "_meta": {"progressToken": "p"}});
    client.request(7, "tools/call", params).await;
    client.until("it runs", |fake| fake.programs() > 0).await;
    let verdict = client.mode.request(OCCASION, "a");
    let mut form = None;
    loop {
        let message = client.next().await;
        if message["method"] == "elicitation/create" {
            form = Some(message["id"].clone());
        } else if message["params"]["message"].as_str().unwrap_or_default().contains("person") {
            break;
        }
        assert_ne!(message["id"], 7, "it ended before anybody was told");
    }
    client.send(json!({"jsonrpc": "2.0", "id": form.unwrap(), "result": says("approve")})).await;
    assert_eq!(verdict.await.unwrap(), Some(Verdict::Once));
}
