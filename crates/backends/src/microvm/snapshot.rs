//! Snapshots of machines that have just come up, so that a sandbox is a copy of one and not a boot. They are this user's
//! alone, and each fits only what it was made with: its name has all of that in it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_core::BackendError;
use rustix::fs::{FlockOperation, flock};

use super::disk::private;
use crate::setup;

/// What is copied shares a hash secret and where things lie in memory, so that one with a program in it is made anew now
/// and then: what code in one sandbox learns of that is of no use in another for long.
const AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// Past this, those that were not used for longest go.
const SNAPSHOTS_MAX: usize = 12;

const UNFINISHED: &str = "unfinished-";

/// Written last: a directory without it was never finished.
const WHOLE: &str = "whole";

#[derive(Debug)]
pub(super) struct Snapshots {
    directory: PathBuf,
    /// One of a name is made at a time.
    making: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// The name of a snapshot of just this.
pub(super) fn name_of(what: &impl Hash) -> String {
    let hash = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        what.hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016x}{:016x}", hash(0), hash(1))
}

impl Snapshots {
    pub(super) fn new(directory: PathBuf) -> Result<Snapshots, BackendError> {
        private(&directory)?;
        let snapshots = Snapshots { directory, making: Mutex::default() };
        snapshots.remove_unfinished();
        Ok(snapshots)
    }

    /// Where a snapshot is, if it is there and whole. It then counts as used just now.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        let directory = self.directory.join(name);
        let whole = std::fs::File::options().write(true).open(directory.join(WHOLE)).ok()?;
        let _ = whole.set_modified(SystemTime::now());
        Some(directory)
    }

    /// Whether it is there, and young enough.
    pub(super) fn is_young(&self, name: &str) -> bool {
        // Nothing is made in it after its end, so that this is when that was.
        let made = std::fs::metadata(self.directory.join(name)).and_then(|found| found.modified());
        made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age < AGE_MAX))
    }

    /// To be held by whoever makes the one of this name.
    pub(super) fn turn(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        making.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(making.entry(name.to_owned()).or_default())
    }

    /// An empty directory to make one in.
    pub(super) fn begin(&self, name: &str) -> Result<Unfinished, BackendError> {
        let path = self.directory.join(format!("{UNFINISHED}{}-{name}", crate::unique()));
        private(&path)?;
        let held = std::fs::File::open(&path).map_err(|error| setup("beginning a snapshot", &error))?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)
            .map_err(|error| setup("beginning a snapshot", &error))?;
        Ok(Unfinished { path, to: self.directory.join(name), _held: held })
    }

    /// Makes it known by its name, and lets the oldest go.
    pub(super) fn finish(&self, unfinished: Unfinished) -> Result<(), BackendError> {
        let failed = |error: std::io::Error| setup("keeping a snapshot", &error);
        std::fs::write(unfinished.path.join(WHOLE), "").map_err(failed)?;
        let _ = std::fs::remove_dir_all(&unfinished.to);
        std::fs::rename(&unfinished.path, &unfinished.to).map_err(failed)?;
        self.forget_oldest();
        Ok(())
    }

    /// One that turned out not to work is not tried again.
    pub(super) fn forget(&self, name: &str) {
        let _ = std::fs::remove_dir_all(self.directory.join(name));
    }

    fn forget_oldest(&self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let used = |path: &PathBuf| std::fs::metadata(path.join(WHOLE)).and_then(|whole| whole.modified()).ok();
        let mut all: Vec<(SystemTime, PathBuf)> =
            entries.filter_map(Result::ok).filter_map(|entry| Some((used(&entry.path())?, entry.path()))).collect();
        all.sort();
        let many = all.len().saturating_sub(SNAPSHOTS_MAX);
        for (_, path) in all.into_iter().take(many) {
            let _ = std::fs::remove_dir_all(path);
        }
    }

    /// Those of servers that ended while they made one: nobody holds them any more.
    fn remove_unfinished(&self) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.filter_map(Result::ok) {
            if !entry.file_name().as_bytes().starts_with(UNFINISHED.as_bytes()) {
                continue;
            }
            let held = std::fs::File::open(entry.path());
            if held.is_ok_and(|held| flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A snapshot on its way, removed unless it was finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) path: PathBuf,
    to: PathBuf,
    /// By which other servers, also those of other containers, see that somebody is at it.
    _held: std::fs::File,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_finished_is_found_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::new(directory.path().join("snapshots")).unwrap();
        drop(snapshots.begin("a").unwrap());
        assert!(snapshots.find("a").is_none());
        for number in 0..=SNAPSHOTS_MAX {
            let unfinished = snapshots.begin(&format!("{number:02}")).unwrap();
            std::fs::write(unfinished.path.join("state"), "x").unwrap();
            snapshots.finish(unfinished).unwrap();
            let whole = directory.path().join(format!("snapshots/{number:02}/{WHOLE}"));
            let when = SystemTime::UNIX_EPOCH + Duration::from_secs(number as u64);
            std::fs::File::options().write(true).open(whole).unwrap().set_modified(when).unwrap();
        }
        let unfinished = snapshots.begin("last").unwrap();
        snapshots.finish(unfinished).unwrap();
        assert!(snapshots.find("00").is_none() && snapshots.find("12").is_some() && snapshots.find("last").is_some());
        assert!(snapshots.is_young("last") && !snapshots.is_young("00"));
        let old = SystemTime::now() - AGE_MAX;
        std::fs::File::open(directory.path().join("snapshots/last")).unwrap().set_modified(old).unwrap();
        assert!(!snapshots.is_young("last") && snapshots.find("last").is_some());
    }

    #[test]
    fn what_a_dead_server_left_goes() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("snapshots");
        std::fs::create_dir_all(place.join("unfinished-999999999-x")).unwrap();
        let snapshots = Snapshots::new(place.clone()).unwrap();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0);
        let _under_way = snapshots.begin("y").unwrap();
        let _another = Snapshots::new(place.clone()).unwrap();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 1, "but what is being made stays");
    }

    #[test]
    fn names_differ_with_what_they_are_of() {
        assert_ne!(name_of(&("a", 1)), name_of(&("a", 2)));
        assert_eq!(name_of(&("a", 1)), name_of(&("a", 1)));
    }
}
