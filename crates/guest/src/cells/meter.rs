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
        is_ending(&self.stat)
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
    open(process, "stat").is_none_or(|stat| is_ending(&stat))
}

fn open(process: Pid, name: &str) -> Option<OwnedFd> {
    let path = format!("/proc/{}/{name}", process.as_raw_nonzero());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn is_ending(stat: &OwnedFd) -> bool {
    let mut text = [0; 1024];
    rustix::io::pread(stat, &mut text, 0).map_or(true, |count| says_end(&text[..count]))
}

/// What is behind the name, which can hold anything, parentheses too.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace())
}

/// By the flags, which are 7 behind the name, and the signals that wait for it, 22 behind those.
fn says_end(stat: &[u8]) -> bool {
    /// The kernel's PF_EXITING and, a little before that, PF_SIGNALED.
    const EXITING: u64 = 0x404;
    const KILL: u64 = 1 << 8;
    let bits = |fields: &mut dyn Iterator<Item = &str>, skipped| fields.nth(skipped)?.parse::<u64>().ok();
    let Some(mut fields) = fields(stat) else { return true };
    let (flags, signals) = (bits(&mut fields, 6), bits(&mut fields, 21));
    flags.is_none_or(|flags| flags & EXITING != 0) || signals.is_none_or(|signals| signals & KILL != 0)
}

/// `cutime` and `cstime`, which are 14 and 15 behind the name.
fn ticks_of_children(stat: &[u8]) -> Option<u64> {
    let mut fields = fields(stat)?.skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()?.saturating_add(next()?))
}

fn peak_bytes(status: &[u8]) -> u64 {
    let Ok(text) = str::from_utf8(status) else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
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
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let meter = Meter::new(pid).unwrap();
        assert!(!meter.is_ending());
        child.kill().unwrap();
        assert!(meter.is_ending());
        child.wait().unwrap();
        assert!(meter.is_ending());
        assert!(ends(pid));
        assert!(says_end(b"") && says_end(b"7 (a) S 1"));
    }

    #[test]
    fn the_peak_is_read_from_the_status() {
        assert_eq!(peak_bytes(b"Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    12 kB\n"), 12 * 1024);
        assert_eq!(peak_bytes(b"Name:\tx\n"), 0);
    }
}
