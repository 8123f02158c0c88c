//! What the output of a run does not say by itself: the exception, the limit that it met, and what went down with it.

use std::fmt;
use std::time::Duration;

use belljar_core::{Ending, Limit, State};
use belljar_engine::{Lost, Run};

use super::reply;
use crate::clean;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Why a run did not go well, as an exception is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) traceback: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.traceback.is_empty() {
            write!(f, "{}: {}", self.name, self.value)
        } else {
            f.write_str(&self.traceback)
        }
    }
}

/// `None` for a run that went well. A limit goes before the exception that it made.
pub(super) fn error(run: &Run, wall: Duration) -> Option<Error> {
    let stop = match run.report.ending {
        Ending::Exited { code: 0 } => None,
        Ending::Exited { code } => Some(("SystemExit", code.to_string())),
        Ending::Killed { signal } => Some(("Killed", format!("by signal {signal}"))),
        Ending::Stopped { limit: Limit::Wall } => {
            Some(("TimeoutError", format!("stopped after {} s; do less at once", wall.as_secs_f64())))
        }
        Ending::Stopped { limit: Limit::Memory } => {
            Some(("MemoryError", format!("stopped at the limit of {} MiB", run.limits.memory_bytes / MIB)))
        }
        Ending::Stopped { limit: Limit::Output } => Some((
            "OutputError",
            format!("stopped for more than {} KiB of output; print less", run.limits.output_bytes / KIB),
        )),
        Ending::Cancelled => Some(("Cancelled", "the call was given up".into())),
        Ending::NotInstalled => Some(("InstallError", "its packages could not be installed".into())),
    };
    let raised = run.rich.error.as_ref().map(|failure| Error {
        name: clean::clean(failure.name.as_bytes()),
        value: clean::clean(failure.value.as_bytes()),
        traceback: clean::clean(failure.traceback.as_bytes()),
    });
    match (run.report.ending, raised) {
        (Ending::Exited { .. } | Ending::NotInstalled, Some(raised)) => Some(raised),
        _ => stop.map(|(name, value)| Error { name: name.into(), value, traceback: String::new() }),
    }
}

/// Standard error, and after it what else went wrong. The code alone says that a program exited with it.
pub(super) fn stderr(run: &Run, wall: Duration) -> String {
    let mut text = reply::stream(&run.report.stderr);
    let is_told = matches!(run.report.ending, Ending::Exited { .. }) && run.rich.error.is_none();
    if let Some(error) = error(run, wall).filter(|_| !is_told) {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&error.to_string());
        text.push('\n');
    }
    text
}

/// What of earlier calls is no longer there.
pub(super) fn losses(run: &Run) -> Option<String> {
    let note = match (&run.lost, run.report.state) {
        (Some(Lost::Sandbox), _) => "the sandbox went down in this run: its files and variables are gone".into(),
        (Some(Lost::Kernel { language, .. }), _) => {
            format!("the {language} kernel ended in this run: its variables are gone; files are still there")
        }
        (None, State::Reset) => {
            "the kernel had ended: variables of earlier calls are gone; files are still there".into()
        }
        (None, _) => return None,
    };
    Some(format!("[{note}]"))
}
