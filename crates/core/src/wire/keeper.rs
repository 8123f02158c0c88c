//! Frames between the host and the keeper, which is the first process of a virtual machine and starts the guest in it. They
//! go over a stream of their own, which nothing of a sandbox ever has.

use serde::{Deserialize, Serialize};

use super::Plan;

/// The drives of a machine that come before those for layers: the root, and what is ours.
pub const DRIVES_OWN: u8 = 2;

/// The drives that a machine has for layers. One that was filled stays so: what comes later goes to the next.
pub const DRIVES_FOR_LAYERS: u8 = 8;

/// The names of the two streams, where they are ports that have names.
pub const GUEST_PORT: &str = "belljar.guest";
pub const KEEPER_PORT: &str = "belljar.keeper";

/// The same, where they are numbers of a socket to the host.
pub const GUEST_VSOCK: u32 = 1101;
pub const KEEPER_VSOCK: u32 = 1102;

/// Each is answered by one [`FromKeeper::Done`] or [`FromKeeper::Failed`] before the next is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToKeeper {
    /// This machine is a copy of another: what two copies must not share is made its own.
    Refresh {
        /// Since 1970.
        clock_ns: u64,
        #[serde(with = "serde_bytes")]
        entropy: Vec<u8>,
        /// What the machine is told apart by, inside.
        identity: [u8; 16],
    },
    /// Start the guest, on the other stream. Once.
    Enter {
        plan: Plan,
        /// All that it may have with everything that it starts, its files included, before the kernel ends something.
        memory_bytes: u64,
        /// Certificates for [`super::TRUST`].
        trust: Option<String>,
    },
    /// What is in this drive is a layer; show it at this place, over what is there.
    Layer { drive: u8, at: String },
    /// Before `Enter`: a disk of this size at [`crate::BUILD`], with a copy of what is in the drive, if one is named.
    Build { bytes: u64, drive: Option<u8> },
    /// Everything that is there now. Entries and their content come before `Done`; the guest is ended first.
    Collect,
}

/// Something that was built. Directories come before what is in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Below the directory, without a slash at its beginning.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub kind: EntryKind,
    pub mode: u32,
    pub modified_s: i64,
    pub modified_ns: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    Directory,
    /// So many bytes follow.
    File(u64),
    Link(#[serde(with = "serde_bytes")] Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromKeeper {
    /// The first frame: the machine is up, and has what it needs.
    Ready {
        version: u16,
    },
    Done,
    Failed {
        step: String,
        errno: i32,
    },
    Entry(Entry),
    /// Of the file that was named last.
    Content(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The kernel has ended so many processes for want of memory by now. Comes by itself.
    Killed {
        count: u64,
    },
}
