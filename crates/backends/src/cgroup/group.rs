//! The cgroups of one sandbox.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_core::Limits;
use belljar_core::wire::CgroupEntry;

use super::{Controller, Tree, Version, describe};

/// The quota of version 1 and 2 alike is so many microseconds of each such period, the kernel's own default.
const PERIOD_US: u64 = 100_000;

#[derive(Debug)]
pub(in super::super) struct Group {
    directories: Vec<PathBuf>,
    /// What the jail needs to put a process in: the directory itself (version 2), or its `tasks` file (version 1).
    entrances: Vec<OwnedFd>,
    entry: CgroupEntry,
    /// The file that counts the kernel's kills for memory, where there is a memory controller.
    memory_events: Option<PathBuf>,
    /// Where the processor time is counted, as far as it is.
    cpu: Option<PathBuf>,
    controllers: Vec<Controller>,
    description: String,
}

impl Group {
    fn empty(trees: &[Tree]) -> Group {
        Group {
            directories: Vec::new(),
            entrances: Vec::new(),
            entry: CgroupEntry::JoinTasks,
            memory_events: None,
            cpu: None,
            controllers: trees.iter().flat_map(|tree| tree.controllers.clone()).collect(),
            description: describe(trees),
        }
    }

    pub(super) fn create(trees: &[Tree], name: &str, limits: &Limits) -> io::Result<Group> {
        let mut group = Group::empty(trees);
        for tree in trees {
            let directory = tree.directory.join(name);
            if let Err(error) = fs::create_dir(&directory).and_then(|()| group.enter(tree, &directory, limits)) {
                group.remove_directories();
                return Err(error);
            }
        }
        Ok(group)
    }

    #[cfg(test)]
    pub(super) fn in_existing(tree: &Tree, directory: &Path, limits: &Limits) -> io::Result<Group> {
        let mut group = Group::empty(std::slice::from_ref(tree));
        group.enter(tree, directory, limits)?;
        Ok(group)
    }

    fn enter(&mut self, tree: &Tree, directory: &Path, limits: &Limits) -> io::Result<()> {
        self.directories.push(directory.to_owned());
        for controller in &tree.controllers {
            for setting in settings(tree.version, *controller, limits) {
                match fs::write(directory.join(setting.file), &setting.value) {
                    Err(error) if setting.optional && error.kind() != io::ErrorKind::StorageFull => {}
                    other => other?,
                }
            }
        }
        if tree.controllers.contains(&Controller::Memory) {
            let file = if tree.version == Version::One { "memory.oom_control" } else { "memory.events" };
            self.memory_events = Some(directory.join(file));
        }
        if tree.controllers.contains(&Controller::Cpu) {
            self.cpu = Some(directory.to_owned());
        }
        let entrance = match tree.version {
            Version::One => OpenOptions::new().write(true).open(directory.join("tasks"))?,
            Version::Two => {
                self.entry = CgroupEntry::BornInto;
                fs::File::open(directory)?
            }
        };
        self.entrances.push(entrance.into());
        Ok(())
    }

    pub(in super::super) fn entrances(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.entrances.iter().map(|fd| fd.as_fd())
    }

    /// For another process to go in: what it writes "0" to.
    pub(in super::super) fn doors(&self) -> io::Result<Vec<OwnedFd>> {
        let door = match self.entry {
            CgroupEntry::JoinTasks => "tasks",
            CgroupEntry::BornInto => "cgroup.procs",
        };
        let open = |directory: &PathBuf| OpenOptions::new().write(true).open(directory.join(door)).map(OwnedFd::from);
        self.directories.iter().map(open).collect()
    }

    /// Closes the entrances, once the sandbox is in.
    pub(in super::super) fn entered(mut self) -> Group {
        self.entrances = Vec::new();
        self
    }

    pub(in super::super) fn entry(&self) -> CgroupEntry {
        self.entry
    }

    pub(in super::super) fn holds(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    pub(in super::super) fn describe(&self) -> String {
        self.description.clone()
    }

    /// How often the kernel has killed for memory in here.
    pub(in super::super) fn memory_kills(&self) -> u64 {
        let text = self.memory_events.as_ref().and_then(|file| fs::read_to_string(file).ok());
        text.map_or(0, |text| count_kills(&text))
    }

    /// The processor time that was used in here. Version 1 counts it where `cpuacct` is mounted with `cpu`, as it mostly is.
    pub(in super::super) fn cpu_used(&self) -> Option<Duration> {
        let read = |file: &str| fs::read_to_string(self.cpu.as_ref()?.join(file)).ok();
        let stat = read("cpu.stat").unwrap_or_default();
        let microseconds = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse().ok());
        let nanoseconds = || read("cpuacct.usage")?.trim().parse().ok().map(Duration::from_nanos);
        microseconds.map(Duration::from_micros).or_else(nanoseconds)
    }

    /// Removes the directories, once the last process in them is gone. That takes the kernel a moment more than the
    /// process itself.
    pub(in super::super) async fn remove(&self) {
        for wait_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] {
            if wait_ms > 0 {
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            }
            if self.remove_directories() {
                return;
            }
        }
        tracing::warn!(directories = ?self.directories, "cgroups stayed busy; the next start removes them");
    }

    /// The same where nobody can wait but by standing still. What is left the next start removes.
    pub(in super::super) fn remove_now(&self) {
        for wait_ms in [0, 1, 2, 5, 10, 20] {
            std::thread::sleep(Duration::from_millis(wait_ms));
            if self.remove_directories() {
                return;
            }
        }
    }

    /// Whether all of them are gone.
    fn remove_directories(&self) -> bool {
        self.directories.iter().fold(true, |gone, directory| {
            let removed = match fs::remove_dir(directory) {
                Ok(()) => true,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            };
            gone && removed
        })
    }
}

struct Setting {
    file: &'static str,
    value: String,
    /// Some kernels are built without it.
    optional: bool,
}

fn settings(version: Version, controller: Controller, limits: &Limits) -> Vec<Setting> {
    let must = |file, value: u64| Setting { file, value: value.to_string(), optional: false };
    let may = |file, value: u64| Setting { file, value: value.to_string(), optional: true };
    let quota_us = u64::from(limits.cpu_milli) * PERIOD_US / 1000;
    // The guest agent and the runner of each program are not the caller's.
    let processes = u64::from(limits.processes) + 2;
    match (version, controller) {
        (Version::One, Controller::Memory) => vec![
            must("memory.limit_in_bytes", limits.memory_bytes),
            // Memory and swap together: after the line above, or it would be refused.
            may("memory.memsw.limit_in_bytes", limits.memory_bytes),
            // What waits in TCP sockets is counted apart in this version.
            may("memory.kmem.tcp.limit_in_bytes", limits.memory_bytes / 4),
        ],
        (Version::One, Controller::Cpu) => {
            vec![must("cpu.cfs_quota_us", quota_us)]
        }
        (Version::Two, Controller::Memory) => vec![must("memory.max", limits.memory_bytes), may("memory.swap.max", 0)],
        (Version::Two, Controller::Cpu) => {
            vec![Setting { file: "cpu.max", value: format!("{quota_us} {PERIOD_US}"), optional: false }]
        }
        (_, Controller::Pids) => vec![must("pids.max", processes)],
    }
}

/// Both versions have a line `oom_kill <number>`.
fn count_kills(text: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}
