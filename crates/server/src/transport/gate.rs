//! What every HTTP request must pass before the protocol sees it: Host, Origin, token, session, size.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use belljar_engine::Principal;

use crate::auth::Tokens;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No Host, more than one, or one that cannot be read.
    BadHost,
    ForeignHost,
    ForeignOrigin,
    NoToken,
}

/// Names by which this server may be called: loopback always, and what the operator allows.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    allowed: Vec<(String, Option<u16>)>,
}

impl Names {
    /// Each entry is a host name or address, with or without a port; without one, any port will do.
    pub(super) fn new<'a>(allowed: impl IntoIterator<Item = &'a str>) -> Names {
        Names { allowed: allowed.into_iter().filter_map(authority).collect() }
    }

    fn contain(&self, (host, port): &(String, Option<u16>)) -> bool {
        is_loopback(host) || self.allowed.iter().any(|(name, only)| name == host && (only.is_none() || only == port))
    }

    /// Against DNS rebinding: a page of another site that made its own name point here still says that name.
    pub(super) fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(Refusal::BadHost) };
        let host = host.to_str().ok().and_then(authority).ok_or(Refusal::BadHost)?;
        let in_uri = uri.authority().map(|in_uri| authority(in_uri.as_str()).ok_or(Refusal::BadHost)).transpose()?;
        if self.contain(&host) && in_uri.is_none_or(|in_uri| self.contain(&in_uri)) {
            Ok(())
        } else {
            Err(Refusal::ForeignHost)
        }
    }

    /// A browser says which page a request comes from. Programs that are no browsers send none.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let allowed = headers.get_all(ORIGIN).iter().all(|origin| {
            let host = origin.to_str().ok().and_then(|origin| {
                let (scheme, rest) = origin.split_once("://")?;
                let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
                is_web.then(|| authority(rest)).flatten()
            });
            host.is_some_and(|host| self.contain(&host))
        });
        if allowed { Ok(()) } else { Err(Refusal::ForeignOrigin) }
    }
}

/// Without tokens, everyone who got here is the local caller: the address is loopback then.
pub(super) fn principal(tokens: Option<&Tokens>, headers: &HeaderMap) -> Result<Principal, Refusal> {
    let Some(tokens) = tokens else { return Ok(Principal::local()) };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Err(Refusal::NoToken) };
    value.to_str().ok().and_then(|value| tokens.principal(value)).ok_or(Refusal::NoToken)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The host, in lower case and without brackets, and the port. `None` for anything that is more than that.
fn authority(text: &str) -> Option<(String, Option<u16>)> {
    if text.contains(['@', '/', '?', '#', ',', ' ']) {
        return None;
    }
    let authority = Authority::try_from(text).ok()?;
    let host = authority.host();
    let port = match text.strip_prefix(host)? {
        "" => None,
        port => Some(port.strip_prefix(':')?.parse().ok()?),
    };
    let host = match host.strip_prefix('[') {
        Some(address) => address.strip_suffix(']')?,
        None => host,
    };
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn names() -> Names {
        Names::new(["bell.example", "jar.example:8443"])
    }

    fn with(name: axum::http::HeaderName, values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    fn host(value: &str) -> Result<(), Refusal> {
        names().check_host(&"/mcp".parse().unwrap(), &with(HOST, &[value.as_bytes()]))
    }

    fn origin(value: &str) -> Result<(), Refusal> {
        names().check_origin(&with(ORIGIN, &[value.as_bytes()]))
    }

    #[test]
    fn loopback_and_allowed_hosts_pass() {
        for good in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.0.0.1:9000",
            "[::1]",
            "[::1]:9000",
            "bell.example",
            "Bell.Example:1",
            "jar.example:8443",
        ] {
            assert_eq!(host(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn other_hosts_do_not() {
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "localhost.",
            "jar.example",
            "jar.example:443",
            "10.0.0.1",
            "0.0.0.0",
            "127.0.0.1.evil.example",
            "2130706433",
            "0x7f.1",
            "[::]",
            "[::ffff:10.0.0.1]",
        ] {
            assert_eq!(host(bad), Err(Refusal::ForeignHost), "{bad}");
        }
        for bad in
            ["", ":80", "localhost:", "localhost:99999", "user@localhost", "localhost/x", "local host", "a,localhost"]
        {
            assert_eq!(host(bad), Err(Refusal::BadHost), "{bad:?}");
        }
        let uri = "/mcp".parse().unwrap();
        assert_eq!(names().check_host(&uri, &HeaderMap::new()), Err(Refusal::BadHost));
        let twice = with(HOST, &[b"localhost", b"evil.example"]);
        assert_eq!(names().check_host(&uri, &twice), Err(Refusal::BadHost));
        assert_eq!(names().check_host(&uri, &with(HOST, &[b"local\xff"])), Err(Refusal::BadHost));
        let absolute = "http://evil.example/mcp".parse().unwrap();
        assert_eq!(names().check_host(&absolute, &with(HOST, &[b"localhost"])), Err(Refusal::ForeignHost));
    }

    #[test]
    fn loopback_and_allowed_origins_pass() {
        assert_eq!(names().check_origin(&HeaderMap::new()), Ok(()));
        for good in [
            "http://localhost",
            "http://localhost:6274",
            "https://127.0.0.1:3000",
            "http://[::1]:1",
            "HTTP://LOCALHOST",
            "https://bell.example",
            "https://jar.example:8443",
        ] {
            assert_eq!(origin(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn other_origins_do_not() {
        for bad in [
            "",
            "null",
            "file://",
            "file://localhost",
            "http://",
            "http://evil.example",
            "http://localhost.evil.example",
            "http://localhost@evil.example",
            "http://localhost/",
            "http://localhost#.evil",
            "localhost",
            "//localhost",
            "http://localhost:80:90",
            "chrome-extension://abc",
            "https://jar.example",
            "http://localhost http://evil",
            "http://\u{fe}localhost",
        ] {
            assert_eq!(origin(bad), Err(Refusal::ForeignOrigin), "{bad:?}");
        }
        let twice = with(ORIGIN, &[b"http://localhost", b"http://evil.example"]);
        assert_eq!(names().check_origin(&twice), Err(Refusal::ForeignOrigin));
    }

    #[test]
    fn a_token_is_asked_for_only_where_there_are_some() {
        let tokens = Tokens::parse("ann:0123456789abcdef").unwrap();
        let good = with(AUTHORIZATION, &[b"Bearer 0123456789abcdef"]);
        assert_eq!(principal(None, &HeaderMap::new()), Ok(Principal::local()));
        assert_eq!(principal(Some(&tokens), &good), Ok(Principal::new("ann")));
        assert_eq!(principal(Some(&tokens), &HeaderMap::new()), Err(Refusal::NoToken));
        let twice = with(AUTHORIZATION, &[b"Bearer 0123456789abcdef", b"Bearer x"]);
        assert_eq!(principal(Some(&tokens), &twice), Err(Refusal::NoToken));
        let cookie = with(axum::http::header::COOKIE, &[b"Authorization=Bearer 0123456789abcdef"]);
        assert_eq!(principal(Some(&tokens), &cookie), Err(Refusal::NoToken));
    }
}
