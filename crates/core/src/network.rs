//! Which hosts a sandbox may reach, as words and as a decision. Everything here is pure: who asks, resolves and dials is
//! elsewhere.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// What a sandbox sees of the network. Loopback inside it always works.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Network {
    /// No route, no DNS.
    #[default]
    None,
    /// These hosts, by [`Doors`], and nothing else. Not even an empty list is the same as none: names are answered then.
    Granted(Vec<Grant>),
}

/// The word for the package registries, which the operator's settings make hosts of.
pub const PACKAGES: &str = "packages";

/// Ports of a grant that names none.
pub const USUAL_PORTS: [u16; 2] = [80, 443];

/// Where a sandbox with a network finds its proxy, for programs that heed the usual variables.
pub const PROXY_PORT: u16 = 3128;

/// A host that was granted. As text: `api.example.com`, `*.example.org:8443`, `GET,HEAD api.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    pub pattern: Pattern,
    /// `None` for [`USUAL_PORTS`].
    pub port: Option<u16>,
    /// Upper case; empty for all.
    pub methods: Vec<String>,
    pub reach: Reach,
}

/// Which addresses a granted name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reach {
    /// Not this host, its neighbours, or a cloud's own services.
    #[default]
    Public,
    /// The operator named it, and knows where it is.
    Anywhere,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pattern {
    Host(Host),
    /// Every name below this one, at any depth, and not the name itself.
    Below(String),
    /// Every name; no address.
    AnyName,
}

/// A host as a request names it, in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// ASCII, lower case, without a dot at the end.
    Name(String),
    Address(IpAddr),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a host that can be granted: {why}; write it as api.example.com, *.example.org:8443 or GET api.example.com"
)]
pub struct BadGrant {
    pub text: String,
    pub why: &'static str,
}

const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

impl FromStr for Host {
    type Err = &'static str;

    /// Strict: whatever two programs could read differently is no host.
    fn from_str(text: &str) -> Result<Host, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("its bracket is not closed")?;
            return inner
                .parse()
                .map(|address| Host::Address(IpAddr::V6(address)))
                .map_err(|_| "it is no IPv6 address");
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Host::Address(IpAddr::V4(address)));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() || name.len() > NAME_MAX {
            return Err("a name has 1 to 253 characters");
        }
        for label in name.split('.') {
            if label.is_empty() || label.len() > LABEL_MAX || label.starts_with('-') || label.ends_with('-') {
                return Err("each part of a name has 1 to 63 characters, and no hyphen at its ends");
            }
            if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
                return Err("a name has letters, digits and hyphens only; others in their xn-- form");
            }
        }
        // What some programs take for an address: 127.1, 0x7f.1, 2130706433.
        let last = name.rsplit('.').next().unwrap_or(name);
        let digits = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_number {
            return Err("it ends in a number, and is no plain address");
        }
        Ok(Host::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl Pattern {
    pub fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Pattern::Host(granted), host) => granted == host,
            (Pattern::Below(suffix), Host::Name(name)) => is_below(name, suffix),
            (Pattern::AnyName, Host::Name(_)) => true,
            (Pattern::Below(_) | Pattern::AnyName, Host::Address(_)) => false,
        }
    }

    /// Whether it matches all that `other` does.
    pub fn covers(&self, other: &Pattern) -> bool {
        match (self, other) {
            (_, Pattern::Host(host)) => self.matches(host),
            (Pattern::Below(suffix), Pattern::Below(other)) => suffix == other || is_below(other, suffix),
            (Pattern::AnyName, Pattern::Below(_) | Pattern::AnyName) => true,
            (Pattern::Host(_), Pattern::Below(_) | Pattern::AnyName) | (Pattern::Below(_), Pattern::AnyName) => false,
        }
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

impl Grant {
    /// A host on its usual ports, for every method.
    pub fn host(host: Host, port: Option<u16>, reach: Reach) -> Grant {
        Grant { pattern: Pattern::Host(host), port, methods: Vec::new(), reach }
    }

    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        let usual = USUAL_PORTS.into_iter().filter(|_| self.port.is_none());
        self.port.into_iter().chain(usual)
    }

    pub fn allows_connection(&self, host: &Host, port: u16) -> bool {
        self.pattern.matches(host) && self.ports().any(|granted| granted == port)
    }

    /// Methods are compared as they are written, and written in upper case.
    pub fn allows_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|granted| granted == method)
    }

    /// Whether it grants all that `wish` asks for.
    pub fn covers(&self, wish: &Grant) -> bool {
        self.pattern.covers(&wish.pattern)
            && wish.ports().all(|port| self.ports().any(|granted| granted == port))
            && (self.methods.is_empty()
                || (!wish.methods.is_empty() && wish.methods.iter().all(|method| self.allows_method(method))))
    }
}

