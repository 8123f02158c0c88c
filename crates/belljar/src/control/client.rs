//! The other end: finding the servers of this user, and asking them.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, PREFIX, Request, SUFFIX};
use crate::complaint::Complaint;

/// Longer than a server takes to end a sandbox, and to say what it has.
const PATIENCE_TO_KILL: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(5);

/// What two streams of a run may come to as JSON, at their worst.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One server, found by its socket.
#[derive(Debug, Clone)]
pub(crate) struct Reached {
    socket: PathBuf,
}

/// The sockets below a folder, whether anybody listens or not.
pub(super) fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_ours = |path: &PathBuf| pid_of(path).is_some_and(|pid| pid.parse::<u32>().is_ok());
    let mut sockets: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    sockets.sort();
    sockets
}

fn pid_of(socket: &Path) -> Option<&str> {
    socket.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

/// The servers of this user that may be running.
pub(crate) fn reach(folder: Option<&Path>) -> Vec<Reached> {
    folder.map(sockets).unwrap_or_default().into_iter().map(|socket| Reached { socket }).collect()
}

/// What came of asking every server.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) answers: Vec<Answer>,
    /// Those that stand and do not answer, by their process numbers.
    silent: Vec<String>,
}

impl Heard {
    /// What they have is not known; to say that there is nothing would be wrong.
    pub(crate) fn all(&self) -> Result<(), Complaint> {
        match self.silent.as_slice() {
            [] => Ok(()),
            silent => {
                let (pids, is_one) = (silent.join(", "), silent.len() == 1);
                let what = if is_one {
                    format!("server {pids} does not answer")
                } else {
                    format!("servers {pids} do not answer")
                };
                let hint = "it may be stopped or overloaded: look at the process, then try again";
                Err(Complaint::new(what, hint))
            }
        }
    }
}

/// One that is gone, or ends in the same moment, says nothing.
pub(crate) fn ask_all(servers: &[Reached], request: &Request) -> Heard {
    let mut heard = Heard::default();
    for server in servers {
        match server.ask(request) {
            Ok(answer) => heard.answers.push(answer),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                heard.silent.push(server.pid().to_owned());
            }
            Err(_) => {}
        }
    }
    heard
}

impl Reached {
    fn pid(&self) -> &str {
        pid_of(&self.socket).unwrap_or_default()
    }

    fn ask(&self, request: &Request) -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let patience = if matches!(request, Request::Kill { .. }) { PATIENCE_TO_KILL } else { PATIENCE };
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = Vec::new();
        BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}
