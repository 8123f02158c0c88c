//! Packages for a program: what it needs is found out and put into its sandbox before it starts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::{Ground, HostCalls, Language, Layer, PackageKind, Sandbox, Source};
use belljar_packages::{Environment, InstallError, InstallErrorKind, Installed, Needs, Packages, Wanted};

use crate::{EngineError, Installation, Observer, Phase, Principal, Wants, python, run};

/// What marks a package of Node's among others.
const NPM: &str = "npm:";

const INFERRED_MAX: usize = 100;

/// Words of a program that installs what it imports.
const INSTALLERS: [&str; 4] = ["pip install", "'pip', 'install'", "\"pip\", \"install\"", "uv add"];

/// The environments that one sandbox has.
#[derive(Debug, Default)]
pub(crate) struct Shelf {
    /// One of a kind. Held, so that nobody removes them from the store.
    environments: Mutex<Vec<Arc<Environment>>>,
    /// One change at a time: each goes on top of the one before.
    changing: tokio::sync::Mutex<()>,
    /// As in [`belljar_core::Spec::ground`].
    ground: Ground,
    /// Whose sandbox it is.
    owner: String,
}

/// Why a program cannot be started.
#[derive(Debug)]
pub(crate) enum NotProvided {
    Refused(EngineError),
    Failed { error: InstallError },
}

impl From<EngineError> for NotProvided {
    fn from(error: EngineError) -> Self {
        NotProvided::Refused(error)
    }
}

/// What programs may get from outside their sandboxes.
#[derive(Debug, Clone, Default)]
pub struct Outside {
    /// `None` where no packages are installed.
    pub provisions: Option<Provisions>,
    /// `None` where there are no tools to call.
    pub calls: Option<Arc<dyn HostCalls>>,
    /// Those who are told what happens.
    pub observers: Vec<Arc<dyn Observer>>,
}

/// Where packages come from, and whether a program's imports are looked at.
#[derive(Debug, Clone)]
pub struct Provisions {
    pub packages: Arc<Packages>,
    pub infer: bool,
}

impl Shelf {
    pub(crate) fn new(who: &Principal, ground: &Ground, environments: Vec<Arc<Environment>>) -> Shelf {
        Shelf {
            owner: who.as_str().to_owned(),
            environments: Mutex::new(environments),
            changing: tokio::sync::Mutex::default(),
            ground: ground.clone(),
        }
    }

    fn environments(&self) -> MutexGuard<'_, Vec<Arc<Environment>>> {
        self.environments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, kind: PackageKind) -> Option<Arc<Environment>> {
        self.environments().iter().find(|environment| environment.kind == kind).cloned()
    }

    pub(crate) fn ground(&self) -> &Ground {
        &self.ground
    }

    pub(crate) fn layers(&self) -> Vec<Layer> {
        self.environments().iter().map(|environment| environment.layer.clone()).collect()
    }

    /// Who a sandbox that begins with this is for. The base environment is pinned by its hashes, and the same for all.
    pub(crate) fn owner(&self, provisions: Option<&Provisions>) -> Option<String> {
        if self.environments().is_empty() {
            return None;
        }
        let base = provisions.and_then(|provisions| provisions.packages.base(&self.ground));
        let is_base =
            |environment: &Arc<Environment>| base.as_ref().is_some_and(|base| base.layer == environment.layer);
        (!self.environments().iter().all(is_base)).then(|| self.owner.clone())
    }

    /// Finds or builds what is wanted on top of what is here; says what is new, and what is to be put here if that is
    /// another.
    async fn find(
        &self,
        packages: &Packages,
        mut wanted: Wanted,
        phase: &Phase,
    ) -> Result<(Installation, Option<Arc<Environment>>), InstallError> {
        let before = self.of(wanted.kind);
        wanted.on_top_of.clone_from(&before);
        wanted.owner.clone_from(&self.owner);
        phase.is(&format!("installing {}", shown(&wanted)));
        let installed = packages.environment(wanted, |progress| phase.is(&progress.words)).await;
        phase.is("");
        let installed = installed?;
        let told = installation(&installed, before.as_deref());
        // Where nothing could be had, what was there stays.
        let Some(environment) = installed.environment else { return Ok((told, None)) };
        let is_new = before.is_none_or(|before| before.layer != environment.layer);
        Ok((told, is_new.then_some(environment)))
    }

    fn put(&self, environment: Arc<Environment>) {
        let mut environments = self.environments();
        environments.retain(|other| other.kind != environment.kind);
        environments.push(environment);
    }
}

