//! A backend whose sandboxes are closed in order, however they are let go, so that the last can be waited for.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::wire::Part;
use belljar_core::{
    Asked, Backend, BackendError, Capabilities, Content, Isolation, Later, Layer, Listing, Probe, Program, Range,
    Reached, Running, Sandbox, Spec,
};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// How long the last of them are waited for.
const CLOSED_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Attended {
    backend: Arc<dyn Backend>,
    /// Each sandbox reads it.
    open: Arc<RwLock<()>>,
}

#[derive(Debug)]
struct AttendedSandbox {
    /// `None` only when it is closed.
    sandbox: Option<Box<dyn Sandbox>>,
    held: Option<OwnedRwLockReadGuard<()>>,
}

impl Attended {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Attended {
        Attended { backend, open: Arc::default() }
    }

    /// Returns when none is open any more, or those that are take too long.
    pub(crate) async fn end(&self) {
        let _ = tokio::time::timeout(CLOSED_MAX, self.open.write()).await;
    }
}

impl Backend for Attended {
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
        let (backend, open, spec) = (self.backend.clone(), self.open.clone(), spec.clone());
        Box::pin(async move {
            let held = open.read_owned().await;
            // By itself: who gives it up leaves a sandbox that is closed, and not one half made.
            let opening = tokio::spawn(async move {
                let sandbox = backend.open(&spec).await?;
                Ok(AttendedSandbox { sandbox: Some(sandbox), held: Some(held) })
            });
            let failed =
                |error: tokio::task::JoinError| BackendError::Setup { step: "task".into(), why: error.to_string() };
            let opened: Result<AttendedSandbox, BackendError> = opening.await.map_err(failed)?;
            Ok(Box::new(opened?) as Box<dyn Sandbox>)
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.backend.settled()
    }
}

impl AttendedSandbox {
    fn sandbox(&self) -> Result<&dyn Sandbox, BackendError> {
        self.sandbox.as_deref().ok_or_else(|| BackendError::Lost { why: "it was closed".into() })
    }
}

impl Sandbox for AttendedSandbox {
    fn isolation(&self) -> &Isolation {
        static NONE: std::sync::LazyLock<Isolation> = std::sync::LazyLock::new(|| Isolation {
            backend: String::new(),
            namespaces: String::new(),
            seccomp: String::new(),
            landlock: String::new(),
            cgroup: String::new(),
            network: String::new(),
            user: String::new(),
        });
        self.sandbox.as_ref().map_or(&NONE, |sandbox| sandbox.isolation())
    }

    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>> {
        Box::pin(async move { self.sandbox()?.start(program).await })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range) -> Later<'a, Content> {
        Box::pin(async move { self.sandbox()?.read(path, range).await })
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Later<'a, ()> {
        Box::pin(async move { self.sandbox()?.write(path, bytes).await })
    }

    fn list<'a>(&'a self, path: &'a str, depth: u32, entries_max: u32) -> Later<'a, Listing> {
        Box::pin(async move { self.sandbox()?.list(path, depth, entries_max).await })
    }

    fn add_layer<'a>(&'a self, layer: &'a Layer) -> Later<'a, ()> {
        Box::pin(async move { self.sandbox()?.add_layer(layer).await })
    }

    fn asked(&self) -> Later<'_, Asked> {
        Box::pin(async move { self.sandbox()?.asked().await })
    }

    fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        if let Ok(sandbox) = self.sandbox() {
            sandbox.answer(id, bytes, part);
        }
    }

    fn refused(&self) -> Vec<String> {
        self.sandbox().map(Sandbox::refused).unwrap_or_default()
    }

    fn reached(&self) -> Vec<Reached> {
        self.sandbox().map(Sandbox::reached).unwrap_or_default()
    }

    fn moved_bytes(&self) -> u64 {
        self.sandbox().map(Sandbox::moved_bytes).unwrap_or_default()
    }

    fn cpu_used(&self) -> Option<Duration> {
        self.sandbox().ok()?.cpu_used()
    }

    fn is_alive(&self) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.is_alive())
    }

    fn close(mut self: Box<Self>) -> Later<'static, ()> {
        let (sandbox, held) = (self.sandbox.take(), self.held.take());
        Box::pin(async move {
            let closed = match sandbox {
                Some(sandbox) => sandbox.close().await,
                None => Ok(()),
            };
            drop(held);
            closed
        })
    }
}

impl Drop for AttendedSandbox {
    fn drop(&mut self) {
        let (Some(sandbox), held) = (self.sandbox.take(), self.held.take()) else { return };
        // Without a runtime there is nobody to close it but its own drop.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = sandbox.close().await;
                drop(held);
            });
        }
    }
}
