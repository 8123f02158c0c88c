//! What outlives a call: skills, tokens in place of personal data, the trail of calls.

use serde_json::{Value, json};

use super::place::{Place, prints};
use crate::client::Caller;

#[test]
fn a_skill_is_kept_until_its_tools_change() {
    Place::each(|place| {
        let place = place.mock("mock", &[]);
        let mut server = place.serve();
        let save = r#"
import tools
code = "from tools import mock\ndef main(word):\n    return mock.echo(text=word.upper())\n"
print(tools.skills.save("shout", code, "Says a word loudly", tools=["mock.echo"])["name"])
"#;
        prints(&mut server.client, "python", save, "shout\n");
        prints(&mut server.client, "python", "import tools; print(tools.skills.run('shout', word='a'))", "A\n");
        prints(
            &mut server.client,
            "shell",
            "tools skills run shout word=b; ls /skills/shout",
            "B\nSKILL.md\nmain.py\n",
        );
        let found = server.client.call("search_tools", json!({"query": "say a word loudly"}));
        assert!(found.text().contains("shout"), "{}", found.text());
        drop(server);

        // Another server, the same person.
        let mut server = place.serve();
        prints(&mut server.client, "javascript", "console.log((await tools.skills.list())[0].name)", "shout\n");
        prints(&mut server.client, "python", "import tools; print(tools.skills.shout(word='c'))", "C\n");
        drop(server);

        // The tool is another one now, whatever it is called.
        let changed = place.read("mock.py").replace("The tool {name}.", "Another tool {name}.");
        place.write("mock.py", &changed);
        let mut server = place.serve();
        let refused = "import tools\ntry:\n    print('ran', tools.skills.run('shout', word='d'))\n\
                       except tools.ToolError as error:\n    print(type(error).__name__, 'shout is not run' in str(error))";
        prints(&mut server.client, "python", refused, "PolicyDenied True\n");
    });
}

#[test]
fn a_model_sees_tokens_and_tools_see_addresses() {
    Place::each(|place| {
        let (letters, audit) = (place.write("letters.txt", ""), place.path("audit.jsonl"));
        let settings =
            place.write("belljar.toml", &format!("[privacy]\nhide = [\"email\"]\n[audit]\nfile = {audit:?}\n"));
        let place = place.mock("mock", &["--log", &letters]);
        let mut server = place.serve_with(&["--approve", "never", "--config", &settings, "--direct"]);
        let client = &mut server.client;
        let first =
            client.python("from tools import mock\nprint(mock.echo(text='to ann@example.org and bob@example.org'))");
        first.printed("to [EMAIL_1] and [EMAIL_2]\n");
        assert!(!first.result.to_string().contains("@example.org"), "{}", first.result);
        // The program has the token from the model; the tool gets the address, and so does the program.
        let code =
            "from tools import mock\ngot = mock.echo(text='[EMAIL_2]')\nprint(len(got), got.replace('@', ' at '))";
        client.python(code).printed("15 bob at example.org\n");
        let direct = client.call("mock__echo", json!({"text": "for [EMAIL_1]"}));
        assert_eq!(direct.text(), "for [EMAIL_1]", "{}", direct.result);
        let unknown = "from tools import mock\nprint(mock.echo(text='[EMAIL_9]'))";
        client.python(unknown).printed("[EMAIL_9]\n");
        client
            .python(
                "from tools import mock\ntry:\n    mock.fail(code=-32603, message='no')\nexcept Exception: print(1)",
            )
            .printed("1\n");
        drop(server);

        let trail = place.read("audit.jsonl");
        assert!(!trail.contains("example.org") && !trail.contains("EMAIL"), "no argument is in the trail: {trail}");
        let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let calls: Vec<&Value> = lines.iter().filter(|line| line["event"] == "call").collect();
        assert_eq!(calls.len(), 5, "one line for each call: {trail}");
        for call in &calls[..4] {
            assert_eq!((&call["server"], &call["tool"]), (&json!("mock"), &json!("echo")), "{call}");
            assert_eq!((&call["decision"], &call["outcome"]), (&json!("allowed"), &json!("ok")), "{call}");
            let digests = [&call["arguments_sha256"], &call["result_sha256"]];
            assert!(digests.iter().all(|digest| digest.as_str().is_some_and(|digest| digest.len() == 64)), "{call}");
            assert!(
                call["run"].is_string() && call["milliseconds"].is_u64() && call["bytes_in"].as_u64() > Some(0),
                "{call}"
            );
        }
        assert_eq!((&calls[4]["tool"], calls[4]["outcome"] != "ok"), (&json!("fail"), true), "{}", calls[4]);
    });
}
