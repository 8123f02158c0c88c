//! Where sandboxes come from: one that was prepared ahead, if one of just that spec stands ready, and else one that is
//! opened now.
//!
//! ```text
//! keeper ── Backend::open ──▶ pool ── take ──▶ lease, or created sandbox ──▶ closed
//!                              │                 ▲
//!                              └─ fell, too old, │ too much, memory short ──▶ closed
//! caller ── nothing ready ── Backend::open ──────┘
//! ```
//!
//! A prepared sandbox is handed to one caller, once, and never comes back.

mod budget;
mod demand;
mod keeper;
mod memory;
mod pool;
mod pools;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Backend, BackendError, Isolation, Sandbox, Spec};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use self::budget::Budget;
use self::keeper::Keeper;
use self::pools::{Pools, UnderWay};
use crate::teardown::{Tasks, Teardowns};
use crate::{EngineError, PoolInfo, PoolSettings};

pub(crate) use self::memory::{Gauge, host_gauge};

/// Longer than any backend should need, a container engine that starts cold included; it keeps a stuck one from
/// holding its callers' turns for ever.
const OPEN_MAX: Duration = Duration::from_secs(120);

/// On a single core too, since one that is made waits for its guest now and then.
const MAKERS_MIN: usize = 2;

#[derive(Debug)]
pub(crate) struct Lessor {
    backend: Arc<dyn Backend>,
    teardowns: Arc<Teardowns>,
    /// Making a sandbox is all work and no waiting: more at once than there are cores only get in each other's way.
    makers: Semaphore,
    pools: Option<Arc<Pools>>,
}

impl Lessor {
    /// One that opens each sandbox when it is asked for.
    pub(crate) fn new(backend: Arc<dyn Backend>, teardowns: Arc<Teardowns>) -> Lessor {
        let makers = std::thread::available_parallelism().map_or(MAKERS_MIN, usize::from).max(MAKERS_MIN);
        Lessor { backend, teardowns, makers: Semaphore::new(makers), pools: None }
    }

    /// From here on sandboxes are prepared, by a task that ends with `stop`; of the `standing` spec there is always one.
    pub(crate) fn prepare(
        &mut self,
        settings: &PoolSettings,
        standing: Option<&Spec>,
        gauge: Gauge,
        tasks: &Tasks,
        stop: CancellationToken,
    ) {
        let budget = Budget::new(settings, &gauge());
        let pools = Pools::new(standing, budget, self.teardowns.clone());
        let keeper = Keeper::new(pools.clone(), self.backend.clone(), self.teardowns.clone(), gauge);
        tasks.spawn(keeper.keep(stop));
        self.pools = Some(pools);
    }

    /// A sandbox that its caller keeps. Dropping the future leaves nothing behind, as the contract has it.
    pub(crate) async fn open(&self, spec: &Spec) -> Result<Box<dyn Sandbox>, EngineError> {
        if let Some(prepared) = self.pools.as_ref().and_then(|pools| pools.take(spec)) {
            return Ok(prepared);
        }
        self.teardowns.room().await;
        // Nobody closes it; and without a permit it is only slower.
        let _maker = self.makers.acquire().await;
        open_in_time(&*self.backend, spec).await.map_err(|error| {
            tracing::error!(backend = self.backend.name(), %error, "could not open a sandbox");
            EngineError::Backend(error)
        })
    }

    /// A sandbox for one program: nothing ran in it, and dropping the lease closes it.
    pub(crate) async fn lease(&self, spec: &Spec) -> Result<Lease, EngineError> {
        let under_way = self.pools.as_ref().map(Pools::run);
        let sandbox = self.open(spec).await?;
        let teardowns = self.teardowns.clone();
        Ok(Lease { sandbox: Some(sandbox), teardowns, slot: None, _under_way: under_way })
    }

    /// Of a run that had no sandbox.
    pub(crate) fn no_isolation(&self) -> Isolation {
        let none = || "nothing ran".to_owned();
        Isolation {
            backend: self.backend.name().to_owned(),
            namespaces: none(),
            seccomp: none(),
            landlock: none(),
            cgroup: none(),
            network: none(),
            user: none(),
        }
    }

    pub(crate) fn prepared(&self) -> Vec<PoolInfo> {
        self.pools.as_ref().map_or_else(Vec::new, |pools| pools.infos())
    }
}

async fn open_in_time(backend: &dyn Backend, spec: &Spec) -> Result<Box<dyn Sandbox>, BackendError> {
    tokio::time::timeout(OPEN_MAX, backend.open(spec)).await.unwrap_or_else(|_| {
        Err(BackendError::Setup { step: "open".into(), why: format!("took longer than {OPEN_MAX:?}") })
    })
}

#[derive(Debug)]
pub(crate) struct Lease {
    /// Empty only while it is being dropped.
    sandbox: Option<Box<dyn Sandbox>>,
    teardowns: Arc<Teardowns>,
    /// Comes back when nothing of the sandbox is left.
    slot: Option<OwnedSemaphorePermit>,
    _under_way: Option<UnderWay>,
}

impl Lease {
    pub(crate) fn sandbox(&self) -> Result<&dyn Sandbox, EngineError> {
        self.sandbox.as_deref().ok_or(EngineError::Lost)
    }

    pub(crate) fn hold(&mut self, slot: Option<OwnedSemaphorePermit>) {
        self.slot = slot;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            self.teardowns.begin(std::future::ready(Some((sandbox, self.slot.take()))));
        }
    }
}
