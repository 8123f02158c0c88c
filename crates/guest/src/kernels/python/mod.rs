//! Python: a driver of a few lines reads the code from a descriptor and runs it as `__main__`.
//!
//! `-c` with the code itself would need no driver, but then a traceback has no source lines before Python 3.13.

use super::Invocation;

const ONCE: &str = include_str!("once.py");

/// Handed to the driver as text, and compiled only when it is needed.
const FAILED: &str = include_str!("failed.py");

pub(super) fn invocation(code: String) -> Invocation {
    // `-u`, since what was printed before a kill must not be lost in a buffer; it costs a system call for each part of a
    // line.
    let arguments = ["-u", "-X", "utf8", "-c", ONCE, FAILED];
    Invocation { name: None, arguments: arguments.map(String::from).to_vec(), code: Some(code) }
}
