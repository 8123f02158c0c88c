//! What there is to call while it changes, and for those who call it without a program.

use std::time::Duration;

use serde_json::{Value, json};

use super::place::Place;
use crate::client::{Caller, Http, StdioClient};
use crate::host;

#[test]
fn a_sandbox_that_stays_sees_what_is_new() {
    Place::each(|place| {
        let place = place.mock("mock", &[]);
        let mut server = place.serve();
        let client = &mut server.client;
        let sandbox = client.create(json!({}));
        let mut python =
            |code: &str| client.call("run_code", json!({"language": "python", "code": code, "sandbox_id": sandbox}));
        python("import tools\nfrom tools import mock\nprint(mock.echo(text='one'))").printed("one\n");
        // What was imported goes on, and so does the connection.
        python("first = mock.pid()\nprint(mock.echo(text='two'), first == mock.pid())").printed("two True\n");
        python("print('broken' in dir(mock)); print(mock.change(name='broken'))").printed("False\nchanged\n");
        host::until("the new tool is known", Duration::from_secs(10), || {
            python("print('mock.broken' in tools.search('broken', detail='names'))").stdout() == "True\n"
        });
        let code = "import os\ntry:\n    mock.broken()\nexcept tools.ToolError as error:\n    print(error)";
        python(code).printed("it failed\n");
        let seen = |stdout: &str| stdout == "True True\n";
        let code = "print('broken' in dir(mock), os.path.exists('/tools/mock/broken.json'))";
        let answer = python(code);
        assert!(seen(answer.stdout()), "the sandbox that stays has the new catalogue: {}", answer.result);
        let id = client.request("tools/list", json!({}));
        let described = client.answer(id)["result"]["tools"][0]["description"].to_string();
        assert!(described.contains("mock (13)"), "{described}");
    });
}

fn names(tools: &Value) -> Vec<&str> {
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[test]
fn tools_can_be_called_without_a_program() {
    Place::each_public(|place| {
        let denied = json!({"deny": ["get-env"], "command": place.everything_command()});
        let place = place.with("everything", denied);
        let mut server = place.serve_with(&["--approve", "never", "--direct"]);
        let client: &mut StdioClient = &mut server.client;
        let id = client.request("tools/list", json!({}));
        let listed = client.answer(id)["result"]["tools"].clone();
        let all = names(&listed);
        assert!(all.contains(&"run_code") && all.contains(&"everything__get_sum"), "{all:?}");
        assert!(!all.contains(&"everything__get_env"), "{all:?}");
        let sum = client.call("everything__get_sum", json!({"a": 40, "b": 2}));
        assert_eq!((sum.text(), sum.is_error()), ("The sum of 40 and 2 is 42.", false));
        let picture = client.call("everything__get_tiny_image", json!({}));
        assert_eq!(picture.result["content"][1]["type"], "image", "a model sees pictures: {}", picture.result);
        let wrong = client.call("everything__get_sum", json!({"a": "x"}));
        assert!(wrong.is_error() && wrong.text().starts_with("InvalidArguments: "), "{}", wrong.result);
        client
            .python("from tools import everything; print(everything.get_sum(a=1, b=1))")
            .printed("The sum of 1 and 1 is 2.\n");
        drop(server);

        let server = place.serve_http(&[]);
        let asked = |http: &Http, method: &str, params: Value| -> Value {
            let name = params["name"].as_str().map(|name| format!("Mcp-Name: {name}\r\n")).unwrap_or_default();
            let bytes = String::from_utf8(http.request_bytes(method, params, &name)).unwrap();
            let reply = http.raw(bytes.replacen("POST /mcp ", "POST /mcp?codemode=false ", 1).as_bytes());
            serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"))
        };
        let listed = asked(&server.client, "tools/list", json!({}))["result"]["tools"].clone();
        let all = names(&listed);
        assert!(all.contains(&"everything__echo") && !all.contains(&"run_code"), "{all:?}");
        let called =
            asked(&server.client, "tools/call", json!({"name": "everything__echo", "arguments": {"message": "hello"}}));
        assert_eq!(called["result"]["content"][0]["text"], "Echo: hello", "{called}");
        let plain = server.client.request("tools/list", json!({}), "")["result"]["tools"].clone();
        assert!(names(&plain).contains(&"run_code") && !names(&plain).contains(&"everything__echo"));
    });
}
