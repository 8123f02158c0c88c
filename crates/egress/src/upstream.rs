//! The host's own proxy, where it has no direct way out.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::Host;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use crate::{EgressError, Hidden, Subnet};

const ANSWER_BYTES_MAX: usize = 8 * 1024;

#[derive(Debug, Clone)]
pub struct UpstreamProxy {
    host: Host,
    port: u16,
    authorization: Option<Hidden>,
    except: Vec<Exception>,
}

#[derive(Debug, Clone)]
enum Exception {
    All,
    /// The name and all below it.
    Name(String),
    Subnet(Subnet),
}

impl UpstreamProxy {
    /// From what `HTTPS_PROXY` and `NO_PROXY` hold.
    pub fn parse(url: &str, no_proxy: &str) -> Result<UpstreamProxy, EgressError> {
        let bad = |why| EgressError::Proxy { why };
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err(bad("it is not an http:// one")),
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, authority) = rest.rsplit_once('@').map_or((None, rest), |(user, host)| (Some(user), host));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().ok().filter(|port| *port > 0).ok_or(bad("its port is no number"))?)
            }
            _ => (authority, 80),
        };
        let host = host.parse().map_err(bad)?;
        let authorization = match user {
            Some(user) => {
                let plain = Zeroizing::new(decoded(user).ok_or(bad("its user has a bad percent sign"))?);
                Some(Hidden::new(format!("Basic {}", STANDARD.encode(&*plain))))
            }
            None => None,
        };
        let except = no_proxy.split([',', ' ']).filter(|one| !one.is_empty()).filter_map(exception).collect();
        Ok(UpstreamProxy { host, port, authorization, except })
    }

    /// Whether a host is reached without it.
    pub(crate) fn excepts(&self, host: &Host) -> bool {
        self.except.iter().any(|exception| match (exception, host) {
            (Exception::All, _) => true,
            (Exception::Name(suffix), Host::Name(name)) => {
                name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            (Exception::Subnet(subnet), Host::Address(address)) => subnet.contains(*address),
            (Exception::Name(_), Host::Address(_)) | (Exception::Subnet(_), Host::Name(_)) => false,
        })
    }

    /// A connection to the host by its name: the proxy resolves it.
    pub(crate) async fn connect(&self, host: &Host, port: u16) -> Result<TcpStream, String> {
        let name = match &self.host {
            Host::Name(name) => name.clone(),
            Host::Address(address) => address.to_string(),
        };
        let failed = |error: std::io::Error| format!("the proxy of this host: {error}");
        let mut stream = TcpStream::connect((name, self.port)).await.map_err(failed)?;
        let mut head = Zeroizing::new(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n"));
        if let Some(authorization) = &self.authorization {
            head.push_str("Proxy-Authorization: ");
            head.push_str(authorization.reveal());
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.map_err(failed)?;
        // Byte by byte: what comes behind the answer is the host's.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= ANSWER_BYTES_MAX {
                return Err("the proxy of this host answers at too great length".to_owned());
            }
            answer.push(stream.read_u8().await.map_err(failed)?);
        }
        match crate::http::head::response(&answer, "CONNECT") {
            Ok(response) if (200..300).contains(&response.status) => Ok(stream),
            Ok(response) => Err(format!("the proxy of this host answers {}", response.status)),
            Err(bad) => Err(format!("the proxy of this host: {bad}")),
        }
    }
}

fn exception(text: &str) -> Option<Exception> {
    if text == "*" {
        return Some(Exception::All);
    }
    if let Ok(subnet) = text.parse() {
        return Some(Exception::Subnet(subnet));
    }
    let name = text.trim_start_matches("*.").trim_start_matches('.');
    match name.split(':').next().unwrap_or(name).parse() {
        Ok(Host::Name(name)) => Some(Exception::Name(name)),
        Ok(Host::Address(address)) => address_alone(address),
        Err(_) => None,
    }
}

fn address_alone(address: IpAddr) -> Option<Exception> {
    address.to_string().parse().ok().map(Exception::Subnet)
}

/// With its percent signs taken out.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|byte| char::from(byte).to_digit(16));
        out.push((digit()? * 16 + digit()?) as u8);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_read_from_its_variables() {
        let proxy =
            UpstreamProxy::parse("http://me:p%40ss@proxy.test:3128/", "localhost,.corp.test,10.0.0.0/8").unwrap();
        assert_eq!((proxy.host.to_string().as_str(), proxy.port), ("proxy.test", 3128));
        assert_eq!(proxy.authorization.as_ref().unwrap().reveal(), format!("Basic {}", STANDARD.encode("me:p@ss")));
        assert!(!format!("{proxy:?}").contains("p@ss") && !format!("{proxy:?}").contains("Basic"));
        let excepts = |host: &str| proxy.excepts(&host.parse().unwrap());
        assert!(excepts("localhost") && excepts("a.corp.test") && excepts("corp.test") && excepts("10.1.2.3"));
        assert!(!excepts("evilcorp.test") && !excepts("a.test") && !excepts("11.0.0.1"));
    }

    #[test]
    fn what_is_no_proxy_is_said_so_without_its_password() {
        for url in [
            "https://me:hunter2@p.test",
            "socks5://me:hunter2@p.test",
            "http://me:hunter2@p.test:x",
            "http://me:hunter2%zz@p",
        ] {
            let error = UpstreamProxy::parse(url, "").unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
