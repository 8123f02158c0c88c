//! The file that tokens are in, read again when it is another one.
//!
//! It is looked at with every request: one `stat`. A file that is gone, or that cannot be used any more, lets nobody in, since
//! what it said before may have been revoked. But lines that somebody wrote for the start alone, and then took away, hold as
//! they did before there was anything to follow.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::book::{self, Written};
use crate::lines::LineError;
use crate::tokens::Tokens;

/// Room for more than ten thousand tokens.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A token file that cannot be used. Never says a token.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read the token file {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token file {} can be read by other users", path.display())]
    OpenToOthers { path: PathBuf },
    #[error("the token file {} is longer than {BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("in the token file {}: {source}", path.display())]
    Lines { path: PathBuf, source: LineError },
    #[error("the token file {} is not one that `belljar token` has written: {why}", path.display())]
    Broken { path: PathBuf, why: String },
}

impl FileError {
    /// What the operator can do about it.
    pub fn next_step(&self) -> String {
        match self {
            FileError::Unreadable { .. } => "make one with `belljar token add NAME`, or write NAME:TOKEN lines".into(),
            FileError::OpenToOthers { path } => format!("chmod 600 {}", path.display()),
            FileError::TooLong { .. } => "revoke what nobody uses any more".into(),
            FileError::Lines { .. } => {
                "one NAME:TOKEN a line, each token at least 16 characters, such as `openssl rand -hex 32` makes".into()
            }
            FileError::Broken { .. } => "move it away, and issue tokens again with `belljar token add NAME`".into(),
        }
    }
}

/// By which a file is known to be the one that was read. A file that is put in its place has another number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    place: (u64, u64),
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            place: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A token file that is followed.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    /// `None` when there was no file.
    stamp: Option<Stamp>,
    /// What comes through a pipe comes once.
    is_followed: bool,
    /// `None` when it could not be used.
    tokens: Option<Arc<Tokens>>,
}

