//! Heads of requests and answers: read strictly, so that no two programs can read them differently, and written anew.

use belljar_core::Host;

/// The longest head that is read.
pub const BYTES_MAX: usize = 64 * 1024;
const HEADERS_MAX: usize = 128;

/// Headers that are for the next hop only, and end here. `Proxy-*` do too.
const HOP_BY_HOP: [&str; 6] = ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Vec<u8>,
}

impl Header {
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    /// Until the connection ends; answers only.
    UntilClose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    Http10,
    Http11,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    Stays,
    Closes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Of an absolute target, and the port that it names.
    pub authority: Option<(Host, Option<u16>)>,
    /// Of the `Host` header.
    pub host: Option<(Host, Option<u16>)>,
    /// Begins with `/`, or is `*`.
    pub path: String,
    pub version: Version,
    /// Without those that are for one hop, `Host` and `Content-Length`.
    pub headers: Vec<Header>,
    pub framing: Framing,
    pub after: After,
    pub wants_websocket: bool,
}

/// What a CONNECT asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Connect(Host, u16),
    Request(Request),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub reason: Vec<u8>,
    /// Without those that are for one hop, and `Content-Length`.
    pub headers: Vec<Header>,
    pub framing: Framing,
    pub after: After,
}

/// Why a head is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Bad(pub &'static str);

/// Where the head ends, if it does.
pub fn end(bytes: &[u8]) -> Option<usize> {
    memmem(bytes, b"\r\n\r\n").map(|at| at + 4)
}

fn memmem(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Reads a whole head of a request.
pub fn request(head: &[u8]) -> Result<Asked, Bad> {
    lines_are_plain(head)?;
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut room);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(used)) if used == head.len() => {}
        Ok(_) => return Err(Bad("the head does not end where it should")),
        Err(httparse::Error::TooManyHeaders) => return Err(Bad("there are too many headers")),
        Err(_) => return Err(Bad("it is not a well-formed HTTP/1 request")),
    }
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Bad("it is not a well-formed HTTP/1 request"));
    };
    // What httparse lets through besides: a target in UTF-8, a fragment.
    if !target.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#') {
        return Err(Bad("the target of the request has characters that no target has"));
    }
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let headers = headers(parsed.headers);
    let host = match one(&headers, "host")? {
        Some(value) => Some(authority(text(value)?)?),
        None if version == Version::Http11 => return Err(Bad("there is no Host header")),
        None => None,
    };
    if method == "CONNECT" {
        let (name, port) = authority(target)?;
        let port = port.ok_or(Bad("a CONNECT names a port"))?;
        // Some clients leave the port out of the header.
        if host.is_some_and(|(other, other_port)| other != name || other_port.is_some_and(|other| other != port)) {
            return Err(Bad("the Host header is not the host of the CONNECT"));
        }
        return Ok(Asked::Connect(name, port));
    }
    let (authority, path) = split_target(target)?;
    let framing = request_framing(&headers, version)?;
    let wants_websocket = headers.iter().any(|header| header.is("upgrade") && has_token(&header.value, "websocket"));
    let after = after(&headers, version);
    let headers = for_the_next_hop(headers, &["host", "content-length"]);
    let method = method.to_owned();
    let path = if method == "OPTIONS" && path.is_empty() { "*".to_owned() } else { path };
    let path = if path.is_empty() { "/".to_owned() } else { path };
    Ok(Asked::Request(Request { method, authority, host, path, version, headers, framing, after, wants_websocket }))
}

/// Reads a whole head of the answer to a request of that method.
pub fn response(head: &[u8], method: &str) -> Result<Response, Bad> {
    lines_are_plain(head)?;
    let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut room);
    let whole = matches!(parsed.parse(head), Ok(httparse::Status::Complete(used)) if used == head.len());
    let (true, Some(status), Some(minor)) = (whole, parsed.code, parsed.version) else {
        return Err(Bad("it is not a well-formed HTTP/1 answer"));
    };
    let reason = parsed.reason.unwrap_or_default().as_bytes().to_vec();
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let headers = headers(parsed.headers);
    let has_no_body = method == "HEAD" || status < 200 || status == 204 || status == 304;
    let mut framing = match (coded(&headers)?, length(&headers)?) {
        (true, Some(_)) => return Err(Bad("it has two lengths")),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Length(length),
        (false, None) => Framing::UntilClose,
    };
    let mut after = after(&headers, version);
    // The length of what a HEAD would have got is told on.
    if has_no_body && !(method == "HEAD" && matches!(framing, Framing::Length(_))) {
        framing = Framing::None;
    }
    if framing == Framing::UntilClose {
        after = After::Closes;
    }
    let headers = for_the_next_hop(headers, &["content-length"]);
    Ok(Response { status, reason, headers, framing, after })
}

impl Request {
    /// The head as it goes out. The host is the one that was decided on, whatever was written.
    pub fn write(&self, host: &Host, port: u16, usual_port: u16) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {host}", self.method, self.path).into_bytes();
        if port != usual_port {
            head.extend_from_slice(format!(":{port}").as_bytes());
        }
        head.extend_from_slice(b"\r\n");
        write_headers(&mut head, &self.headers);
        write_framing(&mut head, self.framing);
        if self.after == After::Closes {
            head.extend_from_slice(b"Connection: close\r\n");
        }
        head.extend_from_slice(b"\r\n");
        head
    }
}

