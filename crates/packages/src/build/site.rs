//! A sandbox and the directory that it builds in. However this ends, the sandbox is gone before the directory is.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Backend, Exit, Ground, Language, Layer, Limits, Network, Sandbox, Source, Spec};
use serde::Deserialize;

use super::words;
use crate::run::{RunError, program, run};
use crate::store::{Building, Measured, Store, measure, measure_and_tame, trouble};
use crate::{Environment, InstallError, InstallErrorKind, Phase, Progress, Settings};

/// Whoever wants to know how far it is.
pub(crate) type Tell<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// What our program in the sandbox says it has built. By its word only: what it built may have said it.
#[derive(Debug, Deserialize)]
pub(super) struct Built {
    pub(super) packages: Vec<(String, String)>,
    pub(super) modules: Vec<String>,
}

impl Built {
    /// Names that are names, and not too many.
    fn checked(mut self) -> Option<Built> {
        let fits = |text: &str| text.len() <= 200 && text.chars().all(|c| c.is_ascii_graphic());
        let count = self.packages.len() <= 5_000 && self.modules.len() <= 20_000;
        let all = self.packages.iter().all(|(name, version)| fits(name) && fits(version));
        self.packages.sort();
        (count && all && self.modules.iter().all(|name| fits(name))).then_some(self)
    }
}

/// Files of one layer at most.
const FILES_MAX: u64 = 500_000;

#[derive(Debug)]
pub(super) struct Site {
    sandbox: Option<Box<dyn Sandbox>>,
    building: Option<Arc<Building>>,
}

impl Site {
    pub(super) async fn open(
        backend: &dyn Backend,
        settings: &Settings,
        store: &Store,
        ground: &Ground,
        layers: Vec<Layer>,
        prepare: impl FnOnce(&Building) -> Result<(), InstallError> + Send + 'static,
    ) -> Result<Site, InstallError> {
        check_free(store, settings.free_bytes)?;
        let store = store.clone();
        let building = blocking(move || {
            let building = store.begin()?;
            prepare(&building)?;
            Ok(Arc::new(building))
        })
        .await?;
        // From here on dropping it cleans up.
        let mut site = Site { sandbox: None, building: Some(building) };
        let spec = Spec {
            limits: Limits {
                memory_bytes: settings.memory_bytes,
                processes: 256,
                open_files: 4096,
                disk_bytes: 1 << 30,
                output_bytes: 64 << 20,
                ..Limits::default()
            },
            network: Network::Granted(settings.registries.grants.clone()),
            env: environment(settings),
            ground: ground.clone(),
            layers,
            owner: None,
            build: Some(site.building()?.name.clone()),
            waiting: None,
        };
        let opened = backend.open(&spec).await;
        site.sandbox = Some(opened.map_err(|error| InstallError::of_backend("building packages", &error))?);
        Ok(site)
    }

    fn building(&self) -> Result<&Arc<Building>, InstallError> {
        self.building.as_ref().ok_or_else(|| InstallError::new(InstallErrorKind::Failed, "the build is over"))
    }

    /// Runs our program in it and says what came of it, or what the resolver said.
    pub(super) async fn run(
        &self,
        settings: &Settings,
        language: Language,
        code: &str,
        job: &serde_json::Value,
        tell: Tell<'_>,
    ) -> Result<Built, InstallError> {
        let building = self.building()?;
        let sandbox =
            self.sandbox.as_deref().ok_or_else(|| InstallError::new(InstallErrorKind::Failed, "no sandbox"))?;
        let source = Source::Code { language, code: code.to_owned() };
        let program = program(source, job.to_string().into_bytes(), settings.wall);
        let line = |line: &str| {
            if let Some(progress) = progress(line) {
                tell(progress);
            }
        };
        let ran = tokio::select! {
            ran = run(sandbox, program, &line) => ran,
            error = watch(building, settings) => return Err(error),
        };
        let ran = ran.map_err(|error| match error {
            RunError::Timeout(wall) => InstallError::new(
                InstallErrorKind::Timeout,
                format!("installing took longer than {} s, and was stopped", wall.as_secs()),
            ),
            RunError::Backend(error) => InstallError::of_backend("building packages", &error),
            RunError::TooMuch => InstallError::new(InstallErrorKind::Failed, "the build wrote too much"),
        })?;
        match ran.exit {
            Exit::Code(0) => {}
            Exit::OutOfMemory => {
                let words = "building took more memory than a build may have";
                return Err(InstallError::new(InstallErrorKind::TooLarge, words));
            }
            Exit::Code(_) | Exit::Signal(_) => {
                let said = words::clean(&ran.stderr);
                let mut words = if said.is_empty() { format!("the installer ended with {:?}", ran.exit) } else { said };
                let mut kind = words::kind(&words);
                let refused = sandbox.refused();
                if !refused.is_empty() {
                    // A refusal looks as a host does that is not there.
                    kind = if kind == InstallErrorKind::Offline { InstallErrorKind::Failed } else { kind };
                    words += &format!("\nbuilds reach the package registries only; refused: {}", refused.join(", "));
                }
                return Err(InstallError::new(kind, words));
            }
        }
        let built = serde_json::from_slice::<Built>(&ran.stdout).ok().and_then(Built::checked);
        built.ok_or_else(|| InstallError::new(InstallErrorKind::Failed, "the build told nonsense of what it built"))
    }

