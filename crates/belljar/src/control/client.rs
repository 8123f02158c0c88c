//! The other end: finding the servers of this user, and asking them.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{ANSWER_MAX, Answer, PREFIX, Request, SUFFIX};
use crate::complaint::Complaint;

/// Longer than a server takes to end a sandbox, and to say what it has.
const PATIENCE_TO_KILL: Duration = ANSWER_MAX.saturating_add(Duration::from_secs(5));
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server says of itself, where it is shown.
const WORDS_MAX: usize = 300;

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
    /// What is to be said of those whose answer was none that is known here.
    unclear: Vec<String>,
}

impl Heard {
    /// What they have is not known; to say that there is nothing would be wrong.
    pub(crate) fn all(&self) -> Result<(), Complaint> {
        let mut what = self.unclear.clone();
        let mut hints = Vec::new();
        match self.silent.as_slice() {
            [] => {}
            [one] => what.insert(0, format!("server {one} does not answer")),
            several => what.insert(0, format!("servers {} do not answer", several.join(", "))),
        }
        if !self.silent.is_empty() {
            hints.push("it may be stopped or overloaded: look at the process, then try again");
        }
        if !self.unclear.is_empty() {
            hints.push("a server of another version is asked with the belljar that it was started with");
        }
        if what.is_empty() { Ok(()) } else { Err(Complaint::new(what.join("; "), hints.join("; "))) }
    }
}

/// One that is gone, or ends in the same moment, says nothing.
pub(crate) fn ask_all(servers: &[Reached], request: &Request) -> Heard {
    let mut heard = Heard::default();
    for server in servers {
        let pid = server.pid();
        match server.ask(request) {
            Ok(None) => {}
            // An end that could not be made is told with what was to be ended.
            Ok(Some(Answer::Error(words))) if !matches!(request, Request::Kill { .. }) => {
                let words = belljar_server::clean(words.as_bytes());
                heard.unclear.push(format!("server {pid} says: {}", words.chars().take(WORDS_MAX).collect::<String>()));
            }
            Ok(Some(answer)) => heard.answers.push(answer),
            Err(error) => match error.kind() {
                // Nobody listens, or not any more: where it ended before it had read the question, the stream is reset.
                ErrorKind::ConnectionRefused
                | ErrorKind::NotFound
                | ErrorKind::ConnectionReset
                | ErrorKind::BrokenPipe => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => heard.silent.push(pid.to_owned()),
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                    heard.unclear.push(format!("server {pid} answers what this belljar does not understand"));
                }
                _ => heard.unclear.push(format!("server {pid} could not be asked: {error}")),
            },
        }
    }
    heard
}

impl Reached {
    fn pid(&self) -> &str {
        pid_of(&self.socket).unwrap_or_default()
    }

    /// `None` where it ended without a word.
    fn ask(&self, request: &Request) -> io::Result<Option<Answer>> {
        let mut stream = UnixStream::connect(&self.socket)?;
        let patience = if matches!(request, Request::Kill { .. }) { PATIENCE_TO_KILL } else { PATIENCE };
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = Vec::new();
        BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
        Ok(if answer.is_empty() { None } else { Some(serde_json::from_slice(&answer)?) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::control::Overview;

    fn listening(folder: &Path, pid: u32) -> UnixListener {
        UnixListener::bind(folder.join(format!("{PREFIX}{pid}{SUFFIX}"))).unwrap()
    }

    fn overview() -> String {
        let (version, backend) = ("1".to_owned(), "fake".to_owned());
        let (sandboxes, runs) = (Vec::new(), Vec::new());
        let overview = Overview { pid: 10, version, backend, uptime_ms: 1, sandboxes, runs, waiting: 0, prepared: 0 };
        serde_json::to_string(&Answer::Overview(overview)).unwrap()
    }

    #[test]
    fn only_who_is_gone_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let servers = [
            (10, overview()),
            (11, r#"{"overview":{"pid":11}}"#.to_owned()),
            (12, overview()[..20].to_owned()),
            (13, r#"{"error":"that is \u001b[31mno question"}"#.to_owned()),
            // It ended before it could say anything.
            (14, String::new()),
        ];
        let threads = servers.map(|(pid, answer)| {
            let listener = listening(folder, pid);
            thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let mut reading = BufReader::new(&stream);
                reading.read_until(b'\n', &mut Vec::new()).unwrap();
                (&stream).write_all(answer.as_bytes()).unwrap();
            })
        });
        let before_it_had_read = listening(folder, 15);
        let reset = thread::spawn(move || {
            let (mut stream, _) = before_it_had_read.accept().unwrap();
            stream.read_exact(&mut [0]).unwrap();
        });
        drop(listening(folder, 16));
        let mut servers = reach(Some(folder));
        servers.push(Reached { socket: folder.join("control-17.sock") });

        let heard = ask_all(&servers, &Request::Overview);
        threads.into_iter().chain([reset]).for_each(|thread| thread.join().unwrap());
        assert_eq!((servers.len(), heard.answers.len()), (8, 1));
        let complaint = heard.all().unwrap_err();
        let unknown = "answers what this belljar does not understand";
        let said = format!("server 11 {unknown}; server 12 {unknown}; server 13 says: that is no question");
        assert_eq!(complaint.what, said);
        assert!(complaint.hint.contains("another version"), "{}", complaint.hint);

        let gone = ask_all(&servers[4..], &Request::Overview);
        assert!(gone.answers.is_empty() && gone.all().is_ok());
    }
}
