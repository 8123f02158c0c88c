//! The front: what is needed, and where it is.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use belljar_core::{Backend, Ground, Language, PackageKind};
use tokio::sync::Semaphore;

use crate::attended::Attended;
use crate::build::{Builder, Order, Tell};
use crate::facts::{Facts, Interpreters};
use crate::key::Key;
use crate::known::{Answer, Known, LetGo};
use crate::needs::Asker;
use crate::store::{Lock, Store, seconds, trouble};
use crate::{
    Environment, InstallError, InstallErrorKind, Installed, Needs, Phase, Progress, Registries, Settings, Wanted, base,
    names, wanted,
};

/// All there is to packages. One for a server.
#[derive(Debug)]
pub struct Packages {
    backend: Arc<dyn Backend>,
    /// The same.
    attended: Arc<Attended>,
    settings: Settings,
    store: Store,
    interpreters: Interpreters,
    known: Arc<Known>,
    asker: Asker,
    /// Each build has memory and processors of its own, beside the programs that run.
    turns: Semaphore,
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Builds at once.
const BUILDS_MAX: usize = 6;

/// Of one owner's, so that none has to wait for all that another thinks of.
const OWNERS_BUILDS_MAX: usize = 2;

/// How long it is believed that something of what was asked for cannot be had.
const NOTHING_FOR: Duration = Duration::from_secs(600);

impl Packages {
    /// `backend` opens the sandboxes that build, with their network: the very one that runs programs, guarded.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Arc<Packages> {
        let attended = Arc::new(Attended::new(backend));
        let backend: Arc<dyn Backend> = attended.clone();
        let store = Store::at(settings.store.clone());
        let asker = Asker::new(backend.clone());
        let (interpreters, known) = (Interpreters::default(), Arc::<Known>::default());
        let turns = Semaphore::new(BUILDS_MAX);
        let owners = Mutex::default();
        Arc::new(Packages { backend, attended, settings, store, interpreters, known, asker, turns, owners })
    }

    /// Returns when no sandbox of its own is left. For the end of a server, when nobody asks for anything any more.
    pub async fn end(&self) {
        self.asker.end().await;
        self.attended.end().await;
    }

    /// Makes the store, and removes from it what servers that were killed have left, and what is past the budget. For the
    /// start; it may take a while, and whoever asks meanwhile is answered.
    pub fn tidy(&self) -> Result<(), InstallError> {
        self.store.prepare()?;
        let done = self.store.clear_leftovers().and_then(|()| self.store.keep_budget(self.settings.budget_bytes));
        done.map(drop).map_err(|error| trouble("tidying the layers' store", &error))
    }

    /// What `code` needs that its interpreter does not have. `local` are modules that are in its workspace. It cannot
    /// fail: what cannot be found out is not needed.
    pub async fn needs(&self, language: Language, code: &str, ground: &Ground, local: &[String]) -> Needs {
        let Some(kind) = kind_of(language).filter(|_| self.backend.capabilities().layers) else {
            return Needs::default();
        };
        let facts = || async { self.interpreters.facts(self.backend.as_ref(), kind, ground).await.ok() };
        self.asker.needs(language, code, local, facts).await
    }

