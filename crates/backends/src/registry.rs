//! Every backend by name. The only file that names them all.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_core::Backend;

#[cfg(not(all(feature = "docker", feature = "wasm")))]
use crate::absent::Absent;
use crate::gvisor::Gvisor;
use crate::host::Host;
use crate::microvm::Microvm;
use crate::native::{Native, Preload};
use crate::warm::{self, NotWarm};

/// A backend that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    Native,
    Wasm,
    Docker,
    Gvisor,
    Microvm,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBackend(pub String);

impl std::fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Choice::ALL.map(Choice::name).join(", ");
        write!(f, "unknown backend {:?}; use one of: {names}, or {AUTO}", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

impl Choice {
    /// From the weakest wall to the strongest.
    pub const ALL: [Choice; 5] = [Choice::Native, Choice::Wasm, Choice::Docker, Choice::Gvisor, Choice::Microvm];

    pub fn name(self) -> &'static str {
        match self {
            Choice::Native => "native",
            Choice::Wasm => "wasm",
            Choice::Docker => "docker",
            Choice::Gvisor => "gvisor",
            Choice::Microvm => "microvm",
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Choice {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Choice::ALL.into_iter().find(|choice| choice.name() == name).ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// The wall that an operator asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WishedWall {
    /// The strongest that is allowed and that this host can run.
    Auto,
    Named(Choice),
}

impl std::str::FromStr for WishedWall {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == AUTO { Ok(WishedWall::Auto) } else { name.parse().map(WishedWall::Named) }
    }
}

impl std::fmt::Display for WishedWall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WishedWall::Auto => f.write_str(AUTO),
            WishedWall::Named(choice) => choice.fmt(f),
        }
    }
}

const AUTO: &str = "auto";

/// What `auto` came to, and why it is none of the stronger ones.
#[derive(Debug)]
pub struct Strongest {
    pub backend: Arc<dyn Backend>,
    pub passed_over: Vec<(Choice, String)>,
}

/// Looks for the strongest of the allowed walls that this host can run, by trying each. None: why not, for each.
pub fn strongest(allowed: &[Choice], host: &Host, preload: Preload) -> Result<Strongest, Vec<(Choice, String)>> {
    let mut passed_over = Vec::new();
    // An emulated machine is no wall, and so never the strongest, whatever else it may be used for.
    let mut host = host.clone();
    host.walls.microvm.emulation = false;
    let host = &host;
    for choice in Choice::ALL.into_iter().rev().filter(|choice| allowed.contains(choice)) {
        let backend = choose(choice, host, preload);
        match backend.probe().why_unusable() {
            None => return Ok(Strongest { backend, passed_over }),
            Some(why) => passed_over.push((choice, why)),
        }
    }
    Err(passed_over)
}

/// Starts a backend. A host that cannot run it is found out by its `probe`, or by the first `open`.
pub fn choose(choice: Choice, host: &Host, preload: Preload) -> Arc<dyn Backend> {
    match choice {
        Choice::Native => Arc::new(Native::start(host, preload)),
        #[cfg(feature = "docker")]
        Choice::Docker => Arc::new(crate::docker::Docker::start(host)),
        #[cfg(not(feature = "docker"))]
        Choice::Docker => Arc::new(Absent(choice.name())),
        Choice::Gvisor => Arc::new(Gvisor::start(host)),
        Choice::Microvm => Arc::new(Microvm::start(host)),
        #[cfg(feature = "wasm")]
        Choice::Wasm => Arc::new(crate::wasm::Wasm::start(host)),
        #[cfg(not(feature = "wasm"))]
        Choice::Wasm => Arc::new(Absent(choice.name())),
    }
}

/// Prepares once what every fresh sandbox of this host would otherwise do again: Go's library, compiled. Takes a minute of
/// CPU and some hundred megabytes below the user's cache directory, which it names; servers started from then on use it.
pub fn warm_up(host: &Host) -> Result<PathBuf, NotWarm> {
    warm::fill(host)
}