impl FromStr for Grant {
    type Err = BadGrant;

    fn from_str(text: &str) -> Result<Grant, BadGrant> {
        let bad = |why| BadGrant { text: text.chars().take(80).collect(), why };
        let (methods, host) = match text.trim().split_once(' ') {
            Some((methods, host)) => (methods.split(',').map(str::to_owned).collect(), host.trim()),
            None => (Vec::new(), text.trim()),
        };
        if methods.iter().any(|method: &String| method.is_empty() || !method.bytes().all(|b| b.is_ascii_uppercase())) {
            return Err(bad("methods are upper case, with commas between them"));
        }
        // The last colon, but not one within an IPv6 address.
        let (host, port) = match host.rsplit_once(':') {
            Some((before, port)) if !port.contains(']') => {
                let port = port.parse().ok().filter(|port| *port > 0 && port_is_plain(host));
                (before, Some(port.ok_or_else(|| bad("its port is no number from 1 to 65535"))?))
            }
            _ => (host, None),
        };
        let pattern = match host.strip_prefix("*.") {
            _ if host == "*" => Pattern::AnyName,
            Some(suffix) => match suffix.parse::<Host>().map_err(bad)? {
                Host::Name(name) => Pattern::Below(name),
                Host::Address(_) => return Err(bad("there is nothing below an address")),
            },
            None => Pattern::Host(host.parse().map_err(bad)?),
        };
        // Whoever writes an address knows where it is.
        let reach = match &pattern {
            Pattern::Host(Host::Address(_)) => Reach::Anywhere,
            _ => Reach::Public,
        };
        Ok(Grant { pattern, port, methods, reach })
    }
}

/// A port is digits, and not what `parse` takes besides (`+80`).
fn port_is_plain(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.methods.is_empty() {
            write!(f, "{} ", self.methods.join(","))?;
        }
        match &self.pattern {
            Pattern::Host(host) => host.fmt(f)?,
            Pattern::Below(suffix) => write!(f, "*.{suffix}")?,
            Pattern::AnyName => f.write_str("*")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Whether an address is one that a public name may stand for: not this host, its network, or a cloud's services, in
/// whatever form it is written.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            !(v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_broadcast()
                || v4.is_multicast()
                || a == 0
                // Shared by a carrier's customers, and by some clouds for their own services.
                || (a == 100 && (64..128).contains(&b))
                // Protocol assignments, and benchmarks, which our own stand-ins are.
                || (a == 192 && b == 0 && v4.octets()[2] == 0)
                || (a == 198 && (18..20).contains(&b))
                || a >= 240)
        }
        IpAddr::V6(v6) => v4_within(v6).is_none_or(|v4| is_public(IpAddr::V4(v4))) && is_public_v6(v6),
    }
}

/// Whether an address is one that nobody means by a name: link local, which is where clouds keep their keys, unspecified, or
/// for many at once. In whatever form it is written.
pub fn is_never_meant(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => {
            // The loopback address reads as 0.0.0.1 when it is taken for a wrapped one.
            let wrapped = v4_within(v6).filter(|_| !v6.is_loopback());
            v6.is_unspecified()
                || v6.is_multicast()
                || v6.segments()[0] & 0xffc0 == 0xfe80
                || wrapped.is_some_and(|v4| is_never_meant(IpAddr::V4(v4)))
        }
    }
}