    /// Ends the sandbox, and makes what was built a layer.
    pub(super) async fn publish(
        mut self,
        settings: &Settings,
        finish: impl FnOnce(&Building, Measured) -> Result<Arc<Environment>, InstallError> + Send + 'static,
    ) -> Result<Arc<Environment>, InstallError> {
        if let Some(sandbox) = self.sandbox.take()
            && let Err(error) = sandbox.close().await
        {
            // Something may still write there.
            return Err(InstallError::of_backend("ending a build", &error));
        }
        let building = self.building()?.clone();
        let bytes_max = settings.layer_bytes;
        blocking(move || {
            let measured = measure_and_tame(&building.path.join("layer"), FILES_MAX)
                .map_err(|error| trouble("looking at what was built", &error))?;
            if measured.incomplete || measured.bytes > bytes_max {
                return Err(too_large(bytes_max));
            }
            finish(&building, measured)
        })
        .await
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The one that is named last is dropped first.
        let (building, sandbox) = (self.building.take(), self.sandbox.take());
        // Without a runtime there is nobody to end a sandbox but its own drop.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(sandbox) = sandbox {
                let _ = sandbox.close().await;
            }
            let _ = tokio::task::spawn_blocking(move || drop(building)).await;
        });
    }
}

/// What a line of the resolver's means to somebody who waits.
fn progress(line: &str) -> Option<Progress> {
    if let Some(own) = line.strip_prefix("belljar:") {
        let phase = match own {
            "preparing" => Phase::Preparing,
            "resolving" => Phase::Resolving,
            "downloading" => Phase::Downloading,
            "compiling" => Phase::Compiling,
            "storing" => Phase::Storing,
            _ => return None,
        };
        return Some(Progress { phase, words: own.to_owned() });
    }
    let line = words::clean(line);
    let line = line.trim();
    let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
    let phase = if begins(&["Resolved"]) {
        Phase::Resolving
    } else if begins(&["Downloading", "Downloaded", "Collecting"]) {
        Phase::Downloading
    } else if begins(&["Building", "Built", "Prepared", "Installed", "Installing"]) {
        Phase::Building
    } else {
        return None;
    };
    Some(Progress { phase, words: line.chars().take(120).collect() })
}

fn too_large(bytes_max: u64) -> InstallError {
    let words = format!("with these packages the layer is larger than {} MB, or has too many files", bytes_max >> 20);
    InstallError::new(InstallErrorKind::TooLarge, words)
}

/// Returns when the build takes more of the disk than it may.
async fn watch(building: &Arc<Building>, settings: &Settings) -> InstallError {
    let mut pause = Duration::from_millis(500);
    loop {
        tokio::time::sleep(pause).await;
        let building = building.clone();
        let (free, bytes_max) = (settings.free_bytes, settings.layer_bytes);
        let started = tokio::time::Instant::now();
        let found = blocking(move || {
            check_free_at(&building.path, free)?;
            // It changes while it is looked at; what vanished is no error.
            match measure(&building.path, FILES_MAX) {
                Ok(measured) if measured.bytes > bytes_max || measured.files > FILES_MAX => Err(too_large(bytes_max)),
                _ => Ok(()),
            }
        })
        .await;
        if let Err(error) = found {
            return error;
        }
        // Looking takes a twentieth of the time at most.
        pause = (started.elapsed() * 20).max(Duration::from_millis(500));
    }
}

/// A build has nothing of its own on loopback, and an index may be on this host's: asked through the proxy, it is there.
fn environment(settings: &Settings) -> Vec<(String, String)> {
    let everything = ["NO_PROXY", "no_proxy"].map(|name| (name.to_owned(), String::new()));
    settings.registries.env.iter().cloned().chain(everything).collect()
}

/// What a build leaves of the files that a disk may have.
const FREE_FILES: u64 = 10_000;

fn check_free(store: &Store, free_bytes: u64) -> Result<(), InstallError> {
    store.prepare()?;
    check_free_at(store.root(), free_bytes)
}

fn check_free_at(path: &std::path::Path, free_bytes: u64) -> Result<(), InstallError> {
    let stat = rustix::fs::statvfs(path).map_err(|error| trouble("looking at the layers' disk", &error.into()))?;
    // Some file systems have as many files as there is room for, and tell of none.
    let has_files = stat.f_files == 0 || stat.f_favail >= FREE_FILES;
    if has_files && stat.f_bavail.saturating_mul(stat.f_frsize) >= free_bytes {
        return Ok(());
    }
    let words =
        format!("the disk that holds the layers' cache has less than {} MB left, or few files", free_bytes >> 20);
    Err(InstallError::new(InstallErrorKind::NoSpace, words))
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InstallError> + Send + 'static,
) -> Result<T, InstallError> {
    let failed =
        |error| InstallError::new(InstallErrorKind::Failed, format!("looking after the store failed: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