impl Response {
    /// The head as the sandbox gets it.
    pub fn write(&self, framing: Framing, after: After) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} ", self.status).into_bytes();
        head.extend_from_slice(&self.reason);
        head.extend_from_slice(b"\r\n");
        write_headers(&mut head, &self.headers);
        write_framing(&mut head, framing);
        head.extend_from_slice(match after {
            After::Stays => b"Connection: keep-alive\r\n\r\n",
            After::Closes => b"Connection: close\r\n\r\n",
        });
        head
    }
}

fn write_headers(head: &mut Vec<u8>, headers: &[Header]) {
    for Header { name, value } in headers {
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value);
        head.extend_from_slice(b"\r\n");
    }
}

fn write_framing(head: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => head.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes()),
        Framing::Chunked => head.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        Framing::None | Framing::UntilClose => {}
    }
}

/// Lines end in CR LF, and neither is anywhere else; httparse takes a bare LF.
fn lines_are_plain(head: &[u8]) -> Result<(), Bad> {
    let mut before = 0;
    for (at, byte) in head.iter().enumerate() {
        let is_plain = match byte {
            b'\r' => head.get(at + 1) == Some(&b'\n'),
            b'\n' => before == b'\r',
            0 => false,
            _ => true,
        };
        if !is_plain {
            return Err(Bad("a line does not end in CR LF, or has a NUL"));
        }
        before = *byte;
    }
    Ok(())
}

fn headers(parsed: &[httparse::Header<'_>]) -> Vec<Header> {
    parsed
        .iter()
        .map(|header| Header { name: header.name.to_owned(), value: header.value.trim_ascii().to_vec() })
        .collect()
}

/// The value of a header that may be there once.
fn one<'a>(headers: &'a [Header], name: &str) -> Result<Option<&'a [u8]>, Bad> {
    let mut found = headers.iter().filter(|header| header.is(name));
    match (found.next(), found.next()) {
        (value, None) => Ok(value.map(|header| header.value.as_slice())),
        (_, Some(_)) => Err(Bad("a header that may be there once is there twice")),
    }
}

fn text(value: &[u8]) -> Result<&str, Bad> {
    std::str::from_utf8(value).map_err(|_| Bad("a header is not text"))
}

/// `host` or `host:port`; nothing with a user in it.
fn authority(text: &str) -> Result<(Host, Option<u16>), Bad> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let is_plain = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| *port > 0 && is_plain);
            (host, Some(port.ok_or(Bad("the port is no number from 1 to 65535"))?))
        }
        _ => (text, None),
    };
    Ok((host.parse().map_err(Bad)?, port))
}

type Authority = Option<(Host, Option<u16>)>;

fn split_target(target: &str) -> Result<(Authority, String), Bad> {
    if target.starts_with('/') || target == "*" {
        return Ok((None, target.to_owned()));
    }
    let rest = match target.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => rest,
        _ => return Err(Bad("the target is neither a path nor an http:// address; use CONNECT for others")),
    };
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(at);
    let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
    Ok((Some(authority(host)?), path))
}

fn request_framing(headers: &[Header], version: Version) -> Result<Framing, Bad> {
    match (coded(headers)?, length(headers)?) {
        (true, Some(_)) => Err(Bad("it has two lengths, Content-Length and Transfer-Encoding")),
        (true, None) if version == Version::Http10 => Err(Bad("HTTP/1.0 has no Transfer-Encoding")),
        (true, None) => Ok(Framing::Chunked),
        (false, Some(length)) => Ok(Framing::Length(length)),
        (false, None) => Ok(Framing::None),
    }
}

fn coded(headers: &[Header]) -> Result<bool, Bad> {
    match one(headers, "transfer-encoding")? {
        None => Ok(false),
        Some(value) if value.eq_ignore_ascii_case(b"chunked") => Ok(true),
        Some(_) => Err(Bad("the only Transfer-Encoding is chunked")),
    }
}

fn length(headers: &[Header]) -> Result<Option<u64>, Bad> {
    let Some(value) = one(headers, "content-length")? else { return Ok(None) };
    let is_plain = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let length = text(value)?.parse().ok().filter(|_| is_plain);
    length.map(Some).ok_or(Bad("Content-Length is no number"))
}

fn has_token(value: &[u8], token: &str) -> bool {
    value.split(|byte| *byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn after(headers: &[Header], version: Version) -> After {
    let says = |token| headers.iter().any(|header| header.is("connection") && has_token(&header.value, token));
    match version {
        Version::Http11 if says("close") => After::Closes,
        Version::Http10 if !says("keep-alive") => After::Closes,
        Version::Http11 | Version::Http10 => After::Stays,
    }
}

fn for_the_next_hop(headers: Vec<Header>, besides: &[&str]) -> Vec<Header> {
    let named: Vec<Vec<u8>> = headers
        .iter()
        .filter(|header| header.is("connection"))
        .flat_map(|header| header.value.split(|byte| *byte == b','))
        .map(|token| token.trim_ascii().to_ascii_lowercase())
        .collect();
    let ends_here = |header: &Header| {
        let name = header.name.to_ascii_lowercase();
        HOP_BY_HOP.contains(&name.as_str())
            || besides.contains(&name.as_str())
            || name.starts_with("proxy-")
            || name == "http2-settings"
            || named.iter().any(|named| named == name.as_bytes())
    };
    headers.into_iter().filter(|header| !ends_here(header)).collect()
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
