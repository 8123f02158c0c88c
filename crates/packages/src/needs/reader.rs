//! Reads code within the walls: a parser descends into hostile text. One small sandbox is kept for it while it is used.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::{Backend, Exit, Language, Limits, Network, Sandbox, Source, Spec};
use serde::Deserialize;
use tokio::task::AbortHandle;

use crate::key::Key;
use crate::run::{program, run};

/// As the program inside tells it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Module {
    pub(super) name: String,
    /// It was written with `npm:`.
    pub(super) version: Option<String>,
    pub(super) optional: bool,
}

#[derive(Debug, Deserialize)]
struct Imports {
    modules: Vec<Module>,
}

#[derive(Debug)]
pub(super) struct Reader {
    place: Arc<Place>,
    read: Mutex<Read>,
}

/// The sandbox that is kept.
#[derive(Debug)]
struct Place {
    backend: Arc<dyn Backend>,
    kept: tokio::sync::Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    sandbox: Option<Arc<dyn Sandbox>>,
    /// Closes it after a while; put off by each use.
    closing: Option<AbortHandle>,
}

/// What was read before, oldest first.
#[derive(Debug, Default)]
struct Read {
    answers: HashMap<String, Arc<[Module]>>,
    order: VecDeque<String>,
}

const READ_MAX: usize = 1024;
const IDLE: Duration = Duration::from_secs(60);
const WALL: Duration = Duration::from_secs(10);
/// As long as the program inside takes.
const CODE_MAX: usize = 1 << 20;

impl Reader {
    pub(super) fn new(backend: Arc<dyn Backend>) -> Reader {
        Reader { place: Arc::new(Place { backend, kept: Default::default() }), read: Mutex::default() }
    }

    /// What code imports. Code that cannot be read imports nothing.
    pub(super) async fn modules(&self, language: Language, code: &str) -> Arc<[Module]> {
        if code.len() > CODE_MAX {
            return Arc::new([]);
        }
        let key = Key::new("code").with(language.name()).with(code).finish();
        if let Some(known) = self.read().answers.get(&key) {
            return known.clone();
        }
        match self.place.read(language, code).await {
            Some(modules) => {
                let modules: Arc<[Module]> = modules.into();
                self.remember(key, modules.clone());
                modules
            }
            None => Arc::new([]),
        }
    }

    fn read(&self) -> std::sync::MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, key: String, modules: Arc<[Module]>) {
        let mut read = self.read();
        if read.answers.insert(key.clone(), modules).is_none() {
            read.order.push_back(key);
        }
        if read.order.len() > READ_MAX
            && let Some(oldest) = read.order.pop_front()
        {
            read.answers.remove(&oldest);
        }
    }
}

impl Reader {
    pub(super) async fn end(&self) {
        let mut kept = self.place.kept.lock().await;
        kept.closing.take().iter().for_each(AbortHandle::abort);
        kept.sandbox = None;
    }
}

impl Place {
    async fn read(self: &Arc<Place>, language: Language, code: &str) -> Option<Vec<Module>> {
        let sandbox = self.sandbox().await?;
        let source = Source::Command(format!("/belljar/transpile imports {language}"));
        let ran = run(sandbox.as_ref(), program(source, code.as_bytes().to_vec(), WALL), &|_| ()).await;
        match ran {
            // Code that is nested too deeply ends it by a signal, and imports nothing.
            Ok(ran) if ran.exit != Exit::Code(0) => Some(Vec::new()),
            Ok(ran) => serde_json::from_slice::<Imports>(&ran.stdout).ok().map(|imports| imports.modules),
            Err(error) => {
                tracing::warn!(%error, "code could not be looked through for imports");
                self.kept.lock().await.sandbox = None;
                None
            }
        }
    }

    async fn sandbox(self: &Arc<Place>) -> Option<Arc<dyn Sandbox>> {
        let mut kept = self.kept.lock().await;
        if kept.sandbox.as_ref().is_none_or(|sandbox| !sandbox.is_alive()) {
            let limits = Limits {
                memory_bytes: 256 << 20,
                processes: 32,
                disk_bytes: 16 << 20,
                output_bytes: 8 << 20,
                ..Limits::default()
            };
            let spec = Spec { limits, network: Network::None, ..Spec::default() };
            match self.backend.open(&spec).await {
                Ok(sandbox) => kept.sandbox = Some(Arc::from(sandbox)),
                Err(error) => {
                    tracing::warn!(%error, "there is no sandbox to look through code in");
                    return None;
                }
            }
        }
        let closing = tokio::spawn(self.clone().close_when_idle()).abort_handle();
        if let Some(before) = kept.closing.replace(closing) {
            before.abort();
        }
        kept.sandbox.clone()
    }

    async fn close_when_idle(self: Arc<Place>) {
        tokio::time::sleep(IDLE).await;
        self.kept.lock().await.sandbox = None;
    }
}
