//! A look at a running server, and a hand on it, for its own user: a socket that each server has while it runs.
//!
//! One line of JSON asks, one answers. Whoever may connect is the server's own user or root, who could end the process
//! anyway; callers of MCP never get here.

mod client;
mod message;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_engine::Engine;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use self::client::{ask_all, reach};
pub(crate) use self::message::{Answer, Logs, Overview, Request};

const PREFIX: &str = "control-";
const SUFFIX: &str = ".sock";

/// Far more than any question.
const QUESTION_BYTES_MAX: u64 = 4096;
/// Those who ask at once.
const ASKING_MAX: usize = 16;
/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// And its answer: longer than the engine takes to stop a run, and then to give up on a sandbox that does not close (30 s).
const ANSWER_MAX: Duration = Duration::from_secs(45);

/// The socket of this server. It goes with this, and nothing of it keeps the engine alive after that.
#[derive(Debug)]
pub(crate) struct Control {
    path: Option<PathBuf>,
    _listening: Option<AbortOnDropHandle<()>>,
}

impl Control {
    /// Inside a runtime. A server without a place for its socket serves all the same.
    pub(crate) fn begin(engine: &Engine, folder: Option<PathBuf>) -> Control {
        let none = Control { path: None, _listening: None };
        let Some(folder) = folder else { return none };
        match listen(&folder) {
            Ok((path, listener)) => {
                let listening = tokio::spawn(answer_all(listener, engine.clone()));
                Control { path: Some(path), _listening: Some(AbortOnDropHandle::new(listening)) }
            }
            Err(error) => {
                let folder = folder.display();
                tracing::info!(%folder, %error, "belljar ps does not see this server: there is no place for its socket");
                none
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Gone already is as good.
            let _ = fs::remove_file(path);
        }
    }
}

fn listen(folder: &Path) -> io::Result<(PathBuf, UnixListener)> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let metadata = fs::symlink_metadata(folder)?;
    let uid = rustix::process::getuid().as_raw();
    if !metadata.is_dir() || metadata.uid() != uid || metadata.permissions().mode() & 0o022 != 0 {
        return Err(io::Error::other("the folder is not this user's alone"));
    }
    remove_stale(folder);
    let path = folder.join(format!("{PREFIX}{}{SUFFIX}", std::process::id()));
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok((path, listener))
}

/// Sockets of servers that were killed: nobody listens there.
fn remove_stale(folder: &Path) {
    for path in client::sockets(folder) {
        let connected = std::os::unix::net::UnixStream::connect(&path);
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            let _ = fs::remove_file(&path);
        }
    }
}

async fn answer_all(listener: UnixListener, engine: Engine) {
    let mut asking = JoinSet::new();
    loop {
        while asking.len() >= ASKING_MAX {
            asking.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let engine = engine.clone();
                asking.spawn(async move {
                    // Whoever asked may have left.
                    let _ = timeout(PATIENCE + ANSWER_MAX, answer(stream, &engine)).await;
                });
            }
            // Too many open files, most likely: it passes.
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
        while asking.try_join_next().is_some() {}
    }
}

async fn answer(stream: UnixStream, engine: &Engine) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid != 0 && uid != rustix::process::getuid().as_raw() {
        tracing::warn!(uid, "another user tried the control socket");
        return Ok(());
    }
    let (reading, mut writing) = stream.into_split();
    let mut line = Vec::new();
    let mut reading = BufReader::new(reading.take(QUESTION_BYTES_MAX));
    timeout(PATIENCE, reading.read_until(b'\n', &mut line)).await??;
    let answer = match serde_json::from_slice(&line) {
        Ok(request) => carry_out(request, engine).await,
        Err(_) => Answer::Error("that is no question that this server knows; use the same belljar as it".to_owned()),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    writing.write_all(&line).await
}

async fn carry_out(request: Request, engine: &Engine) -> Answer {
    match request {
        Request::Overview => Answer::Overview(message::overview(&engine.overview())),
        Request::Logs { id } => Answer::Logs(engine.look_at(&id).map(|printed| message::logs(&printed))),
        Request::Kill { id } => match engine.kill(&id).await {
            Ok(killed) => Answer::Killed(killed),
            Err(error) => Answer::Error(error.to_string()),
        },
        Request::Reload => Answer::Error("this server is told to read its configuration again by SIGHUP".to_owned()),
    }
}
