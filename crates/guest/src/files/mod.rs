//! Files of the sandbox, read, written and listed from inside its walls.
//!
//! Nothing here checks where a path leads: the guest has no more rights than the code beside it. What it must not do is
//! hang, be surprised or grow, so every operation goes in bounded steps between which the agent listens to the host.

mod list;
mod read;
mod write;

use std::ffi::CString;
use std::os::fd::OwnedFd;

use belljar_core::wire::FromGuest;
use belljar_core::{FileError, FileErrorKind, Range, WORKSPACE};
use rustix::io::Errno;

use crate::changes::Known;
use crate::stream::{Gone, Stream};
use list::List;
use read::Read;
use write::Write;

/// File operations at once. Each holds a descriptor or two.
const OPERATIONS_MAX: usize = 64;

const HOME: &str = "/home/agent";

/// The kernel's `PATH_MAX` is 4096 with the NUL.
const PATH_MAX: usize = 4095;

/// Whether an operation has sent its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Over,
}

/// All file operations that go on.
#[derive(Debug, Default)]
pub(crate) struct Files {
    reads: Vec<Read>,
    lists: Vec<List>,
    writes: Vec<Writing>,
    /// Empty between uses: the memory of one chunk of content.
    chunk: Vec<u8>,
}

/// A write whose content still comes.
#[derive(Debug)]
struct Writing {
    id: u32,
    path: String,
    write: Write,
}

impl Files {
    pub(crate) fn read(&mut self, id: u32, path: String, range: Range, stream: &mut Stream) -> Result<(), Gone> {
        match self.admit().map_err(|kind| (kind, path.clone())).and_then(|()| Read::open(id, path, range)) {
            Ok(read) => self.reads.push(read),
            Err((kind, path)) => refuse(id, kind, &path, stream)?,
        }
        Ok(())
    }

