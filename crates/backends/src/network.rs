//! A sandbox's network as its opening needs it: the ports that its doors are at, the doors themselves, and the words for it.

use std::os::fd::{AsFd, OwnedFd};

use belljar_core::wire::PORTS_MAX;
use belljar_core::{BackendError, Doors, Network, PROXY_PORT};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::setup;
use crate::sys;

/// The words of an answer have no room for more.
const WORDS_MAX: usize = 200;

/// The ports that are granted, each once; `None` without a network.
pub(super) fn ports(network: &Network) -> Result<Option<Vec<u16>>, BackendError> {
    let Network::Granted(grants) = network else { return Ok(None) };
    let mut ports: Vec<u16> = grants.iter().flat_map(|grant| grant.ports()).collect();
    ports.sort_unstable();
    ports.dedup();
    // There the proxy listens. Who is granted that port of a host gets to it by the proxy.
    ports.retain(|port| *port != PROXY_PORT);
    if ports.len() > PORTS_MAX {
        return Err(BackendError::Unavailable {
            why: format!("{} different ports were granted, and a sandbox has at most {PORTS_MAX}", ports.len()),
            fix: "grant hosts on fewer ports".to_owned(),
        });
    }
    Ok(Some(ports))
}

/// What the doors of a sandbox come by.
#[derive(Debug)]
pub(super) struct Handover {
    ours: OwnedFd,
    ports: usize,
}

impl Handover {
    /// And the end that the jail gets.
    pub(super) fn new(ports: &[u16]) -> Result<(Handover, OwnedFd), BackendError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| setup("making a socket for the doors", &error))?;
        Ok((Handover { ours, ports: ports.len() }, theirs))
    }

    /// The doors, once the guest has spoken: they were sent before.
    pub(super) fn take(self) -> Result<Doors, BackendError> {
        let mut fds = sys::receive_all(self.ours.as_fd()).map_err(|error| setup("taking the doors", &error))?;
        let (names, proxy) = (fds.pop(), fds.pop());
        match (names, proxy) {
            (Some(names), Some(proxy)) if fds.len() == self.ports => {
                Ok(Doors::Sockets { transparent: fds, proxy, names })
            }
            _ => Err(setup("taking the doors", &"some are missing, as when too many files are open")),
        }
    }
}

/// What the isolation says of it.
pub(super) fn describe(network: &Network) -> String {
    let Network::Granted(grants) = network else { return "none".to_owned() };
    let mut words = "granted: ".to_owned();
    for (number, grant) in grants.iter().enumerate() {
        let next = grant.to_string();
        if words.len() + next.len() > WORDS_MAX {
            return format!("{words}and {} more", grants.len() - number);
        }
        words += &next;
        if number + 1 < grants.len() {
            words += ", ";
        }
    }
    if grants.is_empty() { "granted: no host".to_owned() } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(texts: &[String]) -> Network {
        Network::Granted(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn each_granted_port_is_there_once() {
        let texts = ["a.test", "b.test:8443", "*.c.test:80", "d.test:3128"].map(str::to_owned);
        assert_eq!(ports(&granted(&texts)).unwrap(), Some(vec![80, 443, 8443]));
        assert_eq!(ports(&Network::None).unwrap(), None);
        assert_eq!(ports(&granted(&[])).unwrap(), Some(Vec::new()));
        let many: Vec<String> = (1..=33).map(|port| format!("a.test:{port}")).collect();
        assert!(ports(&granted(&many)).is_err());
    }

    #[test]
    fn the_words_for_a_network_are_few() {
        assert_eq!(describe(&Network::None), "none");
        assert_eq!(describe(&granted(&[])), "granted: no host");
        assert_eq!(describe(&granted(&["a.test".into(), "*.b.test:8443".into()])), "granted: a.test, *.b.test:8443");
        let many: Vec<String> = (0..100).map(|number| format!("host-{number}.example.test")).collect();
        let words = describe(&granted(&many));
        assert!(words.len() < 250 && words.ends_with(" more"), "{words}");
    }
}
