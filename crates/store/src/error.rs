//! Why there is no history.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Where it was to be there is no place for it.
    #[error("the history {} cannot be made: {error}", path.display())]
    NoPlace { path: PathBuf, error: std::io::Error },
    #[error("the history {} is of a newer Belljar (version {version})", path.display())]
    Newer { path: PathBuf, version: i64 },
    #[error("{} is a database, and not a history of Belljar's", path.display())]
    NotOurs { path: PathBuf },
    #[error("the history {} cannot be used: {error}", path.display())]
    Broken { path: PathBuf, error: rusqlite::Error },
    /// Others write to it, and did not let go of it in time.
    #[error("the history {} is in use: others write to it", path.display())]
    InUse { path: PathBuf },
}

impl StoreError {
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> StoreError {
        let path = path.to_owned();
        if passes(&error) { StoreError::InUse { path } } else { StoreError::Broken { path, error } }
    }
}

/// Whether it is only that another writes: nothing is wrong with the file, and soon it is free again.
pub(crate) fn passes(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}