    /// Finds or builds an environment. Dropping this future gives the build up.
    pub async fn environment(
        &self,
        wanted: Wanted,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<Installed, InstallError> {
        let started = Instant::now();
        let wanted = wanted::checked(wanted)?;
        if wanted.required.is_empty() && wanted.inferred.is_empty() {
            let (environment, left_out) = (wanted.on_top_of, Vec::new());
            return Ok(Installed { environment, took: started.elapsed(), built: false, left_out });
        }
        let facts = self.facts(wanted.kind, &wanted.ground).await?;
        if let Some(environment) = self.satisfied(&wanted, &facts) {
            environment.touch();
            let left_out = Vec::new();
            return Ok(Installed { environment: Some(environment), took: started.elapsed(), built: false, left_out });
        }
        let instead = instead(&wanted);
        let answered = self.answer(order(wanted, &facts), &facts, started, &progress).await;
        match (answered, instead) {
            // What was asked for by name goes before what is there by chance of when it was installed.
            (Err(InstallError { kind: InstallErrorKind::Conflict, .. }), Some(instead)) => {
                self.answer(order(instead, &facts), &facts, started, &progress).await
            }
            (answered, _) => answered,
        }
    }

    /// Learns what [`Packages::base`] has to know of the interpreter, if there is any layer that it could be.
    pub async fn look_for_base(&self, ground: &Ground) {
        if self.interpreters.known(PackageKind::Python, ground).is_none() && self.store.has_layers() {
            // Where it cannot be learned there is no base either.
            let _ = self.facts(PackageKind::Python, ground).await;
        }
    }

    /// The base scientific environment, if it was built for this Python, and it is known which that is.
    pub fn base(&self, ground: &Ground) -> Option<Arc<Environment>> {
        let facts = self.interpreters.known(PackageKind::Python, ground)?;
        self.find(&base_key(&facts), Freshness::Any)?.environment
    }

    /// Builds the base scientific environment, of pinned versions with their hashes, unless it is there.
    pub async fn warm_up(
        &self,
        ground: &Ground,
        progress: impl Fn(Progress) + Send + Sync,
    ) -> Result<Installed, InstallError> {
        let started = Instant::now();
        let facts = self.facts(PackageKind::Python, ground).await?;
        if facts.minor() < Some(base::PYTHON_MIN) {
            let words = format!("the base packages are for Python 3.10 and later, and this is {}", facts.version);
            return Err(InstallError::new(InstallErrorKind::Unavailable, words));
        }
        let order = Order {
            kind: PackageKind::Python,
            ground: ground.clone(),
            owner: String::new(),
            key: base_key(&facts),
            required: base::names(),
            inferred: Vec::new(),
            below: None,
            locked: Some(base::LOCK),
        };
        self.answer(order, &facts, started, &progress).await
    }

    pub fn registries(&self) -> &Registries {
        &self.settings.registries
    }

    async fn facts(&self, kind: PackageKind, ground: &Ground) -> Result<Arc<Facts>, InstallError> {
        if !self.backend.capabilities().layers {
            let words = format!("the backend {} has no place for packages", self.backend.name());
            return Err(InstallError::new(InstallErrorKind::Unavailable, words));
        }
        self.interpreters.facts(self.backend.as_ref(), kind, ground).await
    }

    /// What is there already and has all of it: what it is on top of, or the base environment.
    fn satisfied(&self, wanted: &Wanted, facts: &Facts) -> Option<Arc<Environment>> {
        let base = || match wanted.kind {
            PackageKind::Python => self.find(&base_key(facts), Freshness::Any)?.environment,
            PackageKind::Node => None,
        };
        let there = wanted.on_top_of.clone().or_else(base)?;
        // Anything but a bare name is for a resolver to judge, unless it has.
        let has = |requirement: &String| match wanted.kind {
            PackageKind::Python => {
                there.was_asked_for(requirement)
                    || names::of_requirement(requirement) == names::normal(requirement) && there.has(requirement)
            }
            PackageKind::Node => there.was_asked_for(requirement) || there.has(requirement),
        };
        wanted.required.iter().chain(&wanted.inferred).all(has).then_some(there)
    }

    async fn answer(
        &self,
        order: Order,
        facts: &Facts,
        started: Instant,
        progress: Tell<'_>,
    ) -> Result<Installed, InstallError> {
        let key = order.key.clone();
        let freshness = match order.locked.is_some()
            || order.required.iter().all(|one| one.contains("==")) && order.inferred.is_empty()
        {
            true => Freshness::Any,
            false => Freshness::Recent,
        };
        let found = |answer: Answer| {
            let Answer { environment, left_out, .. } = answer;
            environment.iter().for_each(|environment| environment.touch());
            Installed { environment, took: started.elapsed(), built: false, left_out }
        };
        if let Some(answer) = self.find(&key, freshness) {
            return Ok(found(answer));
        }
        self.store.prepare()?;
        // Whoever asks for the same meanwhile, here or in another server, waits and finds it. Few files for all requests:
        // two that share one only wait for each other.
        let lock = self.store.lock_path(&format!("request-{}", key.get(..2).unwrap_or_default()));
        let waiting = || progress(Progress { phase: Phase::Waiting, words: "another build is under way".to_owned() });
        let _turn = Lock::take(&lock, waiting).await.map_err(|error| trouble("waiting for another build", &error))?;
        if let Some(answer) = self.find(&key, freshness) {
            return Ok(found(answer));
        }
        let stale = self.find(&key, Freshness::Any);
        let built = match self.check_reachable(order.kind).await {
            Ok(()) => self.build(order, facts, progress).await,
            Err(error) => Err(error),
        };
        let (environment, left_out) = match (built, stale) {
            (Ok(built), _) => built,
            // An old one is better than none where only the network is away.
            (Err(error), Some(stale)) if error.kind == InstallErrorKind::Offline => return Ok(found(stale)),
            (Err(error), _) => return Err(error),
        };
        if let Some(environment) = &environment {
            self.store.remember(&key, &environment.layer.id)?;
            environment.touch();
        }
        let at = seconds(SystemTime::now());
        self.known.put(&key, Answer { environment: environment.clone(), left_out: left_out.clone(), at });
        self.keep_budget();
        Ok(Installed { built: environment.is_some(), environment, took: started.elapsed(), left_out })
    }

    async fn build(
        &self,
        order: Order,
        facts: &Facts,
        progress: Tell<'_>,
    ) -> Result<(Option<Arc<Environment>>, Vec<(String, String)>), InstallError> {
        // Each fails only when it is closed, which none ever is.
        let own = self.turns_of(&order.owner);
        let _own_turn = own.acquire().await;
        let _turn = self.turns.acquire().await;
        let builder = Builder { backend: self.backend.as_ref(), settings: &self.settings, store: &self.store };
        builder.build(order, facts, progress).await
    }

    /// The turns of one owner. Those of owners who build nothing are forgotten.
    fn turns_of(&self, owner: &str) -> Arc<Semaphore> {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        owners.retain(|_, turns| Arc::strong_count(turns) > 1);
        let turns = owners.entry(owner.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(OWNERS_BUILDS_MAX)));
        Arc::clone(turns)
    }

