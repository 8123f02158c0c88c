//! Values that programs use and never see: what stands for them inside, and where they are put in.

mod blank;
mod hidden;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{Grant, Host};
use zeroize::Zeroizing;

pub(crate) use blank::{Blanker, Forms};
pub use hidden::Hidden;

use crate::EgressError;
use crate::http::head::{Header, Request};

/// A value that some hosts get in place of what stands for it.
#[derive(Debug, Clone)]
pub struct Secret {
    /// Letters, digits and underscores: the sandbox finds what stands for it in `BELLJAR_SECRET_<name>`.
    pub name: String,
    pub value: Hidden,
    /// Where it goes. Always over TLS; methods are not looked at.
    pub hosts: Vec<Grant>,
    /// The headers in which it is put in; empty for any.
    pub headers: Vec<String>,
}

/// A header that a host gets with each GET and HEAD, and that no program inside knows of.
#[derive(Debug, Clone)]
pub struct Credential {
    pub host: Grant,
    pub header: String,
    pub value: Hidden,
    pub over: Over,
    /// Requests get it whose path begins so, up to and with a slash.
    pub below: String,
}

/// How a connection must be for a credential to be sent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    Tls,
    /// In the clear too: the operator's own index is reached without TLS.
    Either,
}

/// What a connection goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Tls,
    Clear,
}

/// Less could not be told from ordinary text, and blanking it would spoil answers.
const VALUE_BYTES_MIN: usize = 8;
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// All values, and what stands for them.
#[derive(Debug)]
pub(crate) struct Vault {
    secrets: Vec<(Secret, String)>,
    credentials: Vec<Credential>,
    pub(crate) forms: Forms,
}

impl Vault {
    pub(crate) fn new(secrets: Vec<Secret>, credentials: Vec<Credential>) -> Result<Vault, EgressError> {
        for secret in &secrets {
            let bad = |why| EgressError::Secret { name: secret.name.clone(), why };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if secret.name.is_empty() || secret.name.len() > 64 || !secret.name.bytes().all(is_plain) {
                return Err(bad("its name has something else than letters, digits and underscores"));
            }
            check_value(&secret.value).map_err(bad)?;
        }
        for credential in &credentials {
            let bad = |why| EgressError::Secret { name: format!("for {}", credential.host), why };
            check_value(&credential.value).map_err(bad)?;
            if credential.header.is_empty() || !credential.header.bytes().all(is_token) {
                return Err(bad("its header has a name that no header has"));
            }
        }
        let values = secrets.iter().map(|secret| &secret.value).chain(credentials.iter().map(|one| &one.value));
        // Of `Bearer xyz` and `Basic xyz` the second word is the secret.
        let words: Vec<Hidden> = values.flat_map(parts).collect();
        let forms = Forms::new(words.iter()).map_err(|error| EgressError::Forms { why: error.to_string() })?;
        let secrets = secrets.into_iter().map(with_placeholder).collect::<Result<_, _>>()?;
        Ok(Vault { secrets, credentials, forms })
    }

    /// What a sandbox with these grants finds in its environment.
    pub(crate) fn placeholders(&self, grants: &[Grant]) -> Vec<(String, String)> {
        let reaches = |secret: &Secret| {
            secret.hosts.iter().any(|host| {
                grants.iter().any(|grant| grant.pattern.covers(&host.pattern) || host.pattern.covers(&grant.pattern))
            })
        };
        let reached = self.secrets.iter().filter(|(secret, _)| reaches(secret));
        reached.map(|(secret, stands)| (format!("BELLJAR_SECRET_{}", secret.name), stands.clone())).collect()
    }

    /// Whether a value may go to this host, on such a connection.
    pub(crate) fn concerns(&self, host: &Host, port: u16, wire: Wire) -> bool {
        let has_secret = wire == Wire::Tls
            && self.secrets.iter().any(|(secret, _)| secret.hosts.iter().any(|one| one.allows_connection(host, port)));
        has_secret || self.credentials_for(host, port, wire).next().is_some()
    }

    fn credentials_for(&self, host: &Host, port: u16, wire: Wire) -> impl Iterator<Item = &Credential> {
        let fits = move |one: &&Credential| wire == Wire::Tls || one.over == Over::Either;
        self.credentials.iter().filter(fits).filter(move |one| one.host.allows_connection(host, port))
    }

