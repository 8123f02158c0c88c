//! Packages: found, installed in a sandbox of their own, kept, shared, and told.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::client::{Answer, Caller};
use crate::host::{is_root, signal, until};
use crate::index::{CANARY, Index, Store, found, point_at};
use crate::server::User;

fn installed(answer: &Answer) -> Vec<String> {
    let names = answer.field("packages")["installed"].as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn pandas_is_inferred_and_comes_from_the_registry() {
    for user in User::all() {
        let store = Store::new(&user);
        let config = store.configuration("");
        // With an interpreter that has nothing of its own.
        let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
        let code = "import pandas as pd\nimport json\nprint(pd.DataFrame({'a': [1, 2]}).a.sum())";
        let first = server.client.python(code);
        first.printed("3\n");
        let names = installed(&first);
        assert!(names.iter().any(|name| name.starts_with("pandas ")), "{names:?}");
        assert_eq!(first.field("packages")["cached"], false);
        assert!(
            first.field("packages")["duration_ms"].as_u64().unwrap() > first.number("duration_ms"),
            "{}",
            first.result
        );
        assert!(first.text().contains("[installed "), "{}", first.text());
        let again = server.client.python(code);
        again.printed("3\n");
        assert_eq!(again.field("packages")["cached"], true);
        assert!(!again.text().contains("[installed "), "{}", again.text());
        assert_eq!((store.unfinished(), first.is_error()), (Vec::new(), false));
        // Another server finds it there.
        drop(server);
        let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
        let other = server.client.python(code);
        other.printed("3\n");
        assert_eq!(other.field("packages")["cached"], true);
    }
}

#[test]
fn what_a_program_says_it_needs_is_there() {
    let index = Index::start();
    for mut user in User::all() {
        let store = Store::new(&user);
        let mut server = store.serve(&mut user, &index, "");
        let client = &mut server.client;
        let block = "# /// script\n# dependencies = [\"probe-beta\", \"probe-alpha<2\"]\n# ///\nimport probe_beta, probe_alpha\nprint(probe_alpha.VERSION)";
        let answer = client.python(block);
        answer.printed("1\n");
        assert_eq!(installed(&answer), ["probe-alpha 1.0", "probe-beta 1.0"]);
        let wanted = json!({"language": "python", "code": "import probe_alpha\nprint(probe_alpha.VERSION)",
            "packages": ["probe-alpha==2.0"]});
        client.call("run_code", wanted).printed("2\n");
        // Its scripts too, and a shell that asks for it.
        let shell = json!({"language": "shell", "code": "probe-alpha", "packages": ["probe-alpha<2"]});
        client.call("run_code", shell).printed("alpha script\n");
    }
}

#[test]
fn a_live_sandbox_gets_packages_and_keeps_its_state() {
    let index = Index::start();
    for mut user in User::all() {
        let store = Store::new(&user);
        let mut server = store.serve(&mut user, &index, "");
        let client = &mut server.client;
        let id = client.create(json!({}));
        let mut run = |code: &str, packages: serde_json::Value| {
            client.call("run_code", json!({"language": "python", "code": code, "sandbox_id": id, "packages": packages}))
        };
        run("kept = 41\ntry:\n    import probe_alpha\nexcept ImportError: print('not yet')", json!([]))
            .printed("not yet\n");
        let added = run("import probe_alpha\nprint(kept + probe_alpha.VERSION)", json!(["probe-alpha<2"]));
        added.printed("42\n");
        assert_eq!(added.field("state"), "preserved");
        // What is imported keeps its version when more comes.
        let more = run("import probe_beta\nprint(kept + probe_beta.probe_alpha.VERSION)", json!([]));
        more.printed("42\n");
        assert_eq!(installed(&more), ["probe-beta 1.0"]);
        // Unless another is asked for by name.
        let other = run(
            "import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', 'import probe_alpha, probe_beta; print(probe_alpha.VERSION)'], text=True), kept)",
            json!(["probe-alpha==2.0"]),
        );
        other.printed("2\n 41\n");
        // A file of the workspace is no package.
        run("open('probe_conflict.py', 'w').write('x = 1')", json!([]));
        let local = run("import probe_conflict\nprint(probe_conflict.x)", json!([]));
        local.printed("1\n");
    }
}

#[test]
fn pip_inside_a_sandbox_installs() {
    let index = Index::start();
    for mut user in User::all() {
        let store = Store::new(&user);
        let mut server = store.serve(&mut user, &index, "");
        let client = &mut server.client;
        let id = client.create(json!({}));
        for (code, version) in [
            ("!pip install -q 'probe-alpha<2'\nimport probe_alpha\nprint(probe_alpha.VERSION)", "1\n"),
            ("%pip install probe-beta\nimport probe_beta\nprint(probe_beta.probe_alpha.VERSION)", "1\n"),
            (
                "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', 'probe-beta'], check=True, stdout=subprocess.DEVNULL)\nprint(2)",
                "2\n",
            ),
        ] {
            let arguments = json!({"language": "python", "code": code, "sandbox_id": id});
            let answer = client.call("run_code", arguments);
            assert!(answer.stdout().ends_with(version) && !answer.is_error(), "{code}: {}", answer.result);
        }
        let answer = client.call(
            "exec",
            json!({"sandbox_id": id, "command": "uv pip install probe-alpha && python3 -c 'import probe_alpha'"}),
        );
        assert!(!answer.is_error(), "{}", answer.result);
        let answer = client.call("exec", json!({"sandbox_id": id, "command": "pip install probe-nowhere"}));
        assert!(
            answer.is_error() && answer.field("stderr").as_str().unwrap().contains("probe-nowhere"),
            "{}",
            answer.result
        );
        // Also where nothing stays.
        let fresh = client.shell("pip install -q probe-beta && python3 -c 'import probe_beta; print(3)'");
        assert!(fresh.stdout().ends_with("3\n"), "{}", fresh.result);
    }
}

#[test]
fn what_cannot_be_installed_is_told_in_the_resolvers_words() {
    let index = Index::start();
    let mut user = User::same();
    let store = Store::new(&user);
    let mut server = store.serve(&mut user, &index, "");
    let client = &mut server.client;
    for (packages, words) in [
        (json!(["probe-nowhere"]), "probe-nowhere"),
        (json!(["probe-alpha==9"]), "probe-alpha"),
        (json!(["probe-conflict"]), "probe-alpha"),
    ] {
        let arguments = json!({"language": "python", "code": "print(1)", "packages": packages});
        let answer = client.call("run_code", arguments);
        assert_eq!((answer.field("ending"), answer.is_error()), (&json!("install-error"), true), "{}", answer.result);
        assert_eq!((answer.stdout(), &answer.field("error")["name"]), ("", &json!("InstallError")));
        let told = answer.field("error")["traceback"].as_str().unwrap().to_owned();
        assert!(told.contains(words) && answer.text().contains("install-error"), "{told}");
    }
    for packages in [json!(["--index-url=http://x"]), json!(["-r/etc/passwd"]), json!([""]), json!(["a\nb"])] {
        let answer = client.call("run_code", json!({"language": "python", "code": "1", "packages": packages}));
        answer.refused(&["packages"]);
    }
    client.call("run_code", json!({"language": "go", "code": "package main", "packages": ["x"]})).refused(&["go"]);
    let block = "# /// script\n# requires-python = \">=3.99\"\n# dependencies = []\n# ///\nprint(1)";
    let answer = client.python(block);
    assert_eq!(answer.field("ending"), "install-error");
    assert!(answer.text().contains(">=3.99") && answer.text().contains("python-3."), "{}", answer.text());
    // An import that nothing is found for is the program's own affair.
    let answer = client.python("import probe_nowhere_at_all");
    assert_eq!(answer.field("ending"), "exited");
    assert!(
        answer.text().contains("ModuleNotFoundError") && answer.text().contains("not installed"),
        "{}",
        answer.text()
    );
    until("nothing half-made is left", Duration::from_secs(10), || store.unfinished().is_empty());
}

#[test]
fn a_hostile_build_gains_nothing() {
    let index = Index::start();
    for mut user in User::all() {
        user.env.push(("PROBE_SECRET_TOKEN".into(), CANARY.into()));
        let store = Store::new(&user);
        let mut server = store.serve(&mut user, &index, "");
        let wanted = json!({"language": "python", "packages": ["probe-evil"],
            "code": "import probe_evil\nfor line in probe_evil.REPORT: print(*line)"});
        let answer = server.client.call("run_code", wanted);
        assert!(!answer.is_error(), "{}", answer.result);
        let report = answer.stdout();
        assert!(!report.contains(CANARY), "{report}");
        assert!(report.contains("environment {}"), "{report}");
        for line in report.lines().filter(|line| !line.starts_with("environment") && !line.starts_with("layers")) {
            assert!(line.contains(" refused "), "{line}");
        }
        assert!(report.contains("layers []"), "{report}");
        assert_eq!(index.visits(), 0);
        assert_eq!(found(&store.path(), "late"), 0);
        // The directory of a build goes behind the caller's back.
        until("nothing half-made is left", Duration::from_secs(10), || store.unfinished().is_empty());
        // What it left there is nobody's to run as its owner, or to change.
        let wild = Command::new("find").arg(store.path()).args(["-perm", "/6022", "!", "-type", "l"]).output().unwrap();
        assert_eq!((String::from_utf8_lossy(&wild.stdout), found(&store.path(), "suid")), ("".into(), 1));
    }
}

#[test]
fn credentials_of_an_index_reach_it_and_no_sandbox() {
    let index = Index::start();
    let mut user = User::same();
    let store = Store::new(&user);
    point_at(&mut user, &index, "belljar:hunter2secret@");
    let config = store.configuration("[network]\nallow = [\"packages\"]");
    let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
    let code = "import probe_alpha, os\nprint('hunter2secret' in str(dict(os.environ)))";
    let wanted = json!({"language": "python", "code": code, "network": ["packages"]});
    server.client.call("run_code", wanted).printed("False\n");
    let asked = index.requests("/simple/probe-alpha");
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line.ends_with("Basic YmVsbGphcjpodW50ZXIyc2VjcmV0")),
        "{asked:?}"
    );
}

