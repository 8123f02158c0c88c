//! The first message of a TLS connection, read for one thing: the name that it asks for.

use belljar_core::Host;

/// The longest that is read. Hellos with post-quantum keys have about two kilobytes.
pub const BYTES_MAX: usize = 64 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const RECORD_HEAD: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// It is whole, and this is the name it asks for. Where the true one is hidden (ECH), it is the one that can be seen, which
    /// is where the connection goes.
    Name(Option<Host>),
    /// The rest has not come yet.
    More,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it does not begin as TLS does")]
pub struct NoHello;

/// Whether bytes can be the beginning of TLS.
pub fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE] | [HANDSHAKE, 3, ..])
}

/// Reads a hello, which may lie in several records.
pub fn parse(bytes: &[u8]) -> Result<Hello, NoHello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        if message.len() >= 4 {
            let length = usize::from(message[1]) << 16 | usize::from(message[2]) << 8 | usize::from(message[3]);
            if message[0] != CLIENT_HELLO || length > BYTES_MAX {
                return Err(NoHello);
            }
            if let Some(hello) = message.get(4..4 + length) {
                return server_name(hello).map(Hello::Name);
            }
        }
        let Some(head) = rest.get(..RECORD_HEAD) else {
            return if rest.is_empty() || is_tls(rest) { Ok(Hello::More) } else { Err(NoHello) };
        };
        let length = usize::from(head[3]) << 8 | usize::from(head[4]);
        // A record without anything in it could come for ever.
        if head[0] != HANDSHAKE || head[1] != 3 || length == 0 {
            return Err(NoHello);
        }
        let Some(body) = rest.get(RECORD_HEAD..RECORD_HEAD + length) else { return Ok(Hello::More) };
        message.extend_from_slice(body);
        rest = &rest[RECORD_HEAD + length..];
    }
}

/// A part of the hello, from which pieces are taken off the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], NoHello> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NoHello)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<usize, NoHello> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A piece with its length before it, in that many bytes.
    fn piece(&mut self, length_bytes: usize) -> Result<Bytes<'a>, NoHello> {
        let length = self.number(length_bytes)?;
        Ok(Bytes(self.take(length)?))
    }
}

fn server_name(hello: &[u8]) -> Result<Option<Host>, NoHello> {
    let mut hello = Bytes(hello);
    // Version and random, session id, cipher suites, compressions.
    hello.take(2 + 32)?;
    hello.piece(1)?;
    hello.piece(2)?;
    hello.piece(1)?;
    if hello.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = hello.piece(2)?;
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)?;
        let mut body = extensions.piece(2)?;
        if kind != usize::from(SERVER_NAME) {
            continue;
        }
        let mut list = body.piece(2)?;
        let name_kind = list.number(1)?;
        let name = list.piece(2)?;
        // One name, once: of two, server and proxy could each take another.
        if found.is_some() || name_kind != 0 || !list.0.is_empty() || !body.0.is_empty() {
            return Err(NoHello);
        }
        let name = std::str::from_utf8(name.0).map_err(|_| NoHello)?;
        found = Some(name.parse().map_err(|_| NoHello)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// What a real client sends.
    fn hello(name: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same message in records of `size` bytes.
    fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
        let pieces = hello[RECORD_HEAD..].chunks(size);
        pieces.flat_map(|piece| [&[HANDSHAKE, 3, 1, 0, piece.len() as u8], piece].concat()).collect()
    }

    #[test]
    fn the_name_is_found_however_it_is_cut() {
        let whole = hello("Api.Example.com");
        let name = Hello::Name(Some("api.example.com".parse().unwrap()));
        assert_eq!(parse(&whole), Ok(name.clone()));
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), Ok(Hello::More), "{end} bytes");
        }
        for size in [1, 3, 50, 255] {
            assert_eq!(parse(&in_records(&whole, size)), Ok(name.clone()), "records of {size}");
        }
    }

    #[test]
    fn a_hello_to_an_address_has_no_name() {
        assert_eq!(parse(&hello("10.0.0.1")), Ok(Hello::Name(None)));
    }

    #[test]
    fn what_is_not_tls_is_said_so_at_once() {
        for bytes in [
            &b"GET / HTTP/1.1"[..],
            &[22, 2, 0],
            &[23, 3, 3, 0, 1, 0],
            &[22, 3, 1, 0, 0],
            &[22, 3, 1, 0, 4, 2, 0, 0, 0],
        ] {
            assert_eq!(parse(bytes), Err(NoHello), "{bytes:?}");
        }
    }

    #[test]
    fn a_name_that_is_no_host_is_no_hello() {
        let mut bytes = hello("api.example.com");
        let at = bytes.windows(3).position(|window| window == b"api").unwrap();
        bytes[at + 1] = 0;
        assert_eq!(parse(&bytes), Err(NoHello));
    }

    proptest! {
        #[test]
        fn no_beginning_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), flip in any::<prop::sample::Index>(), to in any::<u8>()) {
            let _ = parse(&bytes);
            let mut bytes = hello("api.example.com");
            let at = flip.index(bytes.len());
            bytes[at] = to;
            let _ = parse(&bytes);
        }
    }
}
