//! The way out of all sandboxes of a server.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Doors, Grant, STAND_INS};
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
        self.serve_at(grants, doors, label, STAND_INS.0)
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
        let names = UdpSocket::from_std(doors.names.into())?;
        let proxy = listener(doors.proxy)?;
        let transparent = doors.transparent.into_iter().map(listener).collect::<std::io::Result<Vec<_>>>()?;
        let mut tasks = vec![tokio::spawn(names::serve(serving.clone(), names)).abort_handle()];
        tasks.push(tokio::spawn(accept(proxy, serving.clone(), room.clone(), doors::proxy)).abort_handle());
        for one in transparent {
            tasks.push(tokio::spawn(accept(one, serving.clone(), room.clone(), doors::transparent)).abort_handle());
        }
        Ok(Served { serving, tasks })
    }
}

fn listener(fd: OwnedFd) -> std::io::Result<TcpListener> {
    TcpListener::from_std(fd.into())
}

/// Takes connections for as long as the listener lasts. Its connections end with it.
async fn accept<F>(
    listener: TcpListener,
    serving: Arc<Serving>,
    room: Arc<Semaphore>,
    serve: fn(Arc<Serving>, TcpStream) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                // More than there is room for wait: one here, the others in the kernel, which has a bound of its own.
                let Ok(place) = room.clone().acquire_owned().await else { return };
                // A delay is worse than a small packet; a socket without the option works.
                let _ = client.set_nodelay(true);
                let (serving, all) = (serving.clone(), serving.egress.room.clone());
                connections.spawn(async move {
                    // It fails only when it is closed, which it never is.
                    let everybodys = all.acquire_owned().await;
                    serve(serving, client).await;
                    drop((place, everybodys));
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not taken");
                tokio::time::sleep(WHEN_FULL).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
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
}

impl Drop for Served {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
