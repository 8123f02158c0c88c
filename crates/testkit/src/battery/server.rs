//! Starting and stopping the server under test.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Link, hold};
use super::http::{HttpClient, Tokens};
use super::stdio::StdioClient;
use super::wall::Wall;

/// Sandboxes that a server has prepared. One, so that programs are run in prepared ones, and their number stays as it is
/// whatever the cases ask for: the traces of a case are counted.
pub(crate) const PREPARED_MAX: usize = 1;

const READY_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// Who the server is on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// The driver's own user.
    Same,
    /// A user without any privilege; only root can start a server so.
    Uid(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Stdio,
    Http,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserNamespaces {
    AsTheHostHasIt,
    TakenAway,
}

/// What each principal may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    requests_per_second: u32,
    memory_mb: u32,
}

impl Quota {
    /// Two throw-away sandboxes at once. Who sends hundreds of programs comes up against both, however slow the host is: even
    /// if it took ten seconds to send them, most would be too many, and of the rest most would find two under way.
    pub(crate) const TIGHT: Quota = Quota { requests_per_second: 20, memory_mb: 2048 };

    fn configuration(self) -> String {
        let Quota { requests_per_second, memory_mb } = self;
        format!("[quota]\nrequests_per_second = {requests_per_second}\nmemory_mb = {memory_mb}\n")
    }
}

/// Everything that decides how a server is started.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) binary: PathBuf,
    /// A copy that every user can read; the checkout may be closed to them.
    pub(crate) public_binary: PathBuf,
    pub(crate) user: User,
    pub(crate) transport: Transport,
    pub(crate) idle_seconds: Option<u32>,
    pub(crate) quota: Option<Quota>,
    /// A folder for the server's audit, if it is to write one.
    pub(crate) audit: Option<PathBuf>,
    pub(crate) open_files_max: Option<u64>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) user_namespaces: UserNamespaces,
    pub(crate) wall: Wall,
    /// What the server's configuration says of the network.
    pub(crate) network: String,
    /// The file of `mcpServers`, if there is anything behind the server.
    pub(crate) upstreams: Option<String>,
    /// A folder of the driver, for the server's stderr, configuration and token file.
    pub(crate) folder: PathBuf,
    pub(crate) tokens: Tokens,
}

#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) link: Link,
    stderr: PathBuf,
    /// What an HTTP server wrote to stdout, where nothing belongs.
    stray: Arc<Mutex<Vec<u8>>>,
}

impl Server {
    /// Starts a server that must work.
    pub(crate) fn start(launch: &Launch) -> Result<Server, String> {
        let server = Server::spawn(launch)?;
        if let Link::Stdio(client) = &server.link {
            let answer = client.initialize(READY_WITHIN)?;
            if answer.is_error() {
                return Err(format!("initialize: {}; {}", answer.text(), server.last_words()));
            }
        }
        Ok(server)
    }

    /// Starts a server that is allowed to refuse to work: not even the handshake has to succeed.
    pub(crate) fn start_crippled(launch: &Launch) -> Result<Server, String> {
        let server = Server::spawn(launch)?;
        if let Link::Stdio(client) = &server.link {
            // A server that is gone by now cannot be written to, which is an answer too.
            let _ = client.initialize(READY_WITHIN);
        }
        Ok(server)
    }

