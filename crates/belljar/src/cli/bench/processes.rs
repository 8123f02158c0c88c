//! What can be seen of a server on the host: its processes and their memory, its cgroups, mounts and descriptors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    parent: u32,
    is_running: bool,
    ticks: u64,
    /// In ticks since the machine's start: another process may come to have the number.
    started: u64,
}

/// proc_pid_stat(5); the name, in parentheses, may hold anything.
fn stat(text: &str) -> Option<Process> {
    let (pid, _) = text.split_once(' ')?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        is_running: *fields.first()? == "R",
        ticks: number(11)? + number(12)?,
        started: number(19)?,
    })
}

/// A process and everything below it.
pub(super) fn family(root: u32) -> Vec<Process> {
    families(&[root])
}

/// Whether it is still there. What nobody has asked for its end yet has ended all the same.
pub(super) fn lives(process: &Process) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{}/stat", process.pid)) else { return false };
    let is_over = text.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z") || rest.starts_with(" X"));
    !is_over && stat(&text).is_some_and(|now| now.started == process.started)
}

/// Everything in the cgroups of a server, whoever its parent is by now.
pub(super) fn confined(server: u32) -> Vec<Process> {
    let mut pids = Vec::new();
    each_cgroup(server, &mut |folder| {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    });
    pids.sort_unstable();
    pids.dedup();
    let read = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    pids.into_iter().filter_map(|pid| stat(&read(pid)?)).collect()
}

pub(super) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().count()
}

fn families(roots: &[u32]) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let read = |pid: u32| fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    below(roots, &pids.filter_map(|pid| stat(&read(pid)?)).collect::<Vec<_>>())
}

fn below(roots: &[u32], all: &[Process]) -> Vec<Process> {
    let mut known: BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = known.len();
        known.extend(
            all.iter().filter(|process| known.contains(&process.parent)).map(|one| one.pid).collect::<Vec<_>>(),
        );
        if known.len() == before {
            return all.iter().filter(|process| known.contains(&process.pid)).copied().collect();
        }
    }
}

/// Waits until servers have nothing more to do: what they clear away after an answer, or prepare for the next, must be
/// billed to nobody. At most so long, for one that never rests.
pub(super) fn settle(servers: &[u32], at_most: Duration) {
    let deadline = Instant::now() + at_most;
    let mut last: Option<Vec<Process>> = None;
    loop {
        let now = families(servers);
        // The state is that of a process's first thread; the time it has used tells of the others.
        let rests = !now.iter().any(|process| process.is_running);
        if (rests && last.as_ref() == Some(&now)) || Instant::now() >= deadline {
            return;
        }
        last = Some(now);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The share of memory that is a process's own: pages that several have are divided among them.
pub(super) fn pss_kib(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    // The kernel says so when it reads, not when it opens, if the process is on its way out.
    let text =
        fs::read_to_string(&path).with_context(|| format!("reading {path}, for which one may have to be root"))?;
    kib_in(&text, "Pss:").with_context(|| format!("no Pss in {path}"))
}

/// A line of /proc/PID/status, such as `VmRSS:`.
pub(super) fn status_kib(pid: u32, name: &str) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("reading the server's status")?;
    kib_in(&text, name).with_context(|| format!("the server's status has no {name}"))
}

/// The number in a line such as `Pss:     257 kB`.
fn kib_in(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The processes of a server's sandboxes, by their sandbox: each has a pid namespace whose first process is the guest. The
/// jail has one too, with the zygotes in it.
pub(super) fn sandboxes(server: u32) -> Vec<Vec<u32>> {
    let namespace = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mut found: BTreeMap<PathBuf, Vec<u32>> = BTreeMap::new();
    for process in family(server) {
        if let Some(inside) = namespace(process.pid) {
            found.entry(inside).or_default().push(process.pid);
        }
    }
    let is_guest = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"belljar-guest\0");
    found.into_values().filter(|pids| pids.iter().any(is_guest)).collect()
}

/// What a process runs, by the name of its file.
pub(super) fn program(pid: u32) -> String {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = file.and_then(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
    name.or_else(|| fs::read_to_string(format!("/proc/{pid}/comm")).ok()).unwrap_or_default()
}

pub(super) fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().count()
}

/// As that process sees them.
pub(super) fn mounts(pid: u32) -> usize {
    fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default().lines().count()
}

/// How many directories the cgroups of a server have.
pub(super) fn cgroups(server: u32) -> usize {
    let mut count = 0;
    each_cgroup(server, &mut |_| count += 1);
    count
}

/// The directories of a server's cgroups, in whatever version and tree: its own begin with its number, and those of its
/// sandboxes are in them.
fn each_cgroup(server: u32, look: &mut dyn FnMut(&Path)) {
    fn walk(folder: &Path, prefix: &str, is_inside: bool, look: &mut dyn FnMut(&Path)) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let is_ours = is_inside || entry.file_name().to_string_lossy().starts_with(prefix);
            if is_ours {
                look(&entry.path());
            }
            walk(&entry.path(), prefix, is_ours, look);
        }
    }
    walk(Path::new("/sys/fs/cgroup"), &format!("belljar-{server}-"), false, look);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let line = "7 (a ) b) R 3 7 7 0 -1 4194560 100 0 0 0 12 34 0 0 20 0 1 0 5 0 0";
        assert_eq!(stat(line), Some(Process { pid: 7, parent: 3, is_running: true, ticks: 46, started: 5 }));
        assert_eq!(stat("7 (a"), None);
        let rollup = "555573996000-7ffedd3e5000 ---p 00000000 00:00 0   [rollup]\nRss:   540 kB\nPss:   257 kB\n\
            Pss_Dirty:   9 kB\n";
        assert_eq!(kib_in(rollup, "Pss:"), Some(257));
        assert_eq!(kib_in(rollup, "Swap:"), None);
        assert_eq!(kib_in("Pss: many kB", "Pss:"), None);
    }

    #[test]
    fn a_family_is_everything_below() {
        let process = |pid, parent| Process { pid, parent, is_running: false, ticks: 0, started: 0 };
        let all = [process(9, 5), process(2, 1), process(5, 2), process(7, 1)];
        let pids: Vec<u32> = below(&[2], &all).iter().map(|process| process.pid).collect();
        assert_eq!(pids, [9, 2, 5]);
    }
}
