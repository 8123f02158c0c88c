//! What an interpreter is and has already: asked once, of itself, in a sandbox.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::{Backend, Exit, Ground, Language, Network, PackageKind, Source, Spec};
use serde::Deserialize;

use crate::run::{RunError, program, run};
use crate::{InstallError, InstallErrorKind};

#[derive(Debug, Deserialize)]
pub(crate) struct Facts {
    /// Everything that what is built for it depends on.
    pub(crate) made_for: String,
    pub(crate) version: String,
    pub(crate) machine: String,
    /// What it can import without any layer.
    pub(crate) modules: BTreeSet<String>,
    /// Where it finds uv, inside.
    pub(crate) uv: Option<String>,
    pub(crate) pip: bool,
}

impl Facts {
    /// The first two numbers of its version.
    pub(crate) fn minor(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }
}

/// By kind and chosen interpreters. A place for each, so that two who ask at once ask once.
type Known = Mutex<HashMap<(PackageKind, Ground), Arc<tokio::sync::OnceCell<Arc<Facts>>>>>;

#[derive(Debug, Default)]
pub(crate) struct Interpreters {
    known: Known,
}

/// Past this, those that could not be asked are forgotten.
const KNOWN_MAX: usize = 64;

const WALL: Duration = Duration::from_secs(30);

impl Interpreters {
    pub(crate) async fn facts(
        &self,
        backend: &dyn Backend,
        kind: PackageKind,
        ground: &Ground,
    ) -> Result<Arc<Facts>, InstallError> {
        let cell = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() > KNOWN_MAX {
                known.retain(|_, cell| cell.initialized());
            }
            known.entry((kind, ground.clone())).or_default().clone()
        };
        cell.get_or_try_init(|| ask(backend, kind, ground)).await.cloned()
    }

    /// If it was asked before.
    pub(crate) fn known(&self, kind: PackageKind, ground: &Ground) -> Option<Arc<Facts>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(kind, ground.clone()))?.get().cloned()
    }
}

async fn ask(backend: &dyn Backend, kind: PackageKind, ground: &Ground) -> Result<Arc<Facts>, InstallError> {
    let (language, code) = match kind {
        PackageKind::Python => (Language::Python, include_str!("inside.py")),
        PackageKind::Node => (Language::JavaScript, include_str!("inside.js")),
    };
    let failed = |why: String| {
        let words = format!("the interpreter could not be asked what it has: {why}");
        InstallError::new(InstallErrorKind::Unavailable, words)
    };
    let spec = Spec { network: Network::None, ground: ground.clone(), ..Spec::default() };
    let of_backend = |error| InstallError::of_backend("asking the interpreter what it has", &error);
    let sandbox = backend.open(&spec).await.map_err(of_backend)?;
    let source = Source::Code { language, code: code.to_owned() };
    let ran = run(sandbox.as_ref(), program(source, Vec::new(), WALL), &|_| ()).await;
    // What is left of it goes in any case.
    let _ = sandbox.close().await;
    let ran = ran.map_err(|error| match error {
        RunError::Backend(error) => of_backend(error),
        RunError::Timeout(_) | RunError::TooMuch => failed(error.to_string()),
    })?;
    if ran.exit != Exit::Code(0) {
        return Err(failed(crate::build::words::clean(&ran.stderr)));
    }
    serde_json::from_slice(&ran.stdout).map(Arc::new).map_err(|error| failed(error.to_string()))
}
