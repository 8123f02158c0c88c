//! Which files of the workspace a run made or changed, found by a look at all of them when it is over.
//!
//! The time that counts is that of the inode's last change, which the kernel alone sets: no code can hide a change or
//! feign one. What it does not say is who made it: runs side by side may be told of each other's files.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use belljar_core::wire::FromGuest;
use belljar_core::{Changes, Entry, FileKind, Metadata, WORKSPACE};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::stream::{Gone, Stream};
use crate::sys;

/// Entries told at most, whatever the host asks for, and bytes of their paths: they go in one frame, where a byte that is
/// not UTF-8 takes three.
const TOLD_MAX: usize = 1000;
const TOLD_BYTES_MAX: usize = 256 * 1024;

/// Where a look ends in a workspace that is too large for it. What it then tells is what it has seen.
const LOOKED_MAX: usize = 20_000;
const WAITING_BYTES_MAX: usize = 1024 * 1024;
const PATIENCE: Duration = Duration::from_millis(50);

/// Entries between two looks at the host.
const STEP: usize = 256;

/// Files remembered at most because they are as new as the clock can tell.
const KNOWN_MAX: usize = 1024;

/// One version of a file, as far as it can be told from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    changed: Duration,
    inode: u64,
    size: u64,
}

impl Stamp {
    pub(crate) fn of(stat: &Stat) -> Stamp {
        let (seconds, nanoseconds) = (u64::try_from(stat.st_ctime).unwrap_or(0), stat.st_ctime_nsec as u32);
        Stamp { changed: Duration::new(seconds, nanoseconds), inode: stat.st_ino, size: stat.st_size as u64 }
    }
}

/// Files that are known already and as new as the clock can tell, so that a run which starts now is not told to have changed
/// them. The clock goes in ticks of some milliseconds, and stamps can be ahead of it.
#[derive(Debug, Default)]
pub(crate) struct Known(Vec<Stamp>);

impl Known {
    pub(crate) fn note(&mut self, files: impl IntoIterator<Item = Stamp>) {
        let now = sys::file_clock();
        self.0.retain(|file| file.changed >= now);
        let room = KNOWN_MAX - self.0.len();
        self.0.extend(files.into_iter().filter(|file| file.changed >= now).take(room));
    }

    /// Those that a run which starts `now` cannot have changed, in order.
    fn at(&self, now: Duration) -> Vec<Stamp> {
        let mut files: Vec<Stamp> = self.0.iter().copied().filter(|file| file.changed >= now).collect();
        files.sort_unstable();
        files
    }
}

/// What is to be found out about one run.
#[derive(Debug)]
pub(crate) struct Look {
    /// Entries to tell: if none, it is not looked.
    max: usize,
    since: Duration,
    /// Not its doing, though the clock does not tell.
    before: Vec<Stamp>,
    walk: Option<Walk>,
}

impl Look {
    /// For a run that starts now.
    pub(crate) fn new(changed_max: u32, known: &Known) -> Look {
        let max = (changed_max as usize).min(TOLD_MAX);
        let since = if max > 0 { sys::file_clock() } else { Duration::ZERO };
        let before = if max > 0 { known.at(since) } else { Vec::new() };
        Look { max, since, before, walk: None }
    }

    /// The run starts only now, and what was changed until now is not its doing.
    pub(crate) fn begin_again(&mut self, known: &mut Known) {
        if self.max == 0 {
            return;
        }
        let mut walk = Walk::new();
        while walk.step(self) {}
        known.note(walk.stamps);
        self.since = sys::file_clock();
        self.before = known.at(self.since);
    }

    /// One step, once the run is over. Returns whether there are no more; then what was found is sent, if it was asked for.
    pub(crate) fn advance(&mut self, id: u32, known: &mut Known, stream: &mut Stream) -> Result<bool, Gone> {
        if self.max == 0 {
            return Ok(true);
        }
        let mut walk = self.walk.take().unwrap_or_else(Walk::new);
        if walk.step(self) {
            self.walk = Some(walk);
            return Ok(false);
        }
        self.max = 0;
        known.note(walk.stamps.drain(..));
        stream.send(&FromGuest::Changed { id, changes: walk.into_changes() })?;
        Ok(true)
    }
}