impl TokenFile {
    pub fn open(path: &Path) -> Result<TokenFile, FileError> {
        let (text, stamp, is_followed) = read(path)?;
        let tokens = Some(Arc::new(parse(path, &text)?));
        let last = Last { stamp: Some(stamp), is_followed, tokens };
        Ok(TokenFile { path: path.to_owned(), last: Mutex::new(last) })
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the file says now; `None` while it cannot be used.
    pub(crate) fn tokens(&self) -> Option<Arc<Tokens>> {
        let mut last = self.last();
        if last.is_followed {
            let stamp = std::fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
            let is_taken_away = stamp.is_none() && last.tokens.as_ref().is_some_and(|tokens| tokens.are_lines);
            if stamp != last.stamp && !is_taken_away {
                last.stamp = stamp;
                // Told in the log.
                let _ = self.read_again(&mut last);
            }
        }
        last.tokens.clone()
    }

    /// Reads it again, whether it looks changed or not.
    pub(crate) fn reload(&self) -> Result<(), FileError> {
        let mut last = self.last();
        if last.is_followed { self.read_again(&mut last) } else { Ok(()) }
    }

    fn read_again(&self, last: &mut Last) -> Result<(), FileError> {
        let read = read(&self.path).and_then(|(text, stamp, _)| Ok((parse(&self.path, &text)?, stamp)));
        last.becomes(read)
    }
}

impl Last {
    fn becomes(&mut self, read: Result<(Tokens, Stamp), FileError>) -> Result<(), FileError> {
        match read {
            Ok((tokens, stamp)) => {
                tracing::info!(count = tokens.known.len(), "the token file was read again");
                self.stamp = Some(stamp);
                self.tokens = Some(Arc::new(tokens));
                Ok(())
            }
            Err(error) => {
                let is_new = self.tokens.take().is_some();
                // The file may be as it was, and what was in the way pass without a trace on it. What is no text stays so.
                if let FileError::Unreadable { source, .. } = &error
                    && source.kind() != io::ErrorKind::InvalidData
                {
                    self.stamp = None;
                    if !is_new {
                        // It is tried with every request, and anybody can make one.
                        tracing::debug!(%error, "the token file still cannot be read");
                        return Err(error);
                    }
                }
                tracing::error!(%error, "nobody is let in by a token until the token file can be used again");
                Err(error)
            }
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Tokens, FileError> {
    if text.trim_start().starts_with('{') {
        let Written { tokens, .. } = book::parse(path, text)?;
        return Ok(Tokens::of(tokens));
    }
    Tokens::parse(text).map_err(|source| FileError::Lines { path: path.to_owned(), source })
}

/// Its text, its stamp, and whether it is a file that stays where it is.
fn read(path: &Path) -> Result<(String, Stamp, bool), FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.mode() & 0o077 != 0 {
        return Err(FileError::OpenToOthers { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(FileError::TooLong { path: path.to_owned() });
    }
    Ok((text, Stamp::of(&metadata), metadata.is_file()))
}

/// The text of a file that may not be there yet.
pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, FileError> {
    match read(path) {
        Ok((text, ..)) => Ok(Some(text)),
        Err(FileError::Unreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::moment::Moment;

    const ANN: &str = "ann-0123456789abcdef";
    const BOB: &str = "bob-0123456789abcdef";

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn knows(file: &TokenFile, token: &str) -> Option<bool> {
        file.tokens().map(|tokens| tokens.find(token, Moment::now()).is_some())
    }

    #[test]
    fn a_change_counts_at_once_and_a_broken_file_lets_nobody_in() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        write(&path, &format!("ann:{ANN}"), 0o600);
        let file = TokenFile::open(&path).unwrap();
        assert_eq!((knows(&file, ANN), knows(&file, BOB)), (Some(true), Some(false)));

        // Of the same length.
        write(&path, &format!("bob:{BOB}"), 0o600);
        assert_eq!((knows(&file, ANN), knows(&file, BOB)), (Some(false), Some(true)));
        write(&path, "bob:short", 0o600);
        assert_eq!(knows(&file, BOB), None);
        assert!(matches!(file.reload(), Err(FileError::Lines { .. })));
        write(&path, &format!("bob:{BOB}"), 0o644);
        assert_eq!(knows(&file, BOB), None);
        write(&path, &format!("bob:{BOB}"), 0o600);
        assert_eq!(knows(&file, BOB), Some(true));
        // Lines may be for the start alone.
        fs::remove_file(&path).unwrap();
        assert_eq!(knows(&file, BOB), Some(true));
        write(&path, &format!("ann:{ANN}"), 0o600);
        assert_eq!((knows(&file, ANN), knows(&file, BOB)), (Some(true), Some(false)));
        write(&path, r#"{"version": 1, "tokens": []}"#, 0o600);
        assert_eq!(knows(&file, ANN), Some(false));
        fs::remove_file(&path).unwrap();
        assert_eq!(knows(&file, ANN), None);
    }

    #[test]
    fn what_was_in_the_way_of_reading_may_pass_without_a_change_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        write(&path, &format!("ann:{ANN}"), 0o600);
        let file = TokenFile::open(&path).unwrap();
        let failing = || Err(FileError::Unreadable { path: path.clone(), source: io::Error::from_raw_os_error(5) });
        for _ in 0..2 {
            assert!(file.last().becomes(failing()).is_err());
            assert!(file.last().tokens.is_none(), "nobody is let in by what it said before");
        }
        assert_eq!(knows(&file, ANN), Some(true));
    }

    #[test]
    fn what_cannot_be_used_is_said_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let said = |text: &str, mode| {
            write(&path, text, mode);
            let error = TokenFile::open(&path).unwrap_err();
            format!("{error}; {}", error.next_step())
        };
        assert!(said(&format!("ann:{ANN}"), 0o640).contains("other users; chmod 600"));
        assert!(said("", 0o600).contains("no token found"));
        assert!(said("{\"version\": 7}", 0o600).contains("belljar token"));
        assert!(said(&"#".repeat(BYTES_MAX as usize + 1), 0o600).contains("longer than"));
        let missing = TokenFile::open(&folder.path().join("none")).unwrap_err();
        assert!(missing.next_step().contains("belljar token add"));
    }
}