    /// Offline is told at once, and not after every attempt of every tool.
    async fn check_reachable(&self, kind: PackageKind) -> Result<(), InstallError> {
        let Some(host) = self.settings.registries.host_of(kind) else { return Ok(()) };
        if (self.settings.reachable)(host.clone()).await {
            return Ok(());
        }
        let words = format!("offline: the package registry {host} cannot be reached from this host");
        Err(InstallError::new(InstallErrorKind::Offline, words))
    }

    fn find(&self, key: &str, freshness: Freshness) -> Option<Answer> {
        let now = seconds(SystemTime::now());
        let is_fresh = |answer: &Answer| {
            // What could not be had may be there soon.
            let is_whole = answer.environment.is_some() && answer.left_out.is_empty();
            let most = if is_whole { self.settings.refresh } else { NOTHING_FOR };
            (freshness == Freshness::Any && answer.environment.is_some())
                || now.saturating_sub(answer.at) < most.as_secs()
        };
        if let Some(answer) = self.known.get(key).filter(&is_fresh) {
            return Some(answer);
        }
        // Another server may have built it, or resolved it anew.
        let request = self.store.request(key)?;
        let environment = self.store.hold(&request.id)?;
        let left_out = environment.left_out.clone();
        let answer = Answer { environment: Some(environment), left_out, at: request.at };
        self.known.put(key, answer.clone());
        Some(answer).filter(is_fresh)
    }

    /// Removes what is past the budget, behind the callers' backs: a disk may take its time.
    fn keep_budget(&self) {
        let (known, store, budget_bytes) = (self.known.clone(), self.store.clone(), self.settings.budget_bytes);
        known.let_go(LetGo::Idle);
        tokio::task::spawn_blocking(move || {
            if matches!(store.is_past(budget_bytes), Ok(true)) {
                known.let_go(LetGo::Unused);
                match store.keep_budget(budget_bytes) {
                    Ok(removed) => tracing::info!(count = removed.len(), "layers past the budget were removed"),
                    Err(error) => tracing::warn!(%error, "layers past the budget could not be removed"),
                }
            }
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// However long ago it was resolved.
    Any,
    Recent,
}

fn order(wanted: Wanted, facts: &Facts) -> Order {
    let below = wanted.on_top_of.as_ref().map_or("", |below| below.layer.id.as_str());
    let key = Key::new("request")
        .with(&facts.made_for)
        .with(below)
        .with_all(wanted.required.iter().map(String::as_str))
        .with_all(wanted.inferred.iter().map(String::as_str))
        .finish();
    Order {
        kind: wanted.kind,
        ground: wanted.ground,
        owner: wanted.owner,
        key,
        required: wanted.required,
        inferred: wanted.inferred,
        below: wanted.on_top_of,
        locked: None,
    }
}

/// The same set without the versions that are there: all that was ever asked for, resolved anew.
fn instead(wanted: &Wanted) -> Option<Wanted> {
    let below = wanted.on_top_of.as_ref().filter(|_| !wanted.required.is_empty())?;
    let named: Vec<String> = wanted.required.iter().map(|one| names::of_requirement(one)).collect();
    let kept = below.requirements.iter().filter(|one| !named.contains(&names::of_requirement(one)));
    let mut required: Vec<String> = kept.chain(&wanted.required).cloned().collect();
    required.sort();
    required.dedup();
    Some(Wanted { required, on_top_of: None, ..wanted.clone() })
}

fn base_key(facts: &Facts) -> String {
    static LOCK: LazyLock<String> = LazyLock::new(|| Key::new("lock").with(base::LOCK).finish());
    Key::new("base").with(&facts.made_for).with(&LOCK).finish()
}

fn kind_of(language: Language) -> Option<PackageKind> {
    match language {
        Language::Python => Some(PackageKind::Python),
        Language::JavaScript | Language::TypeScript => Some(PackageKind::Node),
        Language::Shell | Language::Go | Language::Rust => None,
    }
}
