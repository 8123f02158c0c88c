//! Why there is no image.

use std::io;

/// What went wrong. What a registry or a tar says of itself is bounded, and without anything a terminal would act upon.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct ImageError {
    pub kind: ImageErrorKind,
    pub words: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageErrorKind {
    /// The name that it was to have, or the reference, is none.
    BadName,
    /// There is no such image, file or directory.
    NotFound,
    /// The registry wants to know who asks.
    Denied,
    /// No registry can be reached.
    Unreachable,
    /// The registry has had enough of us for now.
    Busy,
    /// What came is not what was promised.
    Corrupt,
    /// An entry that no honest image has.
    Hostile,
    TooLarge,
    /// Not for this machine, or of a kind that we do not read.
    Unsupported,
    NoSpace,
    /// The store cannot be read or written.
    Files,
    /// Whoever asked went away.
    Cancelled,
}

impl ImageErrorKind {
    pub fn next_step(self) -> &'static str {
        match self {
            ImageErrorKind::BadName => {
                "a name has letters, digits, dots, dashes and underscores, at most 64; a reference is such as \
                 python:3.12-slim or registry.example.org/team/image@sha256:..."
            }
            ImageErrorKind::NotFound => "check its path, or its name, tag and registry",
            ImageErrorKind::Denied => {
                "log in with `docker login`, and name its config.json as auth below [images] in the configuration; \
                 credential helpers are not run, so it needs the login itself in auths"
            }
            ImageErrorKind::Unreachable => {
                "check the network and the registry's name; a mirror can be set below [images] in the configuration, and a \
                 registry without TLS needs --insecure"
            }
            ImageErrorKind::Busy => "wait a while, log in, or set a mirror below [images] in the configuration",
            ImageErrorKind::Corrupt => "try again; if it stays so, the registry or the file is damaged",
            ImageErrorKind::Hostile => "do not use this image, or make it anew with a tool that you trust",
            ImageErrorKind::TooLarge => "use a smaller image",
            ImageErrorKind::Unsupported => {
                "use an image for Linux and this machine's architecture, made with current tools"
            }
            ImageErrorKind::NoSpace => {
                "make room on the disk of the cache directory; `belljar template remove NAME` helps"
            }
            ImageErrorKind::Files => "see that the cache directory belongs to you and can be written",
            ImageErrorKind::Cancelled => "ask again",
        }
    }
}

const WORDS_MAX: usize = 400;

impl ImageError {
    pub(crate) fn new(kind: ImageErrorKind, words: impl AsRef<str>) -> ImageError {
        let words = words.as_ref().chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS_MAX).collect();
        ImageError { kind, words }
    }

    /// Of our own files, where a full disk is what people can do something about.
    pub(crate) fn of_files(doing: &str, error: &io::Error) -> ImageError {
        const FULL: [i32; 3] = [
            rustix::io::Errno::NOSPC.raw_os_error(),
            rustix::io::Errno::DQUOT.raw_os_error(),
            rustix::io::Errno::FBIG.raw_os_error(),
        ];
        let is_full = error.raw_os_error().is_some_and(|code| FULL.contains(&code));
        let kind = if is_full { ImageErrorKind::NoSpace } else { ImageErrorKind::Files };
        ImageError::new(kind, format!("{doing}: {error}"))
    }
}

/// What was being done when files failed.
pub(crate) trait Doing<T> {
    fn doing(self, what: &str) -> Result<T, ImageError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &str) -> Result<T, ImageError> {
        self.map_err(|error| ImageError::of_files(what, &error.into()))
    }
}
