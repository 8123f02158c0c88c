//! Containers of an engine that is there already, Docker or Podman, over its socket. Also gVisor, as a runtime of theirs.
//!
//! ```text
//! Docker ──▶ engine ──▶ container: settle ─▶ guest agent as pid 1 ──▶ programs
//!    │  image + fittings, made once       │
//!    └──────── attached: its stdin and stdout are the stream to the guest
//! ```

mod container;
mod engine;
mod image;
mod mark;
mod open;
mod orphans;
mod place;
mod probe;
mod ready;
mod seccomp;
mod stream;
mod survey;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use belljar_core::{Backend, BackendError, Capabilities, Language, Later, Probe, Sandbox, Spec};
use tokio::sync::OnceCell;

use self::container::Ways;
use self::engine::{Engine, Kind};
use self::mark::Mark;
use self::ready::Ready;
use crate::host::Host;
use crate::settings::DockerSettings;
use crate::setup;
use crate::store::Store;

/// The image of sandboxes that name none, if the operator names none either.
const USUAL_IMAGE: &str = "python:3.12-slim";

/// How long the first look at the engine and into its image may take, and how long if the image has to be fetched.
const START: Duration = Duration::from_secs(45);
const START_WITH_PULL: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(crate) struct Docker {
    given: Arc<Given>,
    engine: Mutex<Option<Arc<There>>>,
    /// What the default image has, found when it was first asked for; or why nothing was found.
    own: OnceLock<Result<Arc<Ready>, BackendError>>,
}

/// What holds as long as the server lives.
#[derive(Debug)]
struct Given {
    settings: DockerSettings,
    image: String,
    trust: Option<String>,
    store: Option<Store>,
    cache: Option<PathBuf>,
    server: String,
    /// Where sandboxes have what the host holds for them: their layers, and what they trust.
    sandboxes: Option<PathBuf>,
}

/// An engine that answered, and what was made ready in it.
#[derive(Debug)]
struct There {
    engine: Arc<Engine>,
    ways: Ways,
    mark: Mark,
    /// By the names that images were asked for.
    images: Mutex<HashMap<String, Arc<OnceCell<Arc<Ready>>>>>,
}

/// How many were, in this process.
static STARTED: AtomicU32 = AtomicU32::new(0);

impl Docker {
    pub(crate) fn start(host: &Host) -> Docker {
        let settings = host.walls.docker.clone();
        let image = settings.image.clone().unwrap_or_else(|| USUAL_IMAGE.to_owned());
        let server = orphans::server();
        // Not the runtime directory, which often is memory: layers are linked there, which a file system does only within itself.
        let base = host.cache.as_ref().or(host.runtime.as_ref());
        // A process may have several engines.
        let number = STARTED.fetch_add(1, Ordering::Relaxed).to_string();
        let sandboxes = base.map(|base| base.join("docker").join(&server).join(number));
        let given = Arc::new(Given {
            image,
            trust: host.trust.clone(),
            store: host.layers.as_deref().and_then(Store::find),
            cache: host.cache.clone(),
            server,
            sandboxes,
            settings,
        });
        Docker { given, engine: Mutex::default(), own: OnceLock::new() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<Arc<There>>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, looked for anew if the last one went away.
    async fn engine(&self) -> Result<Arc<There>, BackendError> {
        if let Some(there) = &*self.known() {
            return Ok(Arc::clone(there));
        }
        let there = Arc::new(connect(&self.given).await?);
        Ok(Arc::clone(self.known().get_or_insert(there)))
    }

    /// After a failure: the next one looks for an engine again.
    fn forget(&self, gone: &Arc<There>) {
        let mut engine = self.known();
        if engine.as_ref().is_some_and(|there| Arc::ptr_eq(there, gone)) {
            *engine = None;
        }
    }

    /// Looks for the engine and into its image, from where nothing can be awaited.
    fn look(&self, fetch: Fetch) -> Result<Prepared, BackendError> {
        let limit = if fetch == Fetch::Yes { START_WITH_PULL } else { START };
        let prepared = beside(limit, prepare(Arc::clone(&self.given), fetch))?;
        self.known().get_or_insert_with(|| Arc::clone(&prepared.0));
        Ok(prepared)
    }

    /// What the default image has.
    fn own(&self) -> &Result<Arc<Ready>, BackendError> {
        self.own.get_or_init(|| {
            let fetch = if self.given.settings.pull { Fetch::Yes } else { Fetch::No };
            let found = self.look(fetch).and_then(|(_, ready)| ready);
            found.inspect_err(|error| tracing::warn!(%error, "no container can be made ready"))
        })
    }
}

async fn connect(given: &Given) -> Result<There, BackendError> {
    let engine = Engine::connect(&given.settings).await?;
    let profile = seccomp::profile();
    let seccomp = match engine.kind {
        Kind::Docker => Some(profile),
        // It takes the profile as a file, and reads it when it makes a container.
        Kind::Podman => given.cache.as_ref().and_then(|cache| ready::profile_file(cache, &profile)),
    };
    let labels = HashMap::from([(orphans::SERVER.to_owned(), given.server.clone())]);
    let ways = Ways { kind: engine.kind, runtime: given.settings.runtime.clone(), seccomp, labels };
    let mark = Mark::find(given.cache.as_deref())?;
    Ok(There { engine: Arc::new(engine), ways, mark, images: Mutex::default() })
}

type Prepared = (Arc<There>, Result<Arc<Ready>, BackendError>);

/// What a server does before its first sandbox: look for the engine, tidy up after servers that are gone, look into the image.
async fn prepare(given: Arc<Given>, fetch: Fetch) -> Result<Prepared, BackendError> {
    let there = Arc::new(connect(&given).await?);
    match orphans::sweep(&there.engine).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "containers of servers that are gone were removed"),
        Err(error) => tracing::warn!(%error, "containers of servers that are gone may be left"),
    }
    if let Err(error) = orphans::sweep_images(&there.engine, &image::version()).await {
        tracing::debug!(%error, "images of other versions may be left");
    }
    if let Some(base) = given.sandboxes.as_deref().and_then(Path::parent).and_then(Path::parent) {
        orphans::sweep_directories(base);
    }
    let ready = there.ready(&given.image, fetch).await;
    Ok((there, ready))
}