/// A walk through the workspace, level by level, one directory open at a time. Links are not followed.
#[derive(Debug)]
struct Walk {
    begun: Instant,
    looked: usize,
    /// Directories still to be read, by their paths below the workspace.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    open: Option<(Dir, Vec<u8>)>,
    /// In order. Never more than are told, so that those which are dropped are the last.
    found: BTreeMap<Vec<u8>, Metadata>,
    found_bytes: usize,
    more: u32,
    stamps: Vec<Stamp>,
}

impl Walk {
    fn new() -> Walk {
        Walk {
            begun: Instant::now(),
            looked: 0,
            waiting: VecDeque::from([Vec::new()]),
            waiting_bytes: 0,
            open: None,
            found: BTreeMap::new(),
            found_bytes: 0,
            more: 0,
            stamps: Vec::new(),
        }
    }

    /// Returns whether there is more to be done.
    fn step(&mut self, look: &Look) -> bool {
        for _ in 0..STEP {
            let Some((mut directory, below)) = self.open.take().or_else(|| self.next_directory()) else { return false };
            if let Some(Ok(entry)) = directory.read() {
                let name = entry.file_name().to_bytes();
                // Hidden, or of a kind that nobody wants to be told of.
                if !name.starts_with(b".") && !matches!(name, b"__pycache__" | b"node_modules") {
                    let mut path = below.clone();
                    if !path.is_empty() {
                        path.push(b'/');
                    }
                    path.extend_from_slice(name);
                    self.meet(&directory, name, path, entry.file_type(), look);
                }
                self.open = Some((directory, below));
            }
            self.looked += 1;
        }
        self.looked < LOOKED_MAX && self.begun.elapsed() < PATIENCE
    }

    fn next_directory(&mut self) -> Option<(Dir, Vec<u8>)> {
        // One that is gone by now, or may not be read, has nothing to tell.
        loop {
            let below = self.waiting.pop_front()?;
            self.waiting_bytes -= below.len();
            let mut path = WORKSPACE.as_bytes().to_vec();
            path.push(b'/');
            path.extend_from_slice(&below);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(directory) = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new) {
                return Some((directory, below));
            }
        }
    }

    fn meet(&mut self, directory: &Dir, name: &[u8], path: Vec<u8>, kind: FileType, look: &Look) {
        let Ok(directory) = directory.fd() else { return };
        let kind = match kind {
            // Not every file system says it with the name.
            FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        match kind {
            FileType::Directory => {
                let is_cache = name == b"target"
                    && rustix::fs::statat(directory, c"target/CACHEDIR.TAG", AtFlags::SYMLINK_NOFOLLOW).is_ok();
                if !is_cache && self.waiting_bytes + path.len() <= WAITING_BYTES_MAX {
                    self.waiting_bytes += path.len();
                    self.waiting.push_back(path);
                }
            }
            FileType::RegularFile => self.meet_file(directory, name, path, look),
            _ => {}
        }
    }

    fn meet_file(&mut self, directory: BorrowedFd<'_>, name: &[u8], path: Vec<u8>, look: &Look) {
        let Ok(stat) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
        let stamp = Stamp::of(&stat);
        let is_new = stamp.changed >= look.since && look.before.binary_search(&stamp).is_err();
        if stamp.changed >= look.since && self.stamps.len() < KNOWN_MAX {
            self.stamps.push(stamp);
        }
        // It may have become something else since its name was read.
        if !is_new || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return;
        }
        self.found_bytes += path.len();
        let metadata = Metadata { kind: FileKind::File, size: stat.st_size as u64, modified: stat.st_mtime };
        self.found.insert(path, metadata);
        while self.found.len() > look.max || self.found_bytes > TOLD_BYTES_MAX {
            let Some((path, _)) = self.found.pop_last() else { break };
            self.found_bytes -= path.len();
            self.more += 1;
        }
    }

    fn into_changes(self) -> Changes {
        let entry = |(path, metadata): (Vec<u8>, Metadata)| Entry {
            path: String::from_utf8(path)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            metadata,
        };
        Changes { entries: self.found.into_iter().map(entry).collect(), more: self.more }
    }
}
