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
        let open = |name: &str| {
            let path = format!("/proc/{}/{name}", kernel.as_raw_nonzero());
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
        };
        Some(Meter { clock: Clock::of(kernel)?, stat: open("stat")?, status: open("status")? })
    }

    /// CPU time of the kernel and of the children that it has waited for. `None` when it is gone.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let mut text = [0; 1024];
        let count = rustix::io::pread(&self.stat, &mut text, 0).ok()?;
        let ticks = ticks_of_children(&text[..count])?;
        let children = Duration::from_millis(ticks.saturating_mul(1000) / sys::ticks_per_second());
        Some(self.clock.read()?.saturating_add(children))
    }

    /// The most memory that it ever had resident.
    pub(super) fn memory_peak_bytes(&self) -> u64 {
        let mut text = [0; 4096];
        let count = rustix::io::pread(&self.status, &mut text, 0).unwrap_or(0);
        peak_bytes(&text[..count])
    }
}

/// `cutime` and `cstime`, which are 14 and 15 behind the name. That can hold anything, parentheses too.
fn ticks_of_children(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let mut fields = str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().skip(13);
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
    fn the_peak_is_read_from_the_status() {
        assert_eq!(peak_bytes(b"Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t    12 kB\n"), 12 * 1024);
        assert_eq!(peak_bytes(b"Name:\tx\n"), 0);
    }
}
