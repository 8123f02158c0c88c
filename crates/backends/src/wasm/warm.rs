//! Compiling interpreters ahead, when the operator says so.

use std::path::{Path, PathBuf};

use belljar_wasm::cache::{self, CacheError, KNOWN, Known};

use super::guests;
use crate::host::Host;

/// An interpreter that has to be fetched first: a package of npm's registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// As npm writes it, with its version.
    pub package: String,
    known: Known,
}

/// Why an interpreter is not compiled.
#[derive(Debug)]
pub enum NotCompiled {
    NoHome,
    Cache(CacheError),
}

impl std::fmt::Display for NotCompiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotCompiled::NoHome => f.write_str("there is no directory to keep it in; set HOME"),
            NotCompiled::Cache(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NotCompiled {}

/// What is to be fetched for this host: nothing that was given, or is compiled already.
pub fn fetched(host: &Host) -> Vec<Fetched> {
    let lacks = |known: &&Known| {
        guests::given(known, &host.walls.wasm).is_none()
            && !guests::cache(host).is_some_and(|cache| matches!(cache.find(known.sha256), Ok(Some(_))))
    };
    let of = |known: &Known| Fetched { package: format!("{}@{}", known.package, known.version), known: *known };
    KNOWN.iter().filter(lacks).map(of).collect()
}

/// Compiles what was given, and what was fetched into a directory as npm makes them. Says what is ready by then, and where.
pub fn compile(host: &Host, modules: Option<(&Fetched, &Path)>) -> Result<Vec<(String, PathBuf)>, NotCompiled> {
    let cache = guests::cache(host).ok_or(NotCompiled::NoHome)?;
    let mut ready = Vec::new();
    if let Some((fetched, modules)) = modules {
        let module = cache::read_known(modules, &fetched.known).map_err(NotCompiled::Cache)?;
        ready.push((fetched.known.name.to_owned(), cache.compile(&module).map_err(NotCompiled::Cache)?));
    }
    for known in &KNOWN {
        if let Some(path) = guests::given(known, &host.walls.wasm) {
            let module = cache::read(path).map_err(NotCompiled::Cache)?;
            let name = format!("{}-given", known.language);
            ready.push((name, cache.compile(&module).map_err(NotCompiled::Cache)?));
        }
    }
    Ok(ready)
}