#[test]
fn an_index_on_the_hosts_own_loopback_is_reached() {
    let index = Index::start();
    for mut user in User::all() {
        let store = Store::new(&user);
        let config = store.configuration("");
        for name in ["127.0.0.1", "localhost"] {
            user.env.retain(|(name, _)| name != "PIP_INDEX_URL");
            user.env.push(("PIP_INDEX_URL".into(), format!("http://{name}:{}/simple/", index.port)));
            let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
            let package = if name == "localhost" { "probe_beta" } else { "probe_alpha" };
            server.client.python(&format!("import {package}\nprint(1)")).printed("1\n");
            // And by nobody else.
            let code = format!("import socket\nprint(socket.socket().connect_ex(('127.0.0.1', {})) != 0)", index.port);
            server.client.python(&code).printed("True\n");
        }
    }
}

#[test]
fn two_who_ask_for_the_same_build_it_once() {
    let index = Index::start();
    let mut user = User::same();
    let store = Store::new(&user);
    point_at(&mut user, &index, "");
    let config = store.configuration("");
    let words = ["--config", config.to_str().unwrap()];
    let (mut one, mut other) = (user.serve_with(&words), user.serve_with(&words));
    let wanted = json!({"language": "python", "code": "import probe_slow\nprint(1)", "packages": ["probe-slow"]});
    let ids = [(); 2].map(|()| one.client.start("run_code", wanted.clone()));
    let third = other.client.start("run_code", wanted);
    until("the file is asked for", Duration::from_secs(30), || !index.requests("/files/probe-slow").is_empty());
    index.release();
    let mut answers: Vec<u64> = [(); 2].map(|()| one.client.next_answer()["id"].as_u64().unwrap()).into();
    answers.sort_unstable();
    assert_eq!(answers, ids);
    other.client.tool_answer(third).printed("1\n");
    // Each build begins by asking for its page.
    assert_eq!((index.requests("/simple/probe-slow").len(), store.unfinished().len()), (1, 0));
}

