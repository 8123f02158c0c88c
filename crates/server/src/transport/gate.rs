//! What every HTTP request must pass before the protocol sees it: Host, Origin, token, session, size, scope.

use std::borrow::Cow;
use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};
use belljar_access::{Access, Pass, Scope};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::profiles::Profile;
use crate::scopes;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No Host, more than one, or one that cannot be read.
    BadHost,
    ForeignHost,
    ForeignOrigin,
    /// A token where logs and histories would have it.
    TokenInQuery,
    NotAdmitted(belljar_access::Refusal),
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

/// No token is taken from an address, and a client that sends one there is told, before it does so for ever.
pub(super) fn check_query(uri: &Uri) -> Result<(), Refusal> {
    let is_token = |pair: &str| {
        let key = decoded(pair.split('=').next().unwrap_or_default()).to_ascii_lowercase();
        matches!(key.as_slice(), b"access_token" | b"token")
    };
    let query = uri.query().unwrap_or_default();
    if query.split(['&', ';']).any(is_token) { Err(Refusal::TokenInQuery) } else { Ok(()) }
}

/// A letter of a word may be written as its number.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let number = after.get(..2).and_then(|digits| str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// Without any say of who may, everyone who got here is the local caller: the address is loopback then.
pub(super) async fn pass(access: Option<&Access>, headers: &HeaderMap) -> Result<Pass, Refusal> {
    let Some(access) = access else { return Ok(Pass::local()) };
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    access.admit(value).await.map_err(Refusal::NotAdmitted)
}

/// As much of a message as tells what it needs.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<PeekParams<'a>>,
    /// Of a message that answers us.
    #[serde(default)]
    result: Option<Value>,
}

#[derive(Deserialize)]
struct PeekParams<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(default)]
    arguments: Option<PeekArguments>,
    #[serde(default, rename = "requestState")]
    request_state: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PeekArguments {
    #[serde(default)]
    action: Option<Value>,
}

/// The scope that a message needs and this pass has not, as far as the message itself tells. The handler looks again: it
/// knows which tools there are.
pub(super) fn lacking(pass: &Pass, profile: Option<&Profile>, body: &[u8]) -> Option<Scope> {
    if Scope::ALL.iter().all(|scope| pass.scopes.has(*scope)) {
        return None;
    }
    let lacks = |need: Scope| (!pass.scopes.has(need)).then_some(need);
    // Nothing can be done without any.
    if pass.scopes.is_empty() {
        return Some(Scope::Read);
    }
    let Ok(peek) = serde_json::from_slice::<Peek<'_>>(body) else {
        // An answer has little that must be right about it.
        let message: Value = serde_json::from_slice(body).ok()?;
        return message.get("result").and_then(|result| lacking_to_answer(pass, result));
    };
    if let Some(need) = peek.result.and_then(|result| lacking_to_answer(pass, &result)) {
        return Some(need);
    }
    let method = peek.method?;
    if method != "tools/call" {
        return scopes::of_method(&method).and_then(lacks);
    }
    let params = peek.params?;
    let action = params.arguments.and_then(|arguments| arguments.action);
    let need = scopes::of_tool(profile, params.name.as_deref()?, action.as_ref())?;
    lacks(need).or_else(|| params.request_state.and_then(|_| lacks(scopes::TO_COME_BACK)))
}