    /// Puts the values in.
    pub(crate) fn fill_in(&self, request: &mut Request, host: &Host, port: u16, wire: Wire) {
        if wire == Wire::Tls {
            for (secret, placeholder) in &self.secrets {
                if secret.hosts.iter().any(|one| one.allows_connection(host, port)) {
                    let permitted = |header: &Header| {
                        secret.headers.is_empty() || secret.headers.iter().any(|name| header.is(name))
                    };
                    for header in request.headers.iter_mut().filter(|header| permitted(header)) {
                        fill_header(header, placeholder, secret.value.reveal());
                    }
                }
            }
        }
        if matches!(request.method.as_str(), "GET" | "HEAD") {
            let path = request.path.clone();
            for credential in self.credentials_for(host, port, wire).filter(|one| is_below(&path, &one.below)) {
                request.headers.retain(|header| !header.is(&credential.header));
                let value = credential.value.reveal().as_bytes().to_vec();
                request.headers.push(Header { name: credential.header.clone(), value });
            }
        }
    }
}

/// Whether a path is below a directory, whoever reads it: one that could lead out of it again is not.
fn is_below(path: &str, directory: &str) -> bool {
    let bare = path.split(['?', '#']).next().unwrap_or_default();
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    let could_lead_out = bare.split('/').any(|part| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".." || part.contains('\\') || part.contains("%2f") || part.contains("%5c")
    });
    // At the root there is nothing to lead out of.
    directory.is_empty() || (!could_lead_out && bare.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')))
}

fn check_value(value: &Hidden) -> Result<(), &'static str> {
    let value = value.reveal();
    if value.len() < VALUE_BYTES_MIN || value.len() > VALUE_BYTES_MAX {
        return Err("its value has less than 8 bytes, or more than 16 KiB");
    }
    if value.bytes().any(|byte| byte < b' ' || byte == 0x7f) || value.trim() != value {
        return Err("its value has a control character, a line end, or space around it");
    }
    Ok(())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The value, and of one with a scheme before it what is behind that; of `Basic`, the password too.
fn parts(value: &Hidden) -> Vec<Hidden> {
    let mut parts = vec![value.clone()];
    if let Some((scheme, rest)) = value.reveal().split_once(' ') {
        parts.push(Hidden::new(rest.to_owned()));
        let decoded = STANDARD.decode(rest).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"));
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).map(Zeroizing::new);
        let password = decoded.as_ref().and_then(|text| text.split_once(':')).map(|(_, password)| password.to_owned());
        parts.extend(password.map(Hidden::new));
    }
    parts.retain(|part| part.reveal().len() >= VALUE_BYTES_MIN);
    parts
}

fn with_placeholder(secret: Secret) -> Result<(Secret, String), EgressError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| EgressError::Forms { why: error.to_string() })?;
    let placeholder =
        format!("belljar-secret-{}-{:016x}", secret.name.to_ascii_lowercase(), u64::from_be_bytes(random));
    Ok((secret, placeholder))
}

fn fill_header(header: &mut Header, placeholder: &str, value: &str) {
    if let Some(filled) = replaced(&header.value, placeholder, value) {
        header.value = filled;
    }
    let Some((scheme, encoded)) = header.value.split_at_checked(6) else { return };
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return;
    }
    let decoded = STANDARD.decode(encoded.trim_ascii()).map(Zeroizing::new);
    if let Some(filled) = decoded.ok().and_then(|plain| replaced(&plain, placeholder, value)).map(Zeroizing::new) {
        header.value = format!("Basic {}", STANDARD.encode(&*filled)).into_bytes();
    }
}

