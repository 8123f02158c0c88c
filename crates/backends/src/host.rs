//! What a backend may know of the host beyond what it can see itself, and what the host lets us have.

use std::ffi::OsString;
use std::path::PathBuf;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::WallSettings;
use crate::sys;

#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Where interpreters are looked for, as in the server's `PATH`.
    pub path: OsString,
    /// Never shown to a sandbox, whatever else is.
    pub home: Option<PathBuf>,
    /// The store of layers, ours alone; `None` where there is none.
    pub layers: Option<PathBuf>,
    /// The store of images, as `belljar template build` fills it; `None` where there is none.
    pub images: Option<PathBuf>,
    /// Where we keep what can be made again, ours alone.
    pub cache: Option<PathBuf>,
    /// Where we keep what lives no longer than this server, ours alone.
    pub runtime: Option<PathBuf>,
    /// What the operator said of each wall.
    pub walls: WallSettings,
    /// The certificates that programs in a sandbox with a network trust, as PEM; `None` for the host's as they are.
    pub trust: Option<String>,
}

/// How many files this process, and a process in a sandbox, may have open.
#[derive(Debug, Clone, Copy)]
pub struct OpenFiles {
    pub server: u32,
    pub sandbox_max: u32,
}

/// Takes as many open files as this process may have. Where sandboxes have our user id, descriptors on their way between
/// processes are counted for all of us together, so none of them may have as many as we need for ourselves.
pub fn raise_open_files() -> OpenFiles {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let have = if raised { maximum } else { current };
    let server = have.map_or(u32::MAX, |have| u32::try_from(have).unwrap_or(u32::MAX));
    OpenFiles { server, sandbox_max: if sys::is_admin() { server } else { server / 2 } }
}
