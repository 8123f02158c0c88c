//! Where sandboxes come from. Prepared ones will be handed out here, in front of [`Backend::open`], without anyone
//! else noticing.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Backend, BackendError, Sandbox, Spec};

use crate::EngineError;
use crate::teardown::Teardowns;

/// Longer than any backend should need, a container engine that starts cold included; it keeps a stuck one from
/// holding its callers' turns for ever.
const OPEN_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Lessor {
    backend: Arc<dyn Backend>,
    teardowns: Arc<Teardowns>,
}

impl Lessor {
    pub(crate) fn new(backend: Arc<dyn Backend>, teardowns: Arc<Teardowns>) -> Lessor {
        Lessor { backend, teardowns }
    }

    /// Opens a sandbox that its caller keeps. Dropping the future leaves nothing behind, as the contract has it.
    pub(crate) async fn open(&self, spec: &Spec) -> Result<Box<dyn Sandbox>, EngineError> {
        self.teardowns.room().await;
        let opened = tokio::time::timeout(OPEN_MAX, self.backend.open(spec)).await.unwrap_or_else(|_| {
            Err(BackendError::Setup { step: "open".into(), why: format!("took longer than {OPEN_MAX:?}") })
        });
        opened.map_err(|error| {
            tracing::error!(backend = self.backend.name(), ?error, "could not open a sandbox");
            EngineError::Backend(error)
        })
    }

    /// A sandbox for one program: nothing ran in it, and dropping the lease closes it.
    pub(crate) async fn lease(&self, spec: &Spec) -> Result<Lease, EngineError> {
        let sandbox = self.open(spec).await?;
        Ok(Lease { sandbox: Some(sandbox), teardowns: self.teardowns.clone() })
    }
}

#[derive(Debug)]
pub(crate) struct Lease {
    /// Empty only while it is being dropped.
    sandbox: Option<Box<dyn Sandbox>>,
    teardowns: Arc<Teardowns>,
}

impl Lease {
    pub(crate) fn sandbox(&self) -> Result<&dyn Sandbox, EngineError> {
        self.sandbox.as_deref().ok_or(EngineError::Lost)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            self.teardowns.begin(std::future::ready(Some((sandbox, ()))));
        }
    }
}
