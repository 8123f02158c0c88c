//! Trees that hostile code wrote: measured and removed, without following a link, whatever their depth and permissions.

use std::collections::HashSet;
use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

/// What is in a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    /// There was more, deeper than anything that is meant well.
    pub(crate) incomplete: bool,
}

const ENTRY_BYTES: u64 = 4096;

/// Levels below the one that is measured. Each costs a descriptor.
const DEPTH_MAX: usize = 64;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Counts what a tree takes on disk; it may change meanwhile. Stops past `files_max` files.
pub(crate) fn measure(path: &Path, files_max: u64) -> io::Result<Measured> {
    look(path, files_max, |_, _, _| Ok(()))
}

/// The same of a tree that nobody writes to any more, and takes away what its modes would give to others: to run as whom
/// it belongs to, and to change it.
pub(crate) fn measure_and_tame(path: &Path, files_max: u64) -> io::Result<Measured> {
    look(path, files_max, |directory, name, stat| {
        let mode = stat.st_mode & 0o7777;
        if mode & WILD == 0 || FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok(());
        }
        let found =
            rustix::fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        fs::set_permissions(format!("/proc/self/fd/{}", found.as_raw_fd()), Permissions::from_mode(mode & !WILD))
    })
}

/// Set-user-ID, set-group-ID, sticky; to be written by others than the owner.
const WILD: u32 = 0o7022;

fn look(
    path: &Path,
    files_max: u64,
    mut each: impl FnMut(BorrowedFd<'_>, &CStr, &Stat) -> io::Result<()>,
) -> io::Result<Measured> {
    let mut measured = Measured::default();
    let mut seen = HashSet::new();
    let mut levels = vec![Dir::new(rustix::fs::open(path, DIRECTORY, Mode::empty())?)?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.read() else {
            levels.pop();
            continue;
        };
        let entry = entry?;
        if is_self_or_parent(entry.file_name()) {
            continue;
        }
        let directory = level.fd()?;
        let Ok(stat) = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        each(directory, entry.file_name(), &stat)?;
        measured.files += 1;
        // A file with two names is there once.
        if stat.st_nlink < 2 || seen.insert((stat.st_dev, stat.st_ino)) {
            // An empty one takes room too, and a disk has so many and no more.
            measured.bytes += (u64::try_from(stat.st_blocks).unwrap_or(0) * 512).max(ENTRY_BYTES);
        }
        if measured.files > files_max {
            measured.incomplete = true;
            return Ok(measured);
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            match rustix::fs::openat(directory, entry.file_name(), DIRECTORY, Mode::empty()) {
                Ok(below) if levels.len() < DEPTH_MAX => levels.push(Dir::new(below)?),
                Ok(_) => measured.incomplete = true,
                // Gone meanwhile, or closed to us by its own mode: that is told when the build is done.
                Err(rustix::io::Errno::NOENT) => {}
                Err(_) => measured.incomplete = true,
            }
        }
    }
    Ok(measured)
}

/// Makes a directory ours to read, change and move.
pub(super) fn make_own(path: &Path) -> io::Result<()> {
    own(rustix::fs::CWD, path).map(drop)
}

/// Opens a directory and takes all permissions on it. By its descriptor: nothing that it is exchanged for is touched.
fn own(within: impl AsFd, name: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let found = rustix::fs::openat(within, name, DIRECTORY.union(OFlags::PATH), Mode::empty())?;
    let by_number = format!("/proc/self/fd/{}", found.as_raw_fd());
    fs::set_permissions(&by_number, Permissions::from_mode(0o755))?;
    Ok(rustix::fs::openat(&found, ".", DIRECTORY, Mode::empty())?)
}

/// Removes all that is in a directory. What is deeper is moved up to it before it is emptied, so that no depth is too
/// deep, for descriptors, for the stack, or for the length of a path. `mark` is a name that nothing in there can have.
pub(super) fn empty(bin: &Path, mark: &str) -> io::Result<()> {
    let top = own(rustix::fs::CWD, bin)?;
    let mut moved: u64 = 0;
    loop {
        let mut count = 0;
        for entry in Dir::read_from(&top)? {
            let entry = entry?;
            let name = entry.file_name();
            if is_self_or_parent(name) {
                continue;
            }
            count += 1;
            if is_directory(&top, name)? {
                empty_one(&own(&top, name)?, &top, mark, &mut moved)?;
                rustix::fs::unlinkat(&top, name, AtFlags::REMOVEDIR)?;
            } else {
                rustix::fs::unlinkat(&top, name, AtFlags::empty())?;
            }
        }
        if count == 0 {
            return Ok(());
        }
    }
}

fn empty_one(directory: &OwnedFd, top: &OwnedFd, mark: &str, moved: &mut u64) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if is_self_or_parent(name) {
            continue;
        }
        if is_directory(directory, name)? {
            // Without this an ordinary user could not move it.
            own(directory, name)?;
            rustix::fs::renameat(directory, name, top, format!("{mark}-{moved}"))?;
            *moved += 1;
        } else {
            rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn is_directory(within: &OwnedFd, name: &CStr) -> io::Result<bool> {
    let stat = rustix::fs::statat(within, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn is_self_or_parent(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
