//! Every backend by name. The only file that names them all.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_core::Backend;

use crate::host::Host;
use crate::native::{self, Native, NotWarm, Preload};

/// A backend that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Native,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBackend(pub String);

impl std::fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = Choice::ALL.map(Choice::name).join(", ");
        write!(f, "unknown backend {:?}; use one of: {names}", self.0)
    }
}

impl std::error::Error for UnknownBackend {}

impl Choice {
    pub const ALL: [Choice; 1] = [Choice::Native];

    pub fn name(self) -> &'static str {
        match self {
            Choice::Native => "native",
        }
    }
}

impl std::str::FromStr for Choice {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Choice::ALL.into_iter().find(|choice| choice.name() == name).ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// Starts a backend. A host that cannot run it is found out by its `probe`, or by the first `open`.
pub fn choose(choice: Choice, host: &Host, preload: Preload) -> Arc<dyn Backend> {
    match choice {
        Choice::Native => Arc::new(Native::start(host, preload)),
    }
}

/// Prepares once what every fresh sandbox of this host would otherwise do again: Go's library, compiled. Takes a minute of
/// CPU and some hundred megabytes below the user's cache directory, which it names; servers started from then on use it.
pub fn warm_up(choice: Choice, host: &Host) -> Result<PathBuf, NotWarm> {
    match choice {
        Choice::Native => native::warm_up(host),
    }
}
