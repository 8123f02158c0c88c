//! `belljar install`: the files of every client, in a home folder of the test's own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::StdioClient;
use crate::host::is_root;
use crate::server::{BINARY, User, folder};

/// Each client, its file in the home folder, and in a project.
const CLIENTS: [(&str, &str, Option<&str>); 8] = [
    ("claude-desktop", ".config/Claude/claude_desktop_config.json", None),
    ("claude-code", ".claude.json", Some(".mcp.json")),
    ("cursor", ".cursor/mcp.json", Some(".cursor/mcp.json")),
    ("vscode", ".config/Code/User/mcp.json", Some(".vscode/mcp.json")),
    ("windsurf", ".codeium/windsurf/mcp_config.json", None),
    ("zed", ".config/zed/settings.json", Some(".zed/settings.json")),
    ("goose", ".config/goose/config.yaml", None),
    ("codex", ".codex/config.toml", Some(".codex/config.toml")),
];

struct Home {
    folder: TempDir,
}

impl Home {
    fn new() -> Home {
        Home { folder: folder(0o755) }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file and the folders around it.
    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn command(&self, user: &User, words: &[&str]) -> Command {
        let mut command = user.command(&[&["install"], words].concat());
        for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GOOSE_PATH_ROOT"] {
            command.env_remove(name);
        }
        command.env("HOME", self.folder.path()).stdin(Stdio::null());
        command
    }

    fn install(&self, words: &[&str]) -> Output {
        self.command(&User::same(), words).output().unwrap()
    }

    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        let output = self.install(words);
        assert!(output.status.success() && output.stdout.is_empty(), "{words:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Everything in it: content or kind, and mode.
    fn tree(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
        fn walk(folder: &Path, tree: &mut BTreeMap<PathBuf, (Vec<u8>, u32)>) {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                let (path, metadata) = (entry.path(), entry.metadata().unwrap());
                let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
                if metadata.is_dir() {
                    walk(&path, tree);
                }
                tree.insert(path, (content, metadata.mode()));
            }
        }
        let mut tree = BTreeMap::new();
        walk(self.folder.path(), &mut tree);
        tree
    }

    #[track_caller]
    fn refused(&self, user: &User, words: &[&str], said: &[&str]) {
        let before = self.tree();
        let output = self.command(user, words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{words:?}: {output:?}");
        assert!(text.starts_with("error: ") && text.contains("\nhint: "), "{words:?}: {text}");
        for word in said {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
        assert!(self.tree() == before, "{words:?} changed something: {text}");
    }
}

/// A file with a past, as each client's could be.
fn sample(client: &str) -> &'static str {
    match client {
        "goose" => {
            "# mine\nGOOSE_PROVIDER: openai # p\n\n\
             extensions:\n  # first\n  developer:\n    enabled: true\n    type: builtin\n"
        }
        "codex" => {
            "model = \"x\" # m\r\n\r\n[mcp_servers.other]\r\ncommand = 'npx' # o\r\n\r\n[mcp_servers.other.env]\r\n\
             A = '1'\r\n"
        }
        "zed" => {
            "// Zed\n{\n\t\"theme\": \"One\", // t\n\t/* servers */\n\t\"context_servers\": {\n\
             \t\t\"other\": {\"command\": \"npx\"}, // o\n\t},\n}\n"
        }
        "vscode" => "{\n    // mine\n    \"servers\": {\n    },\n    \"inputs\": []\n}",
        "cursor" => "{\"mcpServers\":{\"other\":{\"command\":\"npx\"}}}",
        "claude-code" => "{\n  \"numStartups\": 3,\n  \"projects\": {\"/x\": {\"mcpServers\": {}}}\n}",
        "windsurf" => "",
        _ => "\u{feff}{\r\n    \"mcpServers\": {\r\n        \"other\": {}\r\n    }\r\n}\r\n",
    }
}

#[test]
fn every_client_from_nothing() {
    for (client, file, _) in CLIENTS {
        let home = Home::new();
        let said = home.done(&[client]);
        for word in ["belljar: added to ", file, "does not seem to be installed", "\nnext: "] {
            assert!(said.contains(word), "{client}: {word:?} is not in: {said}");
        }
        let text = fs::read_to_string(home.at(file)).unwrap();
        assert_eq!(fs::metadata(home.at(file)).unwrap().mode() & 0o777, 0o600);
        let args = json!(["serve"]);
        match client {
            "goose" => assert_eq!(
                text,
                format!(
                    "extensions:\n  belljar:\n    enabled: true\n    type: stdio\n    name: belljar\n    \
                     cmd: {BINARY}\n    args: [\"serve\"]\n"
                )
            ),
            "codex" => {
                assert_eq!(text, format!("[mcp_servers.belljar]\ncommand = \"{BINARY}\"\nargs = [\"serve\"]\n"));
            }
            "claude-code" => {
                let entry = json!({ "type": "stdio", "command": BINARY, "args": args });
                assert_eq!(
                    serde_json::from_str::<Value>(&text).unwrap(),
                    json!({ "mcpServers": { "belljar": entry } })
                );
            }
            "vscode" => {
                let entry = json!({ "type": "stdio", "command": BINARY, "args": args });
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({ "servers": { "belljar": entry } }));
            }
            "zed" => {
                let entry = json!({ "command": BINARY, "args": args });
                let expected = json!({ "context_servers": { "belljar": entry } });
                assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
            }
            _ => {
                let entry = json!({ "command": BINARY, "args": args });
                assert_eq!(
                    serde_json::from_str::<Value>(&text).unwrap(),
                    json!({ "mcpServers": { "belljar": entry } })
                );
            }
        }
        // A file that was not there is not there again.
        let said = home.done(&[client, "--remove"]);
        assert!(said.contains("the file with it"), "{said}");
        assert!(home.tree().values().all(|(content, _)| content.is_empty()), "{client}: {:?}", home.tree());
    }
}

