//! A server that is a process of ours: started in a group of its own, with an environment that holds nothing of ours but
//! what it was given, and ended with everything that it started.

use std::cmp;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process_group, waitid};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::Way;
use super::lines::{Line, Lines, message, too_large};
use super::words::Words;

/// A server that does not read for so long is broken.
const WRITE_MAX: Duration = Duration::from_secs(30);
const STDERR_LINE_BYTES_MAX: usize = 4096;
/// More lines than this in this time are not logged.
const STDERR_LINES_MAX: usize = 200;
const STDERR_WINDOW: Duration = Duration::from_secs(10);
/// After its input is closed, and again after it was asked to end.
const GRACE: Duration = Duration::from_millis(1500);
/// After its group was killed.
const GROUP_MAX: Duration = Duration::from_millis(500);

/// Both pipes of a server. Dropping it ends the process and its group.
#[derive(Debug)]
pub(super) struct Pipe {
    server: String,
    lines: Lines<ChildStdout>,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    bytes_max: usize,
    stop: CancellationToken,
    /// The question whether it is of the newer protocol.
    probe: Option<RequestId>,
    /// The same, once nobody waits for the answer: one that takes long to start gives it after all.
    late: Option<RequestId>,
    /// Set when it did, and the answer was yes.
    is_modern: Arc<AtomicBool>,
    /// How often it has asked us something, and since when that is counted.
    asked: (u32, Instant),
}

/// A server asks its client little. One that floods would fill our memory with answers that it does not read.
const ASKED_MAX: u32 = 200;
const ASKED_IN: Duration = Duration::from_secs(10);

impl Pipe {
    /// Whether it turned out too late to be of the newer protocol; outlives the pipe.
    pub(super) fn turned_out_modern(&self) -> Arc<AtomicBool> {
        self.is_modern.clone()
    }