    fn spawn(launch: &Launch) -> Result<Server, String> {
        let stderr = launch.folder.join(format!("stderr-{}", super::host::random_hex(4)));
        let log = File::create(&stderr).map_err(|error| format!("{}: {error}", stderr.display()))?;
        let mut command = command(launch)?;
        command.stdout(Stdio::piped()).stderr(log).current_dir("/");
        command.stdin(match launch.transport {
            Transport::Stdio => Stdio::piped(),
            Transport::Http => Stdio::null(),
        });
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", launch.binary.display()))?;
        launch.wall.started(child.id());
        let stray = Arc::new(Mutex::new(Vec::new()));
        let link = match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Link::Stdio(StdioClient::new(stdin, stdout)),
            (_, stdout) => {
                let into = Arc::clone(&stray);
                thread::spawn(move || stdout.map(|stdout| collect(stdout, &into)));
                match wait_for_address(&mut child, &stderr) {
                    Ok(address) => Link::Http(HttpClient::new(address, launch.tokens.clone())),
                    Err(reason) => {
                        stop(&mut child);
                        return Err(reason);
                    }
                }
            }
        };
        Ok(Server { child, link, stderr, stray })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether another case can go on with this server.
    pub(crate) fn is_usable(&mut self) -> bool {
        let closed = matches!(&self.link, Link::Stdio(client) if client.is_closed());
        !closed && !self.has_exited()
    }

    pub(crate) fn wait_exit(&mut self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        while !self.has_exited() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(20));
        }
        true
    }

    pub(crate) fn shut_down(&mut self) {
        stop(&mut self.child);
    }

    pub(crate) fn signal(&mut self, signal: i32) -> Result<(), String> {
        send_signal(&mut self.child, signal)
    }

    /// Lines on stdout that are not JSON-RPC.
    pub(crate) fn bad_lines(&self) -> Vec<String> {
        match &self.link {
            Link::Stdio(client) => client.bad_lines(),
            Link::Http(_) => String::from_utf8_lossy(&hold(&self.stray)).lines().map(str::to_owned).collect(),
        }
    }

    /// How much the server has said so far, as a place to read on from.
    pub(crate) fn stderr_length(&self) -> u64 {
        fs::metadata(&self.stderr).map_or(0, |metadata| metadata.len())
    }

    /// At most 16 MiB of what the server said since then.
    pub(crate) fn stderr_since(&self, place: u64) -> Result<String, String> {
        let mut bytes = Vec::new();
        let mut file = File::open(&self.stderr).map_err(|error| error.to_string())?;
        file.seek(SeekFrom::Start(place)).map_err(|error| error.to_string())?;
        file.take(16 << 20).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn last_words(&self) -> String {
        let words = self.stderr_since(0).unwrap_or_default();
        let tail: Vec<&str> = words.lines().rev().take(3).collect();
        format!("stderr ends with: {}", tail.into_iter().rev().collect::<Vec<_>>().join(" / "))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

fn collect(mut from: impl Read, into: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let mut stray = hold(into);
        // Enough to show; the rest is only drained.
        if stray.len() < 1 << 16 {
            stray.extend_from_slice(&chunk[..count]);
        }
    }
}

/// First politely, so that sandboxes are taken down; then by force.
fn stop(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) && send_signal(child, 15).is_ok() {
        let deadline = Instant::now() + STOP_WITHIN;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
    // Both fail only if the process is already gone.
    let _ = child.kill();
    let _ = child.wait();
}

/// Through the shell's `kill`, which keeps this crate free of unsafe code.
fn send_signal(child: &mut Child, signal: i32) -> Result<(), String> {
    if !matches!(child.try_wait(), Ok(None)) {
        return Err("server had already exited".into());
    }
    let command = format!("kill -{signal} {}", child.id());
    let status = Command::new("/bin/sh").args(["-c", &command]).status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("{command} failed")) }
}

/// What a server has by itself.
const YIELD_AFTER_SECONDS: u32 = 45;

