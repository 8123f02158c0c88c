//! A cgroup around the guest and all that it starts: the machine's own memory is the outer wall, and this one is met before
//! the kernel has to look for something to end among its own.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::OwnedFd;

use belljar_seal::{At, Outcome};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

const TREE: &str = "/cgroup";
const GROUP: &str = "/cgroup/guest";

pub(super) struct Memory {
    events: File,
    killed: u64,
}

impl Memory {
    pub(super) fn hold(bytes: u64) -> Outcome<Memory> {
        std::fs::create_dir_all(TREE).at("making a directory")?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("cgroup", TREE, "cgroup2", flags, None).at("mounting cgroups")?;
        std::fs::write(format!("{TREE}/cgroup.subtree_control"), "+memory").at("asking for the memory controller")?;
        std::fs::create_dir(GROUP).at("making a cgroup")?;
        std::fs::write(format!("{GROUP}/memory.max"), bytes.to_string()).at("limiting memory")?;
        let mut events = File::open(format!("{GROUP}/memory.events")).at("watching memory")?;
        // The first look is what changes are told from.
        let killed = killed(&mut events);
        Ok(Memory { events, killed })
    }

    /// For a process to go in: what it writes "0" to.
    pub(super) fn door(&self) -> Outcome<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(format!("{GROUP}/cgroup.procs"), flags, Mode::empty()).at("opening a cgroup")
    }

    pub(super) fn events(&self) -> &File {
        &self.events
    }

    /// How many were ended by now, if that has changed.
    pub(super) fn newly_killed(&mut self) -> Option<u64> {
        let killed = killed(&mut self.events);
        (std::mem::replace(&mut self.killed, killed) != killed).then_some(killed)
    }
}

fn killed(events: &mut File) -> u64 {
    let mut text = String::new();
    let read = events.rewind().and_then(|()| events.read_to_string(&mut text));
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    read.ok().and(line).and_then(|count| count.parse().ok()).unwrap_or(0)
}
