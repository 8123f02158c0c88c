//! What a monitor of virtual machines does for us: the interface that QEMU and Firecracker are behind.

use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::Later;
use tokio::net::UnixStream;

use super::process::{Process, Walls};

/// A machine as it is to be. A snapshot is of one of these, and fits no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    pub(super) memory_bytes: u64,
    pub(super) cpu_milli: u32,
    /// An ELF file.
    pub(super) kernel: PathBuf,
    pub(super) initramfs: PathBuf,
    pub(super) command_line: String,
    /// All read-only, in the order of their numbers; each as long as every other.
    pub(super) drives: Vec<PathBuf>,
}

impl Machine {
    pub(super) fn cpus(&self) -> u32 {
        self.cpu_milli.div_ceil(1000).clamp(1, CPUS_MAX)
    }
}

/// More than any sandbox is given.
const CPUS_MAX: u32 = 32;

/// What a machine begins with, and whether it is to be the model of others. The directories are ours alone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beginning<'a> {
    /// A snapshot of such a machine; without one it boots.
    pub(super) from: Option<&'a Path>,
    /// Where [`Vm::snapshot`] puts one: there, and empty.
    pub(super) to: Option<&'a Path>,
}

/// The host's ends of the streams to the guest and to the keeper.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) guest: UnixStream,
    pub(super) keeper: UnixStream,
}

pub(super) trait Vmm: Debug + Send + Sync {
    fn name(&self) -> &'static str;
    /// Tells two programs apart whose snapshots are not each other's.
    fn version(&self) -> &str;
    /// Modules that the kernel needs for its devices, besides those that it always does.
    fn modules(&self) -> &'static [&'static str];
    /// What the kernel is told of it.
    fn command_line(&self) -> String;
    /// Whether a copy of a machine goes on with the streams that it had.
    fn keeps_streams(&self) -> bool {
        true
    }
    /// Its own way to boot a machine that says one line and ends, for `belljar bench`.
    fn floor(&self, _kernel: &Path, _initramfs: &Path) -> Option<(PathBuf, Vec<OsString>)> {
        None
    }
    /// Starts a machine, which then runs, or is about to.
    fn start<'a>(&'a self, walls: &'a Arc<Walls>, machine: &'a Machine, from: Beginning<'a>) -> Later<'a, Started>;
}

#[derive(Debug)]
pub(super) struct Started {
    pub(super) vm: Arc<dyn Vm>,
    pub(super) streams: Streams,
}

/// A machine that runs. Dropping it ends it.
pub(super) trait Vm: Debug + Send + Sync {
    /// Stops it for good, and writes what it was to the directory that was named when it was started.
    fn snapshot(&self) -> Later<'_, ()>;
    /// Puts another image into a drive that nothing has been read from.
    fn attach<'a>(&'a self, drive: u8, image: &'a Path) -> Later<'a, ()>;
    fn process(&self) -> &Process;
    /// The last that its kernel said.
    fn console(&self) -> String;
}
