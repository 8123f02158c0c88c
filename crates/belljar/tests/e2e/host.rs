//! What can be seen on the host: processes by a mark, mounts, cgroups, files that somebody left lying.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Waits for something that must come to be.
#[track_caller]
pub(crate) fn until(what: &str, at_most: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + at_most;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {at_most:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A number of seconds for sleep(1) that nobody else on this host sleeps for.
pub(crate) fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap();
    format!(
        "9{:04}.{:07}{:03}",
        since_1970.subsec_micros() % 10_000,
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Processes, in whatever sandbox, that sleep for so long.
pub(crate) fn sleepers(mark: &str) -> Vec<u32> {
    let sleeps = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first().is_some_and(|word| word.ends_with(b"sleep")) && words.contains(&mark.as_bytes())
    };
    pids().filter(sleeps).collect()
}

#[track_caller]
pub(crate) fn until_gone(mark: &str, at_most: Duration) {
    until("nothing of the program is left", at_most, || sleepers(mark).is_empty());
}

/// A process for good: numbers come back, start times do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    started: u64,
}

impl Process {
    /// A process that only waits to be reaped is gone.
    pub(crate) fn lives(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.process == self && stat.state != "Z")
    }
}

/// Everything below a process.
pub(crate) fn descendants(root: u32) -> BTreeSet<Process> {
    let all: Vec<Stat> = pids().filter_map(stat).collect();
    let mut parents = BTreeSet::from([root]);
    let mut found = BTreeSet::new();
    loop {
        let children: Vec<_> = all.iter().filter(|stat| parents.contains(&stat.parent)).collect();
        let before = found.len();
        parents.extend(children.iter().map(|stat| stat.process.pid));
        found.extend(children.iter().map(|stat| stat.process));
        if found.len() == before {
            return found;
        }
    }
}

struct Stat {
    process: Process,
    parent: u32,
    state: String,
}

/// proc_pid_stat(5); the name, in parentheses, may hold anything.
fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let process = Process { pid, started: fields.get(19)?.parse().ok()? };
    Some(Stat { process, parent: fields.get(1)?.parse().ok()?, state: (*fields.first()?).to_owned() })
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Through the shell, which keeps this crate free of unsafe code.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("/bin/sh").args(["-c", &format!("kill -{name} {pid}")]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}: {status}");
}

/// The most memory that a process ever had.
pub(crate) fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

pub(crate) fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

pub(crate) fn mounts() -> BTreeSet<String> {
    fs::read_to_string("/proc/self/mounts").unwrap().lines().map(str::to_owned).collect()
}

/// The cgroup directories of a server, in whatever version and tree: they begin with its number.
pub(crate) fn cgroups_of(server: u32) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    walk(Path::new("/sys/fs/cgroup"), &format!("belljar-{server}-"), &mut found);
    found
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.insert(entry.path());
        }
        walk(&entry.path(), prefix, found);
    }
}

/// The cgroup directories of a server's sandboxes: those inside its own.
pub(crate) fn sandbox_cgroups_of(server: u32) -> Vec<PathBuf> {
    let inner = |folder: &PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    let entries = cgroups_of(server).iter().flat_map(inner).collect::<Vec<_>>();
    entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Whatever bears our name where programs leave things.
pub(crate) fn strewn() -> BTreeSet<PathBuf> {
    let entries = ["/tmp", "/var/tmp", "/run", "/dev/shm"].into_iter().flat_map(fs::read_dir).flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        ["belljar", "sandbox", "jail"].iter().any(|word| name.contains(word))
    });
    ours.map(|entry| entry.path()).collect()
}
