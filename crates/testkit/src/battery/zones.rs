//! Two web servers on loopback addresses that stand in for the internet: one that a case may reach, one that it may not.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// Must be free on both addresses of every host that plays the battery.
pub(crate) const PORT: u16 = 18_480;
pub(crate) const TLS_PORT: u16 = PORT + 1;
pub(crate) const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 0, 10, 10);
pub(crate) const DENIED: Ipv4Addr = Ipv4Addr::new(127, 0, 10, 20);
pub(crate) const ALLOWED_NAME: &str = "allowed.test";
pub(crate) const DENIED_NAME: &str = "denied.test";

/// Names that a case may be granted, and that stand for what nobody may reach.
const TRAPS: [(&str, &str); 4] = [
    ("lo.allowed.test", "127.0.0.1"),
    ("meta.allowed.test", "169.254.169.254"),
    ("priv.allowed.test", "10.0.0.1"),
    ("mapped6.allowed.test", "::ffff:127.0.0.1"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zone {
    Allowed,
    Denied,
}

/// Once for the process, since there is one port. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Zones {
    denied_hits: Arc<AtomicUsize>,
}

impl Zones {
    pub(crate) fn open() -> Result<Zones, String> {
        static OPEN: OnceLock<Result<Zones, String>> = OnceLock::new();
        OPEN.get_or_init(Zones::open_once).clone()
    }

    fn open_once() -> Result<Zones, String> {
        let denied_hits = Arc::new(AtomicUsize::new(0));
        for (address, zone) in [(ALLOWED, Zone::Allowed), (DENIED, Zone::Denied)] {
            let at = (IpAddr::V4(address), PORT);
            let listener = TcpListener::bind(at).map_err(|error| format!("{address}:{PORT}: {error}"))?;
            let hits = Arc::clone(&denied_hits);
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let hits = Arc::clone(&hits);
                    // A peer that hangs up in the middle is its own affair.
                    thread::spawn(move || drop(serve(stream, zone, &hits)));
                }
            });
        }
        Ok(Zones { denied_hits })
    }

    /// How often somebody came to what is not allowed, be it by another's name.
    pub(crate) fn denied_hits(&self) -> usize {
        self.denied_hits.load(Ordering::SeqCst)
    }

    /// The server's configuration: where the names are, and that a caller may ask for the allowed ones.
    pub(crate) fn configuration(host_port: u16) -> String {
        let mut text = String::from("[network]\nprivate = [\"127.0.10.0/24\"]\n");
        let allow = granted(&[ALLOWED_NAME.to_owned(), format!("*.{ALLOWED_NAME}")], host_port);
        text += &format!("allow = {allow:?}\n[network.hosts]\n");
        for (name, address) in [(ALLOWED_NAME, ALLOWED.to_string()), (DENIED_NAME, DENIED.to_string())] {
            text += &format!("{name:?} = {address:?}\n");
        }
        for (name, address) in TRAPS {
            text += &format!("{name:?} = {address:?}\n");
        }
        text
    }
}

/// What a case's hosts are as grants: on the usual ports, on those of the zones, and on the one of the host that would give a
/// trap away.
pub(crate) fn granted(hosts: &[String], host_port: u16) -> Vec<String> {
    let ports = [PORT, TLS_PORT, host_port];
    let with_ports = |host: &String| {
        let host = host.clone();
        std::iter::once(host.clone()).chain(ports.into_iter().map(move |port| format!("{host}:{port}")))
    };
    hosts.iter().flat_map(with_ports).collect()
}

fn serve(stream: TcpStream, zone: Zone, hits: &AtomicUsize) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut host = String::new();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("host")
            {
                host = value.trim().to_ascii_lowercase();
            }
        }
        // A front that serves several names, as domain fronting needs.
        let fronted = host.split(':').next() == Some(DENIED_NAME);
        if zone == Zone::Denied || fronted {
            hits.fetch_add(1, Ordering::SeqCst);
        }
        let word = if zone == Zone::Denied || fronted { "DENIED-ZONE\n" } else { "ALLOWED-ZONE\n" };
        match path.split_once("/redirect?to=") {
            Some((_, to)) => {
                let to = percent_decoded(to);
                write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")?;
            }
            None => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{word}", word.len())?,
        }
    }
}

fn percent_decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                decoded.push(byte as char);
                decoded.push_str(&part[2..]);
            }
            None => decoded.push_str(part),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn ask(address: Ipv4Addr, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect((address, PORT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_visit_to_the_denied_zone_is_counted_by_whatever_name() {
        let zones = Zones::open().unwrap();
        assert!(ask(ALLOWED, "allowed.test:1", "/").ends_with("ALLOWED-ZONE\n"));
        let before = zones.denied_hits();
        assert!(ask(DENIED, "allowed.test", "/").ends_with("DENIED-ZONE\n"));
        assert!(ask(ALLOWED, "denied.test:80", "/").ends_with("DENIED-ZONE\n"));
        assert_eq!(zones.denied_hits() - before, 2);
        assert!(ask(ALLOWED, "a", "/redirect?to=http%3A%2F%2Fx%2F").contains("Location: http://x/\r\n"));
    }
}
