//! A wall that was brought up, and servers that have it.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Once;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Answer, Caller, StdioClient};
use crate::server::{Server, User, folder};

const TARGET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target");

/// What a wall may declare that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ability {
    /// Programs of the sandbox's own that programs start, and commands.
    Processes,
    Network,
    Packages,
}

#[derive(Debug)]
pub(super) struct Wall {
    pub(super) name: &'static str,
    /// What the configuration says of it.
    configuration: String,
    pub(super) user: User,
}

/// A server behind a wall, and the folder that is its own.
pub(super) struct Behind {
    pub(super) server: Server<StdioClient>,
    _folder: TempDir,
}

impl Wall {
    /// `None` where it was not brought up, which is said; and a failure in CI.
    pub(super) fn find(name: &'static str) -> Option<Wall> {
        let file = Path::new(TARGET).join(format!("walls/{name}.toml"));
        let configuration = match fs::read_to_string(&file) {
            Ok(text) => text,
            // It needs nothing.
            Err(_) if name == "native" => "[walls]\nbackend = \"native\"\n".to_owned(),
            Err(_) => {
                not_up(name, "what it needs", &format!("scripts/walls start {name}"));
                return None;
            }
        };
        let mut user = User::same();
        // Kept for the next test: an image that was unpacked, a machine that was booted, a program that was compiled.
        let kept = cache();
        for (variable, below) in [("XDG_CACHE_HOME", "cache"), ("XDG_STATE_HOME", "state"), ("XDG_DATA_HOME", "data")] {
            let path = kept.join(below);
            fs::create_dir_all(&path).unwrap();
            user.env.push((variable.to_owned(), path.to_str().unwrap().to_owned()));
        }
        let wall = Wall { name, configuration, user };
        if name == "wasm" {
            static WARM: Once = Once::new();
            WARM.call_once(|| {
                let warm = wall.command_line(&["warmup"]);
                assert!(warm.status.success(), "{}", String::from_utf8_lossy(&warm.stderr));
            });
        }
        Some(wall)
    }

    /// As results and the command line call it: Podman is the same wall as Docker.
    pub(super) fn backend(&self) -> &'static str {
        if self.name == "podman" { "docker" } else { self.name }
    }

    pub(super) fn has(&self, ability: Ability) -> bool {
        match ability {
            Ability::Processes | Ability::Network | Ability::Packages => self.name != "wasm",
        }
    }

    /// How much longer things may take than behind the host's own kernel.
    pub(super) fn patience(&self, at_most: Duration) -> Duration {
        if self.name == "microvm" { at_most * 6 } else { at_most * 2 }
    }

    /// A server's own configuration: this wall's, and more tables.
    pub(super) fn config_with(&self, folder: &Path, more: &str) -> PathBuf {
        self.write(folder, &format!("{}\n{more}", self.configuration))
    }

    /// Like it, but the server's own wall is the host's kernel, and this one is there for templates.
    pub(super) fn config_beside_native(&self, folder: &Path, more: &str) -> PathBuf {
        let own = format!("backend = {:?}", self.backend());
        assert!(self.configuration.contains(&own), "{}", self.configuration);
        let text = self.configuration.replace(&own, "backend = \"native\"");
        self.write(folder, &format!("{text}\n{more}"))
    }

    fn write(&self, folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("config.toml");
        fs::write(&path, text).unwrap();
        path
    }

    pub(super) fn serve(&self) -> Behind {
        self.serve_with("", &[])
    }

    pub(super) fn serve_with(&self, more: &str, words: &[&str]) -> Behind {
        let folder = folder(0o755);
        let config = self.config_with(folder.path(), more);
        self.start(folder, &config, words)
    }

    pub(super) fn serve_beside_native(&self, more: &str) -> Behind {
        let folder = folder(0o755);
        let config = self.config_beside_native(folder.path(), more);
        self.start(folder, &config, &[])
    }

    fn start(&self, folder: TempDir, config: &Path, words: &[&str]) -> Behind {
        // What an emulated machine takes its time for is not to become a job before it is done.
        let slow: &[&str] = if self.name == "microvm" { &["--yield-after", "230"] } else { &[] };
        let words = [&["--config", config.to_str().unwrap()], slow, words].concat();
        Behind { server: self.user.serve_with(&words), _folder: folder }
    }

    /// The program by itself, with this wall.
    pub(super) fn command_line(&self, words: &[&str]) -> Output {
        let folder = folder(0o755);
        let config = self.config_with(folder.path(), "");
        let words = [&["--config", config.to_str().unwrap()], words].concat();
        self.user.command(&words).output().unwrap()
    }

    pub(super) fn doctor(&self) -> Value {
        let output = self.command_line(&["--backend", self.backend(), "doctor", "--json"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_str(&text).unwrap()
    }

    /// The languages that it has here.
    pub(super) fn languages(&self) -> Vec<String> {
        let doctor = self.doctor();
        let stands = |language: &&Value| language["state"] != "missing";
        let languages = doctor["languages"].as_array().unwrap().iter().filter(stands);
        languages.map(|language| language["name"].as_str().unwrap().to_owned()).collect()
    }
}

impl Behind {
    #[track_caller]
    pub(super) fn run(&mut self, language: &str, code: &str, more: Value) -> Answer {
        let mut arguments = json!({"language": language, "code": code});
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        self.server.client.call("run_code", arguments)
    }

    #[track_caller]
    pub(super) fn create(&mut self, arguments: Value) -> String {
        let answer = self.server.client.call("create_sandbox", arguments);
        assert!(!answer.is_error(), "{}", answer.result);
        answer.field("sandbox_id").as_str().unwrap().to_owned()
    }
}

/// Which wall it was is told by its name, and whatever more there is to say of it.
#[track_caller]
pub(super) fn stands_behind(isolation: &Value, backend: &str) {
    let told = isolation["backend"].as_str().unwrap_or_default();
    let rest = told.strip_prefix(backend);
    assert!(rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)), "not {backend}: {isolation}");
}

/// Says that a test is left out, and why. In CI that is a failure.
pub(super) fn not_up(name: &str, what: &str, script: &str) {
    let told = format!("{name} lacks {what}: run `{script}`");
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{told}; in CI nothing is skipped");
    let thread = std::thread::current();
    // Not by `println!`, which a test that passes keeps to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {told}", thread.name().unwrap_or_default());
}

/// Where all these tests let servers keep what can be made again.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("walls")
}

/// A refusal that a caller can do something with: which wall it is, and what it has not.
#[track_caller]
pub(super) fn is_refused(answer: &Answer, words: &[&str]) {
    let text = answer.text().to_lowercase();
    assert!(answer.is_error(), "not refused: {}", answer.result);
    assert!(words.iter().any(|word| text.contains(word)), "none of {words:?} is in: {text}");
}
