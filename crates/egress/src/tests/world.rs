//! An egress with its origins, and a way to talk to its proxy.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use belljar_core::{Doors, Grant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::origin::{ALLOWED, Authority, DENIED, Origin};
use crate::{Attempt, Audit, Decision, Egress, Ended, Roots, Served, Settings};

pub(super) const FIRST_STAND_IN: Ipv4Addr = Ipv4Addr::new(127, 18, 0, 1);

/// Remembers.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) attempts: Mutex<Vec<Attempt>>,
    pub(super) ended: Mutex<Vec<Ended>>,
}

impl Audit for Memory {
    fn attempt(&self, attempt: &Attempt) {
        self.attempts.lock().unwrap().push(attempt.clone());
    }

    fn ended(&self, ended: &Ended) {
        self.ended.lock().unwrap().push(ended.clone());
    }
}

pub(super) struct World {
    pub(super) allowed: Origin,
    pub(super) denied: Origin,
    pub(super) authority: Authority,
    pub(super) egress: Arc<Egress>,
    pub(super) audit: Arc<Memory>,
}

impl World {
    pub(super) async fn new() -> World {
        World::with(|_, _| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut Settings, &Origin)) -> World {
        let authority = Authority::new();
        let allowed = Origin::new(ALLOWED, [0, 0], "ALLOWED-ZONE", &authority).await;
        // The same ports at both addresses, so that only the name tells them apart.
        let denied = Origin::new(DENIED, [allowed.plain, allowed.tls], "DENIED-ZONE", &authority).await;
        let audit = Arc::new(Memory::default());
        let pin = |name: &str, address: &str| (name.to_owned(), vec![address.parse().unwrap()]);
        let mut settings = Settings {
            private: vec!["127.0.10.10".parse().unwrap(), "127.0.10.20".parse().unwrap()],
            pinned: vec![
                pin("allowed.test", "127.0.10.10"),
                pin("sub.allowed.test", "127.0.10.10"),
                pin("denied.test", "127.0.10.20"),
                pin("lo.allowed.test", "127.0.0.1"),
                pin("meta.allowed.test", "169.254.169.254"),
                pin("priv.allowed.test", "10.0.0.1"),
                pin("mapped6.allowed.test", "::ffff:127.0.0.1"),
            ],
            roots: Roots::These(authority.pem()),
            audit: audit.clone(),
            ..Settings::default()
        };
        change(&mut settings, &allowed);
        let egress = Egress::new(settings).unwrap();
        World { allowed, denied, authority, egress, audit }
    }

    /// Grants for the origins' ports, which are not the usual ones.
    pub(super) fn grants(&self, texts: &[&str]) -> Vec<Grant> {
        let ports = [self.allowed.plain, self.allowed.tls];
        let grants = texts.iter().flat_map(|text| ports.map(|port| format!("{text}:{port}").parse().unwrap()));
        grants.collect()
    }

    /// A proxy on loopback, for a client in this very process.
    pub(super) fn proxy(&self, texts: &[&str]) -> Proxy {
        self.proxy_for(self.grants(texts))
    }

    pub(super) fn proxy_for(&self, grants: Vec<Grant>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let names = UdpSocket::bind("127.0.0.1:0").unwrap();
        names.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let names_at = names.local_addr().unwrap();
        // Where the first name that is asked for will be.
        let stand_in = TcpListener::bind((FIRST_STAND_IN, self.allowed.plain)).ok();
        let transparent = stand_in.into_iter().map(|door| {
            door.set_nonblocking(true).unwrap();
            door.into()
        });
        let doors = Doors::Sockets { transparent: transparent.collect(), proxy: listener.into(), names: names.into() };
        let served = self.egress.serve_at(grants, doors, "one".into(), Ipv4Addr::new(127, 18, 0, 0)).unwrap();
        Proxy { at, names_at, served }
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        let attempts = self.audit.attempts.lock().unwrap();
        let why = |attempt: &Attempt| match &attempt.decision {
            Decision::Refused { why } => Some(why.clone()),
            Decision::Allowed | Decision::Failed { .. } => None,
        };
        attempts.iter().filter_map(why).collect()
    }
}

pub(super) struct Proxy {
    pub(super) at: SocketAddr,
    pub(super) names_at: SocketAddr,
    pub(super) served: Served,
}

impl Proxy {
    pub(super) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.at).await.unwrap()
    }

    /// Everything that comes back for these bytes, until the other side ends it.
    pub(super) async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.dial().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        rest(&mut stream).await
    }

    /// A tunnel that was opened.
    pub(super) async fn connect(&self, host: &str, port: u16) -> TcpStream {
        let mut stream = self.dial().await;
        stream
            .write_all(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").as_bytes())
            .await
            .unwrap();
        assert_eq!(head(&mut stream).await, "HTTP/1.1 200 Connection established\r\n\r\n");
        stream
    }
}

pub(super) async fn head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

pub(super) async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    // Whoever is cut off has what came until then.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