/// What is in the file is a server that answers.
#[test]
fn what_is_installed_serves() {
    let home = Home::new();
    let output = home.install(&["cursor", "--json", "--", "--idle-timeout", "60"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fields: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, ["client", "file", "name", "did", "entry", "before", "backup", "notes", "next"]);
    assert_eq!(
        (&report["did"], &report["before"], output.stderr.len()),
        (&json!("added"), &json!(null), 0),
        "{report}"
    );
    let file: Value = serde_json::from_slice(&fs::read(report["file"].as_str().unwrap()).unwrap()).unwrap();
    let entry = &file["mcpServers"]["belljar"];
    assert_eq!((entry, &entry["args"]), (&report["entry"], &json!(["serve", "--idle-timeout", "60"])));
    let args = entry["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let mut command = Command::new(entry["command"].as_str().unwrap());
    let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    StdioClient::new(child.stdin.take().unwrap(), child.stdout.take().unwrap()).initialize();
    assert!(child.wait().unwrap().success(), "it ends with its input");
}

#[test]
fn every_client_there_and_back() {
    for (client, file, _) in CLIENTS {
        let home = Home::new();
        let path = home.put(file, sample(client));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let said = home.done(&[client]);
        assert!(said.contains(".belljar-backup") && !said.contains("note:"), "{client}: {said}");
        let backup = path.with_file_name(format!("{}.belljar-backup", path.file_name().unwrap().to_str().unwrap()));
        assert_eq!(fs::read(&backup).unwrap(), sample(client).as_bytes());
        let with = fs::read_to_string(&path).unwrap();
        assert!(with.contains(BINARY) && with.len() > sample(client).len(), "{client}: {with}");
        let modes = [&path, &backup].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o640, 0o640]);

        // A second time: nothing is touched.
        let before = fs::metadata(&path).unwrap();
        assert!(home.done(&[client]).starts_with("belljar: nothing to do: "));
        let after = fs::metadata(&path).unwrap();
        let times = |metadata: &fs::Metadata| (metadata.mtime_nsec(), metadata.ctime_nsec(), metadata.ino());
        assert_eq!(times(&before), times(&after), "{client}");

        // Under another name, beside it; and out again.
        home.done(&[client, "--name", "second"]);
        assert!(fs::read_to_string(&path).unwrap().contains("second"));
        home.done(&[client, "--name", "second", "--remove"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), with, "{client}");

        assert!(home.done(&[client, "--remove"]).starts_with("belljar: removed from "));
        assert_eq!(fs::read_to_string(&path).unwrap(), sample(client), "{client}");
        assert!(home.done(&[client, "--remove"]).starts_with("belljar: nothing to do: "));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 2, "only the file and its backup");
    }
}

