//! What we failed to do. What a program did is never here: that is a report.

use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// This host cannot run the backend now.
    #[error("{why}")]
    Unavailable { why: String, fix: String },
    /// The place could not be made; `step` says how far it came. For the log: no caller can act on it.
    #[error("could not set up a sandbox: {step}: {why}")]
    Setup { step: String, why: String },
    /// The place is gone, and with it all that was in it.
    #[error("the sandbox is gone: {why}")]
    Lost { why: String },
    #[error(transparent)]
    File(#[from] FileError),
}

/// A file operation that could not be done, in words for the caller, who knows the path and is not told it again: an
/// answer repeats nothing that it did not have to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind}")]
pub struct FileError {
    pub kind: FileErrorKind,
    /// As the caller wrote it.
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileErrorKind {
    #[error("no such file or directory")]
    NotFound,
    #[error("is a directory; use list_files")]
    IsDirectory,
    #[error("is not a directory")]
    NotDirectory,
    #[error("is not a regular file (a FIFO, socket, device or kernel file cannot be read or written here)")]
    NotRegular,
    #[error("permission denied; write below /workspace")]
    Denied,
    #[error("no space left in the sandbox; remove files or create one with a larger disk_mb")]
    NoSpace,
    #[error("the path is empty, too long, or has a NUL byte")]
    BadPath,
    #[error("the operation failed inside the sandbox")]
    Failed,
}
