//! What a machine has built, on its way into the store of layers. It was made by somebody else's program, in a machine that is
//! no longer to be trusted: nothing is written but below the one directory, and no link is ever followed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use belljar_core::BackendError;
use belljar_core::wire::{Entry, EntryKind, FromKeeper};

use crate::setup;

/// No environment of packages has as many.
const ENTRIES_MAX: u64 = 500_000;

/// All directories' names together, which are kept until the end.
const NAMES_BYTES_MAX: usize = 32 << 20;

#[derive(Debug)]
pub(super) struct Built {
    directory: PathBuf,
    /// Those that were told, each of which is a real one. Nothing is written elsewhere.
    directories: HashSet<PathBuf>,
    open: Option<Open>,
    entries: u64,
    names_left: usize,
    bytes_left: u64,
}

/// A file whose content is on its way.
#[derive(Debug)]
struct Open {
    file: File,
    left: u64,
    modified: SystemTime,
}

impl Built {
    /// Into a directory that is ours alone; at most so many bytes.
    pub(super) fn new(directory: PathBuf, bytes_max: u64) -> Built {
        let directories = HashSet::from([PathBuf::new()]);
        let names_left = NAMES_BYTES_MAX;
        Built { directory, directories, open: None, entries: 0, names_left, bytes_left: bytes_max }
    }

    pub(super) fn take(&mut self, piece: FromKeeper) -> Result<(), BackendError> {
        match piece {
            FromKeeper::Entry(entry) if self.open.is_none() => self.enter(&entry),
            // Nothing at all would be taken again and again.
            FromKeeper::Content(bytes) if !bytes.is_empty() => self.add(&bytes),
            _ => Err(refused("it was sent out of turn")),
        }
    }

    fn enter(&mut self, entry: &Entry) -> Result<(), BackendError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(refused("there are too many files"));
        }
        let path = Path::new(OsStr::from_bytes(&entry.path));
        // Byte for byte: `link/` and `link/.` are the same path to us, and lead through the link for the kernel.
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)))
            && path.components().collect::<PathBuf>().as_os_str() == path.as_os_str();
        let parent = path.parent().filter(|_| is_plain).ok_or_else(|| refused("it has no proper name"))?;
        if !self.directories.contains(parent) || self.directories.contains(path) {
            return Err(refused("it is in no directory"));
        }
        let place = self.directory.join(path);
        let failed = |error: std::io::Error| setup("keeping what was built", &error);
        let there = place.symlink_metadata().ok();
        let modified =
            SystemTime::UNIX_EPOCH + Duration::new(entry.modified_s.max(0) as u64, entry.modified_ns % 1_000_000_000);
        if entry.kind == EntryKind::Directory {
            let names_left = self.names_left.checked_sub(entry.path.len());
            self.names_left = names_left.ok_or_else(|| refused("the names of its directories are too long"))?;
            match there {
                Some(there) if there.is_dir() => {}
                Some(_) => std::fs::remove_file(&place).and_then(|()| std::fs::create_dir(&place)).map_err(failed)?,
                None => std::fs::create_dir(&place).map_err(failed)?,
            }
            self.directories.insert(path.to_owned());
            return Ok(());
        }
        match there {
            Some(there) if there.is_dir() => std::fs::remove_dir_all(&place).map_err(failed)?,
            Some(_) => std::fs::remove_file(&place).map_err(failed)?,
            None => {}
        }
        match &entry.kind {
            EntryKind::Link(target) => symlink(OsStr::from_bytes(target), &place).map_err(failed),
            EntryKind::File(length) => {
                if *length > self.bytes_left {
                    return Err(refused("there is more of it than was allowed"));
                }
                self.bytes_left -= length;
                let file = File::create_new(&place).map_err(failed)?;
                // Nobody's but its owner's to write, and no rights of anybody's.
                file.set_permissions(Permissions::from_mode(entry.mode & 0o755 | 0o600)).map_err(failed)?;
                self.open = Some(Open { file, left: *length, modified });
                self.add(&[])
            }
            EntryKind::Directory => Ok(()),
        }
    }

    fn add(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        let Some(open) = &mut self.open else { return Err(refused("it was sent out of turn")) };
        let left =
            open.left.checked_sub(bytes.len() as u64).ok_or_else(|| refused("a file is longer than was told"))?;
        let failed = |error: std::io::Error| setup("keeping what was built", &error);
        open.file.write_all(bytes).map_err(failed)?;
        open.left = left;
        if left == 0 {
            // Python compares it with what it compiled.
            let _ = open.file.set_times(FileTimes::new().set_modified(open.modified));
            self.open = None;
        }
        Ok(())
    }
}

