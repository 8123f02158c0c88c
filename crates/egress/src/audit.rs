//! Who tried to reach what, and what became of it. Never a path, a query or a header: they may hold secrets.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Takes down what happens. Called on the way of every connection: it must not wait long.
pub trait Audit: Debug + Send + Sync {
    fn attempt(&self, attempt: &Attempt);
    /// The end of a connection that was allowed.
    fn ended(&self, ended: &Ended);
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    pub sandbox: String,
    pub host: String,
    /// Absent where only a name was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub via: Via,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The address that was dialled; absent where a proxy of the operator's did that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    #[serde(flatten)]
    pub decision: Decision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Via {
    /// A question for a name.
    Names,
    /// A connection to a stand-in.
    Transparent,
    Connect,
    Http,
    Socks,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "decision")]
pub enum Decision {
    Allowed,
    Refused {
        why: String,
    },
    /// Allowed, and could not be reached.
    Failed {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    pub sandbox: String,
    pub host: String,
    pub port: u16,
    pub via: Via,
    pub bytes_out: u64,
    pub bytes_in: u64,
    pub milliseconds: u64,
}

/// One line for each, at the end of a file.
#[derive(Debug)]
pub struct JsonLines {
    file: File,
}

#[derive(Serialize)]
struct Line<'a, T> {
    time_ms: u64,
    event: &'static str,
    #[serde(flatten)]
    what: &'a T,
}

impl JsonLines {
    /// Opens the file, or makes it for its owner alone.
    pub fn open(path: &Path) -> std::io::Result<JsonLines> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(JsonLines { file })
    }

    /// One line about something else than a connection.
    pub fn note<T: Serialize>(&self, event: &'static str, what: &T) {
        self.write(event, what);
    }

    fn write<T: Serialize>(&self, event: &'static str, what: &T) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let Ok(mut line) = serde_json::to_vec(&Line { time_ms, event, what }) else { return };
        line.push(b'\n');
        // One write: lines of several servers do not mix.
        if let Err(error) = (&self.file).write_all(&line) {
            tracing::error!(%error, "an audit line could not be written");
        }
    }
}

impl Audit for JsonLines {
    fn attempt(&self, attempt: &Attempt) {
        self.write("egress", attempt);
    }

    fn ended(&self, ended: &Ended) {
        self.write("egress-ended", ended);
    }
}

/// To the log, where nobody asked for a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogOnly;

impl Audit for LogOnly {
    fn attempt(&self, attempt: &Attempt) {
        let Attempt { sandbox, host, port, via, method, address, decision } = attempt;
        tracing::debug!(sandbox, host, port, ?via, method, ?address, ?decision, "egress");
    }

    fn ended(&self, ended: &Ended) {
        let Ended { sandbox, host, port, bytes_out, bytes_in, milliseconds, .. } = ended;
        tracing::debug!(sandbox, host, port, bytes_out, bytes_in, milliseconds, "egress ended");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_line_is_json_and_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let attempt = Attempt {
            sandbox: "s\n1".into(),
            host: "api.test".into(),
            port: Some(443),
            via: Via::Connect,
            method: None,
            address: Some([10, 0, 0, 1].into()),
            decision: Decision::Refused { why: "no".into() },
        };
        for _ in 0..2 {
            JsonLines::open(&path).unwrap().attempt(&attempt);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 2, "it is added to");
        let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(line["decision"], "refused");
        assert_eq!((&line["event"], &line["why"], &line["via"]), (&"egress".into(), &"no".into(), &"connect".into()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
