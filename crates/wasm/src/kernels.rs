//! Interpreters by language: loaded when first used, started as programs or as kernels.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use belljar_core::wire::Init;
use belljar_core::{FileError, FileErrorKind, Language};
use wasmtime::{Engine, Linker};

use crate::instance::{self, Budget, Host, Launch, Prepared};
use crate::line::{Line, Message};
use crate::{cache, engine, javascript, wasi};

/// Interpreters at once, programs and kernels together.
pub(crate) const INSTANCES_MAX: usize = 16;

/// What the name of a driver ends in, beside its interpreter's.
pub const DRIVER: &str = "driver";

/// One that runs.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) number: u64,
    pub(crate) line: Line,
}

pub(crate) struct Kernels {
    engine: Option<Engine>,
    loaded: Vec<(Language, Prepared)>,
    /// Where each language's compiled module is.
    places: Vec<(Language, String)>,
    budget: Arc<Budget>,
    says: SyncSender<Message>,
    wake: Arc<OwnedFd>,
    next: u64,
}

impl Kernels {
    pub(crate) fn new(says: SyncSender<Message>, wake: Arc<OwnedFd>) -> Kernels {
        let (places, budget) = (Vec::new(), Arc::new(Budget::new(u64::MAX)));
        Kernels { engine: None, loaded: Vec::new(), places, budget, says, wake, next: 1 }
    }

    pub(crate) fn settle(&mut self, init: &Init) {
        self.places = init.interpreters.clone();
        self.budget = Arc::new(Budget::new(init.watch_memory_bytes.unwrap_or(u64::MAX)));
    }

    pub(crate) fn has(&self, language: Language) -> bool {
        self.places.iter().any(|(each, _)| Some(*each) == language.kernel())
    }

    pub(crate) fn start(&mut self, language: Language, launch: Launch) -> Result<Instance, FileError> {
        let failed = |_| FileError { kind: FileErrorKind::Failed, path: format!("starting {language}") };
        let language = language.kernel().unwrap_or(language);
        let prepared = self.prepared(language).map_err(|error| FileError {
            kind: FileErrorKind::Failed,
            path: format!("loading {language}: {error:#}"),
        })?;
        let number = self.next;
        self.next += 1;
        let line = Line::new(number, self.says.clone(), Arc::clone(&self.wake));
        instance::start(prepared, launch, line.clone(), Arc::clone(&self.budget)).map_err(failed)?;
        Ok(Instance { number, line })
    }

    /// The driver of a language, as it was compiled ahead; `None` where it was not.
    pub(crate) fn driver(&self, language: Language) -> Option<Vec<u8>> {
        let (_, place) = self.places.iter().find(|(each, _)| *each == language)?;
        std::fs::read(Path::new(place).with_extension(DRIVER)).ok()
    }

    /// Has every interpreter look whether it is to go on.
    pub(crate) fn nudge(&self) {
        if let Some(engine) = &self.engine {
            engine.increment_epoch();
        }
    }

    fn prepared(&mut self, language: Language) -> wasmtime::Result<Prepared> {
        if let Some((_, prepared)) = self.loaded.iter().find(|(each, _)| *each == language) {
            return Ok(prepared.clone());
        }
        let engine = match &self.engine {
            Some(engine) => engine.clone(),
            None => self.engine.insert(engine::engine()?).clone(),
        };
        let place = self.places.iter().find(|(each, _)| *each == language);
        let (_, place) = place.ok_or_else(|| wasmtime::Error::msg("there is no module for it"))?;
        let module = cache::load(&engine, place.as_ref())?;
        let mut linker: Linker<Host> = Linker::new(&engine);
        wasi::add_to_linker(&mut linker)?;
        javascript::add_to_linker(&mut linker)?;
        let prepared = Prepared { module: linker.instantiate_pre(&module)?, engine };
        self.loaded.push((language, prepared.clone()));
        Ok(prepared)
    }
}
