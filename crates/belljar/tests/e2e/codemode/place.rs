//! A folder with the configuration of a server's upstreams, and with all that they work on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Caller, Http, StdioClient};
use crate::host;
use crate::server::{Server, User, folder};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const MOCK: &str = include_str!("../../../../gateway/tests/upstreams/mock.py");

#[derive(Debug)]
pub(super) struct Place {
    pub(super) user: User,
    servers: Map<String, Value>,
    folder: TempDir,
}

impl Place {
    /// Without a server. What Belljar keeps for later runs goes into the place too.
    pub(super) fn new(mut user: User) -> Place {
        let folder = folder(0o777);
        for (name, below) in [("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state"), ("XDG_DATA_HOME", "data")] {
            let path = open_folder(folder.path(), below);
            user.env.push((name.to_owned(), path));
        }
        Place { user, servers: Map::new(), folder }
    }

    /// One place for each user, at the same time: most of what is waited for are other programs' starts.
    pub(super) fn each(test: impl Fn(Place) + Sync) {
        let test = &test;
        std::thread::scope(|scope| {
            for place in User::all().into_iter().map(Place::new) {
                scope.spawn(move || test(place));
            }
        });
    }

    /// The same, where the public servers are installed and can be read by each. One after the other: those take much to start.
    pub(super) fn each_public(test: impl Fn(Place)) {
        User::all().into_iter().map(Place::new).filter(Place::has_public).for_each(test);
    }

    fn has_public(&self) -> bool {
        let upstreams = upstreams();
        assert!(upstreams.join("packages").is_file(), "the public servers are not installed; run scripts/upstreams");
        let python = fs::canonicalize(upstreams.join("venv/bin/python")).unwrap();
        let is_open = |path: &Path| {
            path.ancestors().all(|part| fs::metadata(part).is_ok_and(|metadata| metadata.mode() & 0o005 == 0o005))
        };
        let is_open = is_open(&fs::canonicalize(&upstreams).unwrap()) && is_open(&python);
        if self.user.name == "nobody" && !is_open {
            println!("skipped: another user cannot read the public servers");
            return false;
        }
        true
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(super) fn with(mut self, name: &str, entry: Value) -> Place {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// A server of the tests' own, of both eras, with these options.
    pub(super) fn mock(self, name: &str, options: &[&str]) -> Place {
        let path = self.write("mock.py", MOCK);
        let args: Vec<&str> = [path.as_str()].into_iter().chain(options.iter().copied()).collect();
        self.with(name, json!({"command": "python3", "args": args}))
    }

    /// Node's servers have their files in the place.
    pub(super) fn filesystem(self) -> Place {
        let files = open_folder(self.folder.path(), "files");
        self.with("filesystem", json!({"command": node("filesystem"), "args": [files]}))
    }

    pub(super) fn everything(self) -> Place {
        let command = self.everything_command();
        self.with("everything", json!({"command": command}))
    }

    pub(super) fn everything_command(&self) -> PathBuf {
        node("everything")
    }

    pub(super) fn memory(self) -> Place {
        let file = self.path("memory.jsonl");
        self.with("memory", json!({"command": node("memory"), "env": {"MEMORY_FILE_PATH": file}}))
    }

    pub(super) fn sqlite(self) -> Place {
        let file = self.path("shop.db");
        let command = upstreams().join("venv-sqlite/bin/mcp-server-sqlite");
        self.with("sqlite", json!({"command": command, "args": ["--db-path", file]}))
    }

    pub(super) fn time(self) -> Place {
        self.with("time", json!({"command": python("time")}))
    }

    fn git(self) -> Place {
        let repository = self.path("repository");
        let words = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-C", &repository];
        for more in [&["init", "-q"][..], &["commit", "-q", "--allow-empty", "-m", "The first word"]] {
            fs::create_dir_all(&repository).unwrap();
            assert!(Command::new("git").args(words).args(more).status().unwrap().success());
        }
        // It may belong to another user than the server's.
        let env = json!({"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"});
        self.with("git", json!({"command": python("git"), "env": env}))
    }

    /// All eight, and the address of a page.
    pub(super) fn public(self) -> (Place, String) {
        let place = self.filesystem().everything().memory().sqlite().time().git();
        let thinking = json!({"command": node("sequential-thinking")});
        let fetch = json!({"command": python("fetch"), "env": {"NO_PROXY": "*"},
            "args": ["--ignore-robots-txt", "--allow-private-ips"]});
        (place.with("sequential-thinking", thinking).with("fetch", fetch), page())
    }

    /// The file of servers, as it is now.
    pub(super) fn config(&self) -> String {
        self.write("mcp.json", &json!({"mcpServers": self.servers}).to_string())
    }

    /// A server that asks nobody.
    pub(super) fn serve(&self) -> Server<StdioClient> {
        self.serve_with(&["--approve", "never"])
    }

    pub(super) fn serve_with(&self, words: &[&str]) -> Server<StdioClient> {
        let config = self.config();
        let mut server = self.user.serve_with(&[&["--mcp-config", &config], words].concat());
        until_known(&mut server.client);
        server
    }

    pub(super) fn serve_http(&self, words: &[&str]) -> Server<Http> {
        let config = self.config();
        let mut server = self.user.serve_http(&[&["--mcp-config", &config, "--approve", "never"], words].concat());
        until_known(&mut server.client);
        server
    }
}

/// Until every server has told its tools or has failed for good.
fn until_known(client: &mut impl Caller) {
    host::until("every server is known", Duration::from_secs(60), || {
        let found = client.call("search_tools", json!({"query": "", "detail": "names", "limit": 1}));
        !found.text().contains("it is still starting")
    });
}

/// Where `scripts/upstreams` has put them.
fn upstreams() -> PathBuf {
    Path::new(ROOT).join("target/upstreams")
}

fn node(name: &str) -> PathBuf {
    upstreams().join(format!("node_modules/.bin/mcp-server-{name}"))
}

fn python(name: &str) -> PathBuf {
    upstreams().join(format!("venv/bin/mcp-server-{name}"))
}

/// One that anybody may write to.
fn open_folder(parent: &Path, name: &str) -> String {
    let path = parent.join(name);
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The address of a page of the web, which is served for as long as the tests run.
fn page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let page = "<html><body><article><h1>Fair copy</h1><p>Forty-two larks.</p></article></body></html>";
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: ";
            let _ = stream.write_all(format!("{head}{}\r\n\r\n{page}", page.len()).as_bytes());
        }
    });
    format!("http://{address}/page.html")
}

/// Runs a program, which prints this.
#[track_caller]
pub(super) fn prints(client: &mut impl Caller, language: &str, code: &str, expected: &str) {
    run(client, language, code).printed(expected);
}

#[track_caller]
pub(super) fn run(client: &mut impl Caller, language: &str, code: &str) -> Answer {
    client.call("run_code", json!({"language": language, "code": code}))
}

/// The repository's own file.
pub(super) fn of_repository(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}