/// Does something async from where nothing can be awaited, on a thread of its own.
fn beside<T: Send + 'static>(
    limit: Duration,
    work: impl Future<Output = Result<T, BackendError>> + Send + 'static,
) -> Result<T, BackendError> {
    let working = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| setup("asking the engine", &error))?;
        let answer = runtime.block_on(async { tokio::time::timeout(limit, work).await });
        answer.unwrap_or_else(|_| {
            Err(BackendError::Unavailable {
                why: format!("the container engine was not ready within {} s", limit.as_secs()),
                fix: "look at it with `docker info` or `podman info`, then start belljar again".to_owned(),
            })
        })
    });
    working.join().unwrap_or_else(|_| Err(setup("asking the engine", &"its thread ended")))
}

/// Whether an image that is missing is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    Yes,
    No,
}

/// A name that nobody else gives.
fn fresh_name() -> Result<String, BackendError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| setup("naming a container", &error))?;
    Ok(bytes.iter().fold("belljar-".to_owned(), |name, byte| format!("{name}{byte:02x}")))
}

impl Backend for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn probe(&self) -> Probe {
        // An image is fetched for whoever uses it, and not for whoever asks.
        match self.look(Fetch::No) {
            Ok((there, ready)) => {
                if let Ok(ready) = &ready {
                    self.own.get_or_init(|| Ok(Arc::clone(ready)));
                }
                let comes = if self.given.settings.pull { Fetch::Yes } else { Fetch::No };
                probe::probe(Ok((&there.engine, &there.ways)), ready.as_deref(), comes)
            }
            Err(error) => probe::probe(Err(&error), Err(&error), Fetch::No),
        }
    }

    fn capabilities(&self) -> Capabilities {
        let ready = self.own().as_deref().ok();
        let languages = ready.map(|ready| ready.survey.languages()).unwrap_or_default();
        let fix = match self.own() {
            Ok(ready) => format!("use an image that has it: set image in [docker]; {} has not", ready.reference),
            Err(BackendError::Unavailable { why, fix }) => format!("{why}; {fix}, and start belljar again"),
            Err(other) => format!("{other}; run `belljar doctor`"),
        };
        let missing = Language::ALL.into_iter().filter(|language| !languages.contains(language));
        Capabilities {
            missing: missing.map(|language| (language, fix.clone())).collect(),
            languages,
            interpreters: ready.map(|ready| ready.survey.interpreters()).unwrap_or_default(),
            network: true,
            layers: self.given.store.is_some() && self.given.sandboxes.is_some(),
            processes: true,
            images: true,
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            let there = self.engine().await?;
            let opened = match self.open_in(&there, spec).await {
                // The engine was started anew, or its image removed, since it was last asked.
                Err(open::Failed::Stale(_)) => {
                    self.forget(&there);
                    self.open_in(&self.engine().await?, spec).await
                }
                other => other,
            };
            opened.map(|sandbox| Box::new(sandbox) as Box<dyn Sandbox>).map_err(open::Failed::into_error)
        })
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // Each sandbox has removed its own; the directory itself is ours.
        if let Some(sandboxes) = &self.given.sandboxes {
            for file in open::OWN_FILES {
                let _ = std::fs::remove_file(sandboxes.join(file));
            }
            let _ = std::fs::remove_dir(sandboxes);
            // With the last of this process.
            let _ = sandboxes.parent().map(std::fs::remove_dir);
        }
    }
}
