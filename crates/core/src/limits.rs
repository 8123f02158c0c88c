//! What a sandbox may use. Every limit is on by default; raising one is the caller's wish within the operator's ceiling.

use serde::{Deserialize, Serialize};

/// The standing limits of a sandbox. Wall time belongs to each program instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of everything in the sandbox together, its files included (they live in memory).
    pub memory_bytes: u64,
    /// Thousandths of a CPU.
    pub cpu_milli: u32,
    pub processes: u32,
    /// Descriptors per process.
    pub open_files: u32,
    /// All that can be written, in all writable directories together.
    pub disk_bytes: u64,
    /// Standard output and error of one program together; a program that writes more is stopped.
    pub output_bytes: u64,
}

pub(crate) const MIB: u64 = 1024 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: 1024 * MIB,
            cpu_milli: 2000,
            processes: 256,
            open_files: 1024,
            disk_bytes: 512 * MIB,
            output_bytes: MIB,
        }
    }
}

/// A limit that we stop a program for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    Wall,
    Memory,
    Output,
}
