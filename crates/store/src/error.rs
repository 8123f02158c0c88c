//! Why there is no history.

use std::path::PathBuf;

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
}
