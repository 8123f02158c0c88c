//! Why there is no environment.

use belljar_core::BackendError;

/// What went wrong, in the resolver's own words where it had some. They come out of a sandbox: bounded, and without
/// anything that a terminal would act upon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct InstallError {
    pub kind: InstallErrorKind,
    pub words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstallErrorKind {
    /// A package, or that version of it, is not in the registry; or it is written in a way that nothing can be found by.
    NotFound,
    /// Each is there, and they do not go together.
    Conflict,
    /// No registry can be reached.
    Offline,
    /// The disk of the store is full.
    NoSpace,
    /// It would be larger than a layer may be.
    TooLarge,
    Timeout,
    /// This host cannot have packages: the words say what it lacks.
    Unavailable,
    /// Anything else: a build that failed, a registry that answered nonsense.
    Failed,
}

impl InstallErrorKind {
    /// What the one who asked can do about it.
    pub fn next_step(self) -> &'static str {
        match self {
            InstallErrorKind::NotFound => "check the package's name and version",
            InstallErrorKind::Conflict => "ask for other versions, or leave the versions out",
            InstallErrorKind::Offline => {
                "use what is installed already, or try again when the package registry can be reached"
            }
            InstallErrorKind::NoSpace => "the operator has to make room for the layers' cache, or move it",
            InstallErrorKind::TooLarge => "ask for fewer or smaller packages",
            InstallErrorKind::Timeout => "try again, or ask for a version that need not be compiled",
            InstallErrorKind::Unavailable => "use what is installed already",
            InstallErrorKind::Failed => "ask for another version, or do without it",
        }
    }
}

impl InstallError {
    /// No sandbox, or it fell. What a backend says of its own steps is for the log: it may name what an agent is not told.
    pub(crate) fn of_backend(doing: &str, error: &BackendError) -> InstallError {
        tracing::warn!(%error, "{doing} failed");
        let why = match error {
            BackendError::Unavailable { why, .. } => why.as_str(),
            BackendError::Lacks { what, .. } => what.as_str(),
            BackendError::Setup { .. } | BackendError::Lost { .. } | BackendError::File(_) => {
                "its sandbox failed; the server's log says why"
            }
        };
        InstallError::new(InstallErrorKind::Unavailable, format!("{doing}: {why}"))
    }

    pub(crate) fn new(kind: InstallErrorKind, words: impl Into<String>) -> InstallError {
        InstallError { kind, words: words.into() }
    }
}
