//! What the worker sees of the host, and where the code in it finds what is ours.
//!
//! Code inside WebAssembly sees none of the host's: these are for the worker's own loader.

use std::fs;
use std::path::Path;

use belljar_core::wire::{Bind, Setup};
use belljar_core::{BUILD, LayerKind, PackageKind};

use belljar_wasm::{DRIVER, LINES};

use super::guests::Guest;
use crate::layout::{PROGRAMS, PYTHON_LIB};
use crate::store::Store;

/// What a program that is not static needs to start.
const LIBRARIES: [&str; 5] = ["/usr/lib", "/usr/lib32", "/usr/lib64", "/etc/ld.so.cache", "/nix/store"];

/// Directories of the root that are links on newer systems and real ones on older.
const TOP: [&str; 3] = ["/lib", "/lib32", "/lib64"];

/// What code that calls tools has only here: there are no sockets.
const WASI_LINE: (&str, &str) =
    ("/belljar/lib/mcp_runtime/_wasi.py", include_str!("../../../guest/src/calls/python/mcp_runtime/_wasi.py"));

const INSIDE: &str = "/belljar/wasm";

/// Where a place has an interpreter.
pub(super) fn inside(guest: &Guest) -> String {
    format!("{INSIDE}/{}.cwasm", guest.language)
}

pub(super) fn plan(guests: &[Guest], store: Option<&Store>) -> Setup {
    let mut setup = Setup { store: store.and_then(Store::path).map(str::to_owned), ..Setup::default() };
    for path in LIBRARIES.into_iter().filter(|path| Path::new(path).exists()) {
        setup.binds.push(Bind { host: path.to_owned(), inside: path.to_owned() });
    }
    for path in TOP {
        match fs::read_link(path) {
            Ok(target) => setup.links.push((path.to_owned(), target.to_string_lossy().into_owned())),
            Err(_) if Path::new(path).is_dir() => {
                setup.binds.push(Bind { host: path.to_owned(), inside: path.to_owned() });
            }
            Err(_) => {}
        }
    }
    for guest in guests {
        if let Some(host) = guest.compiled.to_str() {
            setup.binds.push(Bind { host: host.to_owned(), inside: inside(guest) });
        }
        if let Some(host) = guest.driver.as_deref().and_then(Path::to_str) {
            setup.binds.push(Bind { host: host.to_owned(), inside: format!("{INSIDE}/{}.{DRIVER}", guest.language) });
        }
    }
    let programs = PROGRAMS.into_iter().filter(|(path, _)| path.starts_with(PYTHON_LIB) && !path.contains("/pip/"));
    for (path, text) in programs.chain([WASI_LINE]) {
        setup.files.push((path.to_owned(), text.to_owned()));
    }
    let places = LayerKind::ALL.map(LayerKind::inside).into_iter().chain([BUILD, PYTHON_LIB, LINES]);
    setup.directories = places.map(str::to_owned).collect();
    setup
}

/// The whole environment of a sandbox's programs: nothing of the server's own, then what the caller added.
pub(super) fn environment(added: &[(String, String)]) -> Vec<(String, String)> {
    let base = [
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("MPLBACKEND", "Agg"),
        ("PYTHONPATH", PYTHON_LIB),
        ("PYTHONUSERBASE", PackageKind::Python.inside()),
        // The layer of our own library is read-only, and code of one run is seldom imported in the next.
        ("PYTHONDONTWRITEBYTECODE", "1"),
    ];
    let kept = base.iter().filter(|(name, _)| !added.iter().any(|(other, _)| other == name));
    kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain(added.iter().cloned()).collect()
}