    pub(crate) fn list(&mut self, id: u32, path: &str, depth: u32, max: u32, stream: &mut Stream) -> Result<(), Gone> {
        match self.admit().and_then(|()| List::open(id, path, depth, max)) {
            Ok(list) => self.lists.push(list),
            Err(kind) => refuse(id, kind, path, stream)?,
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, id: u32, path: String, stream: &mut Stream) -> Result<(), Gone> {
        match self.admit().and_then(|()| Write::open(id, &path)) {
            Ok(write) => self.writes.push(Writing { id, path, write }),
            Err(kind) => refuse(id, kind, &path, stream)?,
        }
        Ok(())
    }

    /// Content for a write. That of one that was refused, which the host may still be sending, goes nowhere.
    pub(crate) fn feed(&mut self, id: u32, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
        let Some(index) = self.writes.iter().position(|writing| writing.id == id) else { return Ok(()) };
        match self.writes[index].write.append(bytes) {
            Ok(()) => Ok(()),
            Err(kind) => refuse(id, kind, &self.writes.swap_remove(index).path, stream),
        }
    }

    pub(crate) fn end_input(&mut self, id: u32, known: &mut Known, stream: &mut Stream) -> Result<(), Gone> {
        let Some(index) = self.writes.iter().position(|writing| writing.id == id) else { return Ok(()) };
        let Writing { path, write, .. } = self.writes.swap_remove(index);
        match write.finish() {
            Ok(stamp) => {
                known.note(stamp);
                stream.send(&FromGuest::Done { id })
            }
            Err(kind) => refuse(id, kind, &path, stream),
        }
    }

    /// Forgets an operation; nothing more is said of it. A write leaves what was there.
    pub(crate) fn give_up(&mut self, id: u32) {
        self.reads.retain(|read| read.id() != id);
        self.lists.retain(|list| list.id() != id);
        self.writes.retain(|writing| writing.id != id);
    }

    /// Whether something can go on without the host.
    pub(crate) fn are_busy(&self) -> bool {
        !self.reads.is_empty() || !self.lists.is_empty()
    }

    pub(crate) fn owns(&self, id: u32) -> bool {
        self.writes.iter().any(|writing| writing.id == id)
    }

    /// One step of each operation, as far as there is room.
    pub(crate) fn advance(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let chunk = &mut self.chunk;
        retain(&mut self.reads, stream, |read, stream| read.advance(stream, chunk))?;
        retain(&mut self.lists, stream, List::advance)
    }

    fn admit(&self) -> Result<(), FileErrorKind> {
        let count = self.reads.len() + self.lists.len() + self.writes.len();
        if count < OPERATIONS_MAX { Ok(()) } else { Err(FileErrorKind::Failed) }
    }
}

fn retain<T>(
    operations: &mut Vec<T>,
    stream: &mut Stream,
    mut advance: impl FnMut(&mut T, &mut Stream) -> Result<Progress, Gone>,
) -> Result<(), Gone> {
    let mut index = 0;
    while index < operations.len() && stream.has_room() {
        match advance(&mut operations[index], stream)? {
            Progress::GoesOn => index += 1,
            Progress::Over => drop(operations.remove(index)),
        }
    }
    // The first one does not always go first, or none of the others would move while the host is slow.
    if !operations.is_empty() {
        operations.rotate_left(1);
    }
    Ok(())
}

fn refuse(id: u32, kind: FileErrorKind, path: &str, stream: &mut Stream) -> Result<(), Gone> {
    stream.send(&FromGuest::Refused { id, error: refusal(kind, path) })
}

/// A path as the kernel gets it; relative ones begin at the workspace.
pub(crate) fn absolute(path: &str) -> Result<CString, FileErrorKind> {
    if path.is_empty() {
        return Err(FileErrorKind::BadPath);
    }
    let whole = match path.strip_prefix('~') {
        // As a shell has it, for those who are used to one.
        Some(below) if below.is_empty() || below.starts_with('/') => format!("{HOME}{below}"),
        _ if path.starts_with('/') => path.to_owned(),
        _ => format!("{WORKSPACE}/{path}"),
    };
    if whole.len() > PATH_MAX {
        return Err(FileErrorKind::BadPath);
    }
    CString::new(whole).map_err(|_| FileErrorKind::BadPath)
}

/// Whether a file or directory is one of /proc, where the guest would see itself. One that cannot be told is.
fn is_of_the_kernel(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |found| found.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// The refusal of an operation on `path`, which is cut where no valid one can go on, so that answers stay small.
pub(crate) fn refusal(kind: FileErrorKind, path: &str) -> FileError {
    let end = path.floor_char_boundary(PATH_MAX);
    FileError { kind, path: path[..end].to_owned() }
}

pub(crate) fn kind_of(errno: Errno) -> FileErrorKind {
    match errno {
        Errno::NOENT => FileErrorKind::NotFound,
        Errno::NOTDIR => FileErrorKind::NotDirectory,
        Errno::ISDIR => FileErrorKind::IsDirectory,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => FileErrorKind::Denied,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => FileErrorKind::NoSpace,
        Errno::NAMETOOLONG => FileErrorKind::BadPath,
        // What opening a socket, or a device without a driver, says.
        Errno::NXIO | Errno::NODEV => FileErrorKind::NotRegular,
        _ => FileErrorKind::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_begin_at_the_workspace() {
        assert_eq!(absolute("a/b"), Ok(c"/workspace/a/b".to_owned()));
        assert_eq!(absolute("/etc/x"), Ok(c"/etc/x".to_owned()));
        assert_eq!(absolute("~/x"), Ok(c"/home/agent/x".to_owned()));
        assert_eq!(absolute("~x"), Ok(c"/workspace/~x".to_owned()));
    }

    #[test]
    fn paths_that_no_file_has_are_bad() {
        for path in [String::new(), "a\0b".to_owned(), "/".repeat(4096), "a".repeat(4090)] {
            assert_eq!(absolute(&path), Err(FileErrorKind::BadPath));
        }
        assert!(absolute(&"/".repeat(4095)).is_ok());
    }

    #[test]
    fn a_refusal_repeats_only_so_much_of_a_path() {
        let long = "ä".repeat(10_000);
        let error = refusal(FileErrorKind::BadPath, &long);
        assert!(error.path.len() <= PATH_MAX && long.starts_with(&error.path));
    }
}
