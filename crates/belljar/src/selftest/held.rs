//! Walls that open nothing before their self-test has passed.

use std::pin::Pin;
use std::sync::Arc;

use belljar_core::{Backend, BackendError, Capabilities, Later, Probe, Sandbox, Spec};

use super::{Gate, Gates, Standing};

#[derive(Debug)]
pub(crate) struct Held {
    backend: Arc<dyn Backend>,
    gates: Gates,
}

impl Held {
    pub(crate) fn around(backend: Arc<dyn Backend>, gates: Gates) -> Arc<dyn Backend> {
        Arc::new(Held { backend, gates })
    }
}

fn unavailable(why: &str) -> BackendError {
    let fix = "`belljar doctor` tells what each probe of the walls found".to_owned();
    BackendError::Unavailable { why: why.to_owned(), fix }
}

impl Gate {
    /// Returns when the test has passed. Where it could not be done it is tried once more, for the sake of this caller.
    async fn passed(&self) -> Result<(), BackendError> {
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
            let gate = self.gates.before(&spec.ground);
            gate.ok_or_else(|| unavailable("it is behind a wall that was not tested"))?.passed().await?;
            self.backend.open(spec).await
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.backend.settled()
    }
}
