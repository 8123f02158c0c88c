//! Which process wrote a record, for good: numbers of processes come back, and with the boot and the start time they do not.

use std::fs;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// The boot of the machine.
    pub(crate) boot: String,
    /// The namespace that the number belongs to: that of a container means another process here.
    pub(crate) namespace: String,
    pub(crate) pid: i64,
    pub(crate) started: i64,
}

/// What is known of a process that wrote records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    Dead,
    /// It is of another namespace, into which we cannot look.
    Unknown,
}

impl Process {
    pub(crate) fn this() -> Process {
        let pid = std::process::id();
        let started = start_time(i64::from(pid)).unwrap_or(0);
        Process { boot: boot(), namespace: namespace(), pid: i64::from(pid), started }
    }

    /// As `this` process can tell.
    pub(crate) fn fate(&self, this: &Process) -> Fate {
        if self.boot != this.boot {
            return Fate::Dead;
        }
        if self.namespace != this.namespace {
            return Fate::Unknown;
        }
        if start_time(self.pid) == Some(self.started) { Fate::Alive } else { Fate::Dead }
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// When a process began, in clock ticks since boot; `None` if there is none.
fn start_time(pid: i64) -> Option<i64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, second field, may hold anything; the last parenthesis ends it. The start time is field 22.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    // One that is only waited for has ended.
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let this = Process::this();
        assert_ne!((this.started, this.boot.as_str()), (0, ""));
        assert_eq!(this.fate(&this), Fate::Alive);
        let reused = Process { started: this.started - 1, ..this.clone() };
        let before = Process { boot: "another".into(), ..this.clone() };
        let elsewhere = Process { namespace: "pid:[1]".into(), ..this.clone() };
        assert_eq!([reused, before, elsewhere].map(|p| p.fate(&this)), [Fate::Dead, Fate::Dead, Fate::Unknown]);
    }
}
