//! The book of tokens that `belljar token` keeps: issued, listed and revoked. A token is shown once, when it is issued; what is
//! written down is its hash.

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_engine::Quota;
use serde::{Deserialize, Serialize};

use crate::file::{self, FileError};
use crate::moment::Moment;
use crate::scope::Scopes;
use crate::tokens::{self, Entry, NAME_CHARS_MAX, is_name};

const VERSION: u32 = 1;
const TOKENS_MAX: usize = 10_000;
/// By which people and scanners of leaked secrets know them.
const PREFIX: &str = "blj_";

/// The file as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    version: u32,
    pub(crate) tokens: Vec<Entry>,
}

#[derive(Debug, thiserror::Error)]
pub enum BookError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the token file {} has NAME:TOKEN lines, which are written by hand", path.display())]
    IsLines { path: PathBuf },
    #[error("cannot write the token file {}: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("a name has 1 to {NAME_CHARS_MAX} of the characters A-Z a-z 0-9 - . _ @")]
    BadName,
    #[error("there are already {TOKENS_MAX} tokens")]
    Full,
    #[error("there is no token of that name or id")]
    NoSuchToken,
    #[error("that is the name of some tokens and the id of another")]
    Ambiguous,
    #[error("this machine gives no random numbers")]
    NoRandom,
}

impl BookError {
    /// What the operator can do about it.
    pub fn next_step(&self) -> String {
        match self {
            BookError::File(error) => error.next_step(),
            BookError::IsLines { .. } => "edit its lines, or name another file with --token-file".into(),
            BookError::Unwritable { .. } => "name another file with --token-file".into(),
            BookError::BadName => "write the name without spaces and colons, such as ci or ann@example.com".into(),
            BookError::Full => "revoke what nobody uses any more; `belljar token list` shows all".into(),
            BookError::NoSuchToken => "`belljar token list` shows all".into(),
            BookError::Ambiguous => "revoke by the ids that `belljar token list` shows; rename the rest".into(),
            BookError::NoRandom => "look at what getrandom(2) says here".into(),
        }
    }
}

/// What a token is issued with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub scopes: Scopes,
    pub expires: Option<Moment>,
    pub quota: Option<Quota>,
}

/// A token that was just made. Only here is it known.
pub struct Issued {
    pub token: String,
    pub entry: Entry,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("entry", &self.entry).finish_non_exhaustive()
    }
}

/// The token file of an operator, who issues and revokes.
#[derive(Debug)]
pub struct Book {
    path: PathBuf,
}

impl Book {
    pub fn at(path: &Path) -> Book {
        Book { path: path.to_owned() }
    }

    /// All tokens, those that expired included, in the order in which they were issued.
    pub fn entries(&self) -> Result<Vec<Entry>, BookError> {
        let Some(text) = file::read_if_there(&self.path)? else { return Ok(Vec::new()) };
        if !text.trim_start().starts_with('{') {
            return Err(BookError::IsLines { path: self.path.clone() });
        }
        Ok(parse(&self.path, &text)?.tokens)
    }

    pub fn add(&self, name: &str, terms: Terms) -> Result<Issued, BookError> {
        if !is_name(name) {
            return Err(BookError::BadName);
        }
        let _lock = self.lock()?;
        let mut tokens = self.entries()?;
        if tokens.len() >= TOKENS_MAX {
            return Err(BookError::Full);
        }
        let issued = loop {
            let token = random_token()?;
            let entry = Entry {
                name: name.to_owned(),
                hash: tokens::hash(&token),
                scopes: terms.scopes.words(),
                created: Moment::now(),
                expires: terms.expires,
                quota: terms.quota,
            };
            // Ids are short; among thousands two may be alike.
            if tokens.iter().all(|other| other.id() != entry.id()) {
                break Issued { token, entry };
            }
        };
        tokens.push(issued.entry.clone());
        self.write(tokens)?;
        Ok(issued)
    }

    /// Removes the token of this id, or all tokens of this name, and says which they were.
    pub fn revoke(&self, word: &str) -> Result<Vec<Entry>, BookError> {
        let _lock = self.lock()?;
        let entries = self.entries()?;
        let is_id = entries.iter().any(|entry| entry.id() == word);
        let is_name = entries.iter().any(|entry| entry.name == word && entry.id() != word);
        if is_id && is_name {
            return Err(BookError::Ambiguous);
        }
        let (revoked, kept): (Vec<Entry>, Vec<Entry>) =
            entries.into_iter().partition(|entry| entry.id() == word || entry.name == word);
        if revoked.is_empty() {
            return Err(BookError::NoSuchToken);
        }
        self.write(kept)?;
        Ok(revoked)
    }

    fn unwritable(&self, source: io::Error) -> BookError {
        BookError::Unwritable { path: self.path.clone(), source }
    }

