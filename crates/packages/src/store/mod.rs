//! The directory where layers are kept, shared by every server of this user.
//!
//! ```text
//! <id>/               a finished layer, never changed        <id>.json     its record: locked while used, touched at use
//! requests/<key>.json what was asked for, and which layer it came to
//! building-<random>/  a layer that is being built            removing-<random>/  one on its way out
//! locks/              store: short changes; building-*: whoever builds; request-*: whoever answers one; uv
//! ```
//!
//! What is below a layer was written by hostile code. Only `tree` goes there, and it follows no link.

mod budget;
mod leftovers;
mod lock;
mod record;
#[cfg(test)]
mod tests;
mod tree;

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use belljar_core::{Layer, LayerKind};

use crate::{Environment, InstallError, InstallErrorKind};

pub(crate) use lock::Lock;
pub(crate) use record::{Record, Request};
pub(crate) use tree::{Measured, measure, measure_and_tame};

const BUILDING: &str = "building-";
const REMOVING: &str = "removing-";

#[derive(Debug, Clone)]
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    pub(crate) fn at(root: PathBuf) -> Store {
        Store { root }
    }

    /// Whether anything was ever built in it.
    pub(crate) fn has_layers(&self) -> bool {
        let names = fs::read_dir(&self.root).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(|name| is_id(&name.to_string_lossy()))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes its directories. One that somebody else could write to is refused: what is in it gets into sandboxes.
    pub(crate) fn prepare(&self) -> Result<(), InstallError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o711);
        for directory in [self.root.clone(), self.root.join("requests"), self.root.join("locks")] {
            builder.create(&directory).map_err(|error| trouble("making the layers' store", &error))?;
        }
        let metadata =
            fs::symlink_metadata(&self.root).map_err(|error| trouble("looking at the layers' store", &error))?;
        let is_ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
        if !is_ours || metadata.permissions().mode() & 0o022 != 0 {
            return Err(InstallError::new(
                InstallErrorKind::Unavailable,
                "the directory of the layers' cache belongs to somebody else, or others may write to it; the operator has \
                 to give another one, or take their permission away",
            ));
        }
        Ok(())
    }

    pub(crate) fn lock_path(&self, name: &str) -> PathBuf {
        self.root.join("locks").join(name)
    }

    /// For changes that take no time.
    fn change(&self) -> io::Result<Lock> {
        Lock::wait(&self.lock_path("store"))
    }

    /// An empty directory to build in, that is ours until it is dropped.
    pub(crate) fn begin(&self) -> Result<Building, InstallError> {
        self.prepare()?;
        let name = format!("{BUILDING}{}", random()?);
        let made = self.change().and_then(|_changing| {
            let lock = Lock::try_take(&self.lock_path(&name))?;
            let lock = lock.ok_or_else(|| io::Error::other("a new lock is taken"))?;
            let path = self.root.join(&name);
            DirBuilder::new().mode(0o700).create(&path)?;
            Ok(Building { store: self.clone(), name: name.clone(), path, _lock: lock })
        });
        made.map_err(|error| {
            // The lock may be there without its directory.
            let _ = fs::remove_file(self.lock_path(&name));
            trouble("making a directory to build in", &error)
        })
    }

    /// The layer of this name, if it is there; it stays while the answer is held.
    pub(crate) fn hold(&self, id: &str) -> Option<Arc<Environment>> {
        if !is_id(id) {
            return None;
        }
        let file = File::open(self.record_path(id)).ok()?;
        // Whoever has it for himself is about to remove it.
        let held = Lock::try_share(file).ok()??;
        let is_there = held.metadata().ok()?.nlink() > 0 && fs::symlink_metadata(self.root.join(id)).ok()?.is_dir();
        let record = Record::read(&held).filter(|_| is_there)?;
        let layer = Layer { kind: LayerKind::Packages(record.kind), id: id.to_owned() };
        Some(Arc::new(Environment::new(layer, record, held)))
    }

    fn record_path(&self, id: &str) -> PathBuf {
        self.root.join(format!("{id}.json"))
    }

    pub(crate) fn request(&self, key: &str) -> Option<Request> {
        Request::read(&File::open(self.request_path(key)).ok()?)
    }

    pub(crate) fn remember(&self, key: &str, id: &str) -> Result<(), InstallError> {
        let request = Request { id: id.to_owned(), at: seconds(SystemTime::now()) };
        let done = self.write(&self.request_path(key), &request);
        done.map_err(|error| trouble("noting down what was built", &error))
    }

    fn request_path(&self, key: &str) -> PathBuf {
        self.root.join("requests").join(format!("{key}.json"))
    }

    /// As a whole or not at all.
    fn write(&self, path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
        let fresh = self.root.join("locks").join(format!("new-{}", random().map_err(io::Error::other)?));
        let done = serde_json::to_vec(value)
            .map_err(io::Error::other)
            .and_then(|bytes| fs::write(&fresh, bytes))
            .and_then(|()| fs::rename(&fresh, path));
        if done.is_err() {
            let _ = fs::remove_file(&fresh);
        }
        done
    }

    /// Takes a tree of this store out of everybody's sight, to be removed by [`Store::empty`].
    fn set_aside(&self, path: &Path) -> io::Result<PathBuf> {
        let aside = self.root.join(format!("{REMOVING}{}", random().map_err(io::Error::other)?));
        tree::make_own(path)?;
        fs::rename(path, &aside)?;
        Ok(aside)
    }

    fn empty(&self, aside: &Path) -> io::Result<()> {
        tree::empty(aside, &random().map_err(io::Error::other)?)?;
        fs::remove_dir(aside)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.set_aside(path).and_then(|aside| self.empty(&aside))
    }
}

