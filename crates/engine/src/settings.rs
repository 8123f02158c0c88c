//! What the operator decides.

use std::time::Duration;

use belljar_core::{Ground, Limits};

use crate::Quota;
use crate::network::NetworkSettings;

/// The engine's bounds. Everything that could grow has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Created sandboxes at once, and those that jobs have to themselves. Other throw-away ones are bounded by `runs_max`
    /// instead.
    pub sandboxes_max: usize,
    /// Programs at once, in all sandboxes together; and a quarter more, for principals that have none running.
    pub runs_max: usize,
    /// Runs that may wait for their turn past that, of one principal half as many.
    pub queue_max: usize,
    pub runs_per_sandbox_max: usize,
    /// How long a created sandbox stays without being used.
    pub idle: Duration,
    /// How long it stays however much it is used.
    pub age_max: Duration,
    /// The longest wall time a program can ask for.
    pub wall_max: Duration,
    /// The most a wish can ask for.
    pub ceiling: Limits,
    /// What runs printed, showed and left behind, kept for later reading, of all runs together.
    pub kept_output_bytes_max: usize,
    /// Own ones of the operator's, besides one for each interpreter of the host.
    pub templates: Vec<Template>,
    pub network: NetworkSettings,
    /// What each principal may have that has no word of its own on it.
    pub quota: Quota,
    /// Sandboxes that are opened ahead; without it each is opened when it is asked for.
    pub pool: Option<PoolSettings>,
}

/// Bounds on what is prepared for callers to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// What they may take together, by an estimate. Left out, it goes by the machine: 256 MiB, or an eighth of its memory
    /// where that is less.
    pub memory_bytes: Option<u64>,
    pub max: usize,
}

impl Default for PoolSettings {
    fn default() -> Self {
        PoolSettings { memory_bytes: None, max: 32 }
    }
}

/// What a sandbox begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pub name: String,
    pub ground: Ground,
    /// A caller's own wish goes before it.
    pub wish: Wish,
    pub env: Vec<(String, String)>,
    /// Of Python, and of Node where they begin with `npm:`.
    pub packages: Vec<String>,
    /// As a caller's wish, and as little allowed past the ceiling.
    pub network: Vec<String>,
}

const MIB: u64 = 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Settings {
            sandboxes_max: 256,
            runs_max: (4 * cores).max(8),
            // A thousand that come at once find room, even where one caller may take half of it.
            queue_max: 2048,
            runs_per_sandbox_max: 8,
            idle: Duration::from_secs(30 * 60),
            age_max: Duration::from_secs(24 * 60 * 60),
            wall_max: Duration::from_secs(24 * 60 * 60),
            ceiling: Limits {
                memory_bytes: 8 * 1024 * MIB,
                cpu_milli: 8000,
                processes: 1024,
                open_files: 65536,
                disk_bytes: 4 * 1024 * MIB,
                output_bytes: 16 * MIB,
            },
            kept_output_bytes_max: 24 * 1024 * 1024,
            templates: Vec::new(),
            network: NetworkSettings::default(),
            quota: Quota::default(),
            pool: None,
        }
    }
}

/// The limits a caller asks for; what it leaves out keeps its default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wish {
    pub memory_bytes: Option<u64>,
    pub cpu_milli: Option<u32>,
    pub processes: Option<u32>,
    pub open_files: Option<u32>,
    pub disk_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
}

impl Wish {
    /// This wish, and where it says nothing, the other.
    pub(crate) fn over(&self, other: &Wish) -> Wish {
        Wish {
            memory_bytes: self.memory_bytes.or(other.memory_bytes),
            cpu_milli: self.cpu_milli.or(other.cpu_milli),
            processes: self.processes.or(other.processes),
            open_files: self.open_files.or(other.open_files),
            disk_bytes: self.disk_bytes.or(other.disk_bytes),
            output_bytes: self.output_bytes.or(other.output_bytes),
        }
    }
}
