//! Who tried to reach what, and what became of it. Never a path, a query or a header: they may hold secrets.

use std::fmt::Debug;
use std::net::IpAddr;

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