/// The IPv4 address that an IPv6 one only wraps: mapped, compatible, NAT64, 6to4, Teredo's server.
fn v4_within(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = v6.segments();
    let of = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match (s0, s1, s2, s3, s4, s5) {
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0, 0, 0, 0, 0xffff, 0) => of(s6, s7),
        (0x64, 0xff9b, ..) => of(s6, s7),
        (0x2002, ..) => of(s1, s2),
        (0x2001, 0, ..) => of(!s6, !s7),
        _ => None,
    }
}

fn is_public_v6(v6: Ipv6Addr) -> bool {
    let first = v6.segments()[0];
    !(v6.is_unspecified()
        || v6.is_loopback()
        || v6.is_multicast()
        // NAT64 of a network's own, unique local, link local, site local.
        || (first == 0x64 && v6.segments()[1] == 0xff9b && v6.segments()[2] == 1)
        || first & 0xfe00 == 0xfc00
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(text: &str) -> Grant {
        text.parse().unwrap()
    }

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn a_grant_reads_as_it_is_written() {
        for text in
            ["api.example.com", "*.example.org:8443", "GET,HEAD api.example.com", "*", "10.0.0.5:5432", "[::1]:80"]
        {
            assert_eq!(grant(text).to_string(), text);
        }
        assert_eq!(grant(" API.Example.com. ").to_string(), "api.example.com");
    }

    #[test]
    fn what_could_be_read_differently_is_no_host() {
        for text in [
            "",
            ".",
            "a..b",
            "-a.b",
            "a-.b",
            "a b",
            "a/b",
            "a@b",
            "a#b",
            "a?b",
            "a\\b",
            "a%00b",
            "a\0b",
            "ä.test",
            "127.1",
            "0x7f.1",
            "0177.0.0.1",
            "2130706433",
            "1.2.3.4.5",
            "[::1",
            "::1",
            "a:b",
            "*",
            "*.a",
            "a.*",
        ] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
        for text in
            ["*.", "*.*", "**", "*a.test", "*.1.2.3.4", "a:0", "a:65536", "a:+80", "a:", "get a", "GET, a", "http://a"]
        {
            assert!(text.parse::<Grant>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_star_is_for_what_is_below() {
        let below = grant("*.example.org");
        assert!(
            below.allows_connection(&host("a.example.org"), 443)
                && below.allows_connection(&host("a.b.example.org"), 80)
        );
        for other in ["example.org", "evilexample.org", "a.example.org.evil.test"] {
            assert!(!below.allows_connection(&host(other), 443), "{other}");
        }
        assert!(!below.allows_connection(&host("a.example.org"), 8080));
        assert!(
            grant("*").allows_connection(&host("a.test"), 443) && !grant("*").allows_connection(&host("10.0.0.1"), 443)
        );
    }

    #[test]
    fn a_ceiling_covers_no_more_than_it_says() {
        for (ceiling, wish, covered) in [
            ("*", "*.a.test", true),
            ("*", "10.0.0.1", false),
            ("*", "a.test:22", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "*.b.a.test", true),
            ("*.a.test", "a.test", false),
            ("a.test", "*.a.test", false),
            ("a.test:80", "a.test", false),
            ("a.test", "a.test:80", true),
            ("GET a.test", "a.test", false),
            ("GET,POST a.test", "GET a.test", true),
            ("GET a.test", "GET,POST a.test", false),
        ] {
            assert_eq!(grant(ceiling).covers(&grant(wish)), covered, "{ceiling} and {wish}");
        }
    }

    #[test]
    fn some_addresses_are_never_meant_by_a_name() {
        for text in ["169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::", "fe80::1", "ff02::1"] {
            assert!(is_never_meant(text.parse().unwrap()), "{text}");
        }
        for text in ["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::"] {
            assert!(is_never_meant(text.parse().unwrap()), "{text}");
        }
        for text in ["127.0.0.1", "10.0.0.1", "1.1.1.1", "::1", "fd00::1", "::ffff:10.0.0.1"] {
            assert!(!is_never_meant(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn addresses_of_this_host_and_its_network_are_not_public() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.100.100.200",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:1::80ff:fffe",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["1.1.1.1", "203.0.113.7", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
