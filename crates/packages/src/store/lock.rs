//! Locks that other servers of this user see, and that end with whoever holds them, however he ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;

/// A lock that is held for oneself.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// `None` where somebody has it.
    pub(crate) fn try_take(path: &Path) -> io::Result<Option<Lock>> {
        let file = open(path)?;
        Ok(taken(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(Lock { _file: file }))
    }

    /// For those that are held for no time only.
    pub(crate) fn wait(path: &Path) -> io::Result<Lock> {
        let file = open(path)?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        Ok(Lock { _file: file })
    }

    /// For those that may be held long. Asked again and again: a thread that waits in the kernel could not be called back.
    /// `waiting` is told once, if it has to be waited for.
    pub(crate) async fn take(path: &Path, waiting: impl FnOnce()) -> io::Result<Lock> {
        const AGAIN: Duration = Duration::from_millis(50);
        if let Some(lock) = Lock::try_take(path)? {
            return Ok(lock);
        }
        waiting();
        loop {
            tokio::time::sleep(AGAIN).await;
            if let Some(lock) = Lock::try_take(path)? {
                return Ok(lock);
            }
        }
    }

    /// The file with a lock that others may have too, or `None` where one has it for himself.
    pub(crate) fn try_share(file: File) -> io::Result<Option<File>> {
        Ok(taken(&file, FlockOperation::NonBlockingLockShared)?.then_some(file))
    }

    /// Whether nobody has this file; then it is ours.
    pub(crate) fn try_own(file: &File) -> io::Result<bool> {
        taken(file, FlockOperation::NonBlockingLockExclusive)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

fn taken(file: &File, how: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, how)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
