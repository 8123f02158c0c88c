//! What of this host must not be seen from inside: a file, a listening socket, processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use tempfile::NamedTempFile;

const CANARY: &str = "belljar-canary-";
/// Where there is no directory of temporary files, or not the one that was named.
const USUAL: &str = "/tmp";
/// Of a directory that anybody may fill, no more is looked at.
const ENTRIES_MAX: usize = 100_000;

/// Each lasts as long as this, and leaves nothing. The canary of a server that was killed goes with [`sweep`].
#[derive(Debug)]
pub(super) struct Facts {
    /// Readable for everyone, so that only a wall is in the way.
    canary: NamedTempFile,
    /// What the canary says; nobody could guess it.
    pub(super) song: String,
    /// Nobody accepts: a connection that is made at all is one too many.
    listener: TcpListener,
    /// The command lines of this server and of the host's first process.
    pub(super) lines: Vec<Vec<u8>>,
}

impl Facts {
    pub(super) fn look() -> io::Result<Facts> {
        // A directory of temporary files that was named for a while, and is gone, is no reason to run nothing.
        let mut canary = canary_in(&std::env::temp_dir()).or_else(|_| canary_in(Path::new(USUAL)))?;
        canary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        // The random part of a name that did not exist before.
        let name = canary.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let song = format!("{name}-{:x}", std::process::id());
        canary.write_all(song.as_bytes())?;
        canary.flush()?;
        let lines = ["self", "1"].map(|process| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default());
        Ok(Facts {
            canary,
            song,
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            lines: lines.into_iter().filter(|line| !line.is_empty()).collect(),
        })
    }

    pub(super) fn path(&self) -> String {
        self.canary.path().to_string_lossy().into_owned()
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }
}

/// Locked, so that nobody takes it for a dead server's.
fn canary_in(directory: &Path) -> io::Result<NamedTempFile> {
    let canary = tempfile::Builder::new().prefix(CANARY).tempfile_in(directory)?;
    flock(canary.as_file(), FlockOperation::NonBlockingLockExclusive)?;
    // One that was swept away in between would be found by no probe, however large the hole.
    if canary.as_file().metadata()?.nlink() == 0 {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it was removed at once"));
    }
    Ok(canary)
}

/// Removes canaries of servers of this user's that are no more: what is killed removes nothing.
pub(super) fn sweep() {
    sweep_in(&std::env::temp_dir());
    sweep_in(Path::new(USUAL));
}

fn sweep_in(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().take(ENTRIES_MAX).flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(CANARY)) {
        if let Ok(Some(_lock)) = abandoned(&entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file of our own whose server does not live, locked; anybody could have made something else by this name.
fn abandoned(path: &Path) -> io::Result<Option<File>> {
    let careful = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(careful).open(path)?;
    let metadata = file.metadata()?;
    let is_ours = metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw();
    let is_free = is_ours && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_free.then_some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_server_left_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("belljar-canary-dead"), "song").unwrap();
        fs::write(path("another-file"), "").unwrap();
        std::os::unix::fs::symlink(path("another-file"), path("belljar-canary-link")).unwrap();
        fs::create_dir(path("belljar-canary-folder")).unwrap();
        // Opening one waits for a writer, unless it is done with care.
        rustix::fs::mkfifoat(rustix::fs::CWD, path("belljar-canary-fifo"), rustix::fs::Mode::RUSR).unwrap();
        let living = canary_in(folder.path()).unwrap();
        sweep_in(folder.path());
        assert!(!path("belljar-canary-dead").exists() && living.path().exists());
        for name in ["another-file", "belljar-canary-link", "belljar-canary-folder", "belljar-canary-fifo"] {
            assert!(path(name).symlink_metadata().is_ok(), "{name}");
        }
        // The lock goes with the process, however that ends.
        let (file, left) = living.keep().unwrap();
        drop(file);
        sweep_in(folder.path());
        assert!(!left.exists());
    }

    #[test]
    fn a_directory_that_is_not_there_is_nothing_to_sweep() {
        sweep_in(Path::new("/nowhere/at/all"));
    }
}