/// A directory in which a layer is built. When it is dropped, all of it goes, but for what was published.
#[derive(Debug)]
pub(crate) struct Building {
    store: Store,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    _lock: Lock,
}

impl Building {
    /// Makes the directory `layer` in it a layer of the store, unless the very same is there; the answer is held.
    pub(crate) fn publish(&self, id: &str, record: &Record) -> Result<Arc<Environment>, InstallError> {
        if let Some(there) = self.store.hold(id) {
            return Ok(there);
        }
        let layer = self.path.join("layer");
        let done = (|| {
            if !fs::symlink_metadata(&layer)?.is_dir() {
                return Err(io::Error::other("what was built is no directory"));
            }
            // Else a host that loses its power may have a layer of empty files, for ever.
            rustix::fs::syncfs(File::open(self.store.root())?)?;
            let _changing = self.store.change()?;
            tree::make_own(&layer)?;
            let to = self.store.root.join(id);
            if fs::symlink_metadata(&to).is_ok() {
                // Without a record it is what a killed server left. It goes with the rest of this directory.
                tree::make_own(&to)?;
                fs::rename(&to, self.path.join("left"))?;
            }
            fs::rename(&layer, &to)?;
            self.store.write(&self.store.record_path(id), record).inspect_err(|_| {
                let _ = fs::rename(&to, &layer);
            })
        })();
        done.map_err(|error: io::Error| trouble("keeping what was built", &error))?;
        let lost = || InstallError::new(InstallErrorKind::Failed, "the layer was removed as soon as it was built");
        self.store.hold(id).ok_or_else(lost)
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next start: its lock is free then.
        if let Err(error) = self.store.remove(&self.path) {
            tracing::warn!(%error, directory = %self.name, "a directory of a build could not be removed");
            return;
        }
        let _ = fs::remove_file(self.store.lock_path(&self.name));
    }
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn random() -> Result<String, InstallError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes)
        .map_err(|error| InstallError::new(InstallErrorKind::Failed, format!("no random number: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An error of the host's disk, without its paths: the agent reads this.
pub(crate) fn trouble(doing: &str, error: &io::Error) -> InstallError {
    let full = error.kind() == io::ErrorKind::StorageFull || error.kind() == io::ErrorKind::QuotaExceeded;
    match full {
        true => InstallError::new(
            InstallErrorKind::NoSpace,
            format!("{doing}: the disk that holds the layers' cache is full"),
        ),
        false => InstallError::new(InstallErrorKind::Failed, format!("{doing}: {error}")),
    }
}
