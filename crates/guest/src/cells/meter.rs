//! What a living kernel has used, as /proc and its CPU clock tell it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::sys::{self, Clock};

/// Both files are kept open: a look is then one call each.
#[derive(Debug)]
pub(super) struct Meter {
    clock: Clock,
    stat: OwnedFd,
    status: OwnedFd,
}

impl Meter {
    pub(super) fn new(kernel: Pid) -> Option<Meter> {
        Some(Meter { clock: Clock::of(kernel)?, stat: open(kernel, "stat")?, status: open(kernel, "status")? })
    }

    /// CPU time of the kernel and of the children that it has waited for. `None` when it is gone.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let mut text = [0; 1024];
        let count = rustix::io::pread(&self.stat, &mut text, 0).ok()?;
        let ticks = ticks_of_children(&text[..count])?;
        let children = Duration::from_millis(ticks.saturating_mul(1000) / sys::ticks_per_second());
        Some(self.clock.read()?.saturating_add(children))
    }

    /// Whether it is on its way out: it ends, or a kill is about to be felt.
    pub(super) fn is_ending(&self) -> bool {
        is_ending(&self.stat, &self.status)
    }

    /// The most memory that it ever had resident.
    pub(super) fn memory_peak_bytes(&self) -> u64 {
        let mut text = [0; 4096];
        let count = rustix::io::pread(&self.status, &mut text, 0).unwrap_or(0);
        peak_bytes(&text[..count])
    }
}

/// As [`Meter::is_ending`], for a process of which no more is to be known.
pub(super) fn ends(process: Pid) -> bool {
    let files = open(process, "stat").zip(open(process, "status"));
    files.is_none_or(|(stat, status)| is_ending(&stat, &status))
}

fn open(process: Pid, name: &str) -> Option<OwnedFd> {
    let path = format!("/proc/{}/{name}", process.as_raw_nonzero());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn is_ending(stat: &OwnedFd, status: &OwnedFd) -> bool {
    let mut text = [0; 4096];
    let mut says = |file: &OwnedFd, end: fn(&[u8]) -> bool| {
        rustix::io::pread(file, &mut text, 0).map_or(true, |count| end(&text[..count]))
    };
    says(stat, exits) || says(status, was_killed)
}

/// What is behind the name, which can hold anything, parentheses too.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace())
}

/// By the flags, which are 7 behind the name.
fn exits(stat: &[u8]) -> bool {
    /// The kernel's PF_EXITING and, a little before that, PF_SIGNALED.
    const EXITING: u64 = 0x404;
    let flags = || fields(stat)?.nth(6)?.parse::<u64>().ok();
    flags().is_none_or(|flags| flags & EXITING != 0)
}

/// A kill stays among the signals that wait for the whole process until it is reaped; from those that wait for its thread it is
/// taken a moment before the flags tell of it.
fn was_killed(status: &[u8]) -> bool {
    const KILL: u64 = 1 << 8;
    let waiting = || value(status, "ShdPnd:").and_then(|set| u64::from_str_radix(set, 16).ok());
    waiting().is_some_and(|set| set & KILL != 0)
}

/// `cutime` and `cstime`, which are 14 and 15 behind the name.
fn ticks_of_children(stat: &[u8]) -> Option<u64> {
    let mut fields = fields(stat)?.skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()?.saturating_add(next()?))
}

fn peak_bytes(status: &[u8]) -> u64 {
    // gVisor's kernel tells only what it has now.
    let text = value(status, "VmHWM:").or_else(|| value(status, "VmRSS:"));
    text.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
}

/// The first word behind a name, colon included, in a `status` file.
fn value<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    let line = str::from_utf8(status).ok()?.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_something() {
        let meter = Meter::new(rustix::process::getpid()).unwrap();
        let before = meter.cpu().unwrap();
        let mut sum = 0_u64;
        while meter.cpu().unwrap() < before + Duration::from_millis(20) {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(meter.memory_peak_bytes() > 100_000, "{sum}");
    }

    #[test]
    fn a_name_cannot_forge_the_times() {
        let stat = b"7 (a) S 1 (b) R 1 7 7 0 -1 0 1 2 3 4 5 6 70 8 20 0";
        assert_eq!(ticks_of_children(stat), Some(78));
        assert_eq!(ticks_of_children(b"7 (a) S 1"), None);
        assert_eq!(ticks_of_children(b""), None);
    }

    #[test]
    fn a_process_that_is_killed_is_seen_to_end() {
        // Often, since what would miss a kill does so for a moment only.
        for _ in 0..200 {
            let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            let pid = Pid::from_raw(child.id() as i32).unwrap();
            let meter = Meter::new(pid).unwrap();
            assert!(!meter.is_ending() && !ends(pid));
            child.kill().unwrap();
            assert!(meter.is_ending() && ends(pid));
            child.wait().unwrap();
            assert!(meter.is_ending() && ends(pid));
        }
    }

    #[test]
    fn an_end_is_read_from_the_flags_and_from_the_signals() {
        assert!(exits(b"") && exits(b"7 (a) S 1"));
        assert!(exits(b"7 (a) R 1 7 7 0 -1 1028 1") && !exits(b"7 (a) S 1 7 7 0 -1 4194304 1"));
        assert!(was_killed(b"SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        // gVisor's kernel has no such line.
        assert!(!was_killed(b"SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n") && !was_killed(b""));
    }

    #[test]
    fn the_peak_is_read_from_the_status() {
        assert_eq!(peak_bytes(b"Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    12 kB\n"), 12 * 1024);
        assert_eq!(peak_bytes(b"Name:\tx\nVmRSS:\t8 kB\n"), 8 * 1024);
        assert_eq!(peak_bytes(b"Name:\tx\n"), 0);
    }
}
