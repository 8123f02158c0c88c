//! From a host to a connection: resolved once, checked, and that address dialled.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use belljar_core::{Host, is_never_meant, is_public};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use crate::policy::{Addresses, Allowed};
use crate::refusal::Refusal;
use crate::{EgressError, Subnet, UpstreamProxy};

/// More addresses of a name are not tried.
const ADDRESSES_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Dialler {
    private: Vec<Subnet>,
    pinned: HashMap<String, Vec<IpAddr>>,
    upstream: Option<UpstreamProxy>,
    patience: Duration,
}

#[derive(Debug)]
pub(crate) struct Dialled {
    pub(crate) stream: TcpStream,
    /// Unknown where a proxy dialled.
    pub(crate) address: Option<IpAddr>,
}

impl Dialler {
    pub(crate) fn new(
        private: Vec<Subnet>,
        pinned: Vec<(String, Vec<IpAddr>)>,
        upstream: Option<UpstreamProxy>,
        patience: Duration,
    ) -> Result<Dialler, EgressError> {
        let mut by_name = HashMap::new();
        for (text, addresses) in pinned {
            let bad = |why| EgressError::Pinned { text: text.clone(), why };
            match text.parse().map_err(bad)? {
                Host::Name(name) if !addresses.is_empty() => by_name.insert(name, addresses),
                Host::Name(_) => return Err(bad("there is no address")),
                Host::Address(_) => return Err(bad("it is an address itself")),
            };
        }
        Ok(Dialler { private, pinned: by_name, upstream, patience })
    }

    pub(crate) async fn dial(&self, host: &Host, port: u16, allowed: &Allowed) -> Result<Dialled, Refusal> {
        let addresses = self.resolve(host, port).await;
        if let Some(upstream) = self.upstream.as_ref().filter(|upstream| !upstream.excepts(host)) {
            // A name that only the proxy knows is its business; one that leads to us or our neighbours is ours.
            for address in addresses.unwrap_or_default() {
                self.check(address, allowed)?;
            }
            let stream = timeout(self.patience, upstream.connect(host, port)).await;
            let stream = stream.map_err(|_| no_answer())?.map_err(Refusal::Unreachable)?;
            return Ok(Dialled { stream, address: None });
        }
        let addresses = addresses?;
        // All of them: which one a name stands for is nobody's choice but its owner's, who may be the one we fear.
        for address in &addresses {
            self.check(*address, allowed)?;
        }
        let mut last = Refusal::Unresolved;
        for address in addresses {
            match timeout(self.patience, TcpStream::connect(SocketAddr::new(address, port))).await {
                Ok(Ok(stream)) => {
                    // An address of this host's own that is public is this host all the same.
                    let is_own = stream.local_addr().is_ok_and(|own| own.ip().to_canonical() == address);
                    if is_own && allowed.addresses == Addresses::Public && !self.is_private(address) {
                        return Err(Refusal::NotPublic(address));
                    }
                    // A delay is worse than a small packet; a socket without the option works.
                    let _ = stream.set_nodelay(true);
                    return Ok(Dialled { stream, address: Some(address) });
                }
                Ok(Err(error)) => last = Refusal::Unreachable(plain(&error)),
                Err(_) => last = no_answer(),
            }
        }
        Err(last)
    }

    async fn resolve(&self, host: &Host, port: u16) -> Result<Vec<IpAddr>, Refusal> {
        let name = match host {
            Host::Address(address) => return Ok(vec![address.to_canonical()]),
            Host::Name(name) => name,
        };
        if let Some(addresses) = self.pinned.get(name) {
            return Ok(addresses.iter().map(IpAddr::to_canonical).collect());
        }
        let found = timeout(self.patience, lookup_host((name.as_str(), port))).await;
        let found = found.map_err(|_| Refusal::Unresolved)?.map_err(|_| Refusal::Unresolved)?;
        let mut addresses: Vec<IpAddr> = found.map(|address| address.ip().to_canonical()).take(ADDRESSES_MAX).collect();
        addresses.dedup();
        if addresses.is_empty() { Err(Refusal::Unresolved) } else { Ok(addresses) }
    }

    /// Whether the operator lets names lead there.
    fn is_private(&self, address: IpAddr) -> bool {
        self.private.iter().any(|subnet| subnet.contains(address))
    }

    fn check(&self, address: IpAddr, allowed: &Allowed) -> Result<(), Refusal> {
        let passes = self.is_private(address)
            || match allowed.addresses {
                Addresses::Public => is_public(address),
                Addresses::Anywhere => !is_never_meant(address),
                Addresses::Itself => true,
            };
        if passes { Ok(()) } else { Err(Refusal::NotPublic(address)) }
    }
}

fn no_answer() -> Refusal {
    Refusal::Unreachable("it did not answer in time".to_owned())
}

/// Without the number that the system has for it.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => "there is no route to it".to_owned(),
        kind => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::{Grant, Reach};
    use tokio::net::TcpListener;

    use super::*;
    use crate::policy::Policy;

    fn dialler(private: &[&str], pinned: &[(&str, &str)]) -> Dialler {
        let pinned = pinned.iter().map(|(name, address)| ((*name).into(), vec![address.parse().unwrap()])).collect();
        let private = private.iter().map(|text| text.parse().unwrap()).collect();
        Dialler::new(private, pinned, None, Duration::from_secs(2)).unwrap()
    }

    async fn dial(dialler: &Dialler, reach: Reach, host: &str, port: u16) -> Result<Dialled, Refusal> {
        let host: Host = host.parse().unwrap();
        let grant = Grant::host(host.clone(), Some(port), reach);
        dialler.dial(&host, port, &Policy::new(vec![grant]).connection(&host, port).unwrap()).await
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_dialled() {
        for address in
            ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0"]
        {
            let dialler = dialler(&[], &[("a.test", address)]);
            let refused = dial(&dialler, Reach::Public, "a.test", 80).await.unwrap_err();
            assert!(matches!(refused, Refusal::NotPublic(_)), "{address}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn one_address_inside_is_one_too_many() {
        let pinned = vec![("a.test".to_owned(), vec!["203.0.113.1".parse().unwrap(), "10.0.0.1".parse().unwrap()])];
        let dialler = Dialler::new(vec![], pinned, None, Duration::from_secs(2)).unwrap();
        let refused = dial(&dialler, Reach::Public, "a.test", 80).await.unwrap_err();
        assert_eq!(refused, Refusal::NotPublic([10, 0, 0, 1].into()));
    }

    #[tokio::test]
    async fn what_the_operator_named_is_dialled_wherever_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let named = dialler(&["127.0.0.0/8"], &[("a.test", "127.0.0.1")]);
        assert!(dial(&named, Reach::Public, "a.test", port).await.is_ok());
        let bare = dialler(&[], &[("a.test", "127.0.0.1"), ("meta.test", "169.254.169.254")]);
        let dialled = dial(&bare, Reach::Anywhere, "a.test", port).await.unwrap();
        assert_eq!(dialled.address, Some([127, 0, 0, 1].into()));
        assert!(matches!(dial(&bare, Reach::Anywhere, "meta.test", 80).await, Err(Refusal::NotPublic(_))));
    }
}
