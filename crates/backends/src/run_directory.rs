//! The directory in which a server keeps what its sandboxes have on the host's disk for as long as they live, and how the next
//! server removes what one that was killed has left.
//!
//! ```text
//! <base>/lock            held while a server comes or looks for dead ones
//! <base>/<server>/lock   held by that server for as long as it lives
//! <base>/<server>/<id>/  one sandbox's
//! ```

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, geteuid, kill_process};

const LOCK: &str = "lock";

/// A server's own directory. Goes with it.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    /// Until this is closed nobody takes us for dead.
    _lock: File,
}

impl RunDirectory {
    /// Makes one below `base`, after removing those whose server is no more. `base` has to be this user's own.
    pub(crate) fn claim(base: &Path) -> io::Result<RunDirectory> {
        DirBuilder::new().recursive(true).mode(0o700).create(base)?;
        let base = base.canonicalize()?;
        let metadata = fs::symlink_metadata(&base)?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} belongs to somebody else, or others may write to it", base.display()),
            ));
        }
        let coming = File::create(base.join(LOCK))?;
        flock(&coming, FlockOperation::LockExclusive)?;
        remove_dead(&base);
        let path = base.join(random_name()?);
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = File::create(path.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(RunDirectory { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory for one sandbox, by a name that nobody can guess.
    pub(crate) fn add(&self) -> io::Result<PathBuf> {
        let path = self.path.join(random_name()?);
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// 64 bits, short for the sake of sockets, whose paths may have a hundred letters.
fn random_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Ends what servers that are no more have left running, and removes their directories.
fn remove_dead(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let is_dead = match File::open(path.join(LOCK)) {
            Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
            // Killed before it had one: nobody is between the two while we hold the base's.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if is_dead {
            end_processes_of(&path);
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Kills every process that was started with a path below this directory among its arguments. They should have died with
/// their server; a process number alone could be somebody else's by now.
fn end_processes_of(directory: &Path) {
    let Some(directory) = directory.to_str() else { return };
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let names_it = |argument: &[u8]| str::from_utf8(argument).is_ok_and(|text| names_a_path_below(text, directory));
        if arguments.split(|byte| *byte == 0).any(names_it) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// `/a/b` itself, what is below it, and `--option=` with either.
fn names_a_path_below(argument: &str, directory: &str) -> bool {
    let path = argument.split_once('=').filter(|_| argument.starts_with('-')).map_or(argument, |(_, value)| value);
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_a_dead_server_left_goes_and_what_a_living_one_has_stays() {
        let base = tempfile::tempdir().unwrap();
        let living = RunDirectory::claim(base.path()).unwrap();
        let kept = living.add().unwrap();
        let dead = base.path().join("0011223344556677");
        fs::create_dir_all(dead.join("s/state")).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        // Its name as an argument is all that tells the orphan.
        let waiting = |name: &Path| {
            Command::new("sh").arg("-c").arg("read word").arg(name).stdin(Stdio::piped()).spawn().unwrap()
        };
        let (mut orphan, mut other) = (waiting(&dead.join("s")), waiting(&kept));
        let next = RunDirectory::claim(base.path()).unwrap();
        assert!(!dead.exists() && kept.is_dir() && next.path().is_dir());
        let until = Instant::now() + Duration::from_secs(10);
        while orphan.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the orphan lives");
            std::thread::yield_now();
        }
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
        let gone = next.path().to_owned();
        drop(next);
        assert!(!gone.exists() && kept.is_dir());
    }

    #[test]
    fn only_paths_below_count() {
        assert!(names_a_path_below("--root=/a/b/c", "/a/b") && names_a_path_below("/a/b", "/a/b"));
        assert!(!names_a_path_below("/a/bc", "/a/b") && !names_a_path_below("x=/a/b", "/a/b"));
    }
}