fn command(launch: &Launch) -> Result<Command, String> {
    let binary = match launch.user {
        User::Same => &launch.binary,
        User::Uid(_) => &launch.public_binary,
    };
    let Launch { network, wall, .. } = launch;
    let mut text = format!("[pool]\nmax = {PREPARED_MAX}\n{network}\n{}\n", wall.configuration);
    text += &launch.quota.map(Quota::configuration).unwrap_or_default();
    if let Some(folder) = &launch.audit {
        let file = audit_file(own_folder(folder, launch.user)?);
        text += &format!("[audit]\nfile = {:?}\n", file.display().to_string());
    }
    let config = own_file(launch, "config", &text)?;
    let config = ["--config".into(), config.display().to_string()];
    let mut words: Vec<String> = vec![binary.display().to_string(), "serve".into()];
    words.extend(config);
    if let Some(upstreams) = &launch.upstreams {
        let file = own_file(launch, "upstreams", upstreams)?;
        // What no rule names needs nobody: there is nobody to ask.
        words.extend(["--mcp-config".into(), file.display().to_string(), "--approve".into(), "never".into()]);
    }
    if launch.transport == Transport::Http {
        let file = own_file(launch, "tokens", &launch.tokens.file())?;
        words.extend(["--http".into(), "127.0.0.1:0".into(), "--token-file".into(), file.display().to_string()]);
    }
    if let Some(seconds) = launch.idle_seconds {
        words.extend(["--idle-timeout".into(), seconds.to_string()]);
    }
    if wall.slowness > 1 {
        // What a case waits for is not to become a job before.
        words.extend(["--yield-after".into(), (YIELD_AFTER_SECONDS * wall.slowness).to_string()]);
    }
    if let Some(files) = launch.open_files_max {
        words = wrap(&format!("ulimit -n {files}; exec \"$@\""), words);
    }
    if launch.user_namespaces == UserNamespaces::TakenAway {
        words = without_user_namespaces(words, launch.user);
    }
    let mut command = Command::new(&words[0]);
    // Some cases read all that there is, which is not to be every toolchain of this host.
    command.args(&words[1..]).env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    if launch.user == User::Same {
        // The history of whoever runs the tests is not for these; another user has no home to have one in.
        command.env("XDG_STATE_HOME", own_folder(&launch.folder.join("state"), launch.user)?);
    }
    if let User::Uid(uid) = launch.user {
        // As root, std also drops the supplementary groups when a uid is set.
        command.uid(uid).gid(uid).env_clear();
        command.env("HOME", "/nonexistent").env("PATH", "/usr/local/bin:/usr/bin:/bin");
    }
    if let Some(cache) = &wall.cache {
        command.env("XDG_CACHE_HOME", own_folder(cache, launch.user)?).env_remove("XDG_RUNTIME_DIR");
    }
    command.envs(launch.env.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

fn wrap(script: &str, words: Vec<String>) -> Vec<String> {
    let shell = ["/bin/sh", "-c", script, "sh"].map(str::to_owned);
    shell.into_iter().chain(words).collect()
}

/// Two nested user namespaces: in the outer one, as its root, the number of namespaces is set to one; the inner one uses
/// that up. The server then has no capability, an ordinary uid, and unshare(CLONE_NEWUSER) fails with ENOSPC. With one
/// namespace alone the limit cannot be written without keeping capabilities that the server must not have.
fn without_user_namespaces(words: Vec<String>, user: User) -> Vec<String> {
    let uid = match user {
        User::Uid(uid) => uid,
        User::Same => super::host::own_uid(),
    };
    let script = format!(
        "echo 1 > /proc/sys/user/max_user_namespaces && \
         exec unshare --user --map-user={uid} --map-group={uid} -- \"$@\""
    );
    let outer = ["unshare", "--user", "--map-root-user", "--"].map(str::to_owned);
    outer.into_iter().chain(wrap(&script, words)).collect()
}

/// How to start a server that cannot make user namespaces, once it is proven that it cannot.
pub(crate) fn ban_user_namespaces(user: User) -> Result<UserNamespaces, String> {
    let probe: Vec<String> =
        ["/bin/sh", "-c", "unshare --user true && echo CAN || echo CANNOT"].map(str::to_owned).into();
    if ask_as(user, probe.clone())?.0 == "CANNOT" {
        return Ok(UserNamespaces::AsTheHostHasIt);
    }
    match ask_as(user, without_user_namespaces(probe, user))? {
        (said, _) if said == "CANNOT" => Ok(UserNamespaces::TakenAway),
        (_, complaint) => Err(format!("user namespaces cannot be taken away here: {complaint}")),
    }
}

/// What a program of that user says on stdout and stderr.
fn ask_as(user: User, mut words: Vec<String>) -> Result<(String, String), String> {
    let mut command = Command::new(words.remove(0));
    command.args(words).current_dir("/").stdin(Stdio::null());
    if let User::Uid(uid) = user {
        command.uid(uid).gid(uid);
    }
    let output = command.output().map_err(|error| format!("unshare: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    Ok((text(&output.stdout), text(&output.stderr)))
}

/// Where the audit is in its folder.
fn audit_file(folder: &Path) -> PathBuf {
    folder.join("audit.jsonl")
}

impl Launch {
    /// At most 16 MiB of what the server wrote down.
    pub(crate) fn audited(&self) -> Result<String, String> {
        let folder = self.audit.as_deref().ok_or("this server writes no audit")?;
        let mut bytes = Vec::new();
        let file = File::open(audit_file(folder)).map_err(|error| format!("the audit: {error}"))?;
        file.take(16 << 20).read_to_end(&mut bytes).map_err(|error| format!("the audit: {error}"))?;
        String::from_utf8(bytes).map_err(|_| "the audit is not UTF-8".to_owned())
    }
}

/// A folder of the server's user, which stays for the next server.
fn own_folder(path: &Path, user: User) -> Result<&Path, String> {
    let made = fs::create_dir_all(path).and_then(|()| match user {
        User::Uid(uid) => chown(path, Some(uid), Some(uid)),
        User::Same => Ok(()),
    });
    made.map(|()| path).map_err(|error| format!("{}: {error}", path.display()))
}

/// A file that the server's user alone can read.
fn own_file(launch: &Launch, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = launch.folder.join(format!("{name}-{}", super::host::random_hex(4)));
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).and_then(|mut file| {
        use std::io::Write;
        file.write_all(text.as_bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        if let User::Uid(uid) = launch.user {
            chown(&path, Some(uid), Some(uid))?;
        }
        Ok(())
    });
    written.map(|()| path).map_err(|error| format!("the file of {name}: {error}"))
}

fn wait_for_address(child: &mut Child, stderr: &Path) -> Result<SocketAddr, String> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let said = fs::read_to_string(stderr).unwrap_or_default();
        if let Some(address) = address_in(&said) {
            return Ok(address);
        }
        if !matches!(child.try_wait(), Ok(None)) {
            return Err(format!("the HTTP server did not start: {}", said.trim()));
        }
        if Instant::now() > deadline {
            return Err("the HTTP server did not say where it listens".into());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Finds `http://127.0.0.1:PORT/mcp`; without the path the line may still be half written.
fn address_in(said: &str) -> Option<SocketAddr> {
    said.match_indices("http://127.0.0.1:").find_map(|(place, prefix)| {
        let (port, _) = said[place + prefix.len()..].split_once("/mcp")?;
        Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_line() {
        let said = "starting\nlistening on http://127.0.0.1:4711/mcp (tokens: 3)\n";
        assert_eq!(address_in(said).unwrap().port(), 4711);
        assert_eq!(address_in("http://127.0.0.1:47"), None);
        assert_eq!(address_in("http://127.0.0.1:x/mcp"), None);
    }

    /// The wrapper must really take the namespaces away, or a case that relies on it would prove nothing.
    #[test]
    fn user_namespaces_are_really_gone() {
        let user = if super::super::host::own_uid() == 0 { User::Uid(65534) } else { User::Same };
        let Ok(UserNamespaces::TakenAway) = ban_user_namespaces(user) else {
            println!("skipped: this host gives or takes user namespaces in its own way");
            return;
        };
        let probe = ["/bin/sh", "-c", "grep CapEff /proc/self/status; id -u; unshare --user true"];
        let words = without_user_namespaces(probe.map(str::to_owned).into(), user);
        let (said, complaint) = ask_as(user, words).unwrap();
        assert!(said.contains("0000000000000000") && !said.ends_with("\n0"), "{said}");
        assert!(complaint.contains("unshare"), "{complaint}");
    }
}
