//! Addresses of registries, as settings write them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::Host;

use super::Secret;

/// A web address in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// `http` or `https`, with what Cargo puts before it.
    pub(super) scheme: String,
    /// Name and password, as they are meant.
    pub(super) user: Option<(String, Secret)>,
    pub(super) host: Host,
    pub(super) port: Option<u16>,
    /// From the slash on.
    pub(super) path: String,
}

impl Address {
    /// `None` for what is none: a path, another scheme, a host that is no host.
    pub(super) fn parse(text: &str) -> Option<Address> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        if !matches!(scheme.as_str(), "http" | "https" | "sparse+http" | "sparse+https") {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
            _ => (place, None),
        };
        let user = user.filter(|user| !user.is_empty()).map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (decoded(name), Secret(decoded(password)))
        });
        Some(Address { scheme, user, host: host.parse().ok()?, port, path: path.to_owned() })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme.ends_with("https")
    }

    /// Without name and password.
    pub(super) fn text(&self) -> String {
        format!("{}://{}{}", self.scheme, self.place(), self.path)
    }

    /// The host, with the port where it has one.
    pub(super) fn place(&self) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", self.host)
    }
}

/// What `Authorization` carries for a name and a password.
pub(super) fn basic(name: &str, password: &str) -> Secret {
    Secret(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
}

/// `%40` is `@`. What is no such sign stays.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let number =
            rest.strip_prefix('%').and_then(|after| after.get(..2)).and_then(|two| u8::from_str_radix(two, 16).ok());
        let length = match number {
            Some(byte) => {
                bytes.push(byte);
                3
            }
            None => {
                bytes.extend_from_slice(first.encode_utf8(&mut [0; 4]).as_bytes());
                first.len_utf8()
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
