//! What we failed to do. What a program did is never here: that is a report.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, thiserror::Error)]
pub enum BackendError {
    /// This host cannot run the backend now.
    #[error("{why}")]
    Unavailable { why: String, fix: String },
    /// This place does not have what the caller wants of it, and another may: in words for the caller.
    #[error("{what}; {instead}")]
    Lacks { what: String, instead: String },
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
#[error("{kind}; {}", .kind.next_step())]
pub struct FileError {
    pub kind: FileErrorKind,
    /// As the caller wrote it.
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FileErrorKind {
    #[error("no such file or directory")]
    NotFound,
    #[error("it is a directory")]
    IsDirectory,
    #[error("it is not a directory")]
    NotDirectory,
    #[error("it is not a regular file but a FIFO, socket, device or file of the kernel")]
    NotRegular,
    #[error("permission denied")]
    Denied,
    #[error("no space left in the sandbox")]
    NoSpace,
    #[error("the path is empty, too long, or has a NUL byte")]
    BadPath,
    #[error("the operation failed inside the sandbox")]
    Failed,
}

impl FileErrorKind {
    /// What the caller can do about it.
    pub fn next_step(self) -> &'static str {
        match self {
            FileErrorKind::NotFound => "list_files shows what is there",
            FileErrorKind::IsDirectory => "use list_files, or give a file's path",
            FileErrorKind::NotDirectory => "use read_file, or give a directory's path",
            FileErrorKind::NotRegular => "use it with exec",
            FileErrorKind::Denied => "use a path below /workspace or /tmp",
            FileErrorKind::NoSpace => "remove files, or create a sandbox with a larger disk_mb",
            FileErrorKind::BadPath => "give a path such as data/table.csv, relative to /workspace",
            FileErrorKind::Failed => "try again",
        }
    }
}
