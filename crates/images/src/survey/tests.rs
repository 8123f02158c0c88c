use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::*;

struct Root(tempfile::TempDir);

impl Root {
    fn new() -> Root {
        Root(tempfile::tempdir().unwrap())
    }

    fn file(self, path: &str, text: &str, mode: u32) -> Root {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    fn program(self, path: &str) -> Root {
        self.file(path, "", 0o755)
    }

    fn link(self, path: &str, target: &str) -> Root {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }

    fn survey(&self, env: &[(&str, &str)]) -> Vec<(String, String)> {
        let env: Vec<(String, String)> =
            env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        survey(self.0.path(), &env).into_iter().map(|found| (found.name, found.path)).collect()
    }
}

fn pair(name: &str, path: &str) -> (String, String) {
    (name.to_owned(), path.to_owned())
}

#[test]
fn a_debian_has_what_its_files_and_packages_say() {
    let root = Root::new()
        .program("usr/bin/python3.13")
        .link("usr/bin/python3", "python3.13")
        .program("usr/bin/python3.11")
        .program("usr/bin/node")
        .program("usr/bin/bash")
        .link("bin", "usr/bin")
        .file(
            "var/lib/dpkg/status",
            "Package: node\nVersion: 9\n\nPackage: nodejs\nVersion: 1:20.19.2+dfsg-1\n",
            0o644,
        );
    let expected = [
        pair("python-3.13", "/usr/bin/python3"),
        pair("python-3.11", "/usr/bin/python3.11"),
        pair("node-20", "/usr/bin/node"),
        pair("bash", "/usr/bin/bash"),
    ];
    assert_eq!(root.survey(&[]), expected);
}

#[test]
fn images_of_languages_have_theirs_elsewhere() {
    let root = Root::new()
        .program("usr/local/bin/python3.12")
        .link("opt/venv/bin/python3", "/usr/local/bin/python3.12")
        .program("usr/local/bin/node")
        .file(
            "usr/local/include/node/node_version.h",
            "#define NODE_MAJOR_VERSION 22\n#define NODE_MINOR_VERSION 1\n#define NODE_PATCH_VERSION 0\n",
            0o644,
        )
        .program("usr/local/go/bin/go")
        .file("usr/local/go/VERSION", "go1.22.3\ntime 2024", 0o644)
        .program("usr/local/cargo/bin/rustc")
        .program("usr/bin/cc")
        .file("usr/local/rustup/toolchains/1.95.0-x86_64-unknown-linux-gnu/x", "", 0o644)
        .link("bin/sh", "/bin/busybox")
        .program("bin/busybox");
    let path = "/opt/venv/bin:/usr/local/bin:/usr/local/go/bin:/usr/local/cargo/bin:/usr/bin:/bin";
    let expected = [
        pair("python-3.12", "/opt/venv/bin/python3"),
        pair("node-22", "/usr/local/bin/node"),
        pair("sh", "/bin/sh"),
        pair("go-1.22", "/usr/local/go/bin/go"),
        pair("rust-1.95", "/usr/local/cargo/bin/rustc"),
    ];
    assert_eq!(root.survey(&[("PATH", path), ("RUSTUP_HOME", "/usr/local/rustup")]), expected);
}

#[test]
fn nothing_outside_the_root_is_found() {
    let outside = Root::new().program("python3.12");
    let target = outside.0.path().join("python3.12");
    let root = Root::new()
        .link("usr/bin/python3", target.to_str().unwrap())
        .link("usr/bin/bash", "../../../../../../../../../../bin/bash")
        .link("usr/local/bin", outside.0.path().to_str().unwrap())
        .file("usr/bin/node", "", 0o644)
        .program("usr/bin/go");
    assert_eq!(root.survey(&[]), []);
    assert_eq!(root.survey(&[("PATH", "relative:/usr/bin:..")]), []);
    assert!(Path::new("/bin/sh").exists());
}
