//! Datagrams between the native backend and its jail, the single-threaded process that makes the places.

use serde::{Deserialize, Serialize};

use crate::Layer;

/// Where the jail finds its descriptors when it starts: the control socket, the guest's executable, and the files at
/// [`TRANSPILE`], [`ZYGOTE`] and [`TRUST`]. High, so that they meet neither the standard streams nor what the starting
/// process needs for itself.
pub const CONTROL_FD: i32 = 100;
pub const GUEST_FD: i32 = 101;
pub const TRANSPILE_FD: i32 = 102;
pub const ZYGOTE_FD: i32 = 103;
pub const TRUST_FD: i32 = 104;

/// Where every sandbox has our own program that makes JavaScript of TypeScript: read-only, for anyone to run.
pub const TRANSPILE: &str = "/belljar/transpile";

/// Where every sandbox has the library that a zygote loads, which does its forking. In a sandbox it can do nothing.
pub const ZYGOTE: &str = "/belljar/zygote.so";

/// Where every sandbox has the guest's own executable, for programs: what they ask of those outside goes by it.
pub const ASK: &str = "/belljar/ask";

/// Where a place that was made by another has the guest, for the program that settles there, and that program itself.
pub const GUEST: &str = "/belljar/guest";
pub const SETTLE: &str = "/belljar/settle";

/// Where every sandbox has the certificates that are trusted on its way out; nothing where the host's own are.
pub const TRUST: &str = "/belljar/ca.pem";

/// Whether a directory of the store may have this name: a layer's, or that of one that is being built. Nothing that could
/// lead anywhere else.
pub fn is_store_name(name: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
    let fits = (1..=STORE_NAME_MAX).contains(&name.len());
    fits && (name.bytes().all(is_hex) || is_building(name) && name.bytes().all(is_plain))
}

/// Whether it is the name of a layer that is being built.
pub fn is_building(name: &str) -> bool {
    name.strip_prefix("building-").is_some_and(|rest| !rest.is_empty())
}

const STORE_NAME_MAX: usize = 128;

/// The first datagram: what every sandbox of this jail has in common. Answered by one reply.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setup {
    /// Directories and files of the host that every sandbox sees, read-only, in this order.
    pub binds: Vec<Bind>,
    /// Whether every sandbox has the guest's own executable at [`ASK`], for programs to ask by.
    pub ask: bool,
    /// Symbolic links of the root, as (path, target).
    pub links: Vec<(String, String)>,
    /// Small files that we write ourselves, as (path, content).
    pub files: Vec<(String, String)>,
    /// Empty directories of the root: what is put over them comes later.
    pub directories: Vec<String>,
    /// The directory of the host that is the store of layers. No sandbox sees it as a whole.
    pub store: Option<String>,
    /// The host user that zygotes are, and that sandboxes' user namespaces belong to; `None` where there is only one.
    pub zygote_id: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub host: String,
    pub inside: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailRequest {
    /// Comes with descriptors: the guest's end of the stream, then [`KERNEL_ENDS`] if so told, then a socket for the doors
    /// if it has any, then one for each cgroup to join (see [`CgroupEntry`]).
    Open(Open),
    /// Comes with descriptors: the zygote's end of its socket, then one for each cgroup to join.
    Zygote(Zygote),
    /// Comes with one descriptor: the pidfd of the first process of the sandbox that gets the layer.
    AddLayer(Layer),
}

/// How many descriptors the guest gets of a kernel that is forked into its sandbox: standard input, what the kernel writes
/// to its two streams, the control socket, the runner's word. They are its fourth and following.
pub const KERNEL_ENDS: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The host uid and gid of the sandbox; `None` keeps the server's own.
    pub host_id: Option<u32>,
    pub cgroups: CgroupEntry,
    pub disk_bytes: u64,
    /// Whether a kernel's ends are among the descriptors.
    pub with_kernel: bool,
    pub bounds: Bounds,
    pub layers: Vec<Layer>,
    /// As [`crate::Spec::build`].
    pub build: Option<String>,
    /// The ports of a network's doors, which come as one datagram on the socket given: a descriptor for each port in this
    /// order, the proxy's, and the one for names. `None` for no network.
    pub ports: Option<Vec<u16>>,
}

/// No sandbox has doors at more ports.
pub const PORTS_MAX: usize = 32;

/// What each process of a sandbox may have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub processes: u32,
    pub open_files: u32,
    /// Data segment of each process: only where no cgroup holds the memory.
    pub data_bytes: Option<u64>,
}

/// An interpreter that is started once, loads what it has to load, and is then forked into sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zygote {
    /// As [`super::Init::interpreters`] has it.
    pub interpreter: String,
    pub env: Vec<(String, String)>,
    /// Whose packages it loads.
    pub layers: Vec<Layer>,
    pub cgroups: CgroupEntry,
}

/// What a zygote is asked: one datagram, answered by a [`JailReply`]. Comes with descriptors: the pidfd of the sandbox's
/// first process, the kernel's standard streams and its control socket, the runner's word, and then its cgroups' entrances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fork {
    /// Whether a sandbox puts up landlock; the same for all of a jail.
    pub landlock: bool,
    pub bounds: Bounds,
    pub env: Vec<(String, String)>,
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
    Done,
    Failed {
        step: String,
        errno: i32,
    },
}

/// What process 1 hears of a kernel that was forked into its sandbox: the numbers of its runner and of itself, as two of
/// the words that the guest's own runners say.
pub fn word_of_forked(runner: i32, kernel: i32) -> [u8; 10] {
    let mut word = [0; 10];
    word[0] = WORD_RUNNER;
    word[1..5].copy_from_slice(&runner.to_le_bytes());
    word[5] = WORD_PROGRAM;
    word[6..].copy_from_slice(&kernel.to_le_bytes());
    word
}

/// The first byte of a runner's word: its own number follows, or that of the program it runs. Those below are steps that
/// failed, and for the guest alone.
pub const WORD_PROGRAM: u8 = 3;
pub const WORD_RUNNER: u8 = 4;

/// The names that the guest's executable is started by when it is not to be the guest: to wait for a process whose number
/// follows, and to start an interpreter as a zygote.
pub const RUNNER_NAME: &str = "belljar-runner";
pub const ZYGOTE_NAME: &str = "belljar-zygote";

/// Where a zygote has its descriptors: its socket, and the guest's executable.
pub const ZYGOTE_SOCKET_FD: i32 = 3;
pub const ZYGOTE_GUEST_FD: i32 = 5;
