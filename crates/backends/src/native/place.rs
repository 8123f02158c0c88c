//! One confined place as the host holds it: the handle of its first process, its cgroups and its host id.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::wire::{Fork, JailRequest, Open};
use belljar_core::{BackendError, Later, Layer};
use rustix::process::{Signal, pidfd_send_signal};

use super::jail::Jail;
use super::kernel::Ends;
use super::zygote::Zygote;
use crate::cgroup::Group;
use crate::ids::Lease;
use crate::linked::{self, MemoryKills, no_kills};
use crate::{setup, sys};

/// Dropping it ends every process inside and removes what the host holds of it, in the background.
#[derive(Debug)]
pub(crate) struct Place {
    remains: Option<Remains>,
}

#[derive(Debug)]
struct Remains {
    first_process: OwnedFd,
    group: Option<Arc<Group>>,
    id: Option<Lease>,
    /// Its end is the end of every sandbox that it made.
    jail: Arc<Jail>,
}

impl Place {
    pub(crate) async fn open(
        jail: &Arc<Jail>,
        open: Open,
        guests: Vec<OwnedFd>,
        group: Option<Group>,
        id: Option<Lease>,
    ) -> Result<Place, BackendError> {
        let (jail, request) = (Arc::clone(jail), JailRequest::Open(open));
        // In a task of its own: a caller that goes away must not leave the jail's answer to the next one.
        let opening = tokio::spawn(async move {
            let mut fds: Vec<_> = guests.iter().map(AsFd::as_fd).collect();
            fds.extend(group.iter().flat_map(Group::entrances));
            match jail.ask(&request, &fds).await {
                Ok(first_process) => {
                    let group = group.map(|group| Arc::new(group.entered()));
                    Ok(Place { remains: Some(Remains { first_process, group, id, jail }) })
                }
                Err(error) => {
                    if let Some(group) = group {
                        group.remove().await;
                    }
                    Err(error)
                }
            }
        });
        match opening.await {
            Ok(place) => place,
            Err(error) => Err(setup("opening a place", &error)),
        }
    }

    /// Has a kernel forked into it. Nobody waits for that but the guest, which starts one itself should it fail.
    pub(super) fn fork(&self, zygote: Arc<Zygote>, fork: Fork, ends: Ends) -> Result<(), BackendError> {
        let Some(Remains { first_process, group, .. }) = &self.remains else { return Ok(()) };
        let failed = |error: std::io::Error| setup("forking a kernel", &error);
        let first_process = first_process.try_clone().map_err(failed)?;
        let cgroups = group.as_ref().map_or(Ok(Vec::new()), |group| group.doors()).map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = zygote.fork(&fork, &first_process, &ends, &cgroups).await {
                // Most often because the sandbox is already on its way down.
                tracing::debug!(%error, "no kernel was forked");
            }
        });
        Ok(())
    }
}

impl linked::Place for Place {
    fn memory_kills(&self) -> MemoryKills {
        match self.remains.as_ref().and_then(|remains| remains.group.clone()) {
            Some(group) => Box::new(move || group.memory_kills()),
            None => no_kills(),
        }
    }

    fn cpu_used(&self) -> Option<Duration> {
        self.remains.as_ref()?.group.as_ref()?.cpu_used()
    }

    fn add_layer(&self, layer: Layer) -> Later<'_, ()> {
        Box::pin(async move {
            let Some(Remains { first_process, jail, .. }) = &self.remains else { return Ok(()) };
            let first_process = first_process.try_clone().map_err(|error| setup("adding packages", &error))?;
            let jail = Arc::clone(jail);
            // In a task of its own, as at the opening.
            let adding = tokio::spawn(async move { jail.add_layer(layer, first_process.as_fd()).await });
            adding.await.unwrap_or_else(|error| Err(setup("adding packages", &error)))
        })
    }

    async fn destroy(mut self) -> Result<(), BackendError> {
        if let Some(remains) = self.remains.take() {
            remains.kill();
            remains.clear().await;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(remains) = self.remains.take() else { return };
        remains.kill();
        // Without a runtime the server is ending; the next one tidies the cgroups.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(remains.clear());
        }
    }
}

impl Remains {
    /// The first process of a pid namespace takes all others with it, and they cannot stop that.
    fn kill(&self) {
        let _ = pidfd_send_signal(&self.first_process, Signal::KILL);
    }

    async fn clear(self) {
        let Remains { first_process, group, id, jail } = self;
        // Readable once the process is gone, which the kernel allows only when all others in the namespace are.
        if let Ok(exit) = sys::watch(first_process) {
            let _ = exit.readable().await;
        }
        if let Some(group) = group {
            group.remove().await;
        }
        drop((id, jail));
    }
}
