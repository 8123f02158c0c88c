//! All the walls of one server: its own, and those that templates name besides it.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::{Backend, BackendError, Capabilities, Ground, Later, Probe, Sandbox, Spec};

use crate::host::Host;
use crate::native::Preload;
use crate::registry::{Choice, choose};

/// Opens each sandbox behind the wall that it names. Another than the server's own is started when it is first named.
#[derive(Debug)]
pub struct Walls {
    own: Arc<dyn Backend>,
    others: Mutex<HashMap<Choice, Arc<dyn Backend>>>,
    host: Host,
    preload: Preload,
}

impl Walls {
    /// `own` is what sandboxes have that name none. Only templates can name another, and those are the operator's.
    pub fn new(own: Arc<dyn Backend>, host: Host, preload: Preload) -> Walls {
        Walls { own, others: Mutex::default(), host, preload }
    }

    fn named(&self, name: &str) -> Result<Arc<dyn Backend>, BackendError> {
        if name == self.own.name() {
            return Ok(Arc::clone(&self.own));
        }
        let choice: Choice = name.parse().map_err(|error| BackendError::Unavailable {
            why: format!("{error}"),
            fix: "correct the template in the configuration".to_owned(),
        })?;
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Arc::clone(others.entry(choice).or_insert_with(|| choose(choice, &self.host, self.preload))))
    }
}

impl Backend for Walls {
    fn name(&self) -> &'static str {
        self.own.name()
    }

    fn probe(&self) -> Probe {
        self.own.probe()
    }

    fn capabilities(&self) -> Capabilities {
        self.own.capabilities()
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            match &spec.ground.wall {
                None => self.own.open(spec).await,
                Some(name) => {
                    let wall = self.named(name)?;
                    let ground = Ground { wall: None, ..spec.ground.clone() };
                    wall.open(&Spec { ground, ..spec.clone() }).await
                }
            }
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.own.settled()
    }
}
