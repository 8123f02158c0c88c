//! The MCP server behind the server under test: how it is configured, told what to list, and what it was asked.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::calls::Log;
use super::host::random_hex;

const SCRIPT: &str = include_str!("upstream.py");
/// How long one call may take, for cases that do not say.
pub(crate) const CALL_SECONDS: u32 = 60;
/// For `config:upstream_timeout_s=5`.
pub(crate) const SHORT_CALL_SECONDS: u32 = 5;
/// More than any case can make it write, since runs are bounded.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// The files of the mock. The process itself is started by the server under test, when that wants it.
#[derive(Debug)]
pub(crate) struct Mock {
    python: PathBuf,
    script: PathBuf,
    log: PathBuf,
    control: PathBuf,
    canary: PathBuf,
    port: u16,
    secret: String,
    /// Of the list that the control file asks for; 0 is the plain one.
    serial: u64,
    changes: u64,
}

impl Mock {
    /// `None` on a host without Python in a place that every user can reach.
    pub(crate) fn set_up(folder: &Path, port: u16, canary: &Path) -> Result<Option<Mock>, String> {
        let places = ["/usr/local/bin/python3", "/usr/bin/python3", "/bin/python3"];
        let Some(python) = places.iter().map(PathBuf::from).find(|path| path.exists()) else {
            return Ok(None);
        };
        let mock = Mock {
            python,
            script: folder.join("upstream.py"),
            log: folder.join("upstream.log"),
            control: folder.join("upstream.json"),
            canary: canary.to_owned(),
            port,
            secret: format!("UPSTREAM-SECRET-{}", random_hex(12)),
            serial: 0,
            changes: 0,
        };
        let open = |path: &Path, text: &str, mode: u32| {
            fs::write(path, text).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        };
        // Whoever the server is, its child writes the log.
        let written = open(&mock.script, SCRIPT, 0o644)
            .and_then(|()| open(&mock.log, "", 0o666))
            .and_then(|()| open(&mock.control, "{}", 0o644));
        written.map_err(|error| format!("upstream: {error}"))?;
        Ok(Some(mock))
    }

    /// What the server under test is told of it: an ordinary file of `mcpServers`.
    pub(crate) fn configuration(&self, call_seconds: u32) -> String {
        let server = json!({
            "command": self.python,
            "args": ["-IS", self.script],
            "env": {
                "MOCK_LOG": self.log,
                "MOCK_CONTROL": self.control,
                "MOCK_PORT": self.port.to_string(),
                "MOCK_CANARY": self.canary,
                "UPSTREAM_SECRET": self.secret,
            },
            "deny": ["forbidden"],
            "ask": ["delete_all"],
            "timeout": call_seconds,
        });
        json!({"mcpServers": {"mock": server}}).to_string()
    }

    /// A text that the command line of every process of it holds, and no other's.
    pub(crate) fn mark(&self) -> String {
        self.script.display().to_string()
    }

    /// Asks for another list. Returns what a listing of it is known by.
    pub(crate) fn change(&mut self, mut to: Value) -> Result<u64, String> {
        self.changes += 1;
        self.serial = self.changes;
        to["serial"] = self.serial.into();
        self.write(&to).map(|()| self.serial)
    }

    /// Back to the plain list; whether it was another.
    pub(crate) fn reset(&mut self) -> Result<bool, String> {
        if self.serial == 0 {
            return Ok(false);
        }
        self.serial = 0;
        self.write(&json!({})).map(|()| true)
    }

    /// All at once, so that it is never read half written.
    fn write(&self, to: &Value) -> Result<(), String> {
        let next = self.control.with_extension("next");
        let written = fs::write(&next, to.to_string())
            .and_then(|()| fs::set_permissions(&next, fs::Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&next, &self.control));
        written.map_err(|error| format!("the upstream's list: {error}"))
    }

    /// How much has been logged so far, as a place to read on from.
    pub(crate) fn log_length(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }

