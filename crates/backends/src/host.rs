//! What a backend may know of the host beyond what it can see itself, and what the host lets us have.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[derive(Debug, Clone)]
pub struct Host {
    /// Where interpreters are looked for, as in the server's `PATH`.
    pub path: OsString,
    /// Never shown to a sandbox, whatever else is.
    pub home: Option<PathBuf>,
}

/// Takes as many open files as this process may have, and says how many that is.
pub fn raise_open_files() -> u32 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let have = if raised { maximum } else { current };
    have.map_or(u32::MAX, |have| u32::try_from(have).unwrap_or(u32::MAX))
}
