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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::time::{now_ms, rfc3339};

/// How often a writer may find that others have put its file aside in the very moment.
const TRIES_MAX: usize = 16;

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
    file: Mutex<File>,
    /// The last line could not be written.
    failing: AtomicBool,
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
        Ok(AuditFile { settings, file: Mutex::new(file), failing: AtomicBool::new(false) })
    }

    pub(crate) fn keeps_code(&self) -> bool {
        self.settings.code
    }

    /// Writes one line.
    pub fn note<T: Serialize>(&self, event: &'static str, what: &T) {
        let now = now_ms();
        let written = match serde_json::to_vec(&Line { time: rfc3339(now), time_ms: now, event, what }) {
            Ok(mut line) => {
                line.push(b'\n');
                self.write(&line)
            }
            Err(error) => Err(error.into()),
        };
        let failed = written.is_err();
        if let Err(error) = written {
            tracing::error!(%error, event, "an audit line could not be written");
        }
        self.failing.store(failed, Ordering::Relaxed);
    }

    /// Whether something may be run. One that failed is tried again, by a line that says so.
    pub(crate) fn can_be_written(&self) -> bool {
        if self.settings.required && self.failing.load(Ordering::Relaxed) {
            self.note("audit-resumed", &Resumed { words: "lines before this one may be missing" });
        }
        !(self.settings.required && self.failing.load(Ordering::Relaxed))
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..TRIES_MAX {
            flock(&*file, FlockOperation::LockExclusive)?;
            // Whatever comes of it, the lock is given back: others wait for it.
            let tried = self.try_in(&file, line);
            flock(&*file, FlockOperation::Unlock)?;
            match tried? {
                Tried::Written => return Ok(()),
                Tried::MovedAside => *file = open(&self.settings.file)?,
            }
        }
        Err(io::Error::other("the file is put aside again and again"))
    }

    /// Under the lock. A file that is full is put aside first.
    fn try_in(&self, file: &File, line: &[u8]) -> io::Result<Tried> {
        let ours = file.metadata()?;
        let named = match fs::metadata(&self.settings.file) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Tried::MovedAside),
            Err(error) => return Err(error),
        };
        if (ours.dev(), ours.ino()) != (named.dev(), named.ino()) {
            return Ok(Tried::MovedAside);
        }
        // What is no file cannot be put aside: a pipe to a collector, say.
        let is_full = ours.len() > 0 && ours.len() + line.len() as u64 > self.settings.bytes_max;
        if ours.is_file() && is_full {
            put_aside(&self.settings.file, self.settings.keep)?;
            return Ok(Tried::MovedAside);
        }
        let mut writing = file;
        writing.write_all(line).inspect_err(|_| {
            // Half a line would spoil the next.
            let _ = file.set_len(ours.len());
        })?;
        Ok(Tried::Written)
    }
}

enum Tried {
    Written,
    /// The file of that name is another by now.
    MovedAside,
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// `file.7` becomes `file.8` and so on, and `file` becomes `file.1`; the oldest goes.
fn put_aside(path: &Path, keep: u32) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    if keep == 0 {
        return fs::remove_file(path);
    }
    for number in (1..keep).rev() {
        match fs::rename(aside(number), aside(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, aside(1))
}

#[cfg(test)]
mod tests;
