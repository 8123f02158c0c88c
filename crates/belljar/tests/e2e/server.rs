//! Starting the program as a server, as whichever user, and ending it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Http, StdioClient};
use crate::host;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_belljar");
pub(crate) const NOBODY: u32 = 65534;
/// Where servers of the tests' own user remember, unless a test says otherwise: not among what that user's own servers do.
const STATE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/state");

/// Who runs the program, and what it can find there.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    binary: PathBuf,
    uid: Option<u32>,
    /// Instead of the test's own.
    pub(crate) env: Vec<(String, String)>,
    /// What the program may take for the place of temporary files; nothing must come to be in it.
    pub(crate) temporary: TempDir,
    _public: Option<TempDir>,
}

impl User {
    /// Whoever runs the tests.
    pub(crate) fn same() -> User {
        let name = if host::is_root() { "root" } else { "the tests' own user" };
        User { name, binary: BINARY.into(), uid: None, env: Vec::new(), temporary: folder(0o777), _public: None }
    }

    /// Somebody without any privilege, group or home. Only root can become one.
    pub(crate) fn nobody() -> Option<User> {
        if !host::is_root() {
            println!("skipped: only root can start a server as another user");
            return None;
        }
        // The checkout may be closed to others.
        let public = folder(0o755);
        let binary = public.path().join("program");
        // By another process: a child that some other test forks meanwhile would have the file open to write, and what is
        // open to write cannot be run.
        assert!(Command::new("cp").arg(BINARY).arg(&binary).status().unwrap().success());
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        let env = [("HOME", "/nonexistent"), ("PATH", "/usr/local/bin:/usr/bin:/bin")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Some(User { name: "nobody", binary, uid: Some(NOBODY), env, temporary: folder(0o777), _public: Some(public) })
    }

    /// Both, as far as they can be had.
    pub(crate) fn all() -> Vec<User> {
        [Some(User::same()), User::nobody()].into_iter().flatten().collect()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).current_dir("/").env("TMPDIR", self.temporary.path()).env("XDG_STATE_HOME", STATE);
        if let Some(uid) = self.uid {
            // As root, std drops the supplementary groups along with it.
            command.uid(uid).gid(uid).env_clear().env("TMPDIR", self.temporary.path());
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn serve(&self) -> Server<StdioClient> {
        self.serve_with(&[])
    }

    /// `words` are further arguments.
    pub(crate) fn serve_with(&self, words: &[&str]) -> Server<StdioClient> {
        let mut server = self.start(words);
        server.client.initialize();
        server
    }

    pub(crate) fn serve_without_handshake(&self) -> Server<StdioClient> {
        self.start(&[])
    }

    fn start(&self, words: &[&str]) -> Server<StdioClient> {
        let words: Vec<&str> = ["serve"].into_iter().chain(words.iter().copied()).collect();
        let mut child =
            self.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let client = StdioClient::new(child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Server { child, client }
    }

    /// On a unix socket at this path. `words` are further arguments.
    pub(crate) fn serve_socket(&self, path: &Path, words: &[&str]) -> Server<StdioClient> {
        let words: Vec<&str> =
            ["serve", "--socket", path.to_str().unwrap()].into_iter().chain(words.iter().copied()).collect();
        let mut child =
            self.command(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("at unix:") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the server ended before it listened");
        }
        std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
        Server { child, client: connect(path) }
    }

    /// On a free port of loopback. `words` are further arguments.
    pub(crate) fn serve_http(&self, words: &[&str]) -> Server<Http> {
        self.serve_http_at("127.0.0.1:0", words)
    }

    pub(crate) fn serve_http_at(&self, address: &str, words: &[&str]) -> Server<Http> {
        self.serve_http_heard(address, words).0
    }

    /// Also what it says on stderr from then on, line by line.
    pub(crate) fn serve_http_heard(&self, address: &str, words: &[&str]) -> (Server<Http>, mpsc::Receiver<String>) {
        let words: Vec<&str> = ["serve", "--http", address].into_iter().chain(words.iter().copied()).collect();
        let mut child =
            self.command(&words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            // To the end, whoever listens, so that the server never waits for us.
            for line in stderr.split(b'\n').map_while(Result::ok) {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        let port = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = lines.recv_timeout(left).expect("the server says where it listens");
            if let Some(port) = port_in(&line) {
                break port;
            }
        };
        (Server { child, client: Http::new(port) }, lines)
    }
}

/// A conversation on a unix socket.
pub(crate) fn connect(path: &Path) -> StdioClient {
    let stream = UnixStream::connect(path).unwrap();
    let mut client = StdioClient::new(stream.try_clone().unwrap(), stream);
    client.initialize();
    client
}

fn port_in(line: &str) -> Option<u16> {
    line.split_once("http://")?.1.split_once("/mcp")?.0.rsplit_once(':')?.1.parse().ok()
}

/// An empty folder of its own that others may look into.
pub(crate) fn folder(mode: u32) -> TempDir {
    let folder = tempfile::Builder::new().prefix("e2e-").tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    folder
}

/// A file that only its owner can read.
pub(crate) fn private_file(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// A server at work. Ends with this.
#[derive(Debug)]
pub(crate) struct Server<C> {
    child: Child,
    pub(crate) client: C,
}

impl Server<StdioClient> {
    pub(crate) fn start() -> Server<StdioClient> {
        User::same().serve()
    }
}

impl<C> Server<C> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    pub(crate) fn wait_exit(&mut self, at_most: Duration) -> ExitStatus {
        let deadline = Instant::now() + at_most;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the server still lives after {at_most:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl<C> Drop for Server<C> {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // Politely, so that a test that failed leaves no cgroups, and again for what still runs; then by force.
            let deadline = Instant::now() + Duration::from_secs(10);
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                let _ = Command::new("/bin/sh").args(["-c", &format!("kill {}", self.child.id())]).status();
                let again = Instant::now() + Duration::from_millis(250);
                while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < again {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
