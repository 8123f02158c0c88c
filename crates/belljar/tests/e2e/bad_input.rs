//! What no honest client sends. Each gets one clear sentence with the next step, and the server goes on.

use std::path::Path;

use serde_json::{Value, json};

use crate::client::{Caller, StdioClient, assert_sentence};
use crate::host::{mark, peak_kib};
use crate::server::{Server, User};

const MIB: usize = 1024 * 1024;

#[test]
fn programs_that_cannot_be_run() {
    let mut server = Server::start();
    let client = &mut server.client;
    let run = |client: &mut StdioClient, language: &str, code: &str| {
        client.call("run_code", json!({"language": language, "code": code}))
    };
    for language in ["cobol", "", "pyth\u{0}on", "/bin/sh", &"x".repeat(100_000)] {
        run(client, language, "print(1)").refused(&["language", "python", "javascript", "shell"]);
    }
    for empty in ["", " ", "\n\t \r\n"] {
        run(client, "python", empty).refused(&["empty", "send the program's text"]);
    }
    for nul in ["\0", "print('a\0b')", "print(1)\0"] {
        run(client, "python", nul).refused(&["NUL byte", "\\0"]);
        run(client, "shell", nul).refused(&["NUL byte", "\\0"]);
    }
    let long = format!("#{}\nprint(1)", "x".repeat(20 * MIB));
    run(client, "python", &long).refused(&["longer than 1048576 bytes", "write_file"]);
    let stdin = json!({"language": "shell", "code": "cat", "stdin": "x".repeat(2 * MIB)});
    client.call("run_code", stdin).refused(&["stdin is longer than", "write_file"]);
    client.still_runs();
}

/// The longest that is taken is really taken.
#[test]
fn a_program_of_the_longest_length_runs() {
    let mut server = Server::start();
    let mut code = format!("print({})\n#", 6 * 7);
    code += &"x".repeat(MIB - code.len());
    server.client.python(&code).printed("42\n");
    let shell = format!("echo {} | wc -c", "x".repeat(MIB - 20));
    assert_eq!(server.client.shell(&shell).stdout().trim(), (MIB - 19).to_string());
}

#[test]
fn output_that_is_not_text() {
    let mut server = Server::start();
    let client = &mut server.client;
    client.shell(r"printf 'a\377\376b\303'; printf '\300\200' >&2").printed("a\u{fffd}\u{fffd}b\u{fffd}");
    client.shell(r"printf 'x\0y\033[31mred\033[0m\r\n'").printed("x\\u{0}yred\n");
    // Half a character at the end of each write.
    client.python("import os\nfor b in 'é€😀'.encode(): os.write(1, bytes([b]))").printed("é€😀");
    client.python("print('\\u202e\\u2066 \\U000e0041')").printed("\\u{202e}\\u{2066} \\u{e0041}\n");
    // Lines that look like the protocol's own stay inside the answer.
    let forged = r#"{"jsonrpc":"2.0","id":1001,"result":{}}"#;
    client.python(&format!("print({forged:?})")).printed(&format!("{forged}\n"));
    client.still_runs();
}

#[test]
fn sandboxes_that_are_not_there() {
    let mut other = Server::start();
    let foreign = other.client.create(json!({}));
    let mut server = Server::start();
    let client = &mut server.client;
    let own = client.create(json!({}));
    let longer = format!("{own}0");
    for id in [
        foreign.as_str(),
        "",
        "sb_",
        "sb_0123456789abcdef0123456789abcdef",
        "../x",
        "runs",
        "*",
        &own.to_uppercase(),
        &own[..own.len() - 1],
        &longer,
        "\u{0}",
        "😀",
        &"x".repeat(MIB),
    ] {
        for (tool, arguments) in [
            ("run_code", json!({"language": "shell", "code": "echo ran"})),
            ("exec", json!({"command": "echo ran"})),
            ("write_file", json!({"path": "x", "content": "x"})),
            ("read_file", json!({"path": "/etc/passwd"})),
            ("list_files", json!({})),
            ("destroy_sandbox", json!({})),
        ] {
            let mut arguments = arguments;
            arguments["sandbox_id"] = id.into();
            client.call(tool, arguments).refused(&["no such sandbox", "create_sandbox"]);
        }
    }
    client.shell_in(&own, "echo mine").printed("mine\n");
    other.client.shell_in(&foreign, "echo theirs").printed("theirs\n");
}

