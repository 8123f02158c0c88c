//! One sandbox: a clone into new namespaces, its user mapped, its cgroups joined, and then let go.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use belljar_core::wire::{CgroupEntry, Open};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use crate::child::{self, Given, INSIDE_ID};
use crate::error::{At, Failure, Outcome};
use crate::root::{Power, Root, write_map};
use crate::seccomp::{self, Finish};
use crate::sys::{self, Cloned};

/// Everything but the cgroup namespace, whose root is the group that the child is in when it makes it.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64
    | libc::CLONE_NEWTIME as u64;

/// The first landlock that can let a file be moved or linked from one directory into another (Linux 5.19). The one before
/// it refuses that wherever it is in force, and with it git, npm and cargo; there the mounts stand alone.
const LANDLOCK_ABI_MIN: u32 = 2;

/// A jail whose root is built: ready to open sandboxes.
#[derive(Debug)]
pub(crate) struct Jail {
    root: Root,
    guest: OwnedFd,
    finish: Finish,
    landlock_abi: u32,
}

impl Jail {
    pub(crate) fn new(root: Root, guest: OwnedFd) -> Outcome<Jail> {
        sys::ignore_children().at("ignoring SIGCHLD")?;
        let landlock_abi = Some(sys::landlock_abi()).filter(|abi| *abi >= LANDLOCK_ABI_MIN).unwrap_or(0);
        let jail = Jail { root, guest, finish: Finish::compile()?, landlock_abi };
        seccomp::restrict_jail()?;
        Ok(jail)
    }

    pub(crate) fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Makes a sandbox. The first descriptor is the guest's stream, the others are its cgroups.
    pub(crate) fn open(&self, open: &Open, mut fds: Vec<OwnedFd>) -> Outcome<OwnedFd> {
        if fds.is_empty() {
            return Err(Failure { step: "taking the stream".to_owned(), errno: libc::EBADF });
        }
        let stream = fds.remove(0);
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).at("making a pipe")?;
        let (born_into, join) = match open.cgroups {
            CgroupEntry::BornInto => (fds.first(), &[][..]),
            CgroupEntry::JoinTasks => (None, fds.as_slice()),
        };
        let cloned = sys::clone_into(NAMESPACES, born_into.map(AsFd::as_fd)).at("clone into namespaces")?;
        let (pid, pidfd) = match cloned {
            Cloned::Child => {
                drop(go);
                child::become_guest(Given {
                    open,
                    stream: &stream,
                    wait,
                    cgroups: join,
                    late: &self.root.late,
                    landlock_abi: self.landlock_abi,
                    finish: &self.finish,
                    guest: self.guest.as_fd(),
                })
            }
            Cloned::Parent { pid, pidfd } => (pid, pidfd),
        };
        match self.admit(pid, open).and_then(|()| fs::File::from(go).write_all(b"g").at("letting it go")) {
            Ok(()) => Ok(pidfd),
            Err(failure) => {
                // It waits for a byte that now never comes; the kill only makes it quick.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                Err(failure)
            }
        }
    }

    /// Maps the user of a child that waits for us.
    fn admit(&self, pid: i32, open: &Open) -> Outcome<()> {
        let outside = match (self.root.power, open.host_id) {
            (Power::Root, Some(id)) => id,
            (Power::Root, None) => {
                return Err(Failure { step: "mapping root into a sandbox".to_owned(), errno: libc::EPERM });
            }
            // In our own user namespace we are 0, whoever that is outside.
            (Power::User, _) => 0,
        };
        for map in ["uid_map", "gid_map"] {
            write_map(&format!("/proc/{pid}/{map}"), &format!("{INSIDE_ID} {outside} 1")).at("mapping the user")?;
        }
        Ok(())
    }
}