/// `None` where the placeholder is not.
fn replaced(text: &[u8], placeholder: &str, value: &str) -> Option<Vec<u8>> {
    let find = |text: &[u8]| text.windows(placeholder.len()).position(|window| window == placeholder.as_bytes());
    let mut rest = text;
    let mut out = Vec::new();
    while let Some(at) = find(rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(value.as_bytes());
        rest = &rest[at + placeholder.len()..];
    }
    if rest.len() == text.len() {
        return None;
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::{self, Asked};

    const VALUE: &str = "tr0ub4dor-and-3";

    fn vault() -> Vault {
        let secret = Secret {
            name: "API".into(),
            value: Hidden::new(VALUE.into()),
            hosts: vec!["api.test".parse().unwrap()],
            headers: vec!["Authorization".into()],
        };
        let credential = Credential {
            host: "index.test".parse().unwrap(),
            header: "authorization".into(),
            value: Hidden::new(format!("Basic {}", STANDARD.encode("user:swordfish-1"))),
            over: Over::Tls,
            below: "/".into(),
        };
        Vault::new(vec![secret], vec![credential]).unwrap()
    }

    fn filled(vault: &Vault, method: &str, header: &str, host: &str, wire: Wire) -> String {
        let head = format!("{method} / HTTP/1.1\r\nHost: {host}\r\n{header}\r\n\r\n");
        let Asked::Request(mut request) = head::request(head.as_bytes()).unwrap() else { panic!() };
        let host: Host = host.parse().unwrap();
        vault.fill_in(&mut request, &host, 443, wire);
        String::from_utf8(request.write(&host, 443, 443)).unwrap()
    }

    #[test]
    fn a_placeholder_becomes_the_value_for_its_host_and_header_only() {
        let vault = vault();
        let (name, stands) = vault.placeholders(&["*.test".parse().unwrap()]).remove(0);
        assert_eq!(name, "BELLJAR_SECRET_API");
        let bearer = format!("Authorization: Bearer {stands}");
        assert!(filled(&vault, "POST", &bearer, "api.test", Wire::Tls).contains(&format!("Bearer {VALUE}\r\n")));
        for (header, host, wire) in [
            (bearer.as_str(), "other.test", Wire::Tls),
            (&bearer, "api.test", Wire::Clear),
            (&format!("X-Other: {stands}"), "api.test", Wire::Tls),
        ] {
            let sent = filled(&vault, "GET", header, host, wire);
            assert!(!sent.contains(VALUE) && sent.contains(&stands), "{sent}");
        }
    }

    #[test]
    fn a_placeholder_is_found_in_basic_authentication() {
        let vault = vault();
        let (_, stands) = vault.placeholders(&["api.test".parse().unwrap()]).remove(0);
        let basic = format!("Authorization: Basic {}", STANDARD.encode(format!("me:{stands}")));
        let sent = filled(&vault, "GET", &basic, "api.test", Wire::Tls);
        assert!(sent.contains(&STANDARD.encode(format!("me:{VALUE}"))), "{sent}");
    }

    #[test]
    fn a_credential_goes_with_what_only_reads() {
        let vault = vault();
        let theirs = "Authorization: theirs";
        assert!(filled(&vault, "GET", theirs, "index.test", Wire::Tls).contains("authorization: Basic "));
        assert!(!filled(&vault, "GET", theirs, "index.test", Wire::Tls).contains("theirs"));
        assert!(!filled(&vault, "PUT", theirs, "index.test", Wire::Tls).contains("Basic"));
        assert!(!filled(&vault, "GET", theirs, "index.test", Wire::Clear).contains("Basic"));
        let answer = Blanker::new(&vault.forms).whole(b"your password is swordfish-1".to_vec());
        assert_eq!(answer, b"your password is ***********");
    }

    #[test]
    fn a_credential_is_for_what_is_below_its_directory() {
        for (path, directory, is) in [
            ("/a/b/simple/x", "/a/b/", true),
            ("/a/b/", "/a/b", true),
            ("/anything", "/", true),
            ("/a/b", "/a/b/", false),
            ("/a/bc/x", "/a/b/", false),
            ("/a/b/../../api", "/a/b/", false),
            ("/a/b/%2e%2E/api", "/a/b/", false),
            ("/a/b/..%2fapi", "/a/b/", false),
            ("/a/b/..\\api", "/a/b/", false),
            ("/a/b/x?y=/../", "/a/b/", true),
            ("/api", "/a/b/", false),
        ] {
            assert_eq!(is_below(path, directory), is, "{path} {directory}");
        }
    }

    #[test]
    fn a_credential_goes_in_the_clear_only_where_the_operator_said_so() {
        let credential = |over| Credential {
            host: "index.test:80".parse().unwrap(),
            header: "X-Key".into(),
            value: Hidden::new("swordfish-1".into()),
            over,
            below: "/".into(),
        };
        for (over, goes) in [(Over::Tls, false), (Over::Either, true)] {
            let vault = Vault::new(Vec::new(), vec![credential(over)]).unwrap();
            assert_eq!(vault.concerns(&"index.test".parse().unwrap(), 80, Wire::Clear), goes);
        }
    }

    #[test]
    fn a_sandbox_is_told_of_the_secrets_that_it_can_use() {
        let vault = vault();
        let told = |grant: &str| vault.placeholders(&[grant.parse().unwrap()]).len();
        assert_eq!((told("*"), told("*.test"), told("api.test"), told("other.test")), (1, 1, 1, 0));
    }

    #[test]
    fn a_value_that_could_not_be_kept_is_no_secret() {
        for value in ["short", "has a\nline end", " padded-value "] {
            let secret = Secret { name: "A".into(), value: Hidden::new(value.into()), hosts: vec![], headers: vec![] };
            let error = Vault::new(vec![secret], vec![]).unwrap_err().to_string();
            assert!(!error.contains(value), "{error}");
        }
    }
}
