//! Replacing a file as a whole: the content goes into a new one beside it, which takes its name at the end.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use belljar_core::FileErrorKind;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{absolute, kind_of};
use crate::changes::Stamp;

/// How often to try for a name that is free. The names are ours, so one try is the rule.
const TRIES: u32 = 100;

#[derive(Debug)]
pub(super) struct Write {
    directory: OwnedFd,
    name: CString,
    file: OwnedFd,
    temporary: CString,
    /// Once it has the target's name there is nothing to take away.
    named: bool,
}

impl Write {
    pub(super) fn open(id: u32, path: &str) -> Result<Write, FileErrorKind> {
        let whole = absolute(path)?;
        let (parent, name) = split(&whole)?;
        let directory = open_parent(&parent)?;
        target_mode(&directory, &name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for attempt in 0..TRIES {
            let temporary = CString::new(format!(".belljar-{id}-{attempt}")).map_err(|_| FileErrorKind::Failed)?;
            match rustix::fs::openat(&directory, &temporary, flags, Mode::from_raw_mode(0o600)) {
                Ok(file) => return Ok(Write { directory, name, file, temporary, named: false }),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(kind_of(errno)),
            }
        }
        Err(FileErrorKind::Failed)
    }

    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<(), FileErrorKind> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.file, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(kind_of(errno)),
            }
        }
        Ok(())
    }

    /// Gives the file its name. A reader of the target sees the old content or the new, and nothing between. Returns what
    /// tells this version from others.
    pub(super) fn finish(mut self) -> Result<Option<Stamp>, FileErrorKind> {
        let mode = target_mode(&self.directory, &self.name)?;
        rustix::fs::fchmod(&self.file, mode).map_err(kind_of)?;
        rustix::fs::renameat(&self.directory, &self.temporary, &self.directory, &self.name).map_err(kind_of)?;
        self.named = true;
        Ok(rustix::fs::fstat(&self.file).ok().map(|stat| Stamp::of(&stat)))
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.named {
            let _ = rustix::fs::unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

/// The directory and the name in it. A path that ends in no name can only be a directory's.
fn split(whole: &CStr) -> Result<(CString, CString), FileErrorKind> {
    let bytes = whole.to_bytes();
    let end = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = bytes.split_at(end);
    if matches!(name, b"" | b"." | b"..") {
        let is_directory = rustix::fs::stat(whole).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        return Err(if is_directory { FileErrorKind::IsDirectory } else { FileErrorKind::BadPath });
    }
    if name.len() > 255 {
        return Err(FileErrorKind::BadPath);
    }
    let owned = |bytes: &[u8]| CString::new(bytes).map_err(|_| FileErrorKind::BadPath);
    Ok((owned(parent)?, owned(name)?))
}

/// Opens a directory, making it and those above it where they are missing.
fn open_parent(parent: &CStr) -> Result<OwnedFd, FileErrorKind> {
    let open = || rustix::fs::open(parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {}
        outcome => return outcome.map_err(kind_of),
    }
    let bytes = parent.to_bytes();
    let slashes = bytes.iter().enumerate().filter(|&(index, &byte)| byte == b'/' && index > 0);
    for (slash, _) in slashes {
        match rustix::fs::mkdir(&bytes[..slash], Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(kind_of(errno)),
        }
    }
    open().map_err(kind_of)
}

/// The mode that the new file takes from the one it replaces: that file's own, without the set-id bits.
fn target_mode(directory: &OwnedFd, name: &CStr) -> Result<Mode, FileErrorKind> {
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Mode::from_raw_mode(0o644)),
        Err(errno) => return Err(kind_of(errno)),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Mode::from_raw_mode(stat.st_mode & 0o777)),
        // Replaced, not followed.
        FileType::Symlink => Ok(Mode::from_raw_mode(0o644)),
        FileType::Directory => Err(FileErrorKind::IsDirectory),
        _ => Err(FileErrorKind::NotRegular),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        let (parent, name) = split(c"/workspace/a/b.txt").unwrap();
        assert_eq!((parent.as_c_str(), name.as_c_str()), (c"/workspace/a/", c"b.txt"));
        assert_eq!(split(c"/b").unwrap().0.as_c_str(), c"/");
    }

    #[test]
    fn a_path_without_a_name_is_refused_for_what_it_is() {
        for path in [c"/tmp/", c"/", c"/tmp/.", c"/tmp/.."] {
            assert_eq!(split(path), Err(FileErrorKind::IsDirectory), "{path:?}");
        }
        assert_eq!(split(c"/nowhere/at/all/"), Err(FileErrorKind::BadPath));
    }
}
