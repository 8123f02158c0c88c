//! This same program as a server, started and ended.
//!
//! A server on a pipe ends with the pipe. One over HTTP would outlive a bench that is told to end, open to everybody on
//! this machine, so that a signal is passed on first.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio as Stream};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::client::{Http, Stdio};
use super::processes;
use crate::wiring;

/// A first start asks each interpreter where it lives, and shims take their time.
const START: Duration = Duration::from_secs(30);
const END: Duration = Duration::from_secs(10);
/// For prepared interpreters, of which one with a scientific library takes seconds.
const READY: Duration = Duration::from_secs(30);

/// What says where a program keeps things, and the folder of each below another home.
const XDG: [(&str, &str); 5] = [
    ("XDG_CONFIG_HOME", "config"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_DATA_HOME", "data"),
    ("XDG_STATE_HOME", "state"),
    ("XDG_RUNTIME_DIR", "run"),
];

/// How to start one.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) backend: &'static str,
    pub(super) config: PathBuf,
    /// Instead of this program's own `PATH`.
    pub(super) path: Option<OsString>,
    /// Where it keeps what it keeps, instead of where the user does.
    pub(super) home: Option<PathBuf>,
}

impl Launch {
    /// The same with this configuration, which is kept in a folder of its own.
    pub(super) fn with(&self, folder: &tempfile::TempDir, configuration: &str) -> anyhow::Result<Launch> {
        let config = folder.path().join("config.toml");
        std::fs::write(&config, configuration)?;
        Ok(Launch { config, ..self.clone() })
    }

    /// On a pipe, with these flags more.
    pub(super) fn stdio(&self, flags: &[&str]) -> anyhow::Result<OnPipe> {
        let mut process = self.spawn(flags, Stream::piped())?;
        let (stdin, stdout) = (process.child.stdin.take(), process.child.stdout.take());
        let (stdin, stdout) = stdin.zip(stdout).context("the server has no streams")?;
        let mut client = Stdio::new(stdin, stdout);
        client.initialize().map_err(|error| process.why_not(error))?;
        processes::settle(&[process.pid()], READY);
        Ok(OnPipe { client, process })
    }

    /// On a free port of loopback, with these flags more.
    pub(super) fn http(&self, flags: &[&str]) -> anyhow::Result<OnPort> {
        let server = self.http_at_once(flags)?;
        processes::settle(&[server.pid()], READY);
        Ok(server)
    }

    /// The same, whether it has prepared anything yet or not.
    pub(super) fn http_at_once(&self, flags: &[&str]) -> anyhow::Result<OnPort> {
        let flags: Vec<&str> = ["--http", "127.0.0.1:0"].iter().chain(flags).copied().collect();
        let mut process = self.spawn(&flags, Stream::null())?;
        let told = process.addresses.recv_timeout(START).map_err(|_| anyhow!("it does not say where it listens"));
        let address = told.map_err(|error| process.why_not(error))?;
        Ok(OnPort { address, process })
    }

    fn spawn(&self, flags: &[&str], stream: Stream) -> anyhow::Result<Process> {
        if ended_by().is_some() {
            bail!("told to end");
        }
        let stdout = if flags.contains(&"--http") { Stream::null() } else { Stream::piped() };
        let mut command = Command::new(wiring::this_program()?);
        command.args(["serve", "--backend", self.backend, "--config"]);
        command.arg(&self.config).args(flags);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        if let Some(home) = &self.home {
            for (name, folder) in XDG {
                command.env(name, home.join(folder));
            }
        }
        let mut child =
            command.stdin(stream).stdout(stdout).stderr(Stream::piped()).spawn().context("starting the server")?;
        running().insert(child.id());
        if ended_by().is_some() {
            // Whoever listens for signals may have looked before it was there.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        let (tell, addresses) = mpsc::channel();
        let (say, said) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || listen(stderr, &tell, &say));
        }
        Ok(Process { child, addresses, said, is_over: false })
    }
}

#[derive(Debug)]
pub(super) struct OnPipe {
    pub(super) client: Stdio,
    process: Process,
}

impl OnPipe {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

#[derive(Debug)]
pub(super) struct OnPort {
    address: SocketAddr,
    process: Process,
}

impl OnPort {
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn connect(&self) -> anyhow::Result<Http> {
        Http::connect(self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// With no time to put anything away.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.process.child.kill().context("killing the server")?;
        self.process.child.wait().context("waiting for the server's end")?;
        self.process.is_over = true;
        Ok(())
    }
}

/// A server at work. Ends with this, in order, so that no cgroup is left behind.
#[derive(Debug)]
struct Process {
    child: Child,
    addresses: Receiver<SocketAddr>,
    said: Receiver<String>,
    /// Its number may be another's by now.
    is_over: bool,
}

impl Process {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What a server that does not work said of it: its first error, if it has one.
    fn why_not(&mut self, error: anyhow::Error) -> anyhow::Error {
        let deadline = Instant::now() + Duration::from_secs(1);
        while let Ok(line) = self.said.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            if let Some(what) = line.strip_prefix("error: ") {
                return anyhow!("the server says: {what}");
            }
        }
        error.context("the server does not start")
    }

    fn end(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + END;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            self.end();
        }
        running().remove(&self.child.id());
    }
}

/// Reads to the end, so that the server never waits for us.
fn listen(stderr: ChildStderr, tell: &Sender<SocketAddr>, say: &Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some(address) = address_in(&line) {
            let _ = tell.send(address);
        }
        let _ = say.send(line);
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    line.split_once("serving MCP at http://")?.1.split_once("/mcp")?.0.parse().ok()
}

static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());
/// The number of the signal that ended us, or 0.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

fn running() -> MutexGuard<'static, BTreeSet<u32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The signal that told us to end, if one did.
pub(super) fn ended_by() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::Relaxed)).filter(|number| *number != 0)
}

/// From now on, a signal that would end this program ends its servers. Without them nothing can be measured, so that the
/// program ends soon after, in order; a second signal ends it at once.
pub(super) fn end_servers_on_signal() -> anyhow::Result<()> {
    let runtime = wiring::runtime_for_one()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        let listen = |kind| signal(kind).context("listening for signals");
        (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?)
    };
    std::thread::spawn(move || {
        loop {
            let kind = runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => SignalKind::terminate(),
                    _ = interrupt.recv() => SignalKind::interrupt(),
                }
            });
            if ENDED_BY.swap(kind.as_raw_value(), Ordering::Relaxed) != 0 {
                std::process::exit(128 + kind.as_raw_value());
            }
            for pid in running().iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_the_line_that_serve_writes() {
        let line = "belljar: serving MCP at http://127.0.0.1:8931/mcp";
        assert_eq!(address_in(line), Some(SocketAddr::from(([127, 0, 0, 1], 8931))));
        assert_eq!(address_in("see http://example.com/mcp"), None);
    }
}
