//! One line of JSON for each thing that happened, at the end of a file that is put aside when it is full.
//!
//! All who write in one process share one [`AuditFile`]; several servers may share a file. Whoever writes holds an advisory
//! lock on the file itself and looks whether it is still the one of that name: so no line goes into a file that was put
//! aside meanwhile, and two never put aside at once.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Access, FallocateFlags, FlockOperation, access, fallocate, flock};
use rustix::io::{Errno, retry_on_intr};
use serde::Serialize;

use crate::time::{now_ms, rfc3339};

/// How often a writer may find that others have put its file aside in the very moment.
const TRIES_MAX: usize = 16;

/// What has to be free on a disk that was full before anything runs again: the lines of some dozen runs.
const ROOM_BYTES: u64 = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    pub file: PathBuf,
    /// A file of this size is put aside.
    pub bytes_max: u64,
    /// So many are kept that were put aside.
    pub keep: u32,
    /// Write the programs' text, and not only its digest.
    pub code: bool,
    /// Run nothing that cannot be written down.
    pub required: bool,
}

pub struct AuditFile {
    settings: AuditSettings,
    place: Mutex<Place>,
}

struct Place {
    file: File,
    /// A line could not be written, and none that was has said so.
    is_untold: bool,
    /// As much room has to be found before anything runs again; 0 where nothing failed since it was.
    short_of: u64,
    /// It was told that the file cannot be put aside.
    is_stuck: bool,
}

impl fmt::Debug for AuditFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditFile").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    time: String,
    time_ms: i64,
    event: &'static str,
    #[serde(flatten)]
    what: &'a T,
}

/// What is said when lines were lost and writing works again.
#[derive(Serialize)]
struct Resumed {
    words: &'static str,
}

impl AuditFile {
    /// Opens the file, or makes it for its owner alone.
    pub fn open(settings: AuditSettings) -> io::Result<AuditFile> {
        let file = open(&settings.file)?;
        if file.metadata()?.is_file()
            && let Err(error) = access(folder_of(&settings.file), Access::WRITE_OK | Access::EXEC_OK)
        {
            let file = settings.file.display();
            tracing::warn!(%file, %error, "the audit file cannot be put aside when it is full: its folder may not be written");
        }
        Ok(AuditFile { settings, place: Mutex::new(Place { file, is_untold: false, short_of: 0, is_stuck: false }) })
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keeps_code(&self) -> bool {
        self.settings.code
    }

    /// Writes one line; where others were lost before it, after one that says so.
    pub fn note<T: Serialize>(&self, event: &'static str, what: &T) {
        let line = line(event, what);
        let bytes = line.as_ref().map_or(0, |line| line.len() as u64);
        let mut place = self.place();
        if let Err(error) = line.and_then(|line| self.write(&mut place, &line, 0)) {
            place.is_untold = true;
            place.short_of = place.short_of.max(bytes).max(ROOM_BYTES);
            drop(place);
            tracing::error!(%error, event, "an audit line could not be written");
        }
    }

    /// Whether something may be run. After a line that failed not before there is room: a word that lines are missing is short,
    /// and fits where no run's line would.
    pub(crate) fn can_be_written(&self) -> bool {
        if !self.settings.required {
            return true;
        }
        let mut place = self.place();
        let room = place.short_of;
        if room == 0 {
            return true;
        }
        let found = self.write(&mut place, &[], room);
        if found.is_ok() {
            place.short_of = 0;
        }
        drop(place);
        found.inspect_err(|error| tracing::error!(%error, "the audit can still not be written")).is_ok()
    }

    /// What is lost is told first, with the line or not at all. `room` is what has to be left after it.
    fn write(&self, place: &mut Place, line: &[u8], room: u64) -> io::Result<()> {
        let mut lines = Vec::new();
        if place.is_untold {
            lines = self::line("audit-resumed", &Resumed { words: "lines before this one may be missing" })?;
        }
        lines.extend_from_slice(line);
        for _ in 0..TRIES_MAX {
            flock(&place.file, FlockOperation::LockExclusive)?;
            // Whatever comes of it, the lock is given back: others wait for it.
            let tried = self.try_in(place, &lines, room);
            flock(&place.file, FlockOperation::Unlock)?;
            match tried? {
                Tried::Written => {
                    place.is_untold = false;
                    return Ok(());
                }
                Tried::MovedAside => place.file = open(&self.settings.file)?,
            }
        }
        Err(io::Error::other("the file is put aside again and again"))
    }

    /// Under the lock. A file that is full is put aside first.
    fn try_in(&self, place: &mut Place, lines: &[u8], room: u64) -> io::Result<Tried> {
        let ours = place.file.metadata()?;
        let named = match fs::metadata(&self.settings.file) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tried::MovedAside),
            Err(error) => return Err(error),
        };
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            return Ok(Tried::MovedAside);
        }
        // What is no file cannot be put aside: a pipe to a collector, say.
        let is_full = ours.len() > 0 && ours.len() + lines.len() as u64 > self.settings.bytes_max;
        if ours.is_file() && is_full {
            match put_aside(&self.settings.file, self.settings.keep) {
                Ok(()) => {
                    place.is_stuck = false;
                    return Ok(Tried::MovedAside);
                }
                // Somebody who holds no lock was at it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tried::MovedAside),
                // A file that is too large is better than lines that are lost.
                Err(error) if !place.is_stuck => {
                    place.is_stuck = true;
                    tracing::error!(%error, "the audit file is full and cannot be put aside: it is written on, and grows");
                }
                Err(_) => {}
            }
        }
        if ours.is_file() && room > 0 {
            reserve(&place.file, ours.len(), room.saturating_add(lines.len() as u64))?;
        }
        place.file.write_all(lines).inspect_err(|_| {
            // Half a line would spoil the next.
            let _ = place.file.set_len(ours.len());
        })?;
        Ok(Tried::Written)
    }
}

enum Tried {
    Written,
    /// The file of that name is another by now.
    MovedAside,
}

fn line<T: Serialize>(event: &'static str, what: &T) -> io::Result<Vec<u8>> {
    let now = now_ms();
    let mut line = serde_json::to_vec(&Line { time: rfc3339(now), time_ms: now, event, what })?;
    line.push(b'\n');
    Ok(line)
}

/// Takes room behind the end, where nobody who reads the file sees it. A file system that cannot do so says with each line
/// whether there is any.
fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, from, bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// `file.7` becomes `file.8` and so on, up to the first that there is not, and `file` becomes `file.1`; the oldest goes if all
/// are there. What cannot be done is tried again with each line, and must not push one more over the end each time.
fn put_aside(path: &Path, keep: u32) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if keep == 0 {
        return fs::remove_file(path);
    }
    let is_free =
        |number: &u32| fs::symlink_metadata(aside(*number)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let free = (1..keep).find(is_free).unwrap_or(keep);
    for number in (1..free).rev() {
        match fs::rename(aside(number), aside(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, aside(1))
}

#[cfg(test)]
mod tests;