#[test]
fn a_kill_in_mid_build_leaves_no_half_layer() {
    let index = Index::start();
    for mut user in User::all() {
        let store = Store::new(&user);
        let mut server = store.serve(&mut user, &index, "");
        let before = index.requests("/files/probe-slow").len();
        let wanted = json!({"language": "python", "code": "import probe_slow", "packages": ["probe-slow"]});
        server.client.start("run_code", wanted);
        until("it is in mid-build", Duration::from_secs(30), || index.requests("/files/probe-slow").len() > before);
        signal(server.pid(), "KILL");
        server.wait_exit(Duration::from_secs(5));
        // The next server puts it in order, and is not held up by it.
        let mut server = store.serve(&mut user, &index, "");
        server.client.python("import probe_alpha\nprint(probe_alpha.VERSION)").printed("2\n");
        until("nothing half-made is left", Duration::from_secs(10), || store.unfinished().is_empty());
        assert_eq!(found(&store.path(), "probe_slow.py"), 0);
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_a_clean_store() {
    if !is_root() {
        println!("skipped: only root can mount a small disk");
        return;
    }
    let index = Index::start();
    let mut user = User::same();
    let store = Store::new(&user);
    std::fs::create_dir(store.cache()).unwrap();
    let path = store.cache();
    let mount = |words: &[&str]| Command::new(words[0]).args(&words[1..]).arg(&path).status().unwrap().success();
    // Room for the tools that build, and not for the package.
    assert!(mount(&["mount", "-t", "tmpfs", "-o", "size=300m", "small"]));
    let unmount = Unmount(&path);
    let mut server = store.serve(&mut user, &index, "");
    server.client.python("import probe_alpha\nprint(probe_alpha.VERSION)").printed("2\n");
    let fill = "cd \"$0\" && (head -c 400M /dev/zero > filler || true) && truncate -s -2M filler";
    assert!(
        Command::new("sh")
            .args(["-c", fill])
            .arg(&path)
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let layers = store.layers();
    let wanted = json!({"language": "python", "code": "1", "packages": ["probe-large"]});
    let answer = server.client.call("run_code", wanted);
    assert_eq!(answer.field("ending"), "install-error", "{}", answer.result);
    let told = answer.field("error")["traceback"].as_str().unwrap().to_lowercase();
    assert!(told.contains("space") || told.contains("room"), "{told}");
    assert_eq!((store.layers(), store.unfinished()), (layers, Vec::<String>::new()));
    server.client.python("import probe_alpha\nprint(probe_alpha.VERSION)").printed("2\n");
    drop(server);
    drop(unmount);
}

struct Unmount<'a>(&'a std::path::Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn javascript_gets_its_packages() {
    let user = User::same();
    let store = Store::new(&user);
    let config = store.configuration("");
    let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
    let client = &mut server.client;
    let run = |language: &str, code: &str| json!({"language": language, "code": code});
    let answer =
        client.call("run_code", run("javascript", "import isNumber from 'npm:is-number@7'\nconsole.log(isNumber(3))"));
    answer.printed("true\n");
    assert_eq!(installed(&answer), ["is-number 7.0.0"]);
    client
        .call("run_code", run("typescript", "import isNumber from 'is-number';\nconsole.log(isNumber('x') as boolean)"))
        .printed("false\n");
    client
        .call("run_code", run("javascript", "console.log(require('is-number')(5), require('fs').existsSync('/'))"))
        .printed("true true\n");
}

#[test]
fn offline_is_told_at_once() {
    let mut user = User::same();
    user.env.push(("PIP_INDEX_URL".into(), "https://index.invalid/simple/".into()));
    let store = Store::new(&user);
    let config = store.configuration("");
    let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
    let begun = std::time::Instant::now();
    let wanted = json!({"language": "python", "code": "1", "packages": ["probe-alpha"]});
    let answer = server.client.call("run_code", wanted);
    assert_eq!(answer.field("ending"), "install-error");
    assert!(answer.text().contains("index.invalid"), "{}", answer.text());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // Nothing that needs no package is held up.
    server.client.python("import json\nprint(1)").printed("1\n");
}

#[test]
fn an_operator_can_turn_packages_off() {
    let user = User::same();
    let store = Store::new(&user);
    let config = store.configuration("");
    let text = std::fs::read_to_string(&config).unwrap() + "install = false\n";
    std::fs::write(&config, text).unwrap();
    let mut server = user.serve_with(&["--config", config.to_str().unwrap()]);
    let wanted = json!({"language": "python", "code": "1", "packages": ["six"]});
    server.client.call("run_code", wanted).refused(&["packages", "install = true"]);
    let answer = server.client.shell("pip install six");
    assert!(answer.is_error() && answer.text().contains("install = true"), "{}", answer.text());
    assert!(server.client.python("import probe_alpha").is_error());
    assert!(!store.cache().exists());
}
