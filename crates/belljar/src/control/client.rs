//! The other end: finding the servers of this user, and asking them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Answer, PREFIX, Request, SUFFIX};

/// Longer than a server takes to end a sandbox.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
        pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    let mut sockets: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_ours).collect();
    sockets.sort();
    sockets
}

/// The servers of this user that may be running.
pub(crate) fn reach(folder: Option<&Path>) -> Vec<Reached> {
    folder.map(sockets).unwrap_or_default().into_iter().map(|socket| Reached { socket }).collect()
}

/// The answers of those that are there; one that ends in the same moment says nothing.
pub(crate) fn ask_all(servers: &[Reached], request: &Request) -> Vec<Answer> {
    servers.iter().filter_map(|server| server.ask(request).ok()).collect()
}

impl Reached {
    fn ask(&self, request: &Request) -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = Vec::new();
        BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}
