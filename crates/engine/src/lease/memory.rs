//! How much memory is left to us: on the machine, and in each cgroup above us that has a limit.
//!
//! Where nothing can be read there is no limit that we know of, and what is prepared keeps to its budget alone.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// One bound on our memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(super) total_bytes: u64,
    pub(super) available_bytes: u64,
}

/// All bounds as they stand now.
pub(crate) type Gauge = Box<dyn Fn() -> Vec<Memory> + Send + Sync>;

/// The gauge of this host. Made after the backend has started: that may put the server into another cgroup.
pub(crate) fn host_gauge() -> Gauge {
    let groups = groups(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"));
    Box::new(move || {
        let mut bounds: Vec<Memory> = of_machine(&text("/proc/meminfo")).into_iter().collect();
        let machine = bounds.first().map_or(u64::MAX, |machine| machine.total_bytes);
        // More than the machine has is no limit: version 1 writes "none" as a number near 2^63.
        bounds.extend(groups.iter().filter_map(Group::read).filter(|group| group.total_bytes < machine));
        bounds
    })
}

/// Whether what nobody uses should be given back. Pressure begins below a tenth and ends only above an eighth, so that
/// what we give back ourselves is not taken for the end of it.
pub(super) fn is_short(bounds: &[Memory], was_short: bool) -> bool {
    let parts = if was_short { 8 } else { 10 };
    bounds.iter().any(|memory| memory.available_bytes < memory.total_bytes / parts)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn of_machine(meminfo: &str) -> Option<Memory> {
    let kib = |name: &str| number(meminfo, name).map(|kib| kib.saturating_mul(1024));
    Some(Memory { total_bytes: kib("MemTotal:")?, available_bytes: kib("MemAvailable:")? })
}

/// A cgroup that may have a limit.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    version: Version,
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Group {
    fn read(&self) -> Option<Memory> {
        let (limit, usage) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::Two => ("memory.max", "memory.current"),
        };
        let of = |name: &str| text(self.directory.join(name));
        of_group(self.version, &of(limit), &of(usage), &of("memory.stat"))
    }
}

/// Nothing where there is no limit (`max`, or no such file).
fn of_group(version: Version, limit: &str, usage: &str, stat: &str) -> Option<Memory> {
    let total_bytes: u64 = limit.trim().parse().ok()?;
    let usage: u64 = usage.trim().parse().ok()?;
    // Pages of files can be dropped, and the kernel does so before it lets anybody go without. They are what most of a
    // container's usage is after a while; `MemAvailable` counts them as available too.
    let (inactive, active) = match version {
        Version::One => ("total_inactive_file", "total_active_file"),
        Version::Two => ("inactive_file", "active_file"),
    };
    let files = number(stat, inactive).unwrap_or(0).saturating_add(number(stat, active).unwrap_or(0));
    let held = usage.saturating_sub(files);
    Some(Memory { total_bytes, available_bytes: total_bytes.saturating_sub(held) })
}

/// The number behind a name that begins a line.
fn number(text: &str, name: &str) -> Option<u64> {
    let is_it = |line: &&str| line.split_ascii_whitespace().next() == Some(name);
    text.lines().find(is_it)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn is_name(part: &Component<'_>) -> bool {
    matches!(part, Component::Normal(_))
}

/// Our own cgroup and all above it, as far as they are mounted: a limit may be on any of them. From the texts of
/// /proc/self/mountinfo and /proc/self/cgroup.
fn groups(mountinfo: &str, memberships: &str) -> Vec<Group> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup2" => Version::Two,
            "cgroup" if after.nth(1)?.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        let mut before = before.split(' ').skip(3);
        Some((version, before.next()?, before.next()?.replace("\\040", " ")))
    });
    let above = mounts.filter_map(|(version, root, point)| {
        let membership = memberships.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let is_it = match version {
                Version::One => controllers.split(',').any(|name| name == "memory"),
                Version::Two => controllers.is_empty(),
            };
            is_it.then_some(path)
        })?;
        // In a container the tree is often mounted from its own part on, while the path is the whole one.
        let below = Path::new(membership).strip_prefix(root).unwrap_or(Path::new(""));
        let own: PathBuf = Path::new(&point).components().chain(below.components().filter(is_name)).collect();
        let directories = own.ancestors().take_while(|directory| directory.starts_with(&point));
        Some(directories.map(|directory| Group { version, directory: directory.to_owned() }).collect::<Vec<_>>())
    });
    above.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn the_machines_own_word_is_read() {
        let text = "MemTotal:        2048 kB\nMemFree:          10 kB\nMemAvailable:     512 kB\nBuffers: 1 kB\n";
        assert_eq!(of_machine(text), Some(Memory { total_bytes: 2 * MIB, available_bytes: MIB / 2 }));
        for odd in ["", "MemTotal: 1 kB", "MemTotal: x kB\nMemAvailable: 1 kB", "MemTotalMemAvailable:"] {
            assert_eq!(of_machine(odd), None, "{odd}");
        }
        let far = format!("MemTotal: {0} kB\nMemAvailable: {0} kB", u64::MAX);
        assert_eq!(of_machine(&far), Some(Memory { total_bytes: u64::MAX, available_bytes: u64::MAX }));
    }

    #[test]
    fn files_of_a_cgroup_count_as_available() {
        let stat = "anon 300\ninactive_file 100\nactive_file 50\n";
        let left = |available_bytes| Some(Memory { total_bytes: 1000, available_bytes });
        assert_eq!(of_group(Version::Two, "1000\n", "800\n", stat), left(350));
        assert_eq!(of_group(Version::Two, "1000\n", "800\n", ""), left(200));
        assert_eq!(of_group(Version::Two, "1000\n", "1200\n", ""), left(0), "it may be past its limit for a moment");
        assert_eq!(of_group(Version::Two, "1000\n", "100\n", stat), left(1000), "the two are read one after the other");
        assert_eq!(of_group(Version::Two, "max\n", "800\n", stat), None);
        assert_eq!(of_group(Version::Two, "", "", ""), None);
        let stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n";
        assert_eq!(of_group(Version::One, "1000\n", "800\n", stat), left(350));
    }

    #[test]
    fn every_cgroup_above_us_is_looked_at() {
        let directories = |mountinfo: &str, memberships: &str| {
            let found = groups(mountinfo, memberships).into_iter();
            found.map(|group| (group.version, group.directory.to_str().unwrap().to_owned())).collect::<Vec<_>>()
        };
        let one = |path: &str| (Version::One, path.to_owned());
        let two = |path: &str| (Version::Two, path.to_owned());
        assert_eq!(
            directories(
                "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate",
                "0::/user.slice/a b.service\n"
            ),
            [two("/sys/fs/cgroup/user.slice/a b.service"), two("/sys/fs/cgroup/user.slice"), two("/sys/fs/cgroup")]
        );
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 /docker/x /cg\\040s/memory rw - cgroup cgroup rw,memory\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            directories(hybrid, "4:memory:/docker/x/y\n2:cpu,cpuacct:/docker/x\n0::/\n"),
            [one("/cg s/memory/y"), one("/cg s/memory"), two("/sys/fs/cgroup/unified")]
        );
        assert_eq!(directories("", "0::/\n"), []);
        assert_eq!(directories("30 23 0:26 / /c rw - cgroup2", ""), []);
    }

    #[test]
    fn short_is_below_a_tenth_until_it_is_above_an_eighth() {
        let of = |available_bytes| {
            [Memory { total_bytes: 4000, available_bytes: 4000 }, Memory { total_bytes: 1000, available_bytes }]
        };
        assert_eq!([99, 100, 124, 125].map(|available| is_short(&of(available), false)), [true, false, false, false]);
        assert_eq!([99, 100, 124, 125].map(|available| is_short(&of(available), true)), [true, true, true, false]);
        assert!(!is_short(&[], false) && !is_short(&[], true));
    }

    #[test]
    fn this_host_tells() {
        let bounds = host_gauge()();
        if !Path::new("/proc/meminfo").exists() {
            println!("skipped: there is no /proc/meminfo here");
            return;
        }
        assert!(bounds.first().is_some_and(|machine| machine.total_bytes > machine.available_bytes), "{bounds:?}");
        assert!(bounds.iter().all(|memory| memory.available_bytes > 0), "{bounds:?}");
    }
}