#[test]
fn printing_changes_nothing() {
    for (client, file, _) in CLIENTS {
        let home = Home::new();
        let print = |words: &[&str]| {
            let before = home.tree();
            let output = home.install(&[&[client, "--print"], words].concat());
            assert!(output.status.success(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains(file), "{output:?}");
            assert!(home.tree() == before);
            output.stdout
        };
        let fresh = print(&[]);
        home.done(&[client]);
        assert_eq!(fs::read(home.at(file)).unwrap(), fresh, "{client}");
        assert!(print(&["--remove"]).is_empty());
        home.put(file, sample(client));
        let with = print(&[]);
        home.done(&[client]);
        assert_eq!((fs::read(home.at(file)).unwrap(), print(&[])), (with.clone(), with), "{client}");
        assert_eq!(print(&["--remove"]), sample(client).as_bytes(), "{client}");
    }
}

#[test]
fn another_command_of_that_name_is_told() {
    for (client, file, text) in [
        (
            "claude-code",
            ".claude.json",
            "{\"mcpServers\": {\"belljar\": {\"command\": \"npx\", \"args\": [\"old\"], \"env\": {\"A\": \"1\"}}}}",
        ),
        (
            "codex",
            ".codex/config.toml",
            "[mcp_servers.belljar]\ncommand = \"npx\"\nargs = [\"old\"]\nenv = { A = \"1\" }\n",
        ),
        (
            "goose",
            ".config/goose/config.yaml",
            "extensions:\n  belljar:\n    cmd: npx\n    args: [old]\n    envs: {A: \"1\"}\n    enabled: false\n",
        ),
    ] {
        let home = Home::new();
        let path = home.put(file, text);
        let said = home.done(&[client]);
        assert!(said.contains("updated") && said.contains("was: npx old\n"), "{said}");
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains(BINARY) && !now.contains("npx") && !now.contains("old"), "{now}");
        assert!(now.contains('A'), "what is not ours to say stays: {now}");
        assert!(home.done(&[client]).contains("nothing to do"));
    }
    let home = Home::new();
    home.put(".cursor/mcp.json", "{\"mcpServers\": {\"belljar\": {\"url\": \"http://127.0.0.1:8931/mcp\"}}}");
    assert!(home.done(&["cursor"]).contains("was: http://127.0.0.1:8931/mcp\n"));
    assert!(!fs::read_to_string(home.at(".cursor/mcp.json")).unwrap().contains("url"));
    let off = json!({ "command": BINARY, "args": ["serve"], "disabled": true });
    home.put(".cursor/mcp.json", json!({ "mcpServers": { "belljar": off } }).to_string());
    assert!(home.done(&["cursor"]).contains("note: the entry is switched off"));
}

#[test]
fn a_project_has_a_file_of_its_own() {
    for (client, _, file) in CLIENTS {
        let (home, project) = (Home::new(), Home::new());
        let words = [client, "--project", project.folder.path().to_str().unwrap()];
        let Some(file) = file else {
            home.refused(&User::same(), &words, &["has no file of its own in a project", "--project"]);
            continue;
        };
        let said = home.done(&words);
        assert!(said.contains("a path of this machine") && said.contains("next: "), "{said}");
        assert!(fs::read_to_string(project.at(file)).unwrap().contains(BINARY), "{client}");
        assert!(home.tree().is_empty(), "{client}");
        home.done(&[&words[..], &["--remove"]].concat());
        assert!(!project.at(file).exists());
    }
    let home = Home::new();
    home.refused(&User::same(), &["zed", "--project", "/nonexistent"], &["is not a folder"]);
}

#[test]
fn variables_that_move_the_files() {
    let home = Home::new();
    for (client, name, file) in [
        ("zed", "XDG_CONFIG_HOME", "zed/settings.json"),
        ("vscode", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("goose", "GOOSE_PATH_ROOT", "config/config.yaml"),
    ] {
        let elsewhere = Home::new();
        let output = home.command(&User::same(), &[client]).env(name, elsewhere.folder.path()).output().unwrap();
        assert!(output.status.success() && elsewhere.at(file).is_file(), "{client}: {output:?}");
    }
    assert!(home.tree().is_empty());
    for bad in ["", "relative"] {
        let output = home.command(&User::same(), &["zed"]).env("HOME", bad).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("\nhint: "), "{output:?}");
    }
}

