//! The words of SOCKS5 (RFC 1928), as far as a sandbox needs them: no authentication, CONNECT.

use belljar_core::Host;

pub const VERSION: u8 = 5;
/// The answer to a greeting: no authentication.
pub const WELCOME: [u8; 2] = [VERSION, 0];
pub const NO_METHOD: [u8; 2] = [VERSION, 0xff];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Done = 0,
    Failed = 1,
    NotAllowed = 2,
    Unreachable = 4,
    NoSuchCommand = 7,
    NoSuchAddress = 8,
}

impl Reply {
    /// The bound address, which nobody reads, is all zeros.
    pub fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// What came so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed<T> {
    /// And how many bytes it took.
    Whole(T, usize),
    More,
}

/// Whether the greeting offers to go without authentication.
pub fn greeting(bytes: &[u8]) -> Parsed<bool> {
    let Some(count) = bytes.get(1) else { return Parsed::More };
    let end = 2 + usize::from(*count);
    match bytes.get(2..end) {
        Some(methods) => Parsed::Whole(methods.contains(&0), end),
        None => Parsed::More,
    }
}

/// The host and port of a request to connect, or the answer that it gets.
pub fn request(bytes: &[u8]) -> Result<Parsed<(Host, u16)>, Reply> {
    let Some([version, command, reserved, kind]) = bytes.get(..4) else { return Ok(Parsed::More) };
    if (*version, *reserved) != (VERSION, 0) {
        return Err(Reply::Failed);
    }
    if *command != 1 {
        return Err(Reply::NoSuchCommand);
    }
    let (start, length) = match kind {
        1 => (4, 4),
        4 => (4, 16),
        3 => match bytes.get(4) {
            Some(length) => (5, usize::from(*length)),
            None => return Ok(Parsed::More),
        },
        _ => return Err(Reply::NoSuchAddress),
    };
    let end = start + length;
    let (Some(host), Some(port)) = (bytes.get(start..end), bytes.get(end..end + 2)) else { return Ok(Parsed::More) };
    let host = match (kind, <[u8; 4]>::try_from(host), <[u8; 16]>::try_from(host)) {
        (1, Ok(v4), _) => Host::Address(v4.into()),
        (4, _, Ok(v6)) => Host::Address(v6.into()),
        // The one strict parser: a NUL, a space or a stray byte is no host.
        _ => std::str::from_utf8(host).ok().and_then(|text| text.parse().ok()).ok_or(Reply::NotAllowed)?,
    };
    Ok(Parsed::Whole((host, u16::from_be_bytes([port[0], port[1]])), end + 2))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, name.len() as u8];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&port.to_be_bytes());
        bytes
    }

    #[test]
    fn names_and_addresses_are_read() {
        let whole = |host: &str, port, used| Ok(Parsed::Whole((host.parse().unwrap(), port), used));
        assert_eq!(request(&named(b"Api.test", 443)), whole("api.test", 443, 15));
        assert_eq!(request(&[5, 1, 0, 1, 10, 0, 0, 1, 0, 80, 9]), whole("10.0.0.1", 80, 10));
        let mut v6 = vec![5, 1, 0, 4];
        v6.extend_from_slice(&[0; 15]);
        v6.extend_from_slice(&[1, 0, 80]);
        assert_eq!(request(&v6), whole("[::1]", 80, 22));
    }

    #[test]
    fn a_host_with_a_nul_is_none() {
        for name in [&b"evil.test\0.allowed.test"[..], b"a b", b"a@b", b"", b"\xff", b"127.1"] {
            assert_eq!(request(&named(name, 80)), Err(Reply::NotAllowed), "{name:?}");
        }
    }

    #[test]
    fn only_connecting_is_known() {
        assert_eq!(request(&[5, 2, 0, 1, 1, 1, 1, 1, 0, 80]), Err(Reply::NoSuchCommand));
        assert_eq!(request(&[5, 1, 0, 9, 1, 1, 1, 1, 0, 80]), Err(Reply::NoSuchAddress));
        assert_eq!(request(&[4, 1, 0, 1, 1, 1, 1, 1, 0, 80]), Err(Reply::Failed));
        assert_eq!(greeting(&[5, 2, 2, 0]), Parsed::Whole(true, 4));
        assert_eq!(greeting(&[5, 1, 2]), Parsed::Whole(false, 3));
        assert_eq!(greeting(&[5, 2, 2]), Parsed::More);
    }

    proptest! {
        #[test]
        fn no_request_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Parsed::Whole((_, _), used)) = request(&bytes) {
                prop_assert!(used <= bytes.len());
                for end in 0..used {
                    prop_assert_eq!(request(&bytes[..end]), Ok(Parsed::More));
                }
            }
            if let Parsed::Whole(_, used) = greeting(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
