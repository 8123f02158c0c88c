//! Root file systems by name: built, listed, run on and removed by the real program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::client::Caller;
use crate::server::{User, folder};

/// A root with the host's own bash, and a file by which it is known.
fn root(at: &Path) {
    fs::create_dir_all(at.join("bin")).unwrap();
    fs::create_dir_all(at.join("etc")).unwrap();
    fs::write(at.join("etc/known"), "by this\n").unwrap();
    let linked = Command::new("ldd").arg("/bin/bash").output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    for file in linked.split_whitespace().filter(|word| word.starts_with('/')).chain(["/bin/bash"]) {
        let place = at.join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, &place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn said(output: &Output) -> (String, String) {
    (String::from_utf8(output.stdout.clone()).unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn a_directory_becomes_what_sandboxes_begin_with() {
    for mut user in User::all() {
        let home = folder(0o777);
        user.env.retain(|(name, _)| name != "HOME");
        user.env.push(("HOME".to_owned(), home.path().to_str().unwrap().to_owned()));
        let tree = folder(0o755);
        root(tree.path());
        let tree = tree.path().to_str().unwrap();
        let belljar = |words: &[&str]| user.command(words).stdin(Stdio::null()).output().unwrap();

        let built = belljar(&["template", "build", "small", "--dir", tree]);
        let (out, err) = said(&built);
        assert!(built.status.success() && out.contains("has bash"), "{}: {out}{err}", user.name);
        assert!(err.contains("belljar: building small"), "{err}");
        let listed: Value = serde_json::from_slice(&belljar(&["template", "list", "--json"]).stdout).unwrap();
        assert_eq!((&listed[0]["name"], &listed[0]["interpreters"][0]["name"]), (&json!("small"), &json!("bash")));

        let config = home.path().join("belljar.toml");
        fs::write(&config, "[templates.known]\nimage = \"small\"\n[templates.none]\nimage = \"other\"\n").unwrap();
        let mut server = user.serve_with(&["--no-packages", "--config", config.to_str().unwrap()]);
        let created = server.client.call("create_sandbox", json!({"template": "known"}));
        let sandbox = created.field("sandbox_id").as_str().unwrap().to_owned();
        let code = "echo $(</etc/known)";
        let ran = server.client.call("run_code", json!({"language": "shell", "code": code, "sandbox_id": sandbox}));
        ran.printed("by this\n");
        let refused = server.client.call("create_sandbox", json!({"template": "none"}));
        refused.refused(&["no image", "other"]);
        // What is in use goes when it is not any more.
        assert!(belljar(&["template", "remove", "small"]).status.success());
        let ran = server.client.call("run_code", json!({"language": "shell", "code": code, "sandbox_id": sandbox}));
        ran.printed("by this\n");
        drop(server);
    }
}

#[test]
fn what_goes_wrong_is_said_with_a_hint() {
    let home = folder(0o700);
    let mut user = User::same();
    user.env.push(("HOME".to_owned(), home.path().to_str().unwrap().to_owned()));
    for (words, what) in [
        (&["template", "build", "x", "--dir", "/nowhere"][..], "No such file"),
        (&["template", "build", "a/b", "--dir", "/"], "no name for a template"),
        (&["template", "build", "x", "--tar", "/etc/passwd"], "the tar cannot be read"),
        (&["template", "build", "x", "--image", "127.0.0.1:1/x"], "cannot be reached"),
        (&["template", "remove", "x"], "no image \"x\""),
    ] {
        let output = user.command(words).stdin(Stdio::null()).output().unwrap();
        let (_, err) = said(&output);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {err}");
        assert!(err.contains(what) && err.contains("\nhint: "), "{words:?}: {err}");
    }
    let images = home.path().join(".cache/belljar/images");
    for part in ["layers", "roots", "names"] {
        assert_eq!(fs::read_dir(images.join(part)).unwrap().count(), 0, "{part}");
    }
}
