//! Programs, their state and their files.

use serde_json::json;

use super::wall::{Ability, Wall, is_refused, stands_behind};
use crate::client::Caller;

const HELLO: [(&str, &str); 6] = [
    ("python", "print('hello', 6 * 7)"),
    ("javascript", "console.log('hello', 6 * 7)"),
    ("typescript", "const n: number = 6 * 7; console.log('hello', n)"),
    ("shell", "echo hello $((6 * 7))"),
    ("go", "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hello\", 6*7) }"),
    ("rust", "fn main() { println!(\"hello {}\", 6 * 7); }"),
];

pub(super) fn every_language_runs(wall: &Wall) {
    let languages = wall.languages();
    assert!(languages.iter().any(|language| language == "python"), "{languages:?}");
    let mut behind = wall.serve();
    for (language, code) in HELLO.iter().filter(|(language, _)| languages.iter().any(|has| has == language)) {
        // A compiler's first run compiles its library.
        let answer = behind.run(language, code, json!({"timeout": 50}));
        answer.printed("hello 42\n");
        let isolation = answer.field("isolation");
        stands_behind(isolation, wall.backend());
        for part in ["namespaces", "seccomp", "landlock", "cgroup", "network", "user"] {
            assert!(isolation[part].as_str().is_some_and(|told| !told.is_empty()), "{part} is not told: {isolation}");
        }
    }
    let failed = behind.run("python", "print('out')\nraise SystemExit(3)", json!({}));
    assert_eq!((failed.stdout(), failed.number("exit_code")), ("out\n", 3), "{}", failed.result);
}

pub(super) fn what_it_lacks_is_said(wall: &Wall) {
    let languages = wall.languages();
    let mut behind = wall.serve();
    for (language, code) in HELLO.iter().filter(|(language, _)| !languages.iter().any(|has| has == language)) {
        let answer = behind.run(language, code, json!({}));
        is_refused(&answer, &[language]);
    }
    if !wall.has(Ability::Processes) {
        let sandbox = behind.create(json!({}));
        let answer = behind.server.client.call("exec", json!({"command": "echo hello", "sandbox_id": sandbox}));
        is_refused(&answer, &["process", "command", "shell"]);
        let answer = behind.run("python", "import subprocess\nsubprocess.run(['true'])", json!({}));
        assert!(answer.is_error() && !answer.result.to_string().contains("panicked"), "{}", answer.result);
    }
    // Whatever was refused, the server goes on.
    behind.run("python", "print('still here')", json!({})).printed("still here\n");
}

pub(super) fn variables_and_files_stay(wall: &Wall) {
    let mut behind = wall.serve();
    let sandbox = behind.create(json!({}));
    let here = json!({"sandbox_id": sandbox});
    let first =
        behind.run("python", "import json\nkept = [1, 2]\nopen('made.txt', 'w').write('by a program')", here.clone());
    assert_eq!((first.field("state").as_str(), first.is_error()), (Some("fresh"), false), "{}", first.result);
    let second = behind.run("python", "kept.append(3)\nprint(kept)\nsum(kept)", here.clone());
    assert_eq!((second.stdout(), second.field("state")), ("[1, 2, 3]\n", &json!("preserved")), "{}", second.result);
    assert!(second.text().contains('6'), "{}", second.text());

    let client = &mut behind.server.client;
    let write = json!({"path": "dir/given.txt", "content": "by the caller\n", "sandbox_id": sandbox});
    assert!(!client.call("write_file", write).is_error());
    for (path, words) in [("dir/given.txt", "by the caller"), ("made.txt", "by a program")] {
        let read = client.call("read_file", json!({"path": path, "sandbox_id": sandbox}));
        assert!(read.text().contains(words), "{path}: {}", read.result);
    }
    let listed = client.call("list_files", json!({"path": ".", "sandbox_id": sandbox}));
    assert!(listed.text().contains("made.txt") && listed.text().contains("dir"), "{}", listed.text());
    let outside = client.call("read_file", json!({"path": "../../etc/shadow", "sandbox_id": sandbox}));
    assert!(outside.is_error(), "{}", outside.result);
    behind.run("python", "print(open('dir/given.txt').read(), end='')", here.clone()).printed("by the caller\n");

    // Another has none of it, and this one is gone when it is destroyed.
    let other = behind.create(json!({}));
    let alone = "import os\nprint('kept' in globals(), os.path.exists('made.txt'))";
    behind.run("python", alone, json!({"sandbox_id": other})).printed("False False\n");
    let destroyed = behind.server.client.call("destroy_sandbox", json!({"sandbox_id": sandbox}));
    assert!(!destroyed.is_error(), "{}", destroyed.result);
    is_refused(&behind.run("python", "print(kept)", here), &["sandbox"]);
}

pub(super) fn commands_run(wall: &Wall) {
    if !wall.has(Ability::Processes) {
        return;
    }
    let mut behind = wall.serve();
    let sandbox = behind.create(json!({}));
    let client = &mut behind.server.client;
    let command = json!({"command": "echo out; echo err >&2; id -u; exit 4", "sandbox_id": sandbox});
    let answer = client.call("exec", command);
    assert_eq!((answer.stdout(), answer.number("exit_code")), ("out\n1000\n", 4), "{}", answer.result);
    assert_eq!(answer.field("stderr"), "err\n");
    let begun = json!({"command": "read line; echo heard $line", "sandbox_id": sandbox, "background": true});
    let begun = client.call("exec", begun);
    let job = begun.field("job_id").as_str().unwrap().to_owned();
    assert!(!client.call("job", json!({"job_id": job, "action": "stdin", "stdin": "me\n", "eof": true})).is_error());
    let answer = client.call("job", json!({"job_id": job, "action": "wait", "timeout": 20}));
    assert!(answer.text().contains("heard me"), "{}", answer.result);
}
