//! A directory in which something is made, and that goes with whoever makes it unless it was renamed before.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, flock};

pub(crate) const BUILDING: &str = "building-";

/// Held by every build, and by nobody who removes.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Together with other builds, of other processes too. Waits for one that removes, which is short.
    pub(crate) fn shared(path: &Path) -> io::Result<Lock> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(Lock { _file: file })
    }

    /// Alone; `None` while anybody builds.
    pub(crate) fn alone(path: &Path) -> io::Result<Option<Lock>> {
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Building {
    directory: PathBuf,
    _lock: Lock,
}

impl Building {
    pub(crate) fn start(store: &Path, lock: Lock) -> io::Result<Building> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let directory = store.join(format!("{BUILDING}{}", crate::decode::hex(&random)));
        DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(Building { directory, _lock: lock })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// An empty directory that others may look into, once it is where they can.
    pub(crate) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(name);
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one that sweeps.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Puts what was made in its place. Somebody else may have made the same meanwhile: then his stays.
pub(crate) fn put(made: &Path, place: &Path) -> io::Result<()> {
    match fs::rename(made, place) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
                && place.is_dir() =>
        {
            fs::remove_dir_all(made)
        }
        other => other,
    }
}

/// Tells a blocking piece of work that whoever wanted it is gone.
#[derive(Debug, Default)]
pub(crate) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
