//! What can be read off the host: processes, memory, files, mounts and cgroups. Only reads.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) state: char,
    pub(crate) threads: usize,
    /// In clock ticks after boot: with the pid it names a process for good.
    pub(crate) started: u64,
}

pub(crate) fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)).collect()
}

/// proc_pid_stat(5); the name in parentheses may itself hold spaces and parentheses.
fn parse_stat(pid: u32, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Process {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// A process, first, and everything below it. What runs in a sandbox is below the server, since the first process of a
/// sandbox adopts all that lose their parent there.
pub(crate) fn family(root: u32) -> Vec<Process> {
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    let mut found = Vec::new();
    for process in processes() {
        if process.pid == root {
            found.push(process);
        } else {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while let Some(pid) = found.get(next).map(|process: &Process| process.pid) {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Those of some processes that are still there and not merely waiting to be reaped.
pub(crate) fn survivors(of: &[Process]) -> Vec<u32> {
    let now = processes();
    let lives = |one: &&Process| {
        now.iter().any(|other| other.pid == one.pid && other.started == one.started && other.state != 'Z')
    };
    of.iter().filter(lives).map(|process| process.pid).collect()
}

/// Processes whose command line holds a text that only one case has.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let holds = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(mark.len()).any(|window| window == mark.as_bytes())
    };
    let own = std::process::id();
    processes().iter().map(|process| process.pid).filter(|pid| *pid != own).filter(holds).collect()
}

pub(crate) fn resident_kib(pid: u32) -> u64 {
    kib_in(&format!("/proc/{pid}/status"), "VmRSS:")
}

pub(crate) fn anonymous_kib(pid: u32) -> u64 {
    kib_in(&format!("/proc/{pid}/status"), "RssAnon:")
}

/// Memory that files in tmpfs and shared memory hold, of the whole host.
pub(crate) fn shared_memory_kib() -> u64 {
    kib_in("/proc/meminfo", "Shmem:")
}

fn kib_in(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// `None` when the kernel does not show them, as for another user's or a non-dumpable process.
pub(crate) fn open_files(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

pub(crate) fn open_files_max(pid: u32) -> Option<usize> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

pub(crate) fn network_namespaces(family: &[Process]) -> usize {
    let links = family.iter().filter_map(|process| fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok());
    links.collect::<HashSet<_>>().len()
}

/// Mounts of the host, but for those below a folder.
pub(crate) fn mounts(but_below: Option<&str>) -> usize {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let counts = |line: &&str| {
        let place = line.split(' ').nth(1).unwrap_or_default();
        but_below.is_none_or(|folder| !Path::new(place).starts_with(folder))
    };
    text.lines().filter(counts).count()
}

/// The cgroups of sandboxes: leaves below a folder named `belljar…`. In cgroup v1 a sandbox has one in each hierarchy,
/// under the same name, and counts once. A server's folder begins with its number; others' are none of our business.
pub(crate) fn sandbox_cgroups(servers: &BTreeSet<u32>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk_cgroups(Path::new("/sys/fs/cgroup"), None, 0, &mut found);
    found.retain(|name| servers.iter().any(|server| name.starts_with(&format!("belljar-{server}-"))));
    found
}

/// Whether the program that a process runs, or the script of a shell, is called so.
pub(crate) fn is_named(pid: u32, names: &[&str]) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(first).rsplit('/').next().unwrap_or_default().to_owned();
    names.iter().any(|wanted| name.starts_with(wanted))
}

fn walk_cgroups(folder: &Path, below: Option<String>, depth: usize, found: &mut BTreeSet<String>) {
    const DEPTH_MAX: usize = 12;
    if depth > DEPTH_MAX {
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders: Vec<_> = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).collect();
    if folders.is_empty() {
        found.extend(below.filter(|name| name.contains('/')));
        return;
    }
    for entry in folders {
        let name = entry.file_name().to_string_lossy().into_owned();
        let inner = match &below {
            Some(outer) => Some(format!("{outer}/{name}")),
            None => name.starts_with("belljar").then_some(name),
        };
        walk_cgroups(&entry.path(), inner, depth + 1, found);
    }
}

/// Everything named `belljar…` where programs leave things lying around.
pub(crate) fn strewn_entries() -> BTreeSet<PathBuf> {
    let mut folders: Vec<PathBuf> = ["/tmp", "/var/tmp", "/run", "/dev/shm"].map(PathBuf::from).into();
    folders.extend(fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path()));
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("belljar"));
    named.map(|entry| entry.path()).collect()
}

/// Free KiB and free inodes, summed over the file systems that programs usually write to.
pub(crate) fn free_space() -> Option<(u64, u64)> {
    let mut devices = HashSet::new();
    let (mut kib, mut inodes) = (0, 0);
    for folder in ["/", "/tmp", "/var/tmp", "/home", "/run", "/dev/shm"] {
        if !fs::metadata(folder).is_ok_and(|metadata| devices.insert(metadata.dev())) {
            continue;
        }
        // statvfs(3) without unsafe code.
        let output = Command::new("stat").args(["-f", "-c", "%f %S %d", folder]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [blocks, size, nodes] = numbers[..] else {
            return None;
        };
        kib += blocks * (size / 1024).max(1);
        inodes += nodes;
    }
    Some((kib, inodes))
}

/// One number for the contents of every program that a sandbox might start or be started by.
pub(crate) fn interpreters(server: &Path) -> u64 {
    let names = ["python3", "node", "sh", "bash", "perl", "env", "unshare"];
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"];
    let mut paths: BTreeSet<PathBuf> = BTreeSet::from([server.to_owned()]);
    for folder in folders {
        paths.extend(names.iter().filter_map(|name| fs::canonicalize(Path::new(folder).join(name)).ok()));
    }
    let mut hasher = DefaultHasher::new();
    for path in paths {
        path.hash(&mut hasher);
        fs::read(&path).ok().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_does_not_confuse() {
        let stat = "42 (a) R (b c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 3 0 100 200 300";
        let process = parse_stat(42, stat).unwrap();
        assert_eq!((process.parent, process.state, process.threads), (7, 'S', 3));
        assert_eq!(process.started, 100);
        assert!(parse_stat(1, "1 (x").is_none());
    }

    #[test]
    fn a_child_is_family_and_can_be_marked() {
        let mark = "70001.5017";
        let mut child = Command::new("sleep").arg(mark).spawn().unwrap();
        let family = family(std::process::id());
        assert!(family.iter().any(|process| process.pid == child.id()));
        assert!(marked(mark).contains(&child.id()));
        assert!(survivors(&family).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(marked(mark).is_empty());
        assert!(!survivors(&family).contains(&child.id()));
    }

    #[test]
    fn leaves_below_belljar_are_counted_once() {
        let folder = crate::battery::host::Folder::create("/tmp", "secbat-test-").unwrap();
        for path in ["memory/belljar-1/a", "pids/belljar-1/a", "pids/belljar-1/b", "pids/other/c", "cpu/belljar-2"] {
            fs::create_dir_all(folder.0.join(path)).unwrap();
        }
        let mut found = BTreeSet::new();
        walk_cgroups(&folder.0, None, 0, &mut found);
        assert_eq!(found, BTreeSet::from(["belljar-1/a".to_owned(), "belljar-1/b".to_owned()]));
    }

    #[test]
    fn the_host_can_be_measured() {
        let own = std::process::id();
        assert!(resident_kib(own) > 0 && anonymous_kib(own) > 0);
        assert!(open_files(own).unwrap() > 2 && open_files_max(own).unwrap() > 2);
        assert!(mounts(None) > 0 && free_space().unwrap().0 > 0);
        assert_eq!(interpreters(Path::new("/bin/sh")), interpreters(Path::new("/bin/sh")));
    }
}
