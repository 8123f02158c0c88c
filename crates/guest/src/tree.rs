//! The processes of the sandbox, as /proc tells them: finding those that no living runner answers for, and ending them.
//!
//! Only needed while several programs run; when there is one, process 1 can simply kill everyone else.

use std::collections::BTreeSet;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::sys;

/// Rounds of stopping before killing: with each the processes that still run get fewer, and a bomb of a few hundred is
/// still after three or four. What outlives them is met again at the next look.
const ROUNDS_MAX: usize = 16;

/// From a process up to its runner. What is further down is nobody's.
const STEPS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strays {
    None,
    /// They have been killed, and are to be reaped.
    Killed,
}

/// Kills all strays: processes that are not below one of `runners`, the living ones.
///
/// One that forks as fast as it is killed would win a race of one against one, so all are stopped first, until a look
/// finds no new one, and only then killed.
pub(crate) fn end_strays(runners: &[Pid]) -> Strays {
    end(Quarry::Strays { runners })
}

/// Kills what a kernel, `program`, has started since `ticks` (see [`sys::boot_ticks`]) and is still alive, with all that
/// is below it. What it had started before, and what that starts, is left alone.
pub(crate) fn end_young(runner: Pid, program: Pid, ticks: u64) {
    end(Quarry::Young { parents: [runner.as_raw_nonzero().get(), program.as_raw_nonzero().get()], ticks });
}

/// Whether there is no process but us and these.
pub(crate) fn are_alone(known: &[Pid]) -> bool {
    let mut others = 0;
    let looked = for_each_process(|pid, _| {
        if pid != 1 && !known.iter().any(|known| known.as_raw_nonzero().get() == pid) {
            others += 1;
        }
    });
    looked.is_ok() && others == 0
}

/// The child of process 1 that a process is, or is below of. `None` if it is gone, or too far down.
pub(crate) fn topmost(pid: Pid) -> Option<Pid> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open(c"/proc", flags, Mode::empty()).ok()?;
    let mut text = Vec::with_capacity(1024);
    let first = pid.as_raw_nonzero().get();
    let mut at = first;
    for _ in 0..STEPS_MAX {
        let seen = read_small(&proc, at, "stat", &mut text).then(|| seen_in_stat(at, &text)).flatten();
        match seen {
            Some(Seen { parent: 1, .. }) => return Pid::from_raw(at),
            Some(Seen { parent, .. }) if parent > 1 => at = parent,
            // An ancestor that ended meanwhile: whoever was below it has another parent now.
            None if at != first => at = first,
            Some(_) | None => return None,
        }
    }
    None
}

fn end(quarry: Quarry<'_>) -> Strays {
    let mut hunt = Hunt::new(quarry);
    for _ in 0..ROUNDS_MAX {
        match hunt.look() {
            Ok(0) => break,
            Ok(_) => {}
            Err(_) => {
                // Blind, we cannot tell whose is whose. Ending the other runs is wrong; leaving one alive is worse.
                sys::kill_everyone();
                return Strays::Killed;
            }
        }
    }
    hunt.strays.iter().for_each(|&pid| signal(pid, Signal::KILL));
    if hunt.strays.is_empty() { Strays::None } else { Strays::Killed }
}

/// Who is looked for. What is below one of them is one of them too.
#[derive(Debug, Clone, Copy)]
enum Quarry<'a> {
    /// Children of process 1 that are no runner.
    Strays { runners: &'a [Pid] },
    /// Children of a kernel or its runner, but not the kernel itself, that are no older than this.
    Young { parents: [i32; 2], ticks: u64 },
}

/// A process as /proc has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    pid: i32,
    parent: i32,
    /// When it started, in ticks since the machine did.
    started: u64,
}

/// A search, in which each one that is found is stopped.
#[derive(Debug)]
struct Hunt<'a> {
    quarry: Quarry<'a>,
    strays: BTreeSet<i32>,
}

impl Hunt<'_> {
    fn new(quarry: Quarry<'_>) -> Hunt<'_> {
        Hunt { quarry, strays: BTreeSet::new() }
    }

    /// Goes through all processes once; returns how many new strays were found.
    ///
    /// That takes a while beside a few hundred that want the processor too, so they are not first listed and then
    /// stopped, but stopped at sight: /proc goes by number, and a parent nearly always has the lower one.
    fn look(&mut self) -> rustix::io::Result<usize> {
        let before = self.strays.len();
        let mut undecided = Vec::new();
        let mut text = Vec::with_capacity(1024);
        for_each_process(|pid, proc| {
            if read_small(proc, pid, "stat", &mut text)
                && let Some(seen) = seen_in_stat(pid, &text)
                && !self.meet(seen)
            {
                undecided.push(seen);
            }
        })?;
        self.decide(undecided);
        Ok(self.strays.len() - before)
    }

    /// Children with a lower number than their parent: looked at again as long as that finds one more.
    fn decide(&mut self, mut undecided: Vec<Seen>) {
        loop {
            let before = undecided.len();
            undecided.retain(|&seen| !self.meet(seen));
            if undecided.len() == before {
                return;
            }
        }
    }

    /// Stops a process if it is a stray: below process 1 otherwise than through a runner. Returns whether it is.
    ///
    /// A search is not one moment, but no stray can slip through it: the topmost of its ancestors is a child of ours,
    /// and stays in /proc until we reap it, which we do not do meanwhile. Zombies count: the first thread of a process
    /// can be one while others run.
    fn meet(&mut self, Seen { pid, parent, started }: Seen) -> bool {
        let is_first = || match self.quarry {
            Quarry::Strays { runners } => {
                parent == 1 && !runners.iter().any(|runner| runner.as_raw_nonzero().get() == pid)
            }
            Quarry::Young { parents, ticks } => {
                parents.contains(&parent) && !parents.contains(&pid) && started >= ticks
            }
        };
        let is_stray = self.strays.contains(&parent) || is_first();
        if is_stray && self.strays.insert(pid) {
            signal(pid, Signal::STOP);
        }
        is_stray
    }
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Calls `visit` with the number of every process, and /proc.
pub(crate) fn for_each_process(mut visit: impl FnMut(i32, &rustix::fd::OwnedFd)) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::open(c"/proc", flags, Mode::empty())?;
    for entry in Dir::read_from(&proc)? {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
            visit(pid, &proc);
        }
    }
    Ok(())
}