    pub(crate) fn log_since(&self, place: u64) -> Result<Log, String> {
        let mut bytes = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(place))?;
            file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)
        });
        read.map_err(|error| format!("the upstream's log: {error}"))?;
        Ok(Log { text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::host::Folder;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, ChildStdin, Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    const WITHIN: Duration = Duration::from_secs(20);

    /// A mock as the server under test would start it.
    struct Running {
        mock: Mock,
        child: Child,
        stdin: Option<ChildStdin>,
        lines: Receiver<Value>,
        _folder: Folder,
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    impl Running {
        fn send(&mut self, message: Value) {
            writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
        }

        fn ask(&mut self, method: &str, params: Value) -> Value {
            self.send(json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}));
            self.next()
        }

        fn call(&mut self, tool: &str, arguments: Value) -> Value {
            self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
        }

        fn next(&mut self) -> Value {
            self.lines.recv_timeout(WITHIN).unwrap()
        }

        fn names(&mut self, cursor: Option<&str>) -> (Vec<String>, Option<String>) {
            let params = cursor.map_or(json!({}), |cursor| json!({"cursor": cursor}));
            let answer = self.ask("tools/list", params);
            let tools = answer["result"]["tools"].as_array().unwrap();
            let names = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
            (names, answer["result"]["nextCursor"].as_str().map(str::to_owned))
        }

        /// Changes the list and waits until the mock has said so.
        fn change(&mut self, to: Value) -> u64 {
            let serial = self.mock.change(to).unwrap();
            assert_eq!(self.next()["method"], "notifications/tools/list_changed");
            serial
        }
    }

    fn start() -> Option<Running> {
        let folder = Folder::create("/tmp", "secbat-test-").unwrap();
        let canary = folder.0.join("canary");
        let Some(mock) = Mock::set_up(&folder.0, 4711, &canary).unwrap() else {
            println!("skipped: this host has no python3");
            return None;
        };
        let configuration: Value = serde_json::from_str(&mock.configuration(CALL_SECONDS)).unwrap();
        let server = &configuration["mcpServers"]["mock"];
        let words = |value: &Value| value.as_str().unwrap().to_owned();
        let mut command = Command::new(words(&server["command"]));
        command.args(server["args"].as_array().unwrap().iter().map(words)).env_clear();
        command.envs(server["env"].as_object().unwrap().iter().map(|(name, value)| (name, words(value))));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut running = Running { mock, child, stdin, lines, _folder: folder };
        assert_eq!(running.ask("server/discover", json!({}))["error"]["code"], -32601);
        let hello = running.ask("initialize", json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "me"}}));
        assert_eq!(hello["result"]["protocolVersion"], "2025-11-25");
        running.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        Some(running)
    }

    #[test]
    fn every_call_is_logged_before_it_is_answered() {
        let Some(mut running) = start() else { return };
        let echoed = running.call("echo", json!({"x": [1, "two"]}));
        assert_eq!(echoed["result"]["content"][0]["text"], r#"{"x": [1, "two"]}"#);
        let place = running.mock.log_length();
        assert!(running.mock.log_since(0).unwrap().text.contains("two"));
        let known = running.call("show_headers", json!({}))["result"]["content"][0]["text"].to_string();
        assert!(known.contains("UPSTREAM-SECRET-") && known.contains("me"), "{known}");
        let long = running.call("big", json!({"mb": 3}));
        assert_eq!(long["result"]["content"][0]["text"].as_str().unwrap().len(), 3 << 20);
        // One that never answers does not keep the others waiting.
        running.send(json!({"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": {"name": "hang"}}));
        assert_eq!(running.call("delete_all", json!({}))["id"], 7);
        running.send(json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "crash"}}));
        assert_eq!(running.child.wait().unwrap().code(), Some(1));
        let log = running.mock.log_since(place).unwrap();
        assert!(!log.text.contains("two"), "{}", log.text);
        for tool in ["show_headers", "big", "hang", "delete_all", "crash"] {
            assert_eq!(log.lines().filter(|line| line["tool"] == tool).count(), 1, "{tool}");
        }
    }

    #[test]
    fn it_ends_when_its_input_does() {
        let Some(mut running) = start() else { return };
        running.stdin = None;
        assert_eq!(running.child.wait().unwrap().code(), Some(0));
    }

    #[test]
    fn its_list_is_what_the_control_file_says() {
        let Some(mut running) = start() else { return };
        let (plain, cursor) = running.names(None);
        assert!(plain.contains(&"echo".to_owned()) && cursor.is_none());
        assert!(running.mock.log_since(0).unwrap().was_listed(0));

        let serial = running.change(json!({"names": ["../x", ""]}));
        let (named, _) = running.names(None);
        assert!(named.contains(&"../x".to_owned()) && named.contains(&String::new()), "{named:?}");
        assert!(named.contains(&format!("arrived_{serial}")));
        assert!(running.mock.log_since(0).unwrap().was_listed(serial));

        running.change(json!({"descriptions": ["a\u{1b}[8m"]}));
        let described = running.ask("tools/list", json!({})).to_string();
        assert!(described.contains("echo_described_0") && described.contains("\\u001b[8m"));

        running.change(json!({"mode": "tools-list-endless-cursor"}));
        let (_, first) = running.names(None);
        let (second_page, second) = running.names(first.as_deref());
        assert!(first != second && second.is_some() && second_page.len() == 1);

        assert!(running.mock.reset().unwrap() && !running.mock.reset().unwrap());
        assert_eq!(running.next()["method"], "notifications/tools/list_changed");
        assert_eq!(running.names(None).0, plain);
    }

    #[test]
    fn every_trap_of_the_cases_is_there() {
        let Some(mut running) = start() else { return };
        let traps = [
            ("schema-remote-ref", "http://127.0.0.1:4711/"),
            ("schema-file-ref", "/canary"),
            ("schema-regex-bomb", "(a+)+"),
            ("schema-10MB", "trap"),
            ("schema-recursive", "#/$defs/node"),
            ("tools-list-50000", "x_49999"),
        ];
        for (mode, sign) in traps {
            running.change(json!({"mode": mode}));
            let list = running.ask("tools/list", json!({})).to_string();
            assert!(list.contains(sign) && list.contains("arrived_"), "{mode}");
            assert!(mode != "schema-10MB" || list.len() > 10_000_000, "{}", list.len());
        }
    }
}
