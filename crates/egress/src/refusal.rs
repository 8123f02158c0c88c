//! Why a connection was not made, in words for the program that wanted it.

use std::net::IpAddr;

use belljar_core::{Host, USUAL_PORTS};

use crate::audit::Decision;
use crate::http::head::Bad;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotGranted,
    Method(String),
    /// For the audit; whoever is inside is not told where it is.
    NotPublic(IpAddr),
    /// What was asked for inside is not what the connection was made for.
    OtherHost(&'static str),
    Protocol,
    WebSocket,
    Malformed(Bad),
    /// Nothing was said.
    Silent,
    Spent,
    Unresolved,
    Unreachable(String),
    BadAnswer(&'static str),
}

impl Refusal {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Refusal::Malformed(_) => 400,
            Refusal::NotGranted
            | Refusal::Method(_)
            | Refusal::NotPublic(_)
            | Refusal::OtherHost(_)
            | Refusal::Protocol
            | Refusal::Spent => 403,
            Refusal::Silent => 408,
            Refusal::WebSocket => 501,
            Refusal::Unresolved | Refusal::Unreachable(_) | Refusal::BadAnswer(_) => 502,
        }
    }

    /// Whether a grant would have helped.
    pub(crate) fn is_for_the_operator(&self) -> bool {
        matches!(self, Refusal::NotGranted | Refusal::Method(_) | Refusal::NotPublic(_))
    }

    /// One line of plain text.
    pub(crate) fn words(&self, host: &Host, port: u16) -> String {
        let grant = if USUAL_PORTS.contains(&port) { host.to_string() } else { format!("{host}:{port}") };
        match self {
            Refusal::NotGranted => format!(
                "{host}:{port} is not granted to this sandbox; the operator can allow it with --allow-network {grant} or \
                 [network] allow"
            ),
            Refusal::Method(method) => format!(
                "{method} {host}:{port} is not granted to this sandbox, other methods are; the operator can allow it with \
                 --allow-network '{method} {grant}' or [network] allow"
            ),
            Refusal::NotPublic(_) => format!(
                "{host}:{port} is granted, but its address is not a public one; the operator can allow that with [network] \
                 private"
            ),
            Refusal::OtherHost(what) => {
                format!("{what} is not {host}, which this connection is for; connect to the host that is meant")
            }
            Refusal::Protocol => format!(
                "what is spoken to {host}:{port} is neither HTTP nor TLS; the operator can allow other protocols on a port \
                 that is not 80 or 443 by naming it, as in --allow-network {host}:5432"
            ),
            Refusal::WebSocket => format!("WebSockets to {host}:{port} are not passed on; use plain requests"),
            Refusal::Malformed(bad) => format!("the request was not understood: {bad}"),
            Refusal::Silent => format!("nothing was said to {host}:{port} in time"),
            Refusal::Spent => "this sandbox has used up the bytes that it may send and receive".to_owned(),
            Refusal::Unresolved => format!("the name {host} could not be resolved"),
            Refusal::Unreachable(why) => format!("{host}:{port} could not be reached: {why}"),
            Refusal::BadAnswer(why) => format!("the answer of {host}:{port} was not passed on: {why}"),
        }
    }

    pub(crate) fn decision(&self, host: &Host, port: u16) -> Decision {
        match self {
            Refusal::NotPublic(address) => Decision::Refused { why: format!("{address} is not public") },
            Refusal::Unresolved | Refusal::Unreachable(_) | Refusal::BadAnswer(_) => {
                Decision::Failed { why: self.words(host, port) }
            }
            _ => Decision::Refused { why: self.words(host, port) },
        }
    }

    /// An answer that ends the connection. The reason is where clients show it: most print no body.
    pub(crate) fn http(&self, words: &str) -> Vec<u8> {
        format!(
            "HTTP/1.1 {} {words}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{words}\n",
            self.status(),
            words.len() + 1
        )
        .into_bytes()
    }

    /// A fatal alert.
    pub(crate) fn tls(&self) -> [u8; 7] {
        const ACCESS_DENIED: u8 = 49;
        const INTERNAL_ERROR: u8 = 80;
        const UNRECOGNIZED_NAME: u8 = 112;
        let alert = match self {
            Refusal::OtherHost(_) => UNRECOGNIZED_NAME,
            Refusal::Unresolved | Refusal::Unreachable(_) | Refusal::BadAnswer(_) => INTERNAL_ERROR,
            _ => ACCESS_DENIED,
        };
        [21, 3, 3, 0, 2, 2, alert]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_can_allow_it_and_how() {
        let host = "denied.test".parse().unwrap();
        let words = Refusal::NotGranted.words(&host, 443);
        assert!(
            words.starts_with("denied.test:443 is not granted") && words.contains("--allow-network denied.test or")
        );
        assert!(Refusal::NotGranted.words(&host, 8443).contains("--allow-network denied.test:8443 "));
        let answer = String::from_utf8(Refusal::NotGranted.http(&words)).unwrap();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 403 {words}\r\n")) && answer.ends_with(&format!("\r\n\r\n{words}\n"))
        );
    }

    #[test]
    fn where_a_name_leads_is_told_to_the_audit_alone() {
        let (host, refusal) = ("a.test".parse().unwrap(), Refusal::NotPublic([10, 0, 0, 1].into()));
        assert!(!refusal.words(&host, 80).contains("10.0.0.1"));
        assert_eq!(refusal.decision(&host, 80), Decision::Refused { why: "10.0.0.1 is not public".into() });
    }
}