/// Reads a process's file into `text`, as far as that has room. `false` when the process is gone.
pub(crate) fn read_small(proc: &rustix::fd::OwnedFd, pid: i32, name: &str, text: &mut Vec<u8>) -> bool {
    text.clear();
    let path = format!("{pid}/{name}");
    let Ok(file) = rustix::fs::openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    loop {
        match rustix::io::read(&file, rustix::buffer::spare_capacity(text)) {
            Err(Errno::INTR) => {}
            outcome => return outcome.is_ok_and(|count| count > 0),
        }
    }
}

/// `pid (name) state parent ...`, where the name can hold anything, parentheses and newlines too. The time is the 20th
/// after it.
fn seen_in_stat(pid: i32, text: &[u8]) -> Option<Seen> {
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace().skip(1);
    Some(Seen { pid, parent: fields.next()?.parse().ok()?, started: fields.nth(17)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No such processes exist: the kernel gives no number so high.
    const HIGH: i32 = 1 << 30;

    fn high(pid: i32) -> i32 {
        if pid > 1 { HIGH + pid } else { pid }
    }

    fn hunted(seen: &[(i32, i32, u64)], quarry: Quarry<'_>) -> Vec<i32> {
        let mut hunt = Hunt::new(quarry);
        let seen = seen.iter().map(|&(pid, parent, started)| Seen { pid: high(pid), parent: high(parent), started });
        hunt.decide(seen.collect());
        hunt.strays.iter().map(|pid| pid - HIGH).collect()
    }

    fn strays(pairs: &[(i32, i32)], runners: &[i32]) -> Vec<i32> {
        let runners: Vec<Pid> = runners.iter().filter_map(|&pid| Pid::from_raw(high(pid))).collect();
        let seen: Vec<_> = pairs.iter().map(|&(pid, parent)| (pid, parent, 0)).collect();
        hunted(&seen, Quarry::Strays { runners: &runners })
    }

    #[test]
    fn only_what_a_kernel_started_of_late_is_young() {
        // 2 runs kernel 3, which started 4 before and 5 since; 6 lost its parent and fell to the runner.
        let seen =
            [(1, 0, 0), (2, 1, 9), (3, 2, 9), (4, 3, 10), (5, 3, 20), (6, 2, 21), (7, 4, 30), (8, 5, 30), (9, 1, 30)];
        let quarry = Quarry::Young { parents: [high(2), high(3)], ticks: 20 };
        assert_eq!(hunted(&seen, quarry), [5, 6, 8]);
    }

    #[test]
    fn what_is_below_a_living_runner_is_no_stray() {
        // 9's parent was not seen; 4 and 8 have a lower number than their parents.
        let seen = [(1, 0), (2, 1), (3, 2), (4, 5), (5, 3), (6, 1), (7, 6), (8, 10), (9, 99), (10, 7)];
        assert_eq!(strays(&seen, &[2]), [6, 7, 8, 10]);
        assert_eq!(strays(&seen, &[2, 6]), [0; 0]);
        assert_eq!(strays(&seen, &[]), [2, 3, 4, 5, 6, 7, 8, 10]);
    }

    #[test]
    fn a_circle_of_reused_numbers_is_left_alone() {
        assert_eq!(strays(&[(1, 0), (5, 6), (6, 5)], &[]), [0; 0]);
    }

    #[test]
    fn a_name_cannot_forge_the_parent() {
        let stat = b"7 (a) S 1 (b\n) R 42 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 99";
        assert_eq!(seen_in_stat(7, stat), Some(Seen { pid: 7, parent: 42, started: 4711 }));
        assert_eq!(seen_in_stat(7, b"7 (a"), None);
        assert_eq!(seen_in_stat(7, b""), None);
    }

    #[test]
    fn nobody_is_alone_beside_this_process() {
        assert!(!are_alone(&[]));
        let mut all = Vec::new();
        for_each_process(|pid, _| all.extend(Pid::from_raw(pid))).unwrap();
        all.retain(|pid| *pid != rustix::process::getpid());
        assert!(!are_alone(&all));
    }

    #[test]
    fn this_process_and_its_parent_are_found() {
        let (me, parent) = (std::process::id() as i32, std::os::unix::process::parent_id() as i32);
        let (mut found, mut text) = (None, Vec::with_capacity(1024));
        for_each_process(|pid, proc| {
            if pid == me && read_small(proc, pid, "stat", &mut text) {
                found = seen_in_stat(pid, &text);
            }
        })
        .unwrap();
        let found = found.unwrap();
        assert_eq!(found.parent, parent);
        let now = sys::boot_ticks();
        assert!(found.started <= now && found.started + 3600 * sys::ticks_per_second() > now, "{found:?} {now}");
    }
}
