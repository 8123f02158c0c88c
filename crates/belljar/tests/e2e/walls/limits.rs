//! Programs that want too much, and clients that go.

use std::time::{Duration, Instant};

use serde_json::json;

use super::wall::{Ability, Wall};
use crate::client::Caller;
use crate::host;

pub(super) fn a_timeout_is_told(wall: &Wall) {
    let mut behind = wall.serve();
    // The first sandbox of a server may have to wait for what all of them share.
    behind.run("python", "1", json!({}));
    let started = Instant::now();
    let answer = behind.run("python", "print('before', flush=True)\nwhile True: pass", json!({"timeout": 2}));
    assert_eq!((answer.stdout(), answer.field("ending")), ("before\n", &json!("timeout")), "{}", answer.result);
    let most = wall.patience(Duration::from_secs(5));
    assert!(started.elapsed() < most, "{:?}", started.elapsed());
    let sandbox = behind.create(json!({}));
    let here = json!({"sandbox_id": sandbox, "timeout": 2});
    behind.run("python", "kept = 5", json!({"sandbox_id": sandbox}));
    let answer = behind.run("python", "while True: pass", here);
    assert_eq!(answer.field("ending"), "timeout", "{}", answer.result);
    // Whether the variables are there is told in the same words as behind every other wall.
    let after = behind.run("python", "print('kept' in globals())", json!({"sandbox_id": sandbox}));
    let told = if answer.field("state") == "preserved" { "True\n" } else { "False\n" };
    after.printed(told);
}

pub(super) fn memory_is_held(wall: &Wall) {
    let mut behind = wall.serve();
    let sandbox = behind.create(json!({"limits": {"memory_mb": 128}}));
    let here = json!({"sandbox_id": sandbox, "timeout": 40});
    let eat = "block = bytearray(400 << 20)\nfor i in range(0, len(block), 4096): block[i] = 1\nprint('all of it')";
    let answer = behind.run("python", eat, here.clone());
    assert!(!answer.stdout().contains("all of it"), "{}", answer.result);
    let ending = answer.field("ending").as_str().unwrap();
    let told = answer.result.to_string().to_lowercase();
    assert!(ending == "out-of-memory" || told.contains("memory"), "{}", answer.result);
    // Behind gVisor memory is watched from inside. If the machine lets the watcher wait too long, the host's limit comes first and
    // ends gVisor's kernel, which is told (docs/gvisor.md); behind no other wall may that happen.
    let is_down = answer.field("state") == "lost" && told.contains("the sandbox, with files and variables");
    let after = behind.run("python", "print('still here')", here);
    if is_down {
        assert_eq!(wall.name, "gvisor", "{}", answer.result);
        assert!(after.is_error() && after.result.to_string().contains("create_sandbox"), "{}", after.result);
    } else {
        after.printed("still here\n");
    }
    behind.run("python", "print('and others')", json!({})).printed("and others\n");
}

pub(super) fn a_client_that_hangs_up_leaves_nothing(wall: &Wall) {
    if !wall.has(Ability::Processes) {
        return;
    }
    let mark = host::mark();
    let mut behind = wall.serve();
    let sandbox = behind.create(json!({}));
    let command = json!({"command": format!("sleep {mark}"), "sandbox_id": sandbox, "background": true});
    assert!(!behind.server.client.call("exec", command).is_error());
    let below = host::descendants(behind.server.pid());
    behind.server.client.hang_up();
    behind.server.wait_exit(wall.patience(Duration::from_secs(10)));
    host::until_gone(&mark, wall.patience(Duration::from_secs(5)));
    host::until("nothing below the server is left", wall.patience(Duration::from_secs(5)), || {
        below.iter().all(|process| !process.lives())
    });
}
