//! Interpreters that live in somebody's home: they can be used, and the rest of that home is not shown.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Caller;
use crate::host::is_root;
use crate::server::{Server, User};

const SYSTEM_PYTHON: &str = "/usr/bin/python3";
const SYSTEM_NODE: &str = "/usr/bin/node";

/// A home with secrets beside whatever else comes into it.
struct Home {
    folder: TempDir,
}

const SECRETS: [&str; 4] = ["notes.txt", ".ssh/id_ed25519", ".local/share/keyring", "project/secret.txt"];

impl Home {
    /// Not below /tmp, of which every sandbox has its own, but where any user of the host can come.
    fn new() -> Home {
        let build = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let is_open = |folder: &Path| fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o1 != 0);
        let place = if !is_root() || build.ancestors().all(is_open) { build } else { Path::new("/opt") };
        Home::below(place)
    }

    fn below(place: &Path) -> Home {
        let folder = tempfile::Builder::new().prefix("e2e-home-").tempdir_in(place).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home { folder };
        for secret in SECRETS {
            let path = home.at(secret);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "TOP-SECRET").unwrap();
        }
        home
    }

    fn at(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    /// This user, whose home it is.
    fn lived_in_by(&self, mut user: User, bin: &[&str]) -> User {
        let bin: Vec<String> = bin.iter().map(|below| self.at(below).to_str().unwrap().to_owned()).collect();
        let path = bin.into_iter().chain(["/usr/bin".to_owned(), "/bin".to_owned()]).collect::<Vec<_>>().join(":");
        user.env.retain(|(name, _)| name != "HOME" && name != "PATH");
        user.env.extend([("HOME".to_owned(), self.path().to_owned()), ("PATH".to_owned(), path)]);
        user
    }

    /// No secret can be read or even seen by name, and `shown` is all that is there.
    #[track_caller]
    fn is_hidden<C: Caller>(&self, server: &mut Server<C>, shown: &[&str]) {
        for secret in SECRETS {
            let path = self.at(secret);
            let answer = server.client.shell(&format!("cat {}", path.display()));
            assert!(answer.is_error() && answer.stdout().is_empty(), "{}", answer.result);
        }
        let find = format!("cd {} 2>/dev/null && find . -mindepth 1 -maxdepth 5 -printf '%P\\n'", self.path());
        let answer = server.client.shell(&find);
        // The way to what is shown, and what is below it.
        let is_known = |path: &&str| {
            let path = Path::new(path);
            shown.iter().any(|shown| path.starts_with(shown) || Path::new(shown).starts_with(path))
        };
        let strangers: Vec<&str> = answer.stdout().lines().filter(|path| !is_known(path)).collect();
        assert_eq!(strangers, [""; 0], "what else of {} shows", self.path());
    }
}

/// What a program printed, line by line.
#[track_caller]
fn lines<C: Caller>(server: &mut Server<C>, language: &str, code: &str) -> Vec<String> {
    let answer = server.client.call("run_code", json!({"language": language, "code": code}));
    assert!(!answer.is_error(), "{}", answer.result);
    answer.stdout().lines().map(str::to_owned).collect()
}

#[track_caller]
fn shell(command: &str) {
    let status = Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::null()).status().unwrap();
    assert!(status.success(), "{command}: {status}");
}

fn is_there(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        println!("skipped: no {program} here to copy");
    }
    there
}

/// A whole Python, below the home.
fn copy_python(prefix: &Path) {
    let script =
        "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib'))";
    let asked = Command::new(SYSTEM_PYTHON).args(["-I", "-c", script]).output().unwrap();
    let asked = String::from_utf8(asked.stdout).unwrap();
    let (program, library) = asked.trim().split_once('\n').unwrap();
    let into = prefix.join("lib").join(Path::new(library).file_name().unwrap());
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(&into).unwrap();
    fs::copy(program, prefix.join("bin/python3")).unwrap();
    let without = "--exclude=test --exclude=__pycache__ --exclude='*-packages'";
    shell(&format!("cd {library} && tar c {without} . | tar x --no-same-owner -C {}", into.display()));
}

/// That Python runs for code and for commands, nobody can change it, and only `shown` shows.
#[track_caller]
fn is_used(home: &Home, prefix: &Path, user: User, bin: &str, shown: &[&str]) {
    let user = home.lived_in_by(user, &[bin]);
    let mut server = user.serve();
    let prefix = prefix.to_str().unwrap();
    let said = lines(&mut server, "python", "import sys, json, decimal\nprint(sys.prefix)\nprint(json.__file__)");
    assert_eq!(said[0], prefix, "as {}", user.name);
    assert!(said[1].starts_with(prefix), "{said:?}");
    let in_shell = lines(&mut server, "shell", "python3 -c 'import sys; print(sys.prefix)'");
    assert_eq!(in_shell, [prefix]);
    let write = server.client.shell(&format!("echo x > {prefix}/bin/evil"));
    assert!(write.is_error() && !Path::new(prefix).join("bin/evil").exists(), "{}", write.result);
    home.is_hidden(&mut server, shown);
}