    fn is_flooded(&mut self, message: &RxJsonRpcMessage<RoleClient>) -> bool {
        if !matches!(message, ServerJsonRpcMessage::Request(_)) {
            return false;
        }
        if self.asked.1.elapsed() > ASKED_IN {
            self.asked = (0, Instant::now());
        }
        self.asked.0 += 1;
        self.asked.0 > ASKED_MAX
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Starts the process. Also gives what is cancelled when nothing of it is left.
pub(super) fn start(
    server: &str,
    way: &Way,
    base: &[(String, String)],
    bytes_max: usize,
    words: &Arc<Words>,
    tasks: &TaskTracker,
) -> io::Result<(Pipe, CancellationToken)> {
    let Way::Stdio { command, args, env, cwd } = way else { return Err(io::Error::other("not a process")) };
    let mut process = Command::new(command);
    process
        .args(args.iter().map(|arg| arg.reveal()))
        .env_clear()
        .envs(base.iter().map(|(name, value)| (name, value)))
        .envs(env.iter().map(|(name, value)| (name, value.reveal())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    words.begin();
    let mut child = process.spawn()?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("its pipes are missing"));
    };
    let stop = CancellationToken::new();
    let gone = CancellationToken::new();
    let stdin = Arc::new(Mutex::new(Some(stdin)));
    tasks.spawn(listen(server.to_owned(), stderr, words.clone(), gone.clone()));
    tasks.spawn(keep(child, stdin.clone(), words.clone(), stop.clone(), gone.clone()));
    let lines = Lines::new(stdout, bytes_max);
    let pipe = Pipe {
        server: server.to_owned(),
        lines,
        stdin,
        bytes_max,
        stop,
        probe: None,
        late: None,
        is_modern: Arc::default(),
        asked: (0, Instant::now()),
    };
    Ok((pipe, gone))
}

/// Waits for the word to end, then ends the process with its whole group and reaps it.
async fn keep(
    mut child: Child,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    words: Arc<Words>,
    stop: CancellationToken,
    gone: CancellationToken,
) {
    let _gone = gone.drop_guard();
    stop.cancelled().await;
    // A writer that hangs holds the lock; the group's end frees it.
    if let Ok(mut stdin) = stdin.try_lock() {
        stdin.take();
    }
    let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(group) = group {
        if !exits_within(group, GRACE).await {
            let _ = kill_process_group(group, Signal::TERM);
            exits_within(group, GRACE).await;
        }
        // The leader is not yet reaped, so the number is still the group's.
        let _ = kill_process_group(group, Signal::KILL);
    }
    match child.wait().await {
        Ok(status) => words.exit(describe(status)),
        Err(error) => tracing::warn!(%error, "a server's process could not be waited for"),
    }
    // The others of the group are not our children; they are killed, but it takes them a moment.
    let deadline = tokio::time::Instant::now() + GROUP_MAX;
    while group.is_some_and(|group| test_kill_process_group(group).is_ok()) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn exits_within(process: Pid, limit: Duration) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        match waitid(WaitId::Pid(process), options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Ok(Some(_)) | Err(_) => return true,
        }
        if tokio::time::Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

/// Its standard error goes to our log, line by line.
async fn listen(server: String, stderr: ChildStderr, words: Arc<Words>, gone: CancellationToken) {
    let mut lines = Lines::new(stderr, STDERR_LINE_BYTES_MAX);
    let mut window = (tokio::time::Instant::now(), 0);
    let read = async {
        while let Some(line) = lines.next().await {
            let line = match line {
                Line::Whole(line) => words.line(&line),
                Line::Over(over) => format!("(a line of {} bytes)", over.bytes),
            };
            if window.0.elapsed() > STDERR_WINDOW {
                window = (tokio::time::Instant::now(), 0);
            }
            window.1 += 1;
            match window.1.cmp(&STDERR_LINES_MAX) {
                cmp::Ordering::Less => tracing::debug!(server, "{line}"),
                cmp::Ordering::Equal => tracing::debug!(server, "writes too much; the next lines are left out"),
                cmp::Ordering::Greater => {}
            }
        }
    };
    // Whoever still holds the pipe after the group's end is none of ours; what is already in it can be read.
    let late = async {
        gone.cancelled().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    tokio::select! { () = read => {}, () = late => {} }
}

/// The request that a message answers.
fn answered(message: &RxJsonRpcMessage<RoleClient>) -> Option<&RequestId> {
    match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    }
}

impl Transport<RoleClient> for Pipe {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        match &item {
            JsonRpcMessage::Request(asked) if matches!(asked.request, ClientRequest::DiscoverRequest(_)) => {
                self.probe = Some(asked.id.clone());
            }
            JsonRpcMessage::Request(asked) if matches!(asked.request, ClientRequest::InitializeRequest(_)) => {
                self.late = self.probe.take();
            }
            _ => {}
        }
        let stdin = self.stdin.clone();
        let stop = self.stop.clone();
        async move {
            let mut bytes = serde_json::to_vec(&item)?;
            bytes.push(b'\n');
            let write = async {
                let mut stdin = stdin.lock().await;
                let stdin = stdin.as_mut().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
                stdin.write_all(&bytes).await?;
                stdin.flush().await
            };
            let written = tokio::select! {
                written = tokio::time::timeout(WRITE_MAX, write) => written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
                () = stop.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
            };
            // Half a line may be in the pipe.
            written.inspect_err(|_| stop.cancel())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let line = tokio::select! {
                line = self.lines.next() => line?,
                () = self.stop.cancelled() => return None,
            };
            match line {
                Line::Whole(line) if line.trim_ascii().is_empty() => {}
                Line::Whole(line) => match message(&line) {
                    Some(message) if self.late.is_some() && answered(&message) == self.late.as_ref() => {
                        self.late = None;
                        let is_modern = matches!(message, JsonRpcMessage::Response(_));
                        self.is_modern.store(is_modern, Ordering::Release);
                        tracing::debug!(server = self.server, is_modern, "started slowly");
                    }
                    Some(message) if self.is_flooded(&message) => {
                        tracing::warn!(server = self.server, "asks its client without end; it is ended");
                        self.stop.cancel();
                        return None;
                    }
                    Some(message) => return Some(message),
                    None => tracing::debug!(server = self.server, "a line on stdout is no message; ignored"),
                },
                Line::Over(over) => {
                    tracing::warn!(server = self.server, bytes = over.bytes, "a message was too large; left out");
                    if over.is_no_answer() {
                        continue;
                    }
                    // Without a number nobody can be told, and somebody would wait in vain.
                    let id = over.request()?;
                    return Some(too_large(over.bytes, self.bytes_max, Some(id)));
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.stop.cancel();
        Ok(())
    }
}
