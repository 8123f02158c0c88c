//! Templates: a wall for some sandboxes of a server that has another, and images.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use super::wall::{Wall, is_refused, stands_behind};
use crate::client::Caller;

pub(super) fn a_template_has_this_wall_beside_another(wall: &Wall) {
    let backend = wall.backend();
    let mut behind = wall.serve_beside_native(&format!("[templates.other]\nbackend = {backend:?}\n"));
    let code = "print('where')";
    let plain = behind.run("python", code, json!({}));
    plain.printed("where\n");
    stands_behind(plain.field("isolation"), "native");
    let sandbox = behind.create(json!({"template": "other"}));
    for _ in 0..2 {
        let answer = behind.run("python", code, json!({"sandbox_id": sandbox, "timeout": 50}));
        answer.printed("where\n");
        stands_behind(answer.field("isolation"), backend);
    }
    // Only an operator chooses.
    let chosen = behind.server.client.call("create_sandbox", json!({"backend": "native", "template": "other"}));
    if !chosen.is_error() {
        stands_behind(chosen.field("isolation"), backend);
    }
}

/// A root file system of another distribution, as `scripts/image-root` has made it.
fn root() -> Option<PathBuf> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/images/debian.tar"));
    root.is_file().then_some(root)
}

const RELEASE: &str = "print([line for line in open('/etc/os-release') if line.startswith('VERSION_ID')][0].strip())";

pub(super) fn an_image_is_a_template(wall: &Wall) {
    let (image, release) = match wall.name {
        // An engine has its own, by reference.
        "docker" | "podman" => ("belljar-test:latest".to_owned(), "VERSION_ID=\"13\"\n"),
        "wasm" => {
            let mut behind = wall.serve_with("[templates.image]\nimage = \"anything\"\n", &[]);
            let answer = behind.server.client.call("create_sandbox", json!({"template": "image"}));
            return is_refused(&answer, &["image"]);
        }
        name => {
            let Some(root) = root() else { return super::wall::not_up(name, "its image", "scripts/image-root") };
            let template = format!("walls-{name}");
            let words = ["template", "build", &template, "--tar", root.to_str().unwrap()];
            let built = wall.command_line(&words);
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            (template, "VERSION_ID=\"13\"\n")
        }
    };
    let backend = wall.backend();
    let text = format!(
        "[templates.image]\nbackend = {backend:?}\nimage = {image:?}\n[templates.none]\nbackend = {backend:?}\nimage = \"no-such-image-anywhere\"\n"
    );
    let mut behind = wall.serve_beside_native(&text);
    let sandbox = behind.create(json!({"template": "image"}));
    let answer = behind.run("python", RELEASE, json!({"sandbox_id": sandbox, "timeout": 50}));
    answer.printed(release);
    stands_behind(answer.field("isolation"), backend);
    // A host that has none of its own could not tell the difference.
    let own = Command::new("python3").args(["-c", RELEASE]).output().unwrap();
    assert!(own.status.success());
    let none = behind.server.client.call("create_sandbox", json!({"template": "none"}));
    is_refused(&none, &["no-such-image-anywhere"]);
    behind.run("python", "print('still here')", json!({})).printed("still here\n");
}
