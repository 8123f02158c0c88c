//! Puts entries where they belong. What was there before an entry of the same name is removed first, never written through.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::path::Parts;
use super::{hostile, unreadable, unwritten};
use crate::error::{ImageError, ImageErrorKind};
use crate::tree::{kind_of, make_directory, open_directory, remove, shown};

/// No file is older than this or newer than that: some tools cannot live with it.
const MODIFIED_MAX: u64 = u32::MAX as u64;

/// Of the names of all directories that no entry made, for each that there may be: they are kept and written down.
const IMPLIED_BYTES_EACH: usize = 160;

/// As the kernel has it for a link.
const TARGET_BYTES_MAX: usize = 4095;

#[derive(Debug)]
pub(super) struct Writer {
    root: OwnedFd,
    /// The directory that was written to last: most entries follow one another in one.
    last: Option<(Vec<u8>, OwnedFd)>,
    implied: BTreeSet<PathBuf>,
    implied_bytes: usize,
    implied_max: usize,
}

impl Writer {
    pub(super) fn new(root: OwnedFd, implied_max: usize) -> Writer {
        Writer { root, last: None, implied: BTreeSet::new(), implied_bytes: 0, implied_max }
    }

    pub(super) fn finish(self) -> BTreeSet<PathBuf> {
        self.implied
    }

    pub(super) fn directory(&mut self, parts: &Parts<'_>) -> Result<(), ImageError> {
        let (name, whole) = (parts.last(), parts.whole());
        self.implied.remove(&parts.path());
        let parent = self.parent(parts)?;
        if unwritten(&whole, kind_of(parent.as_fd(), name))? == Some(FileType::Directory) {
            return Ok(());
        }
        unwritten(&whole, remove(parent.as_fd(), name))?;
        unwritten(&whole, make_directory(parent.as_fd(), name))
    }

    pub(super) fn symlink(&mut self, parts: &Parts<'_>, target: &[u8]) -> Result<(), ImageError> {
        let whole = parts.whole();
        if target.is_empty() || target.len() > TARGET_BYTES_MAX || target.contains(&0) {
            return Err(hostile(&whole, "is a link to something that is no path"));
        }
        let parent = self.room_for(parts)?;
        unwritten(&whole, rustix::fs::symlinkat(OsStr::from_bytes(target), parent.as_fd(), parts.last()))
    }

    pub(super) fn hard_link(&mut self, parts: &Parts<'_>, target: &Parts<'_>) -> Result<(), ImageError> {
        let whole = parts.whole();
        if parts == target {
            return Ok(());
        }
        // Only to what is in this very layer, found step by step and without links.
        let from = self.existing(target).map_err(|_| hostile(&whole, "is a hard link to what is not there"))?;
        match unwritten(&whole, kind_of(from.as_fd(), target.last()))? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(_) => return Err(hostile(&whole, "is a hard link to no file")),
            None => return Err(hostile(&whole, "is a hard link to what is not there")),
        }
        let parent = self.room_for(parts)?;
        let linked = rustix::fs::linkat(from.as_fd(), target.last(), parent.as_fd(), parts.last(), AtFlags::empty());
        match linked {
            // What it was a link to went with what was in its way.
            Err(Errno::NOENT) => Err(hostile(&whole, "is a hard link to what is not there")),
            other => unwritten(&whole, other),
        }
    }

    pub(super) fn file(
        &mut self,
        parts: &Parts<'_>,
        is_program: bool,
        modified: u64,
        content: &mut impl Read,
        stop: &AtomicBool,
    ) -> Result<(), ImageError> {
        let whole = parts.whole();
        let parent = self.room_for(parts)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            unwritten(&whole, rustix::fs::openat(parent.as_fd(), parts.last(), flags, Mode::from_raw_mode(0o600)))?;
        let mut file = File::from(file);
        let mut buffer = [0; 64 * 1024];
        loop {
            let read = match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(&error)),
            };
            unwritten(&whole, file.write_all(&buffer[..read]))?;
            if stop.load(Ordering::Relaxed) {
                return Err(ImageError::new(ImageErrorKind::Cancelled, "the build was given up"));
            }
        }
        let mode = Mode::from_raw_mode(if is_program { 0o755 } else { 0o644 });
        unwritten(&whole, rustix::fs::fchmod(&file, mode))?;
        // Python trusts what it compiled ahead only if the source is as old as it was then.
        let time = Timespec { tv_sec: modified.min(MODIFIED_MAX) as i64, tv_nsec: 0 };
        unwritten(&whole, rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time }))
    }

    /// The directory it goes to, in which nothing has its name any more.
    fn room_for(&mut self, parts: &Parts<'_>) -> Result<OwnedFd, ImageError> {
        let parent = self.parent(parts)?;
        unwritten(&parts.whole(), remove(parent.as_fd(), parts.last()))?;
        Ok(parent)
    }

    /// The directory it goes to, made with those above it if they are not there.
    fn parent(&mut self, parts: &Parts<'_>) -> Result<OwnedFd, ImageError> {
        let path = parts.parents().join(&b'/');
        if let Some((last, directory)) = &self.last
            && *last == path
        {
            return unwritten(&path, directory.try_clone());
        }
        let mut at = unwritten(&path, self.root.try_clone())?;
        let mut walked = PathBuf::new();
        for part in parts.parents() {
            let name = OsStr::from_bytes(part);
            walked.push(name);
            at = match open_directory(at.as_fd(), name) {
                Ok(directory) => directory,
                Err(Errno::NOENT) => {
                    // A tar of a few bytes can be a great many of them, and long ones.
                    self.implied_bytes += walked.as_os_str().len();
                    let bytes_max = self.implied_max * IMPLIED_BYTES_EACH;
                    if self.implied_bytes > bytes_max || self.implied.len() >= self.implied_max {
                        let words = "it has too many files in directories that it does not have";
                        return Err(ImageError::new(ImageErrorKind::TooLarge, words));
                    }
                    unwritten(&path, make_directory(at.as_fd(), name))?;
                    self.implied.insert(walked.clone());
                    unwritten(&path, open_directory(at.as_fd(), name))?
                }
                Err(Errno::LOOP | Errno::NOTDIR) => {
                    let words = format!("is below {}, which is no directory", shown(walked.as_os_str().as_bytes()));
                    return Err(hostile(&parts.whole(), &words));
                }
                Err(errno) => return unwritten(&path, Err(errno)),
            };
        }
        self.last = Some((path.clone(), unwritten(&path, at.try_clone())?));
        Ok(at)
    }

    /// The directory that it is in, which has to be there.
    fn existing(&self, parts: &Parts<'_>) -> io::Result<OwnedFd> {
        let mut at = self.root.try_clone()?;
        for part in parts.parents() {
            at = open_directory(at.as_fd(), OsStr::from_bytes(part))?;
        }
        Ok(at)
    }
}