impl Provisions {
    /// For a program that has no sandbox yet: what that has to begin with is on the shelf then. `interpreters` are the
    /// host's, of which it may ask for another than the first.
    pub(crate) async fn ahead(
        &self,
        source: &Source,
        wants: &Wants,
        shelf: &mut Shelf,
        interpreters: &[(Language, String)],
        phase: &Phase,
    ) -> Result<Option<Installation>, NotProvided> {
        let mut needs = self.needs(source, shelf, &[]).await;
        if let Some(wanted) =
            needs.python.as_ref().filter(|_| shelf.ground.is_own() && shelf.ground.interpreters.is_empty())
        {
            let chosen = python::choose(wanted, interpreters).map_err(|words| NotProvided::Failed {
                error: InstallError { kind: InstallErrorKind::Unavailable, words },
            })?;
            if let Some(interpreter) = chosen {
                shelf.ground.interpreters = vec![interpreter];
                needs = self.needs(source, shelf, &[]).await;
            }
        }
        self.provide(source, needs, wants, shelf, None, phase).await
    }

    /// For a program in a sandbox that stands.
    pub(crate) async fn into(
        &self,
        sandbox: &dyn Sandbox,
        source: &Source,
        wants: &Wants,
        shelf: &Shelf,
        phase: &Phase,
    ) -> Result<Option<Installation>, NotProvided> {
        let _changing = shelf.changing.lock().await;
        let mut needs = self.needs(source, shelf, &[]).await;
        if !needs.inferred.is_empty() {
            // Only now: most programs import nothing that has to be looked for.
            needs = self.needs(source, shelf, &local_modules(sandbox, source).await).await;
        }
        self.provide(source, needs, wants, shelf, Some(sandbox), phase).await
    }

    /// For a program inside, which asks by itself.
    pub(crate) async fn asked_for(
        &self,
        sandbox: &dyn Sandbox,
        wanted: Wanted,
        shelf: &Shelf,
        phase: &Phase,
    ) -> Result<Installation, InstallError> {
        let _changing = shelf.changing.lock().await;
        let wanted = Wanted { ground: shelf.ground.clone(), ..wanted };
        let (told, environment) = shelf.find(&self.packages, wanted, phase).await?;
        if let Some(environment) = environment {
            sandbox.add_layer(&environment.layer).await.map_err(|error| {
                tracing::error!(?error, "a layer could not be put into a sandbox");
                let words = "the packages are there, and could not be put into this sandbox".to_owned();
                InstallError { kind: InstallErrorKind::Failed, words }
            })?;
            shelf.put(environment);
        }
        Ok(told)
    }

    async fn needs(&self, source: &Source, shelf: &Shelf, local: &[String]) -> Needs {
        let (Source::Code { language, code } | Source::Cell { language, code, .. }) = source else {
            return Needs::default();
        };
        let Some(kind) = kind_of(*language).filter(|_| self.infer) else { return Needs::default() };
        let mut needs = self.packages.needs(*language, code, &shelf.ground, local).await;
        // More are not looked for, and nothing that is meant well has them.
        needs.inferred.truncate(INFERRED_MAX);
        if INSTALLERS.iter().any(|words| code.contains(words)) {
            // It sees to that itself, and may well want another version than the newest.
            needs.inferred.clear();
        }
        if let Some(environment) = shelf.of(kind) {
            needs.inferred.retain(|name| !environment.has(name));
        }
        needs
    }

    async fn provide(
        &self,
        source: &Source,
        needs: Needs,
        wants: &Wants,
        shelf: &Shelf,
        sandbox: Option<&dyn Sandbox>,
        phase: &Phase,
    ) -> Result<Option<Installation>, NotProvided> {
        if let Some(why) = needs.malformed {
            let words = format!("the program's own list of dependencies (PEP 723) cannot be read: {why}");
            return Err(NotProvided::Failed { error: InstallError { kind: InstallErrorKind::NotFound, words } });
        }
        let mut all: Option<Installation> = None;
        for wanted in wanted(source, needs, wants, &shelf.ground)? {
            let found = shelf.find(&self.packages, wanted, phase).await;
            let (told, environment) = found.map_err(|error| NotProvided::Failed { error })?;
            if let Some(environment) = environment {
                if let Some(sandbox) = sandbox {
                    sandbox.add_layer(&environment.layer).await.map_err(run::told)?;
                }
                shelf.put(environment);
            }
            match &mut all {
                None => all = Some(told),
                Some(all) => all.add(told),
            }
        }
        Ok(all)
    }
}