fn refused(why: &str) -> BackendError {
    setup("keeping what was built", &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: EntryKind) -> FromKeeper {
        FromKeeper::Entry(Entry { path: path.into(), kind, mode: 0o4777, modified_s: 1_000_000_000, modified_ns: 5 })
    }

    #[test]
    fn what_was_built_is_there_with_its_times() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("old"), "old").unwrap();
        let mut built = Built::new(directory.path().to_owned(), 100);
        for piece in [
            entry("lib", EntryKind::Directory),
            entry("lib/file", EntryKind::File(5)),
            FromKeeper::Content(b"bui".to_vec()),
            FromKeeper::Content(b"lt".to_vec()),
            entry("lib/link", EntryKind::Link(b"file".to_vec())),
            entry("old", EntryKind::File(0)),
        ] {
            built.take(piece).unwrap();
        }
        let file = directory.path().join("lib/file");
        let metadata = file.metadata().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"built");
        assert_eq!(metadata.modified().unwrap(), SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5));
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o755);
        assert_eq!(std::fs::read_link(directory.path().join("lib/link")).unwrap(), Path::new("file"));
        assert_eq!(std::fs::read(directory.path().join("old")).unwrap(), b"");
    }

    #[test]
    fn names_that_are_kept_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let mut built = Built::new(directory.path().to_owned(), 0);
        let mut below = String::new();
        for _ in 0..12 {
            below.push_str(&"d".repeat(250));
            built.take(entry(&below, EntryKind::Directory)).unwrap();
            below.push('/');
        }
        let told = (0..NAMES_BYTES_MAX / below.len() + 1)
            .map(|number| built.take(entry(&format!("{below}{number}"), EntryKind::Directory)))
            .find_map(Result::err);
        assert!(told.is_some_and(|error| error.to_string().contains("names")), "there is an end to it");
    }

    #[test]
    fn nothing_gets_out_of_the_directory() {
        let outside = tempfile::tempdir().unwrap();
        let link = EntryKind::Link(outside.path().as_os_str().as_bytes().to_vec());
        for pieces in [
            vec![entry("../x", EntryKind::File(0))],
            vec![entry("/x", EntryKind::File(0))],
            vec![entry("", EntryKind::Directory)],
            vec![entry("a/b", EntryKind::File(0))],
            vec![entry("a", link.clone()), entry("a/b", EntryKind::File(0))],
            vec![entry("a", link.clone()), entry("a/", EntryKind::Directory), entry("a/b", EntryKind::File(0))],
            vec![entry("a", link.clone()), entry("a/.", EntryKind::Directory), entry("a/b", EntryKind::File(0))],
            vec![entry("a", link.clone()), entry("./a/", EntryKind::File(0))],
            vec![entry("a", EntryKind::Directory), entry("a//b", EntryKind::File(0))],
            vec![entry("a", EntryKind::Directory), entry("a", link.clone())],
            vec![entry("a", EntryKind::File(3)), FromKeeper::Content(b"four".to_vec())],
            vec![entry("a", EntryKind::File(3)), entry("b", EntryKind::File(0))],
            vec![entry("a", EntryKind::File(3)), FromKeeper::Content(Vec::new())],
            vec![entry("a", EntryKind::File(101))],
            vec![FromKeeper::Content(b"x".to_vec())],
            vec![FromKeeper::Ready { version: 1 }],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let mut built = Built::new(directory.path().to_owned(), 100);
            let refused = pieces.clone().into_iter().any(|piece| built.take(piece).is_err());
            assert!(refused, "{pieces:?}");
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0, "{pieces:?}");
        }
    }
}
