//! Linux: starting the monitor of a virtual machine.
#![expect(unsafe_code, reason = "descriptors are arranged between fork and exec; the block says what it relies on")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::io::fcntl_dupfd_cloexec;

/// What a process is held by besides its cgroup, and who it is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// A user and a group of its own; `None` for ours.
    pub(crate) id: Option<u32>,
    pub(crate) open_files: u64,
    /// Bytes of the largest file that it may write.
    pub(crate) file_bytes: u64,
}

/// Starts a program with descriptors, each with the number it is to have, in cgroups whose files these are. It ends with
/// the thread that calls this.
pub(crate) fn start_machine(
    mut command: Command,
    given: &[(&OwnedFd, i32)],
    cgroups: &[OwnedFd],
    held: Held,
) -> io::Result<Child> {
    // Away from the numbers they go to, so that putting one in place cannot overwrite another.
    let mut sources = Vec::with_capacity(given.len());
    for (fd, _) in given {
        sources.push(fcntl_dupfd_cloexec(fd, 200)?);
    }
    let moves: Vec<(i32, i32)> = sources.iter().map(AsRawFd::as_raw_fd).zip(given.iter().map(|(_, to)| *to)).collect();
    let doors: Vec<i32> = cgroups.iter().map(AsRawFd::as_raw_fd).collect();
    let parent = std::process::id() as libc::pid_t;
    let arrange = move || {
        for door in &doors {
            // SAFETY: writes one byte of a constant; "0" is whoever writes it.
            if unsafe { libc::write(*door, b"0".as_ptr().cast(), 1) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        for &(from, to) in &moves {
            // SAFETY: dup2 is async-signal-safe and touches no memory; the sources stay open in the parent until the child
            // has started, and the targets are numbers that nothing else uses.
            if unsafe { libc::dup2(from, to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let limits = [
            (libc::RLIMIT_NOFILE, held.open_files),
            (libc::RLIMIT_FSIZE, held.file_bytes),
            (libc::RLIMIT_CORE, 0),
            (libc::RLIMIT_MEMLOCK, 0),
        ];
        for (resource, most) in limits {
            let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
            // SAFETY: reads one `rlimit`, which outlives the call.
            if unsafe { libc::setrlimit(resource, &raw const limit) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if let Some(id) = held.id {
            // SAFETY: none of these touches memory but for an empty list. The child has one thread.
            let changed = unsafe {
                libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setresgid(id, id, id) == 0
                    && libc::setresuid(id, id, id) == 0
            };
            if !changed {
                return Err(io::Error::last_os_error());
            }
        }
        // After the change of user, which would clear it. SAFETY: neither touches memory.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if libc::getppid() != parent {
                // The server has gone in between, and nobody would tell.
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes the calls above, which are allowed between fork and exec.
    unsafe { command.pre_exec(arrange) };
    command.process_group(0).spawn()
}

/// The processor's own count of time, of which an emulated processor shows the same; `None` where it has none.
pub(crate) fn ticks() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, and it touches no memory.
    return Some(unsafe { core::arch::x86_64::_rdtsc() });
    #[cfg(not(target_arch = "x86_64"))]
    return None;
}
