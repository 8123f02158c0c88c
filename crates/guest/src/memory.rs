//! The memory watch, for places where no cgroup holds the memory: a look at everything, many times a second. Past the
//! limit it does as the kernel would, and ends the largest process, and the next, until the rest fits.
//!
//! It is the weaker wall: what is allocated and freed between two looks is not seen, nor is what the kernel keeps for
//! pipes and sockets, nor memory files that nobody has mapped. Where the sandbox has a kernel of its own, which is gVisor's, that
//! one tells what all of it together has, and then these are counted too.

use std::time::{Duration, Instant};

use belljar_core::WORKSPACE;
use rustix::io::Errno;

use crate::sys;
use crate::tree::{for_each_process, read_small};

/// How closely it is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pace {
    /// Only what cells have left behind can grow. A sandbox that does nothing is not to wake its machine all the time.
    Loose,
    /// Something runs.
    Close,
}

impl Pace {
    fn every(self) -> Duration {
        match self {
            Pace::Loose => Duration::from_millis(250),
            Pace::Close => Duration::from_millis(50),
        }
    }
}

/// Shared memory below this is not looked at more closely: programs and libraries are shared memory too, and the closer
/// look costs three times as much.
const SHARED_WORTH_A_LOOK: u64 = 64 * 1024 * 1024;

/// What only gVisor's kernel has in /proc. Programs cannot put anything there.
const OF_GVISOR: &str = "/proc/sentry-meminfo";

#[derive(Debug)]
pub(crate) struct Watch {
    limit_bytes: u64,
    page_bytes: u64,
    next: Option<Instant>,
    measure: Measure,
}

/// Where the sum comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measure {
    /// The kernel is the host's: what processes have, one by one.
    Processes,
    /// The kernel is the sandbox's own. It does not tell apart what a process shares with others, so that the sum of all would
    /// be far too large, but it tells how much of the machine's memory is used, and the machine is the sandbox.
    Machine,
}

impl Watch {
    pub(crate) fn new(limit_bytes: u64) -> Watch {
        let measure = if std::path::Path::new(OF_GVISOR).exists() { Measure::Machine } else { Measure::Processes };
        Watch { limit_bytes, page_bytes: sys::page_bytes(), next: None, measure }
    }

    /// How long until the next look.
    pub(crate) fn patience(&self, pace: Pace) -> Duration {
        self.next.map_or(pace.every(), |next| next.saturating_duration_since(Instant::now()).min(pace.every()))
    }

    /// Looks, if it is time to, and says which processes have to go. For as long as a program runs.
    /// An error is that it could not look.
    pub(crate) fn look(&mut self, pace: Pace) -> rustix::io::Result<Vec<i32>> {
        let now = Instant::now();
        let is_time = self.next.is_some_and(|next| now >= next);
        let latest = now + pace.every();
        self.next = Some(if is_time { latest } else { self.next.map_or(latest, |next| next.min(latest)) });
        if !is_time {
            return Ok(Vec::new());
        }
        match self.measure {
            Measure::Processes => Ok(self.use_now()?.over(self.limit_bytes)),
            Measure::Machine => {
                let used = used_bytes(&std::fs::read("/proc/meminfo").unwrap_or_default()).ok_or(Errno::IO)?;
                if used <= self.limit_bytes {
                    return Ok(Vec::new());
                }
                // By what each has; of that, only so much less is used when it is gone. The next look sees whether it was enough.
                Ok(self.use_now()?.largest())
            }
        }
    }

    /// No program runs: the next look is a whole period after the next start.
    pub(crate) fn rest(&mut self) {
        self.next = None;
    }

    /// What each process has for itself, and what is shared in memory files. The latter is the files of the sandbox, or
    /// the largest that one process has mapped, if that is more: their sum would count the same pages twice.
    fn use_now(&self) -> rustix::io::Result<Use> {
        let mut seen = Use { private: Vec::new(), shared_bytes: files_bytes() };
        let mut text = Vec::with_capacity(4096);
        for_each_process(|pid, proc| {
            if !read_small(proc, pid, "statm", &mut text) {
                return;
            }
            let Some(pages) = Pages::parse(&text) else { return };
            seen.private.push((pages.private * self.page_bytes, pid));
            if pages.shared * self.page_bytes > SHARED_WORTH_A_LOOK && read_small(proc, pid, "status", &mut text) {
                seen.shared_bytes = seen.shared_bytes.max(shared_bytes(&text));
            }
        })?;
        Ok(seen)
    }
}