    fn folder(&self) -> PathBuf {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    /// Held between reading and writing, so that two commands at once both count. The file itself is replaced, and so is no
    /// place for a lock.
    fn lock(&self) -> Result<File, BookError> {
        let unwritable = |source| self.unwritable(source);
        DirBuilder::new().recursive(true).mode(0o700).create(self.folder()).map_err(unwritable)?;
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
        let lock = lock.map_err(unwritable)?;
        lock.lock().map_err(unwritable)?;
        Ok(lock)
    }

    /// The old file or the new one is there at any moment, and never a half.
    fn write(&self, tokens: Vec<Entry>) -> Result<(), BookError> {
        let unwritable = |source| self.unwritable(source);
        let folder = self.folder();
        let written = Written { version: VERSION, tokens };
        let mut text = serde_json::to_vec_pretty(&written).map_err(|error| unwritable(error.into()))?;
        text.push(b'\n');
        // Only its owner can read what tempfile makes.
        let mut fresh = tempfile::NamedTempFile::new_in(&folder).map_err(unwritable)?;
        fresh.write_all(&text).and_then(|()| fresh.as_file().sync_all()).map_err(unwritable)?;
        fresh.persist(&self.path).map_err(|error| unwritable(error.error))?;
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(unwritable)
    }
}

pub(crate) fn parse(path: &Path, text: &str) -> Result<Written, FileError> {
    let broken = |why: String| FileError::Broken { path: path.to_owned(), why };
    // What serde_json says of a value may echo it, so only its place is told.
    let unread =
        |error: serde_json::Error| broken(format!("line {}, column {} is wrong", error.line(), error.column()));
    let written: Written = serde_json::from_str(text).map_err(unread)?;
    if written.version != VERSION {
        return Err(broken(format!("its version is {}, and this program knows {VERSION}", written.version)));
    }
    if written.tokens.len() > TOKENS_MAX {
        return Err(broken(format!("it has more than {TOKENS_MAX} tokens")));
    }
    if written.tokens.iter().any(|entry| !is_name(&entry.name)) {
        return Err(broken("a name in it is none".into()));
    }
    Ok(written)
}

fn random_token() -> Result<String, BookError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| BookError::NoRandom)?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::file::TokenFile;

    const USUAL: Terms = Terms { scopes: Scopes::ALL, expires: None, quota: None };

    #[test]
    fn a_token_is_issued_once_kept_as_a_hash_and_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/tokens.json");
        let book = Book::at(&path);
        assert!(book.entries().unwrap().is_empty());
        let (first, second) = (book.add("ann", USUAL).unwrap(), book.add("ann", USUAL).unwrap());
        let quota = Quota { runs: Some(2), ..Quota::default() };
        let bob = Terms { expires: Some(Moment::now()), quota: Some(quota), scopes: Scopes::NONE };
        let bob = book.add("bob", bob).unwrap();
        for issued in [&first, &second, &bob] {
            let random = issued.token.strip_prefix("blj_").unwrap();
            assert!(random.len() == 43 && issued.token.bytes().all(tokens::is_token_byte), "{}", issued.token);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&first.token) && !text.contains("blj_"), "{text}");
        assert!(!format!("{first:?}").contains(&first.token[4..]), "{first:?}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);

        let file = TokenFile::open(&path).unwrap();
        let find = |issued: &Issued| file.tokens().unwrap().find(&issued.token, Moment::now());
        assert_eq!(find(&first).unwrap().unwrap().principal.as_str(), "ann");
        assert_eq!(find(&bob), Some(Err(crate::Refusal::Expired)));
        assert_eq!(book.entries().unwrap()[2], bob.entry);

        assert_eq!(book.revoke(&first.entry.id()).unwrap(), std::slice::from_ref(&first.entry));
        assert!(find(&first).is_none() && find(&second).is_some());
        book.add("ann", USUAL).unwrap();
        assert_eq!(book.revoke("ann").unwrap().len(), 2);
        assert!(find(&second).is_none());
        assert!(matches!(book.revoke("ann"), Err(BookError::NoSuchToken)));
        book.revoke("bob").unwrap();
        assert!(file.tokens().unwrap().known.is_empty());
    }

    #[test]
    fn commands_at_once_all_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.json");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..5).for_each(|_| drop(Book::at(&path).add("ann", USUAL).unwrap())));
            }
        });
        assert_eq!(Book::at(&path).entries().unwrap().len(), 20);
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let book = Book::at(&path);
        for name in ["", "a b", "oauth:x", "ü", &"x".repeat(65)] {
            assert!(matches!(book.add(name, USUAL), Err(BookError::BadName)), "{name}");
        }
        for (text, mode) in [
            ("ann:0123456789abcdef", 0o600),
            (r#"{"version": 2, "tokens": []}"#, 0o600),
            (r#"{"version": 1, "tokens": [], "more": 1}"#, 0o600),
            (
                r#"{"version": 1, "tokens": [{"name": "a", "sha256": "00", "scopes": [], "created": "2026-01-01"}]}"#,
                0o600,
            ),
            (r#"{"version": 1, "tokens": []}"#, 0o644),
        ] {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(book.add("ann", USUAL).is_err() && book.revoke("ann").is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