/// The way up ends at the sandbox's own root.
#[test]
fn paths_that_climb() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    let up = "../../../../../../../..";
    let read =
        |client: &mut StdioClient, path: &str| client.call("read_file", json!({"sandbox_id": sandbox, "path": path}));
    let inside = read(client, &format!("{up}/etc/passwd"));
    assert!(inside.field("content").as_str().unwrap().starts_with("agent:x:1000:"), "{}", inside.result);

    let name = format!("climbed-{}", mark());
    let path = format!("{up}/tmp/{name}");
    let wrote = client.call("write_file", json!({"sandbox_id": sandbox, "path": path, "content": "inside"}));
    assert!(!wrote.is_error(), "{}", wrote.result);
    assert!(!Path::new("/tmp").join(&name).exists(), "a file came to be on the host");
    client.shell_in(&sandbox, &format!("cat /tmp/{name}")).printed("inside");
    client.shell_in(&sandbox, &format!("ln -s / root; ln -s {up}/etc/passwd up; mkfifo fifo")).printed("");
    assert!(read(client, "up").field("content").as_str().unwrap().starts_with("agent:x:1000:"));

    // Of the checkout nothing is seen but what may lie in it for programs to use, such as toolchains.
    let (manifest, sources) = (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), env!("CARGO_MANIFEST_DIR"));
    let sources = format!("root{sources}/src");
    for path in [manifest, &format!("root{manifest}"), &format!("{up}{manifest}"), &sources, "../../root/.bashrc"] {
        read(client, path).refused(&["no such file or directory"]);
    }
    read(client, "fifo").refused(&["not a regular file"]);
    read(client, "/dev/zero").refused(&["not a regular file"]);
    read(client, ".").refused(&["is a directory", "list_files"]);
    for bad in ["", "a\0b", &"x/".repeat(5000)] {
        read(client, bad).refused(&["the path is empty, too long, or has a NUL byte"]);
    }
    let write = json!({"sandbox_id": sandbox, "path": "/usr/bin/env", "content": "x"});
    client.call("write_file", write).refused(&["below /workspace"]);

    for uri in ["/../../etc/shadow", "/%2e%2e/%2e%2e/etc/shadow", "/root/etc/shadow", "/a%00b", "/a?b", "/%zz", ""] {
        let id = client.request("resources/read", json!({"uri": format!("belljar://{sandbox}{uri}")}));
        let answer = client.answer(id);
        let code = answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{uri} gave {answer}"));
        assert!([-32002, -32602].contains(&code), "{uri}: {answer}");
        assert_sentence(answer["error"]["message"].as_str().unwrap(), &[]);
    }
    client.shell_in(&sandbox, "echo on").printed("on\n");
}

/// house.md: one sentence with the next step. Here it follows a semicolon, as everywhere else.
#[test]
fn every_refusal_of_a_file_names_the_next_step() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    client.shell_in(&sandbox, "mkfifo fifo; echo x > file; mkdir closed; chmod 0 closed").printed("");
    let mut without = Vec::new();
    for (tool, path) in [
        ("read_file", "none"),
        ("read_file", ""),
        ("read_file", "."),
        ("read_file", "fifo"),
        ("read_file", "file/below"),
        ("read_file", "closed/x"),
        ("list_files", "none"),
        ("list_files", "file"),
        ("list_files", "closed"),
        ("write_file", ""),
        ("write_file", "."),
        ("write_file", "fifo"),
        ("write_file", "file/below"),
        ("write_file", "/usr/x"),
    ] {
        let mut arguments = json!({"sandbox_id": sandbox, "path": path});
        if tool == "write_file" {
            arguments["content"] = "x".into();
        }
        let answer = client.call(tool, arguments);
        answer.refused(&[]);
        // To write elsewhere is no help to somebody who wants to read.
        let misleads = tool != "write_file" && answer.text().contains("write below");
        if !answer.text().contains("; ") || misleads {
            without.push(format!("{tool} {path:?}: {}", answer.text()));
        }
    }
    assert!(without.is_empty(), "no next step, or a wrong one, in:\n{}", without.join("\n"));
}

