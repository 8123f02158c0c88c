//! What a backend may know of the host beyond what it can see itself.

use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Host {
    /// Where interpreters are looked for, as in the server's `PATH`.
    pub path: OsString,
    /// Never shown to a sandbox, whatever else is.
    pub home: Option<PathBuf>,
}
