//! A wall that opens nothing before its self-test has passed.

use std::pin::Pin;
use std::sync::Arc;

use belljar_core::{Backend, BackendError, Capabilities, Later, Probe, Sandbox, Spec};

use super::{Gate, Standing};

#[derive(Debug)]
pub(crate) struct Held {
    backend: Arc<dyn Backend>,
    gate: Arc<Gate>,
}

impl Held {
    pub(crate) fn around(backend: Arc<dyn Backend>, gate: Arc<Gate>) -> Arc<dyn Backend> {
        Arc::new(Held { backend, gate })
    }
}

impl Gate {
    /// Returns when the test has passed. Where it could not be done it is tried once more, for the sake of this caller.
    async fn passed(&self) -> Result<(), BackendError> {
        let unavailable = |why: &str| BackendError::Unavailable {
            why: why.to_owned(),
            fix: "`belljar doctor` tells what each probe of the walls found".to_owned(),
        };
        let mut standing = self.standing.subscribe();
        let mut has_knocked = false;
        loop {
            let now = standing.borrow_and_update().clone();
            match now {
                Standing::Passed => return Ok(()),
                Standing::Fired(what) => return Err(unavailable(&what)),
                Standing::Undone(why) if has_knocked => return Err(unavailable(&why)),
                Standing::Undone(_) => {
                    has_knocked = true;
                    self.knocks.notify_one();
                }
                Standing::Pending => {}
            }
            // `self` has the sender.
            let _ = standing.changed().await;
        }
    }
}

impl Backend for Held {
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
        Box::pin(async move {
            self.gate.passed().await?;
            self.backend.open(spec).await
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.backend.settled()
    }
}
