//! How the command line says what went wrong, and what to do about it.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Belljar itself failed, as opposed to the program it ran. The number that env(1), timeout(1) and docker use.
pub(crate) const OUR_FAILURE: u8 = 125;

/// Who read our output has had enough, as `head` does. The number of a program that died of SIGPIPE.
const NOBODY_READS: u8 = 141;

/// An error with the next step in a line of its own.
#[derive(Debug)]
pub(crate) struct Complaint {
    pub(crate) what: String,
    pub(crate) hint: String,
}

impl Complaint {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Complaint {
        Complaint { what: what.into(), hint: hint.into() }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Complaint {}

pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    // With a cause of its own it is somebody else's pipe.
    if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::from(NOBODY_READS);
    }
    let mut stderr = std::io::stderr().lock();
    // A closed stderr leaves only the exit code to speak with.
    let _ = writeln!(stderr, "error: {error:#}");
    let hint = error.chain().find_map(|cause| cause.downcast_ref::<Complaint>()).map(|complaint| &complaint.hint);
    if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
        let _ = writeln!(stderr, "hint: {hint}");
    }
    ExitCode::from(OUR_FAILURE)
}