#[test]
fn a_python_of_ones_own() {
    if !is_there(SYSTEM_PYTHON) {
        return;
    }
    let home = Home::new();
    let prefix = home.at(".pyenv/versions/3.0");
    copy_python(&prefix);
    for user in User::all() {
        is_used(&home, &prefix, user, ".pyenv/versions/3.0/bin", &[".pyenv/versions/3.0"]);
    }
}

/// As uv and Homebrew lay it out: the installation somewhere, and in PATH a link to it.
#[test]
fn a_python_behind_a_link() {
    if !is_there(SYSTEM_PYTHON) {
        return;
    }
    let home = Home::new();
    let prefix = home.at(".local/share/uv/python/cpython-3");
    copy_python(&prefix);
    fs::create_dir_all(home.at(".local/bin")).unwrap();
    symlink("../share/uv/python/cpython-3/bin/python3", home.at(".local/bin/python3")).unwrap();
    for user in User::all() {
        let shown = [".local/share/uv/python/cpython-3", ".local/bin/python3"];
        is_used(&home, &prefix, user, ".local/bin", &shown);
    }
}

#[test]
fn a_virtual_environment() {
    if !is_there(SYSTEM_PYTHON) {
        return;
    }
    let home = Home::new();
    let venv = home.at("project/.venv");
    shell(&format!("{SYSTEM_PYTHON} -m venv --without-pip {}", venv.display()));
    let library = fs::read_dir(venv.join("lib")).unwrap().next().unwrap().unwrap().path();
    fs::write(library.join("site-packages/belly.py"), "answer = 42\n").unwrap();
    shell(&format!("chmod -R a+rX {}", venv.display()));
    for user in User::all() {
        let user = home.lived_in_by(user, &["project/.venv/bin"]);
        let mut server = user.serve();
        let said = lines(&mut server, "python", "import sys, belly\nprint(belly.answer)\nprint(sys.prefix)");
        assert_eq!(said, ["42", venv.to_str().unwrap()], "as {}", user.name);
        home.is_hidden(&mut server, &["project/.venv"]);
    }
}

#[test]
fn a_node_of_ones_own() {
    if !is_there(SYSTEM_NODE) {
        return;
    }
    let home = Home::new();
    let node = home.at(".nvm/versions/node/v1/bin/node");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    fs::copy(SYSTEM_NODE, &node).unwrap();
    for user in User::all() {
        let user = home.lived_in_by(user, &[".nvm/versions/node/v1/bin"]);
        let mut server = user.serve();
        assert_eq!(lines(&mut server, "javascript", "console.log(process.execPath)"), [node.to_str().unwrap()]);
        home.is_hidden(&mut server, &[".nvm/versions/node/v1"]);
    }
}

/// An interpreter that shares its directory with others is shown without them.
#[test]
fn an_interpreter_in_a_shared_directory() {
    if !is_there(SYSTEM_NODE) {
        return;
    }
    for bin in ["bin", ".local/bin", "app/bin"] {
        let home = Home::new();
        let node = home.at(bin).join("node");
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        fs::copy(SYSTEM_NODE, &node).unwrap();
        let secret = home.at(bin).with_file_name("share").join("keyrings/login");
        fs::create_dir_all(secret.parent().unwrap()).unwrap();
        fs::write(&secret, "hush").unwrap();
        fs::write(home.at(bin).with_file_name(".env"), "hush").unwrap();
        shell(&format!("chmod -R a+rX {}", home.at(bin).parent().unwrap().display()));
        for user in User::all() {
            let user = home.lived_in_by(user, &[bin]);
            let mut server = user.serve();
            assert_eq!(lines(&mut server, "javascript", "console.log(process.execPath)"), [node.to_str().unwrap()]);
            home.is_hidden(&mut server, &[&format!("{bin}/node")]);
            let found = format!("find {} -type f", home.path());
            assert_eq!(lines(&mut server, "shell", &found), [node.to_str().unwrap()], "as {}", user.name);
        }
    }
}

/// Some places of the host are hidden by the sandbox's own. An interpreter there is shown all the same, or is not
/// offered; never is another one used in its place without a word.
#[test]
fn an_interpreter_where_the_sandbox_has_its_own() {
    if !is_there(SYSTEM_NODE) {
        return;
    }
    let home = Home::below(Path::new("/tmp"));
    let node = home.at(".nvm/versions/node/v1/bin/node");
    fs::create_dir_all(node.parent().unwrap()).unwrap();
    fs::copy(SYSTEM_NODE, &node).unwrap();
    for user in User::all() {
        let user = home.lived_in_by(user, &[".nvm/versions/node/v1/bin"]);
        let report = user.command(&["doctor", "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        let languages = report["languages"].as_array().unwrap();
        let javascript = languages.iter().find(|language| language["name"] == "javascript").unwrap();
        let mut server = user.serve();
        let used = lines(&mut server, "javascript", "console.log(process.execPath)");
        let detail = javascript["detail"].as_str().unwrap();
        assert!(detail.ends_with(&format!(" {}", used[0])), "as {}: {detail} is not what runs", user.name);
    }
}