#[test]
fn files_that_are_not_as_they_should_be() {
    let user = User::same();
    for (client, file, bytes, said) in [
        ("cursor", ".cursor/mcp.json", &b"{\n  \"mcpServers\": {,}\n}"[..], "line 2, column 18"),
        ("cursor", ".cursor/mcp.json", b"{\"mcpServers\": []}", "not an object"),
        ("cursor", ".cursor/mcp.json", b"[]", "an array, not an object"),
        ("zed", ".config/zed/settings.json", b"{\"context_servers\": {}, \"context_servers\": {}}", "twice"),
        ("vscode", ".config/Code/User/mcp.json", b"{\"servers\": \xff}", "not UTF-8"),
        ("vscode", ".config/Code/User/mcp.json", b"\xff\xfe{\0}\0", "not UTF-8"),
        ("windsurf", ".codeium/windsurf/mcp_config.json", &[b'['; 100_000], "line 1, column "),
        ("goose", ".config/goose/config.yaml", b"extensions:\n  - a\n", "mapping"),
        ("goose", ".config/goose/config.yaml", b"a: [\n", "line 2"),
        ("goose", ".config/goose/config.yaml", b"extensions: {a: {cmd: b}}\n", "docs/clients.md"),
        ("codex", ".codex/config.toml", b"a = 1\nb = = 2\n", "line 2, column 5"),
        ("codex", ".codex/config.toml", b"mcp_servers = 5\n", "not a table"),
        ("codex", ".codex/config.toml", b"mcp_servers = { a = { command = 'x' } }\n", "inline table"),
    ] {
        let home = Home::new();
        home.put(file, bytes);
        home.refused(&user, &[client], &[said, file]);
        let output = home.install(&[]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn things_that_are_no_files() {
    let user = User::same();
    let home = Home::new();
    fs::create_dir_all(home.at(".cursor/mcp.json")).unwrap();
    home.refused(&user, &["cursor"], &["is a folder"]);
    home.put(".codeium", "a file where a folder should be");
    home.refused(&user, &["windsurf"], &[".codeium"]);
    symlink(".claude.json", home.at(".claude.json")).unwrap();
    home.refused(&user, &["claude-code"], &["circle"]);
    fs::create_dir_all(home.at(".codex")).unwrap();
    assert!(Command::new("mkfifo").arg(home.at(".codex/config.toml")).status().unwrap().success());
    home.refused(&user, &["codex"], &["not a regular file"]);
    fs::create_dir_all(home.at(".config/zed")).unwrap();
    symlink("/dev/zero", home.at(".config/zed/settings.json")).unwrap();
    home.refused(&user, &["zed"], &["not a regular file"]);
    let large = home.put(".config/Code/User/mcp.json", format!("{{{}}}", " ".repeat(8 << 20)));
    home.refused(&user, &["vscode"], &["larger than 8 MiB"]);
    // Just not too large is done, and soon.
    fs::write(&large, format!("{{\"a\": [{}1]}}", "1, ".repeat(2_700_000))).unwrap();
    let started = Instant::now();
    home.done(&["vscode"]);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}

#[test]
fn a_link_stays_a_link() {
    let home = Home::new();
    let real = home.put("dotfiles/zed.json", sample("zed"));
    fs::create_dir_all(home.at(".config/zed")).unwrap();
    symlink("../../dotfiles/zed.json", home.at(".config/zed/settings.json")).unwrap();
    home.done(&["zed"]);
    assert!(home.at(".config/zed/settings.json").is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains(BINARY));
    assert_eq!(fs::read_dir(home.at("dotfiles")).unwrap().count(), 1, "the backup is beside the link");
    home.done(&["zed", "--remove"]);
    assert_eq!(fs::read_to_string(&real).unwrap(), sample("zed"));
    assert!(home.at(".config/zed/settings.json").is_symlink());
}

#[test]
fn without_the_right_to() {
    let Some(nobody) = User::nobody() else { return };
    let home = Home::new();
    // May neither write the file, nor make one.
    home.put(".cursor/mcp.json", "{}");
    home.refused(&nobody, &["cursor"], &["cannot write", "Permission denied", "--print"]);
    home.refused(&nobody, &["codex"], &["cannot write", "Permission denied"]);
    let secret = home.put(".claude.json", "{}");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    home.refused(&nobody, &["claude-code"], &["cannot read", "Permission denied"]);
    // Could replace the file, but not write it: it is protected, and stays.
    let protected = home.put(".codeium/windsurf/mcp_config.json", "{}");
    fs::set_permissions(protected.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    home.refused(&nobody, &["windsurf"], &["cannot write", "Permission denied"]);
}

/// Whoever is root for a moment leaves nothing that its owner could not change.
#[test]
fn files_belong_to_whom_they_belonged() {
    if !is_root() {
        println!("skipped: only root can give files away");
        return;
    }
    let home = Home::new();
    let path = home.put(".cursor/mcp.json", "{}");
    for path in [home.folder.path(), path.parent().unwrap(), &path] {
        std::os::unix::fs::chown(path, Some(1234), Some(5678)).unwrap();
    }
    home.done(&["cursor"]);
    home.done(&["zed"]);
    for (path, _) in home.tree() {
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 5678), "{path:?}");
    }
}

#[test]
fn the_clients_of_this_machine() {
    let home = Home::new();
    home.put(".cursor/mcp.json", sample("cursor"));
    home.put(".codex/config.toml", "[mcp_servers.belljar]\ncommand = 'npx'\nargs = ['old']\n");
    home.put(".config/goose/config.yaml", "a: [");
    home.done(&["zed"]);
    let before = home.tree();
    let output = home.install(&[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && home.tree() == before);
    for (client, state) in [
        ("zed", "set up"),
        ("cursor", "without"),
        ("codex", "differs"),
        ("goose", "UNREADABLE"),
        ("vscode", "not here"),
    ] {
        let line = text.lines().find(|line| line.contains(&format!(" {client} "))).unwrap();
        assert!(line.starts_with(state), "{line}");
    }
    assert_eq!(text.lines().count(), CLIENTS.len(), "{text}");
    let report: Value = serde_json::from_slice(&home.install(&["--json"]).stdout).unwrap();
    let clients = report["clients"].as_array().unwrap();
    let one = |name: &str| clients.iter().find(|client| client["client"] == name).unwrap();
    assert_eq!(clients.len(), CLIENTS.len());
    assert_eq!((&one("zed")["starts_this_program"], &one("zed")["found"]), (&json!(true), &json!(true)));
    assert_eq!(
        (&one("codex")["starts_this_program"], &one("codex")["entry"]["command"]),
        (&json!(false), &json!("npx"))
    );
    assert!(one("goose")["problem"].as_str().unwrap().contains("line "));
    assert_eq!(one("vscode")["found"], false);
}

#[test]
fn a_wrong_command_line() {
    let home = Home::new();
    for (words, said) in [
        (&["emacs"][..], "claude-desktop, claude-code, cursor, vscode, windsurf, zed, goose, codex"),
        (&["--remove"], "CLIENT"),
        (&["zed", "--name", "a b"], "lower-case"),
        (&["zed", "--remove", "--profile", "e2b"], "--remove"),
        (&["zed", "--print", "--json"], "--json"),
        (&["zed", "--", "--frob"], "--frob"),
        (&["zed", "--", "--idle-timeout", "0"], "seconds"),
        (&["zed", "--", "--http", "127.0.0.1:0"], "--http"),
    ] {
        let output = home.install(words);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{words:?}: {output:?}");
        assert!(text.contains(said), "{words:?}: {said:?} is not in: {text}");
    }
    assert!(home.tree().is_empty());
}

/// A profile is passed on if `belljar serve` has profiles, and refused before anything is written if not.
#[test]
fn a_profile_is_one_that_serve_takes() {
    let home = Home::new();
    let help = User::same().command(&["serve", "--help"]).output().unwrap().stdout;
    let output = home.install(&["zed", "--profile", "e2b"]);
    if String::from_utf8_lossy(&help).contains("--profile") {
        assert!(output.status.success(), "{output:?}");
        assert!(
            fs::read_to_string(home.at(".config/zed/settings.json"))
                .unwrap()
                .contains("[\"serve\", \"--profile\", \"e2b\"]")
        );
    } else {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(home.tree().is_empty());
    }
}
