//! A backend whose sandboxes have their doors served.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::wire::Part;
use belljar_core::{
    Asked, Backend, BackendError, Capabilities, Content, Doors, Isolation, Later, Layer, Listing, Network, Probe,
    Program, Range, Reached, Running, Sandbox, Spec,
};

use crate::{Egress, Served};

/// The same backend. A sandbox that is opened with a network finds its placeholders in the environment, and its doors are
/// served until it is closed or dropped.
pub fn guard(backend: Arc<dyn Backend>, egress: Arc<Egress>) -> Arc<dyn Backend> {
    Arc::new(Guarded { backend, egress, opened: AtomicU64::new(0) })
}

#[derive(Debug)]
struct Guarded {
    backend: Arc<dyn Backend>,
    egress: Arc<Egress>,
    /// For names that tell the sandboxes of the audit apart.
    opened: AtomicU64,
}

#[derive(Debug)]
struct GuardedSandbox {
    /// Dropped first: no connection outlives its sandbox.
    served: Served,
    sandbox: Box<dyn Sandbox>,
}

impl Backend for Guarded {
    fn name(&self) -> &'static str {
        self.backend.name()
    }

    fn probe(&self) -> Probe {
        self.backend.probe()
    }

    fn capabilities(&self) -> Capabilities {
        self.backend.capabilities()
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        let Network::Granted(grants) = &spec.network else { return self.backend.open(spec) };
        Box::pin(async move {
            let mut spec = spec.clone();
            // What a caller set itself stays.
            for (name, value) in self.egress.placeholders(grants) {
                if spec.env.iter().all(|(set, _)| *set != name) {
                    spec.env.push((name, value));
                }
            }
            let failed = |why: String| BackendError::Setup { step: "serving its network".into(), why };
            let sandbox = self.backend.open(&spec).await?;
            let doors = sandbox.doors().ok_or_else(|| failed("it has no doors".into()))?;
            let label = format!("{}-{}", std::process::id(), self.opened.fetch_add(1, Ordering::Relaxed));
            let served = self.egress.serve(grants.clone(), doors, label).map_err(|error| failed(error.to_string()))?;
            let sandbox: Box<dyn Sandbox> = Box::new(GuardedSandbox { served, sandbox });
            Ok(sandbox)
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.backend.settled()
    }
}

impl Sandbox for GuardedSandbox {
    fn isolation(&self) -> &Isolation {
        self.sandbox.isolation()
    }

    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>> {
        self.sandbox.start(program)
    }

    fn read<'a>(&'a self, path: &'a str, range: Range) -> Later<'a, Content> {
        self.sandbox.read(path, range)
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Later<'a, ()> {
        self.sandbox.write(path, bytes)
    }

    fn list<'a>(&'a self, path: &'a str, depth: u32, entries_max: u32) -> Later<'a, Listing> {
        self.sandbox.list(path, depth, entries_max)
    }

    fn add_layer<'a>(&'a self, layer: &'a Layer) -> Later<'a, ()> {
        self.sandbox.add_layer(layer)
    }

    fn asked(&self) -> Later<'_, Asked> {
        self.sandbox.asked()
    }

    fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        self.sandbox.answer(id, bytes, part);
    }

    /// Taken already.
    fn doors(&self) -> Option<Doors> {
        None
    }

    fn refused(&self) -> Vec<String> {
        self.served.refused()
    }

    fn reached(&self) -> Vec<Reached> {
        self.served.reached()
    }

    fn moved_bytes(&self) -> u64 {
        self.served.moved_bytes()
    }

    fn cpu_used(&self) -> Option<Duration> {
        self.sandbox.cpu_used()
    }

    fn slowness(&self) -> u32 {
        self.sandbox.slowness()
    }

    fn is_alive(&self) -> bool {
        self.sandbox.is_alive()
    }

    fn close(self: Box<Self>) -> Later<'static, ()> {
        let GuardedSandbox { served, sandbox } = *self;
        drop(served);
        sandbox.close()
    }
}