/// Whoever may neither run programs nor call other servers' tools was asked nothing that a person has to decide on.
fn lacking_to_answer(pass: &Pass, result: &Value) -> Option<Scope> {
    let may = pass.scopes.has(Scope::Run) || pass.scopes.has(Scope::Tools);
    (!may && scopes::answers_a_form(result)).then_some(Scope::Run)
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

    #[tokio::test]
    async fn a_token_is_asked_for_only_where_there_are_some() {
        use belljar_access::Refusal::{NoToken, Unknown};
        let access = Access::from(belljar_access::Tokens::parse("ann:0123456789abcdef").unwrap());
        let good = with(AUTHORIZATION, &[b"Bearer 0123456789abcdef"]);
        assert_eq!(pass(None, &HeaderMap::new()).await, Ok(Pass::local()));
        assert_eq!(pass(Some(&access), &good).await.unwrap().principal.as_str(), "ann");
        let refused = async |headers| pass(Some(&access), &headers).await.unwrap_err();
        assert_eq!(refused(HeaderMap::new()).await, Refusal::NotAdmitted(NoToken));
        let twice = with(AUTHORIZATION, &[b"Bearer 0123456789abcdef", b"Bearer x"]);
        assert_eq!(refused(twice).await, Refusal::NotAdmitted(NoToken));
        let cookie = with(axum::http::header::COOKIE, &[b"Authorization=Bearer 0123456789abcdef"]);
        assert_eq!(refused(cookie).await, Refusal::NotAdmitted(NoToken));
        assert_eq!(refused(with(AUTHORIZATION, &[b"Bearer other-token-here"])).await, Refusal::NotAdmitted(Unknown));
    }

    #[test]
    fn no_token_is_in_an_address() {
        for bad in ["access_token=x", "token", "a=b&token=x", "TOKEN=", "a;access_token=1", "acces%73_token=x"] {
            let uri = format!("/mcp?{bad}").parse().unwrap();
            assert_eq!(check_query(&uri), Err(Refusal::TokenInQuery), "{bad}");
        }
        for good in ["/mcp", "/mcp?", "/mcp?codemode=false", "/mcp?mytoken=1&x=token", "/mcp?a%5Bb%5D=1&%"] {
            assert_eq!(check_query(&good.parse().unwrap()), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_message_tells_what_it_needs() {
        let of = |scopes: &[Scope]| Pass::new(belljar_engine::Principal::new("ann"), scopes.iter().copied().collect());
        let call = |tool: &str, arguments: &str| {
            format!(r#"{{"method":"tools/call","params":{{"arguments":{arguments},"name":"{tool}"}}}}"#)
        };
        let reader = of(&[Scope::Read]);
        let lacks = |pass: &Pass, body: &str| lacking(pass, None, body.as_bytes());
        for (body, need) in [
            (call("run_code", r#"{"code":"x"}"#), Some(Scope::Run)),
            (call(r"run\u005fcode", "{}"), Some(Scope::Run)),
            (call("write_file", "{}"), Some(Scope::Files)),
            (call("job", r#"{"action":"signal"}"#), Some(Scope::Run)),
            (call("job", r#"{"action":"poll"}"#), None),
            (call("read_file", "{}"), None),
            (call("weather", "{}"), None),
            (r#"{"method":"resources/read"}"#.into(), None),
            (r#"{"method":"tasks/cancel","params":{}}"#.into(), Some(Scope::Run)),
            (call("job", r#"{"action":"poll"},"requestState":"00""#), Some(Scope::Run)),
            (r#"{"id":1,"result":{"action":"accept","content":{"decision":"approve"}}}"#.into(), Some(Scope::Run)),
            (r#"{"id":1,"method":5,"result":{"\u0061ction":"accept"}}"#.into(), Some(Scope::Run)),
            (r#"{"id":1,"result":{},"result":{"action":"accept"}}"#.into(), Some(Scope::Run)),
            (r#"{"id":1,"result":{"roots":[]}}"#.into(), None),
            (r#"{"id":1,"result":{}}"#.into(), None),
            (r#"{"id":1,"error":{"code":-1,"message":"no"}}"#.into(), None),
            ("[]".into(), None),
            ("".into(), None),
        ] {
            assert_eq!(lacks(&reader, &body), need, "{body}");
        }
        assert_eq!(lacks(&of(&[]), "{}"), Some(Scope::Read));
        assert_eq!(lacks(&of(&[Scope::Tools]), r#"{"method":"resources/list"}"#), Some(Scope::Read));
        for asked in [Scope::Tools, Scope::Run] {
            assert_eq!(lacks(&of(&[asked]), r#"{"id":1,"result":{"action":"accept"}}"#), None, "{asked}");
        }
        assert_eq!(lacks(&reader, r#"{"method":"tools/call","params":{"name":"theirs","requestState":"x"}}"#), None);
        assert_eq!(lacks(&Pass::local(), &call("run_code", "{}")), None);
    }
}
