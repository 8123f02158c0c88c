//! Datagrams between the native backend and its jail, the single-threaded process that makes the places.

use serde::{Deserialize, Serialize};

/// Where the jail finds its descriptors when it starts: the control socket, the guest's executable, and that of the
/// program at [`TRANSPILE`]. High, so that they meet neither the standard streams nor what the starting process needs for
/// itself.
pub const CONTROL_FD: i32 = 100;
pub const GUEST_FD: i32 = 101;
pub const TRANSPILE_FD: i32 = 102;

/// Where every sandbox has our own program that makes JavaScript of TypeScript: read-only, for anyone to run.
pub const TRANSPILE: &str = "/belljar/transpile";

/// The first datagram: what every sandbox of this jail has in common. Answered by one reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Directories and files of the host that every sandbox sees, read-only, in this order.
    pub binds: Vec<Bind>,
    /// Symbolic links of the root, as (path, target).
    pub links: Vec<(String, String)>,
    /// Small files that we write ourselves, as (path, content).
    pub files: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub host: String,
    pub inside: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailRequest {
    /// Comes with descriptors: the guest's end of the stream, then one for each cgroup to join (see [`Open::cgroups`]).
    Open(Open),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The host uid and gid of the sandbox; `None` keeps the server's own.
    pub host_id: Option<u32>,
    pub cgroups: CgroupEntry,
    pub disk_bytes: u64,
    pub processes: u32,
    pub open_files: u32,
    /// Data segment of each process: only where no cgroup holds the memory.
    pub data_bytes: Option<u64>,
}

/// How a sandbox joins its cgroups. Both ways avoid the kernel's lock on all forks, which a plain move of a process
/// takes, and for which it may wait ten milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupEntry {
    /// Version 1, or none: each descriptor is a `tasks` file, and the new process writes itself into it.
    JoinTasks,
    /// Version 2: the one descriptor is the directory, and the new process is born in it.
    BornInto,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailReply {
    Ready {
        landlock_abi: u32,
    },
    /// Comes with one descriptor: a pidfd of the sandbox's first process.
    Opened,
    Failed {
        step: String,
        errno: i32,
    },
}
