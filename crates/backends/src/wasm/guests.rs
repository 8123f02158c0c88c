//! The interpreters that this host has, compiled, and how to get those that it lacks.

use std::path::{Path, PathBuf};

use belljar_core::Language;
use belljar_wasm::cache::{self, Cache, CacheError, KNOWN, Known};

use crate::host::Host;
use crate::settings::WasmSettings;

const FIX: &str = "run `belljar warmup --backend wasm`, which fetches and compiles it once";

/// One that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) language: Language,
    pub(super) name: String,
    pub(super) compiled: PathBuf,
    /// What it is served by, compiled too; without it a kernel takes longer to start.
    pub(super) driver: Option<PathBuf>,
}

/// One that cannot, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) language: Language,
    pub(super) why: String,
    pub(super) fix: String,
}

/// Where compiled interpreters are kept.
pub(super) fn cache(host: &Host) -> Option<Cache> {
    let usual = || Some(host.home.as_ref()?.join(".cache/belljar"));
    host.cache.clone().or_else(usual).map(|directory| Cache::new(directory.join("wasm")))
}

pub(super) fn find(host: &Host) -> Vec<Result<Guest, Missing>> {
    KNOWN.iter().map(|known| find_one(known, host)).collect()
}

fn find_one(known: &Known, host: &Host) -> Result<Guest, Missing> {
    let language = known.language;
    let missing = |why: String, fix: &str| Missing { language, why, fix: fix.to_owned() };
    let Some(cache) = cache(host) else {
        return Err(missing("there is no directory to keep it in".to_owned(), "set HOME"));
    };
    let unusable = |error: &CacheError| missing(error.to_string(), FIX);
    let (name, sha256) = match given(known, &host.walls.wasm) {
        Some(path) => {
            let module = cache::read(path).map_err(|error| unusable(&error))?;
            (format!("{language}-given"), cache::digest(&module))
        }
        None => (known.name.to_owned(), known.sha256.to_owned()),
    };
    match cache.find(&sha256) {
        Ok(Some(compiled)) => {
            let driver = (language == Language::Python).then(|| cache.driver(&compiled));
            let driver =
                driver.and_then(|driver| driver.inspect_err(|error| tracing::debug!(%error, "no driver")).ok());
            Ok(Guest { language, name, compiled, driver })
        }
        Ok(None) => Err(missing(format!("{name} was not compiled for this build of belljar"), FIX)),
        Err(error) => Err(unusable(&error)),
    }
}

/// The operator's own.
pub(super) fn given<'a>(known: &Known, settings: &'a WasmSettings) -> Option<&'a Path> {
    match known.language {
        Language::Python => settings.python.as_deref(),
        _ => settings.javascript.as_deref(),
    }
}