impl Installation {
    fn add(&mut self, other: Installation) {
        self.packages.extend(other.packages);
        self.left_out.extend(other.left_out);
        self.took += other.took;
        self.was_built |= other.was_built;
    }
}

/// What has to be there before the program starts, by kind.
fn wanted(source: &Source, needs: Needs, wants: &Wants, ground: &Ground) -> Result<Vec<Wanted>, EngineError> {
    let language = match source {
        Source::Code { language, .. } | Source::Cell { language, .. } => *language,
        Source::Command(_) => Language::Shell,
    };
    let own = kind_of(language);
    let mut all: Vec<Wanted> = Vec::new();
    let mut of = |kind: PackageKind, add: &mut dyn FnMut(&mut Wanted)| {
        if !all.iter().any(|wanted| wanted.kind == kind) {
            all.push(Wanted::new(kind, ground));
        }
        all.iter_mut().filter(|wanted| wanted.kind == kind).for_each(add);
    };
    for package in &wants.packages {
        let package = package.trim();
        match (package.strip_prefix(NPM), own) {
            (Some(package), _) => of(PackageKind::Node, &mut |wanted| wanted.required.push(package.to_owned())),
            (None, Some(kind)) => of(kind, &mut |wanted| wanted.required.push(package.to_owned())),
            (None, None) if language == Language::Shell => {
                of(PackageKind::Python, &mut |wanted| wanted.required.push(package.to_owned()));
            }
            (None, None) => return Err(EngineError::NoPackagesFor { language }),
        }
    }
    if let Some(kind) = own.filter(|_| !needs.is_empty()) {
        of(kind, &mut |wanted| {
            wanted.required.extend(needs.required.iter().cloned());
            wanted.inferred.extend(needs.inferred.iter().cloned());
        });
    }
    Ok(all)
}

pub(crate) fn kind_of(language: Language) -> Option<PackageKind> {
    match language {
        Language::Python => Some(PackageKind::Python),
        Language::JavaScript | Language::TypeScript => Some(PackageKind::Node),
        Language::Shell | Language::Go | Language::Rust => None,
    }
}

fn installation(installed: &Installed, before: Option<&Environment>) -> Installation {
    let now = installed.environment.as_ref().map(|environment| &environment.packages);
    let was_there = |package: &(String, String)| before.is_some_and(|before| before.packages.contains(package));
    Installation {
        packages: now.into_iter().flatten().filter(|package| !was_there(package)).cloned().collect(),
        left_out: installed.left_out.clone(),
        took: installed.took,
        was_built: installed.built,
    }
}

fn shown(wanted: &Wanted) -> String {
    const SHOWN: usize = 6;
    let names: Vec<&str> = wanted.required.iter().chain(&wanted.inferred).map(String::as_str).collect();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// How long a look at the workspace may take; without it names are looked for that need not be.
const LOOK_MAX: Duration = Duration::from_secs(2);
const LOCAL_MAX: u32 = 2000;

/// Modules that the program itself has in its workspace.
async fn local_modules(sandbox: &dyn Sandbox, source: &Source) -> Vec<String> {
    let language = match source {
        Source::Code { language, .. } | Source::Cell { language, .. } => *language,
        Source::Command(_) => return Vec::new(),
    };
    let is_node = kind_of(language) == Some(PackageKind::Node);
    // Those with a scope are one level deeper.
    let (path, depth) = if is_node { (NODE_MODULES, 2) } else { (belljar_core::WORKSPACE, 1) };
    let listed = tokio::time::timeout(LOOK_MAX, sandbox.list(path, depth, LOCAL_MAX)).await;
    let Ok(Ok(listing)) = listed else { return Vec::new() };
    let paths = listing.entries.iter().map(|entry| entry.path.as_str());
    if is_node { paths.map(str::to_owned).collect() } else { paths.filter_map(module_of).map(str::to_owned).collect() }
}

/// Where npm puts what a program installs by itself.
const NODE_MODULES: &str = "/workspace/node_modules";

/// The name that a file or directory is imported by.
fn module_of(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let stem = name.split('.').next().filter(|stem| !stem.is_empty())?;
    stem.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-').then_some(stem)
}