/// What one look saw.
#[derive(Debug)]
struct Use {
    /// Bytes that each process has for itself, and its number.
    private: Vec<(u64, i32)>,
    shared_bytes: u64,
}

impl Use {
    fn total(&self) -> u64 {
        self.private.iter().map(|(bytes, _)| bytes).sum::<u64>() + self.shared_bytes
    }

    /// The largest process. Never the first: it is us.
    fn largest(self) -> Vec<i32> {
        let others = self.private.into_iter().filter(|&(_, pid)| pid != 1);
        others.max().map(|(_, pid)| pid).into_iter().collect()
    }

    /// The largest processes, so many that without them the limit is kept. Never the first: it is us.
    fn over(mut self, limit_bytes: u64) -> Vec<i32> {
        let mut total = self.total();
        self.private.sort_unstable_by(|one, other| other.cmp(one));
        let others = self.private.into_iter().filter(|&(_, pid)| pid != 1);
        others
            .take_while(|(bytes, _)| {
                let goes = total > limit_bytes;
                total -= bytes;
                goes
            })
            .map(|(_, pid)| pid)
            .collect()
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Pages {
    private: u64,
    shared: u64,
}

impl Pages {
    /// `size resident shared ...`
    fn parse(statm: &[u8]) -> Option<Pages> {
        let mut numbers = str::from_utf8(statm).ok()?.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
        let (resident, shared) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some(Pages { private: resident.saturating_sub(shared), shared })
    }
}

/// `RssShmem` of a process's status: memory files and shared mappings, without programs and libraries.
fn shared_bytes(status: &[u8]) -> u64 {
    let Ok(text) = str::from_utf8(status) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("RssShmem:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// What is used of gVisor's memory, by its /proc/meminfo: what programs have, and what is in memory files, which it counts among
/// these pages too. Not what only copies files of the host, which can be had again.
fn used_bytes(meminfo: &[u8]) -> Option<u64> {
    let line = str::from_utf8(meminfo).ok()?.lines().find_map(|line| line.strip_prefix("AnonPages:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn files_bytes() -> u64 {
    rustix::fs::statvfs(WORKSPACE).map_or(0, |stat| stat.f_blocks.saturating_sub(stat.f_bfree) * stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_what_is_not_shared() {
        assert_eq!(Pages::parse(b"1000 300 120 5 0 60 0\n"), Some(Pages { private: 180, shared: 120 }));
        assert_eq!(Pages::parse(b"1000 100 120 5 0 60 0\n"), Some(Pages { private: 0, shared: 120 }));
        assert_eq!(Pages::parse(b"1000"), None);
        assert_eq!(Pages::parse(b"0 0 x"), None);
    }

    #[test]
    fn shared_memory_is_read_from_the_status() {
        assert_eq!(
            shared_bytes(b"Name:\tx\nRssFile:\t 10 kB\nRssShmem:\t     2048 kB\nVmData: 1 kB\n"),
            2 * 1024 * 1024
        );
        assert_eq!(shared_bytes(b"Name:\tx\n"), 0);
    }

    #[test]
    fn what_a_machine_uses_is_read_from_its_meminfo() {
        let text =
            b"MemTotal:       24684100 kB\nMemFree: 9 kB\nAnonPages:     2048 kB\nMapped: 7 kB\nShmem:       1024 kB\n";
        assert_eq!(used_bytes(text), Some(2 * 1024 * 1024));
        assert_eq!(used_bytes(b"MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn this_process_uses_something() {
        assert!(Watch::new(0).use_now().unwrap().total() > 100_000);
    }

    #[test]
    fn the_largest_go_until_the_rest_fits() {
        let seen = || Use { private: vec![(9, 1), (1, 2), (40, 3), (7, 4), (30, 5)], shared_bytes: 10 };
        assert_eq!(seen().largest(), [3]);
        assert_eq!(Use { private: vec![(9, 1)], shared_bytes: 10 }.largest(), [0; 0]);
        assert_eq!(seen().over(97), []);
        assert_eq!(seen().over(96), [3]);
        assert_eq!(seen().over(57), [3]);
        assert_eq!(seen().over(56), [3, 5]);
        // Files that are too large take everyone with them, but not us.
        assert_eq!(seen().over(5), [3, 5, 4, 2]);
    }
}
