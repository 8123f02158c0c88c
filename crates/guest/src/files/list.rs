//! Listing a directory and those below it, level by level, so that a listing which is cut short has the upper levels.
//!
//! Nothing recurses, and one directory is open at a time; the directories still to be read wait as paths.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::OwnedFd;

use belljar_core::wire::FromGuest;
use belljar_core::{Entry, FileErrorKind, FileKind, Metadata};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{PATH_MAX, Progress, absolute, is_of_the_kernel, kind_of};
use crate::stream::{Gone, Stream};

/// Entries at most, whatever the host asks for.
const ENTRIES_MAX: usize = 10_000;

/// Bytes of paths at most: ten thousand nested directories would have a hundred million.
const PATHS_MAX: usize = 4 * 1024 * 1024;

/// Names read, or entries looked at, between two looks at the host.
const STEP: usize = 256;

/// Bytes of paths in one frame, roughly.
const FRAME_PATHS: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct List {
    id: u32,
    root: Vec<u8>,
    depth: u32,
    entries_left: usize,
    paths_left: usize,
    truncated: bool,
    /// Directories to be read: the path below the root, and its level.
    waiting: VecDeque<(Vec<u8>, u32)>,
    open: Option<Open>,
}

/// The directory that is being read: first all its names, then what each of them is.
#[derive(Debug)]
struct Open {
    fd: OwnedFd,
    reader: Option<Dir>,
    below: Vec<u8>,
    level: u32,
    /// In order. Never more than there are entries left, so that those which are dropped are the last.
    names: BTreeSet<Vec<u8>>,
}

impl List {
    pub(super) fn open(id: u32, path: &str, depth: u32, entries_max: u32) -> Result<List, FileErrorKind> {
        let root = absolute(path)?;
        let mut list = List {
            id,
            root: root.into_bytes(),
            depth: depth.max(1),
            entries_left: (entries_max as usize).min(ENTRIES_MAX),
            paths_left: PATHS_MAX,
            truncated: false,
            waiting: VecDeque::new(),
            open: None,
        };
        let open = list.open_directory(Vec::new(), 1).map_err(kind_of)?;
        if is_of_the_kernel(&open.fd) {
            return Err(FileErrorKind::Denied);
        }
        list.open = Some(open);
        Ok(list)
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    fn open_directory(&self, below: Vec<u8>, level: u32) -> rustix::io::Result<Open> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut path = self.root.clone();
        if !below.is_empty() {
            // What the caller named may be a link; what was found below was a directory, and is not followed elsewhere.
            flags |= OFlags::NOFOLLOW;
            path.push(b'/');
            path.extend_from_slice(&below);
        }
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let reader = Dir::read_from(&fd)?;
        Ok(Open { fd, reader: Some(reader), below, level, names: BTreeSet::new() })
    }

    /// Does one step, and at the end sends the answer.
    pub(super) fn advance(&mut self, stream: &mut Stream) -> Result<Progress, Gone> {
        let Some(mut open) = self.open.take() else { return self.next_directory(stream) };
        if open.reader.is_some() {
            self.read_names(&mut open);
            self.open = Some(open);
            return Ok(Progress::GoesOn);
        }
        let entries = self.look_at_names(&mut open);
        if !entries.is_empty() {
            stream.send(&FromGuest::Entries { id: self.id, entries })?;
        }
        self.open = (!open.names.is_empty()).then_some(open);
        Ok(Progress::GoesOn)
    }

    fn next_directory(&mut self, stream: &mut Stream) -> Result<Progress, Gone> {
        let Some((below, level)) = self.waiting.pop_front() else {
            stream.send(&FromGuest::Listed { id: self.id, truncated: self.truncated })?;
            return Ok(Progress::Over);
        };
        // One that is gone by now, or may not be read, is listed, and nothing below it.
        self.open = self.open_directory(below, level).ok();
        Ok(Progress::GoesOn)
    }

    fn read_names(&mut self, open: &mut Open) {
        for _ in 0..STEP {
            let Some(Ok(entry)) = open.reader.as_mut().and_then(Dir::read) else {
                open.reader = None;
                return;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            open.names.insert(name.to_vec());
            if open.names.len() > self.entries_left {
                open.names.pop_last();
                self.truncated = true;
            }
            if self.truncated && self.entries_left == 0 {
                // All that could still be found out is known.
                self.waiting.clear();
                open.reader = None;
                return;
            }
        }
    }

    fn look_at_names(&mut self, open: &mut Open) -> Vec<Entry> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < STEP && bytes < FRAME_PATHS {
            let Some(name) = open.names.pop_first() else { break };
            // Removed since its name was read.
            let Ok(stat) = rustix::fs::statat(&open.fd, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let mut path = open.below.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            if path.len() > self.paths_left {
                self.truncated = true;
                self.waiting.clear();
                open.names.clear();
                break;
            }
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => FileKind::File,
                FileType::Directory => FileKind::Directory,
                FileType::Symlink => FileKind::Symlink,
                _ => FileKind::Other,
            };
            bytes += path.len();
            self.paths_left -= path.len();
            self.entries_left -= 1;
            let metadata = Metadata { kind, size: stat.st_size as u64, modified: stat.st_mtime };
            entries.push(Entry { path: String::from_utf8_lossy(&path).into_owned(), metadata });
            if kind == FileKind::Directory && open.level < self.depth {
                self.enqueue(path, open.level + 1);
            }
        }
        entries
    }

    fn enqueue(&mut self, below: Vec<u8>, level: u32) {
        // Deeper than any path reaches: nobody could name what is there.
        if self.root.len() + 1 + below.len() > PATH_MAX {
            self.truncated = true;
        } else {
            self.waiting.push_back((below, level));
        }
    }
}
