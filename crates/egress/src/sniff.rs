//! Which protocol a client's first bytes are.

use belljar_core::Host;

use crate::policy::Protocols;
use crate::tls::hello::{self, Hello};

/// The longest first line that is waited for.
const LINE_MAX: usize = 8 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// And the name that it asks for.
    Tls(Option<Host>),
    Http,
    Other,
    /// Nothing came.
    Silent,
}

/// `None` while more has to come to tell.
pub(crate) fn look(said: &[u8], protocols: Protocols) -> Option<First> {
    if said.is_empty() {
        return None;
    }
    if hello::is_tls(said) {
        return match hello::parse(said) {
            Ok(Hello::Name(name)) => Some(First::Tls(name)),
            Ok(Hello::More) if said.len() < hello::BYTES_MAX => None,
            Ok(Hello::More) | Err(_) => Some(First::Other),
        };
    }
    // Servers skip empty lines before a request.
    let begins = said.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(said.len());
    let line = &said[begins..];
    let end = line.iter().position(|byte| *byte == b'\n');
    match protocols {
        // What looks at all like it is read as it, and strictly.
        Protocols::Web => match line.first() {
            Some(first) if first.is_ascii_alphabetic() => Some(First::Http),
            Some(_) => Some(First::Other),
            None if said.len() > LINE_MAX => Some(First::Other),
            None => None,
        },
        Protocols::Any => {
            let line = &line[..end.unwrap_or(line.len())];
            let is_http = line.windows(5).any(|window| window.eq_ignore_ascii_case(b"HTTP/"));
            let is_text = line.iter().all(|byte| (b' '..0x7f).contains(byte) || matches!(byte, b'\r' | b'\t'));
            match (is_http, end) {
                (true, _) => Some(First::Http),
                (false, Some(_)) => Some(First::Other),
                (false, None) if !is_text || said.len() > LINE_MAX => Some(First::Other),
                (false, None) => None,
            }
        }
    }
}

/// Whether a line that has not ended yet could become that of a request: a word in capital letters, and text.
pub(crate) fn may_be_request(said: &[u8]) -> bool {
    let line = said.trim_ascii_start();
    let word = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    let is_text = line.iter().all(|byte| (b' '..0x7f).contains(byte) || matches!(byte, b'\r' | b'\t'));
    word > 0 && is_text && line.get(word).is_none_or(|byte| *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_web_is_http_or_tls() {
        assert_eq!(look(b"GET", Protocols::Web), Some(First::Http));
        assert_eq!(look(b"\r\nGET / HTTP/1.1", Protocols::Web), Some(First::Http));
        assert_eq!(look(&[0, 0, 0, 8], Protocols::Web), Some(First::Other));
        assert_eq!(look(b"", Protocols::Web), None);
    }

    #[test]
    fn a_request_that_is_said_slowly_is_one() {
        for said in [&b"G"[..], b"GET", b"GET ", b"\r\nPOST /x", b"GET / HT"] {
            assert!(may_be_request(said), "{said:?}");
        }
        for said in [&b""[..], b"\r\n", b"get x", b"PING\r\n*1\r\n", b"GET\0", &[0, 0, 0, 8], b"SSH-2.0-x"] {
            assert!(!may_be_request(said), "{said:?}");
        }
    }

    #[test]
    fn elsewhere_a_request_is_known_by_its_first_line() {
        for line in ["GET / HTTP/1.1\r\n", "\r\n\r\nweird /x http/1.0\r\n", "PRI * HTTP/2.0\r\n"] {
            assert_eq!(look(line.as_bytes(), Protocols::Any), Some(First::Http), "{line:?}");
        }
        for line in [&b"PING\r\n"[..], b"EHLO me\r\n", &[0, 0, 0, 8, 4, 210], b"\x05\x01"] {
            assert_eq!(look(line, Protocols::Any), Some(First::Other), "{line:?}");
        }
        assert_eq!(look(b"GET /a/long/pa", Protocols::Any), None);
        assert_eq!(look(&[22, 3, 1, 0], Protocols::Any), None);
    }
}
