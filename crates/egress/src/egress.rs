//! The way out of all sandboxes of a server.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Doors, Grant, Knock, PROXY_PORT, Reached, Relay};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

use crate::dial::Dialler;
use crate::names::StandIns;
use crate::policy::Policy;
use crate::secret::Vault;
use crate::serving::Serving;
use crate::tls::Tls;
use crate::{Audit, Bounds, EgressError, Settings, doors, names};

/// How long to wait where no file is left for another connection.
const WHEN_FULL: Duration = Duration::from_millis(50);

/// One for a server.
#[derive(Debug)]
pub struct Egress {
    pub(crate) vault: Vault,
    pub(crate) dialler: Dialler,
    pub(crate) tls: Tls,
    pub(crate) bounds: Bounds,
    pub(crate) audit: Arc<dyn Audit>,
    /// Connections of all sandboxes together.
    room: Arc<Semaphore>,
}

impl Egress {
    pub fn new(settings: Settings) -> Result<Arc<Egress>, EgressError> {
        let Settings { secrets, credentials, private, pinned, upstream, roots, bounds, audit } = settings;
        let vault = Vault::new(secrets, credentials)?;
        let dialler = Dialler::new(private, pinned, upstream, bounds.connect)?;
        let room = Arc::new(Semaphore::new(bounds.all_connections));
        Ok(Arc::new(Egress { vault, dialler, tls: Tls::new(&roots)?, bounds, audit, room }))
    }

    /// The certificates that a sandbox with a network is to trust, as PEM.
    pub fn trust(&self) -> String {
        self.tls.trust()
    }

    /// Variables for a sandbox with these grants: what stands for the secrets of hosts that it can reach.
    pub fn placeholders(&self, grants: &[Grant]) -> Vec<(String, String)> {
        self.vault.placeholders(grants)
    }

    /// Serves a sandbox's doors until what is returned is dropped. To be called within the runtime.
    pub fn serve(self: &Arc<Self>, grants: Vec<Grant>, doors: Doors, label: String) -> std::io::Result<Served> {
        let base = doors.stand_ins();
        self.serve_at(grants, doors, label, base)
    }

    /// With stand-ins at `base`.
    pub(crate) fn serve_at(
        self: &Arc<Self>,
        grants: Vec<Grant>,
        doors: Doors,
        label: String,
        base: Ipv4Addr,
    ) -> std::io::Result<Served> {
        let stand_ins = StandIns::new(base, self.bounds.names);
        let serving = Arc::new(Serving::new(self.clone(), Policy::new(grants), stand_ins, label));
        let room = Arc::new(Semaphore::new(self.bounds.connections));
        let mut tasks = Vec::new();
        match doors {
            Doors::Relayed(relay) => {
                tasks.push(tokio::spawn(take(relay, serving.clone(), room)).abort_handle());
            }
            Doors::Sockets { transparent, proxy, names } => {
                let names = UdpSocket::from_std(names.into())?;
                tasks.push(tokio::spawn(names::serve(serving.clone(), names)).abort_handle());
                let doors = transparent.into_iter().map(|door| (door, Door::Transparent));
                for (socket, door) in doors.chain([(proxy, Door::Proxy)]) {
                    let listener = TcpListener::from_std(socket.into())?;
                    tasks.push(tokio::spawn(accept(listener, door, serving.clone(), room.clone())).abort_handle());
                }
            }
        }
        Ok(Served { serving, tasks })
    }
}

/// What whoever comes wants of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Proxy,
    Transparent,
}

/// Takes connections for as long as the listener lasts. Its connections end with it.
async fn accept(listener: TcpListener, door: Door, serving: Arc<Serving>, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    loop {
        let came = listener.accept().await.and_then(|(client, _)| Ok((client.local_addr()?, client)));
        match came {
            Ok((to, client)) => {
                // A delay is worse than a small packet; a socket without the option works.
                let _ = client.set_nodelay(true);
                if !admit(&mut connections, &serving, &room, door, to, client).await {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not taken");
                tokio::time::sleep(WHEN_FULL).await;
            }
        }
    }
}

/// Takes those whom somebody inside passes on, for as long as the sandbox lasts.
async fn take(mut relay: Box<dyn Relay>, serving: Arc<Serving>, room: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    while let Ok(knock) = relay.next().await {
        match knock {
            Knock::Name { question, answer } => {
                serving.pace().await;
                if let Some(bytes) = names::answer(&serving, &question) {
                    answer(bytes);
                }
            }
            Knock::Connection { to, stream } => {
                // A stream of another family, which the calls for one of TCP take as well.
                let Ok(client) = TcpStream::from_std(stream.into()) else { continue };
                let is_proxy = to == SocketAddrV4::new(Ipv4Addr::LOCALHOST, PROXY_PORT);
                let door = if is_proxy { Door::Proxy } else { Door::Transparent };
                if !admit(&mut connections, &serving, &room, door, to.into(), client).await {
                    return;
                }
            }
        }
    }
}

/// Serves one that came, when there is room for it. More than that wait: one here, the others where they come from, which
/// has a bound of its own. Whether there can be more.
async fn admit(
    connections: &mut JoinSet<()>,
    serving: &Arc<Serving>,
    room: &Arc<Semaphore>,
    door: Door,
    to: SocketAddr,
    client: TcpStream,
) -> bool {
    while connections.try_join_next().is_some() {}
    let Ok(place) = room.clone().acquire_owned().await else { return false };
    let (serving, all) = (serving.clone(), serving.egress.room.clone());
    connections.spawn(async move {
        // It fails only when it is closed, which it never is.
        let everybodys = all.acquire_owned().await;
        match door {
            Door::Proxy => doors::proxy(serving, client).await,
            Door::Transparent => doors::transparent(serving, client, to).await,
        }
        drop((place, everybodys));
    });
    true
}

/// A sandbox's doors while they are served. Dropping it ends every connection.
#[derive(Debug)]
pub struct Served {
    serving: Arc<Serving>,
    tasks: Vec<AbortHandle>,
}

impl Served {
    /// The hosts that were refused since this was last asked, as `host:port`, or as a bare name that was asked for; few, and
    /// each once.
    pub fn refused(&self) -> Vec<String> {
        self.serving.take_refused()
    }

    /// The hosts that were reached since this was last asked.
    pub fn reached(&self) -> Vec<Reached> {
        self.serving.hosts.take()
    }

    /// Bytes that left the host and came back, so far.
    pub fn moved_bytes(&self) -> u64 {
        self.serving.moved_bytes()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
