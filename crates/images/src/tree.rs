//! Directories by their descriptors. Each step of a path is opened by itself and without following links, so that nothing
//! that was put there can lead a later step somewhere else.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Ours to write, everybody's to read: a sandbox may be another user of the host.
pub(crate) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// A directory in another; fails for a link, wherever that leads.
pub(crate) fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())
}

/// What is there; of a link, that it is one.
pub(crate) fn kind_of(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<FileType>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The names in a directory, in their order.
pub(crate) fn names_in(directory: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort();
    Ok(names)
}

/// Removes what is there, if anything is, with all that is in it.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match kind_of(parent, name)? {
        None => Ok(()),
        Some(FileType::Directory) => {
            let directory = open_directory(parent, name)?;
            clear(directory.as_fd())?;
            Ok(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?)
        }
        Some(_) => Ok(rustix::fs::unlinkat(parent, name, AtFlags::empty())?),
    }
}

/// Removes all that is in a directory.
pub(crate) fn clear(directory: BorrowedFd<'_>) -> io::Result<()> {
    names_in(directory)?.iter().try_for_each(|name| remove(directory, name))
}

pub(crate) fn make_directory(parent: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(parent, name, DIRECTORY_MODE)?;
    // The mode given is less what the user's umask takes.
    rustix::fs::chmodat(parent, name, DIRECTORY_MODE, AtFlags::empty())
}

/// A name with one end of it shown, for an error.
pub(crate) fn shown(path: &[u8]) -> String {
    const SHOWN_MAX: usize = 120;
    let text = OsStr::from_bytes(path).to_string_lossy();
    let shown: String = text.chars().filter(|c| !c.is_control()).take(SHOWN_MAX).collect();
    format!("{shown:?}")
}