/// It is a slip of the caller's, and costs it neither its files nor its sandbox.
#[test]
fn a_directory_to_work_in_that_is_not_there() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    client.shell_in(&sandbox, "echo kept > kept").printed("");
    for cwd in ["no/such", "../../no/such", "kept", "kept/below"] {
        let exec = json!({"sandbox_id": sandbox, "command": "pwd", "cwd": cwd});
        client.call("exec", exec).refused(&["cwd", "directory", "name a directory that is in the sandbox"]);
    }
    let after = client.shell_in(&sandbox, "cat kept");
    after.printed("kept\n");
    assert_eq!(after.field("state"), "preserved");
}

#[test]
fn arguments_of_the_wrong_kind() {
    let mut server = Server::start();
    let client = &mut server.client;
    let sandbox = client.create(json!({}));
    let code = |more: Value| {
        let mut arguments = json!({"language": "shell", "code": "echo ran"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let file = |more: Value| {
        let mut arguments = json!({"sandbox_id": sandbox, "path": "x"});
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let seconds = "must be a number of seconds above 0, such as 30";
    for (tool, arguments, words) in [
        ("run_code", json!({}), ["language is missing", "string"]),
        ("run_code", json!({"language": "shell"}), ["code is missing", "string"]),
        ("run_code", code(json!({"code": 1})), ["code must be a string", "not 1"]),
        ("run_code", code(json!({"code": ["echo"]})), ["code must be a string", "not an array"]),
        ("run_code", code(json!({"language": null})), ["language is missing", "string"]),
        ("run_code", code(json!({"sandbox_id": {}})), ["sandbox_id must be a string", "not an object"]),
        ("run_code", code(json!({"timeout": "30"})), ["timeout", seconds]),
        ("run_code", code(json!({"timeout": 0})), ["timeout", seconds]),
        ("run_code", code(json!({"timeout": -1e300})), ["timeout", seconds]),
        ("run_code", code(json!({"timeout": true})), ["timeout", seconds]),
        ("run_code", code(json!({"timeout": 1e6})), ["timeout", "at most 86400 seconds"]),
        ("run_code", code(json!({"stdin": 5})), ["stdin must be a string", "not 5"]),
        ("run_code", code(json!({"cod": "x"})), ["unknown argument cod", "use only: language, code, "]),
        ("run_code", code(json!({"\u{1b}[31m": 1})), ["unknown argument", "use only: "]),
        ("run_code", code(json!({"x".repeat(MIB): 1})), ["unknown argument xxx", "use only: "]),
        ("exec", json!({"command": "true"}), ["sandbox_id is missing", "string"]),
        ("exec", json!({"sandbox_id": sandbox, "command": "true", "env": {"A": 1}}), ["env.A must be a string", "1"]),
        ("exec", json!({"sandbox_id": sandbox, "command": "true", "env": []}), ["env must be an object", "array"]),
        ("exec", json!({"sandbox_id": sandbox, "command": "true", "env": {"A=B": ""}}), ["environment", "rename it"]),
        ("exec", json!({"sandbox_id": sandbox, "command": "true", "env": {"": ""}}), ["environment", "name it"]),
        ("exec", json!({"sandbox_id": sandbox, "command": ""}), ["empty", "send the program's text"]),
        ("create_sandbox", json!({"limits": {"memory": 1}}), ["unknown argument limits.memory", "use only: memory_mb"]),
        ("create_sandbox", json!({"limits": {"memory_mb": "1"}}), ["limits.memory_mb must be a whole number", "not"]),
        ("create_sandbox", json!({"limits": {"memory_mb": 1}}), ["memory_mb is too low", "at least 16"]),
        ("create_sandbox", json!({"limits": {"memory_mb": 1u64 << 40}}), ["memory_mb is more", "at most 8192"]),
        ("create_sandbox", json!({"limits": {"cpus": 0}}), ["limits.cpus must be a number above 0", "1.5"]),
        ("create_sandbox", json!({"limits": {"processes": 1e12}}), ["limits.processes must be a whole number", "to"]),
        ("create_sandbox", json!({"limits": 5}), ["limits must be an object", "not 5"]),
        ("create_sandbox", json!({"timeout": []}), ["timeout", seconds]),
        ("write_file", file(json!({})), ["content is missing", "string"]),
        ("write_file", file(json!({"content": "a$", "encoding": "base64"})), ["not base64", "leave out encoding"]),
        ("write_file", file(json!({"content": "", "encoding": "rot13"})), ["encoding must be one of", "utf-8, base64"]),
        ("write_file", file(json!({"content": "x".repeat(9 * MIB)})), ["content is longer than", "write it in parts"]),
        ("read_file", file(json!({"offset": -1})), ["offset must be a whole number", "not -1"]),
        ("read_file", file(json!({"length": 1.5})), ["length must be a whole number", "not 1.5"]),
        ("read_file", file(json!({"length": u64::MAX})), ["length must be a whole number", "to 1048576"]),
        (
            "list_files",
            json!({"sandbox_id": sandbox, "depth": 17}),
            ["depth must be a whole number from 1 to 16", "17"],
        ),
        ("destroy_sandbox", json!({"sandbox_id": [sandbox]}), ["sandbox_id must be a string", "not an array"]),
    ] {
        client.call(tool, arguments).refused(&words);
    }
    client.shell_in(&sandbox, "ls").printed("");
}

/// What a line that is no proper request gets: the id and code of its error, or nothing at all.
enum Expected {
    Error(Value, i64),
    Silence,
}

#[test]
fn lines_that_are_no_messages() {
    use Expected::{Error, Silence};
    let null = Value::Null;
    let (parse, invalid, method, params) = (-32700, -32600, -32601, -32602);
    let nested = |depth| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{open}{close}}}"#)
    };
    let (deep, deeper) = (nested(1000), nested(1_000_000));
    let lines: Vec<(&[u8], Expected)> = vec![
        (b"nonsense", Error(null.clone(), parse)),
        (b"{", Error(null.clone(), parse)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"", Error(null.clone(), parse)),
        (b"{'jsonrpc':'2.0'}", Error(null.clone(), parse)),
        (b"\xff\xfe\x00\x01", Error(null.clone(), parse)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", Error(null.clone(), parse)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\0b\"}", Error(null.clone(), parse)),
        (br#"{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}"#, Error(null.clone(), parse)),
        (deep.as_bytes(), Error(null.clone(), parse)),
        (deeper.as_bytes(), Error(null.clone(), invalid)),
        (b"1", Error(null.clone(), invalid)),
        (b"null", Error(null.clone(), invalid)),
        (b"\"tools/list\"", Error(null.clone(), invalid)),
        (b"[]", Error(null.clone(), invalid)),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, Error(null.clone(), invalid)),
        (b"{}", Error(null.clone(), invalid)),
        (br#"{"jsonrpc":"2.0","id":7}"#, Error(json!(7), invalid)),
        (br#"{"id":7,"method":"tools/list"}"#, Error(json!(7), invalid)),
        (br#"{"jsonrpc":"1.0","id":7,"method":"tools/list"}"#, Error(json!(7), invalid)),
        (br#"{"jsonrpc":2.0,"id":7,"method":"tools/list"}"#, Error(json!(7), invalid)),
        (br#"{"jsonrpc":"2.0","id":7,"method":1}"#, Error(json!(7), invalid)),
        (br#"{"jsonrpc":"2.0","id":"seven"}"#, Error(json!("seven"), invalid)),
        (br#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, Error(null.clone(), invalid)),
        (br#"{"jsonrpc":"2.0","id":[1],"method":"tools/list"}"#, Error(null.clone(), invalid)),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}"#, Error(null.clone(), invalid)),
        (br#"{"jsonrpc":"2.0","id":true,"method":"tools/list"}"#, Error(null.clone(), invalid)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"no/such"}"#, Error(json!(7), method)),
        (br#"{"jsonrpc":"2.0","id":7,"method":""}"#, Error(json!(7), method)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"prompts/get"}"#, Error(json!(7), params)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#, Error(json!(7), params)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{}}"#, Error(json!(7), params)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":1}}"#, Error(json!(7), params)),
        (br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope"}}"#, Error(json!(7), params)),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_code","arguments":[]}}"#,
            Error(json!(7), params),
        ),
        (br#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":5}}"#, Error(json!(7), params)),
        (b"", Silence),
        (b"   \t ", Silence),
        (b"\r", Silence),
        (br#"{"jsonrpc":"2.0","method":"no/such"}"#, Silence),
        (br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}"#, Silence),
        (br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}"#, Silence),
        (br#"{"jsonrpc":"2.0","id":77,"result":{}}"#, Silence),
        (br#"{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}"#, Silence),
    ];

    let mut server = Server::start();
    let client = &mut server.client;
    for (line, expected) in &lines {
        client.raw(line);
        client.raw(b"\n");
        if let Error(id, code) = expected {
            let answer = client.next();
            let shown = String::from_utf8_lossy(&line[..line.len().min(120)]);
            assert_eq!((&answer["id"], &answer["error"]["code"]), (id, &json!(code)), "{shown} got {answer}");
            if *code != method {
                assert_sentence(answer["error"]["message"].as_str().unwrap(), &[" "]);
            }
        }
        // Whatever else was said would come before the answer to this.
        let id = client.request("ping", json!({}));
        client.answer(id);
    }
    client.still_runs();
    client.hang_up();
    assert_eq!(client.rest(), Vec::<Value>::new());
}

/// The name of the method alone, as some libraries have it, is no sentence.
#[test]
fn methods_that_are_not_there() {
    let mut server = Server::start();
    for name in ["no/such", "tasks/list", "tasks/result", "", &"x".repeat(MIB)] {
        let id = server.client.request(name, json!({}));
        let answer = server.client.answer(id);
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert_sentence(answer["error"]["message"].as_str().unwrap(), &["method"]);
    }
    server.client.still_runs();
}

#[test]
fn lines_that_are_odd_but_good() {
    let mut server = Server::start();
    let client = &mut server.client;
    for (line, id) in [
        ("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n", json!(1)),
        ("  {\"method\" : \"ping\",\t\"id\":\"two\", \"jsonrpc\":\"2.0\"}  \r\n", json!("two")),
        ("{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\",\"params\":{}}\n", json!(0)),
        ("{\"jsonrpc\":\"2.0\",\"id\":-4,\"method\":\"ping\",\"more\":[1,{}]}\n", json!(-4)),
        ("\n\n{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"ping\"}\n", json!(9_007_199_254_740_993_u64)),
    ] {
        client.raw(line.as_bytes());
        let answer = client.next();
        assert_eq!((&answer["id"], &answer["result"]), (&id, &json!({})), "{line:?} got {answer}");
    }
    client.still_runs();
}

/// A client that begins badly can still begin.
#[test]
fn noise_before_the_handshake() {
    let user = User::same();
    let mut server = user.serve_without_handshake();
    let client = &mut server.client;
    client.raw(b"hello?\n{}\n\n[]\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    let codes = [-32700, -32600, -32600].map(|code| (client.next()["error"]["code"].clone(), json!(code)));
    assert!(codes.iter().all(|(got, expected)| got == expected), "{codes:?}");
    client.initialize();
    client.still_runs();
}

#[test]
fn a_giant_line() {
    let mut server = Server::start();
    let pid = server.pid();
    let client = &mut server.client;
    client.still_runs();
    let before = peak_kib(pid);
    client.raw(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"code":""#);
    let part = vec![b'x'; MIB];
    for _ in 0..64 {
        client.raw(&part);
    }
    client.raw(b"\"}}}\n");
    let answer = client.next();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32600)));
    assert_sentence(answer["error"]["message"].as_str().unwrap(), &["longer than", "bytes", "skipped"]);
    client.still_runs();
    // It is thrown away as it comes, past what one message may have.
    let grown = peak_kib(pid) - before;
    assert!(grown < 64 * 1024, "the server grew by {grown} KiB");
}

/// Many ids at once, the same id twice, and answers that come in another order.
#[test]
fn many_requests_at_once() {
    let mut server = Server::start();
    let client = &mut server.client;
    let slow = client.start("run_code", json!({"language": "shell", "code": "sleep 0.5; echo slow"}));
    client.send(&json!({"jsonrpc": "2.0", "id": slow, "method": "ping"}));
    let twice = client.answer(slow);
    assert_sentence(twice["error"]["message"].as_str().unwrap(), &["still open", "use another id"]);
    let ids: Vec<u64> = (0..40)
        .map(|number| client.start("run_code", json!({"language": "shell", "code": format!("echo {number}")})))
        .collect();
    let mut left: Vec<u64> = ids.iter().copied().chain([slow]).collect();
    while !left.is_empty() {
        let answer = client.next();
        let id = answer["id"].as_u64().unwrap();
        let place = left.iter().position(|known| *known == id).unwrap_or_else(|| panic!("not asked for: {answer}"));
        left.remove(place);
        let expected = match ids.iter().position(|known| *known == id) {
            Some(number) => format!("{number}\n"),
            None => "slow\n".to_owned(),
        };
        assert_eq!(answer["result"]["structuredContent"]["stdout"], expected, "{answer}");
    }
}
