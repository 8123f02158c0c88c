//! What the operator says about the network.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::upstream::UpstreamProxy;
use crate::{Audit, Credential, EgressError, LogOnly, Secret};

#[derive(Debug, Clone)]
pub struct Settings {
    pub secrets: Vec<Secret>,
    pub credentials: Vec<Credential>,
    /// Addresses that granted names may stand for although they are not public.
    pub private: Vec<Subnet>,
    /// Names with their addresses, which are then not looked up.
    pub pinned: Vec<(String, Vec<IpAddr>)>,
    /// The host's own way out, if it has no direct one.
    pub upstream: Option<UpstreamProxy>,
    /// Whom we trust, and sandboxes with us.
    pub roots: Roots,
    pub bounds: Bounds,
    pub audit: Arc<dyn Audit>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            secrets: Vec::new(),
            credentials: Vec::new(),
            private: Vec::new(),
            pinned: Vec::new(),
            upstream: None,
            roots: Roots::Host,
            bounds: Bounds::default(),
            audit: Arc::new(LogOnly),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Roots {
    /// The host's own, with `SSL_CERT_FILE` and `SSL_CERT_DIR` heeded.
    Host,
    /// These, as PEM.
    These(String),
}

/// What one sandbox may take.
#[derive(Debug, Clone)]
pub struct Bounds {
    pub connections: usize,
    /// Of all sandboxes together. Each takes up to six open files.
    pub all_connections: usize,
    /// Names that are remembered.
    pub names: usize,
    /// For a client to say what it wants.
    pub first: Duration,
    /// For a name to be looked up, and for an address to answer.
    pub connect: Duration,
    /// For a connection on which nothing moves.
    pub idle: Duration,
    /// For a client to speak first where the server may.
    pub courtesy: Duration,
    /// Both ways, of all connections of a sandbox; `None` for no end.
    pub bytes: Option<u64>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 128,
            all_connections: 1024,
            names: 4096,
            first: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            courtesy: Duration::from_millis(300),
            bytes: None,
        }
    }
}

/// Addresses with a common beginning, such as `10.1.0.0/16`; a bare address is itself alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    base: IpAddr,
    bits: u8,
}

impl FromStr for Subnet {
    type Err = EgressError;

    fn from_str(text: &str) -> Result<Subnet, EgressError> {
        let bad = || EgressError::Subnet { text: text.chars().take(80).collect() };
        let (base, bits) = text.split_once('/').map_or((text, None), |(base, bits)| (base, Some(bits)));
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().map_err(|_| bad())?,
            Some(_) => return Err(bad()),
            None => longest,
        };
        let subnet = Subnet { base, bits };
        // Bits behind the beginning are a slip: 10.1.2.3/8 is not what was meant, whatever was.
        let is_plain = bits <= longest && shifted(base, bits).1 == 0;
        if is_plain { Ok(subnet) } else { Err(bad()) }
    }
}

impl Subnet {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && shifted(self.base, self.bits).0 == shifted(address, self.bits).0
    }
}

/// The first `bits` of an address, and the rest.
fn shifted(address: IpAddr, bits: u8) -> (u128, u128) {
    let (number, all) = match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
        IpAddr::V6(v6) => (u128::from(v6), 128),
    };
    let behind = all - u32::from(bits);
    let first = number.checked_shr(behind).unwrap_or(0);
    (first, number - first.checked_shl(behind).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_has_what_begins_as_it_does() {
        let has = |subnet: &str, address: &str| subnet.parse::<Subnet>().unwrap().contains(address.parse().unwrap());
        assert!(has("10.1.0.0/16", "10.1.255.255") && !has("10.1.0.0/16", "10.2.0.0"));
        assert!(has("127.0.10.10", "127.0.10.10") && !has("127.0.10.10", "127.0.10.11"));
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe00::1"));
        assert!(has("0.0.0.0/0", "1.2.3.4") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "::1"));
    }

    #[test]
    fn what_is_no_subnet_is_said_so() {
        for text in ["10.1.2.3/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0/8", "a/8", "", "::/129"] {
            assert!(text.parse::<Subnet>().is_err(), "{text:?}");
        }
    }
}
