//! One sandbox: a clone into new namespaces, its user mapped, its cgroups joined, and then let go.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::Layer;
use belljar_core::wire::{CgroupEntry, KERNEL_ENDS, Open, Zygote};
use belljar_seal::{At, Failure, Filter, Landlock, Outcome};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use crate::child::{self, Given};
use crate::place::INSIDE_ID;
use crate::root::{Power, Root, write_map};
use crate::store::Tree;
use crate::sys::{self, Cloned};
use crate::zygote;

/// Everything but the cgroup namespace, whose root is the group that the child is in when it makes it, and time, which is
/// the jail's.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// Of a zygote: no users, since it has to belong to those who own the sandboxes' user namespaces, and no processes, since
/// it has to be above the sandboxes'.
const ZYGOTE_NAMESPACES: u64 =
    (libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP) as u64;

/// The process numbers of zygotes. Far from those of new sandboxes: libraries notice a fork by the number of the process
/// having changed (OpenSSL for its random numbers), and what is forked gets one of the sandbox's first.
const ZYGOTE_NUMBERS: std::ops::Range<i32> = 20_000..30_000;

/// The first landlock that can let a file be moved or linked from one directory into another (Linux 5.19). The one before
/// it refuses that wherever it is in force, and with it git, npm and cargo; there the mounts stand alone.
const LANDLOCK_ABI_MIN: u32 = 2;

/// A jail whose root is built: ready to open sandboxes.
#[derive(Debug)]
pub(crate) struct Jail {
    root: Root,
    guest: OwnedFd,
    filter: Filter,
    zygote_filter: Filter,
    landlock_abi: u32,
    zygotes: Cell<i32>,
    zygote_id: Option<u32>,
}

impl Jail {
    pub(crate) fn new(root: Root, guest: OwnedFd, zygote_id: Option<u32>) -> Outcome<Jail> {
        sys::ignore_children().at("ignoring SIGCHLD")?;
        let landlock_abi = Some(belljar_seal::landlock_abi()).filter(|abi| *abi >= LANDLOCK_ABI_MIN).unwrap_or(0);
        if let Some(id) = zygote_id {
            child::own_namespaces_as(id)?;
        }
        let jail = Jail {
            root,
            guest,
            filter: Filter::sandbox()?,
            zygote_filter: Filter::zygote()?,
            landlock_abi,
            zygotes: Cell::new(0),
            zygote_id,
        };
        belljar_seal::restrict_jail()?;
        Ok(jail)
    }

    pub(crate) fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Makes a sandbox. The first descriptors are the guest's, the others are its cgroups.
    pub(crate) fn open(&self, open: &Open, mut fds: Vec<OwnedFd>) -> Outcome<OwnedFd> {
        let count = 1 + if open.with_kernel { KERNEL_ENDS } else { 0 };
        let doors = usize::from(open.ports.is_some());
        if fds.len() < count + doors {
            return Err(Failure { step: "taking the stream".to_owned(), errno: libc::EBADF });
        }
        let cgroups = fds.split_off(count + doors);
        let doors = fds.split_off(count);
        let guests = fds;
        let mut trees = trees_of(&open.layers)?;
        if let Some(name) = &open.build {
            trees.push(Tree::of_build(name)?);
        }
        let (wait, go) = pipe_with(PipeFlags::CLOEXEC).at("making a pipe")?;
        let (born_into, join) = entrances(open.cgroups, &cgroups);
        let cloned = sys::clone_into(NAMESPACES, born_into, None).at("clone into namespaces")?;
        let (pid, pidfd) = match cloned {
            Cloned::Child => {
                drop(go);
                child::become_guest(Given {
                    open,
                    guests: &guests,
                    wait,
                    cgroups: join,
                    doors: doors.first(),
                    late: &self.root.late,
                    trees: &trees,
                    landlock: match (self.landlock_abi, &open.build) {
                        (0, _) => Landlock::None,
                        (_, None) => Landlock::Up,
                        (_, Some(_)) => Landlock::UpForBuilding,
                    },
                    filter: &self.filter,
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

    /// Starts a zygote. The first descriptor is its end of its socket, the others are its cgroups.
    pub(crate) fn start_zygote(&self, zygote: &Zygote, fds: Vec<OwnedFd>) -> Outcome<OwnedFd> {
        let Some((socket, cgroups)) = fds.split_first() else {
            return Err(Failure { step: "taking the zygote's socket".to_owned(), errno: libc::EBADF });
        };
        let (born_into, join) = entrances(zygote.cgroups, cgroups);
        let trees = trees_of(&zygote.layers)?;
        let number = ZYGOTE_NUMBERS.start + self.zygotes.get() % ZYGOTE_NUMBERS.len() as i32;
        self.zygotes.set(self.zygotes.get().wrapping_add(1).max(0));
        match sys::clone_into(ZYGOTE_NAMESPACES, born_into, Some(number)).at("clone of a zygote")? {
            Cloned::Parent { pidfd, .. } => Ok(pidfd),
            Cloned::Child => zygote::become_zygote(&zygote::Given {
                zygote,
                socket,
                cgroups: join,
                late: &self.root.late,
                trees: &trees,
                filter: &self.zygote_filter,
                guest: self.guest.as_fd(),
                id: self.zygote_id,
            }),
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

fn trees_of(layers: &[Layer]) -> Outcome<Vec<Tree>> {
    layers.iter().map(Tree::of_layer).collect()
}

/// What a new process is born into, and what it has to join by itself.
fn entrances(entry: CgroupEntry, cgroups: &[OwnedFd]) -> (Option<BorrowedFd<'_>>, &[OwnedFd]) {
    match entry {
        CgroupEntry::BornInto => (cgroups.first().map(AsFd::as_fd), &[]),
        CgroupEntry::JoinTasks => (None, cgroups),
    }
}
