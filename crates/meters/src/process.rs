//! What this process itself takes, as Linux tells it; elsewhere nothing is told.

use std::fs;

/// Ticks of the clock in `/proc/self/stat`, a constant of the kernel's interface.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Process {
    pub(crate) resident_bytes: u64,
    pub(crate) open_files: u64,
    pub(crate) cpu_seconds: f64,
    pub(crate) threads: u64,
}

impl Process {
    pub(crate) fn look() -> Process {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The look itself has one open.
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1) as u64);
        Process {
            resident_bytes: field(&status, "VmRSS:").unwrap_or(0) * 1024,
            threads: field(&status, "Threads:").unwrap_or(0),
            open_files,
            cpu_seconds: cpu_seconds(&stat).unwrap_or(0.0),
        }
    }
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// The name of the program, which may have anything in it, stands in brackets before the numbers.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let mut words = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_whatever_the_program_is_called() {
        assert_eq!(field("Name:\tx\nVmRSS:\t  1234 kB\nThreads:\t3\n", "VmRSS:"), Some(1234));
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 1 1 1";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("nonsense"), None);
    }

    #[test]
    fn this_process_takes_something() {
        let now = Process::look();
        assert!(now.resident_bytes > 1 << 20 && now.open_files >= 3 && now.threads >= 1, "{now:?}");
    }
}
