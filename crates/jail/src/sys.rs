//! The kernel calls that no safe wrapper has. All `unsafe` of the jail is here.
#![expect(unsafe_code, reason = "raw system calls; each block says what it relies on")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use belljar_core::wire;
use belljar_seal::end;
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

/// What the backend handed us when it started the jail.
pub(crate) struct Inherited {
    pub(crate) control: OwnedFd,
    /// The guest's executable, a sealed memory file.
    pub(crate) guest: OwnedFd,
    /// Others, for the shared root, with the paths that they go to.
    pub(crate) files: [(&'static str, OwnedFd); 3],
}

pub(crate) fn inherited() -> Inherited {
    let take = |fd: i32| {
        // SAFETY: the backend put these here before it started us, and nothing else in this process knows them, so
        // each is ours alone; fcntl on a plain number touches no memory.
        unsafe {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            OwnedFd::from_raw_fd(fd)
        }
    };
    Inherited {
        control: take(wire::CONTROL_FD),
        guest: take(wire::GUEST_FD),
        files: [
            (wire::TRANSPILE, take(wire::TRANSPILE_FD)),
            (wire::ZYGOTE, take(wire::ZYGOTE_FD)),
            (wire::TRUST, take(wire::TRUST_FD)),
        ],
    }
}

/// Leaves some of this process's namespaces for new ones.
pub(crate) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: none of the flags we pass (all of namespaces) unshares the file descriptor table, which is what the
    // wrapper warns of, and there is one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Bit 33; libc's own constant is too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// In which of the two processes a clone has returned.
pub(crate) enum Cloned {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// Forks into new namespaces, into a cgroup of version 2 if one is given, and with a given process number. As with fork, the child goes on with a copy of this memory.
pub(crate) fn clone_into(
    namespaces: u64,
    cgroup: Option<BorrowedFd<'_>>,
    number: Option<i32>,
) -> Result<Cloned, Errno> {
    let mut pidfd: i32 = -1;
    // SAFETY: `clone_args` is plain integers, for which zero is a value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    if let Some(number) = &number {
        args.set_tid = (&raw const *number) as u64;
        args.set_tid_size = 1;
    }
    // SAFETY: without CLONE_VM the child has its own copy of all memory, stack included, and there is only this one
    // thread, so no lock is held by a thread that the child lacks. `args` outlives the call.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(last_error()),
        0 => Ok(Cloned::Child),
        // SAFETY: the kernel put a new descriptor there, which nobody else knows.
        pid => Ok(Cloned::Parent { pid: pid as i32, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
    }
}

/// Adds attributes (`MOUNT_ATTR_*`) to a mount, and to all below it where `flags` has `AT_RECURSIVE`.
pub(crate) fn mount_attributes(path: &CStr, attributes: u64, flags: i32) -> Result<(), Errno> {
    set_attributes(libc::AT_FDCWD, path, attributes, flags)
}

/// The same for a mount that is attached nowhere.
pub(crate) fn mount_attributes_of(mount: BorrowedFd<'_>, attributes: u64) -> Result<(), Errno> {
    set_attributes(mount.as_raw_fd(), c"", attributes, libc::AT_EMPTY_PATH)
}

fn set_attributes(directory: i32, path: &CStr, attributes: u64, flags: i32) -> Result<(), Errno> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: `path` ends in NUL, `change` is a valid struct of the size given, and both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            directory,
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Enters the users and the mounts of a sandbox, whose first process is given. The working directory is then its root.
pub(crate) fn enter_mounts(first_process: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: no memory is involved, and there is one thread.
    let done = unsafe { libc::setns(first_process.as_raw_fd(), libc::CLONE_NEWUSER | libc::CLONE_NEWNS) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets the kernel reap our children: the backend learns of their end from their pidfd.
pub(crate) fn ignore_children() -> Result<(), Errno> {
    // SAFETY: SIG_IGN is no function of ours, so no handler can run.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(last_error()) } else { Ok(()) }
}

/// Puts every signal to its default action: what the server ignores (started by `nohup`, say) an exec would keep.
pub(crate) fn default_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: SIG_DFL is no function of ours. Some refuse: they have no other action.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

pub(crate) fn default_children() -> Result<(), Errno> {
    // SAFETY: SIG_DFL is no function of ours.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    if before == libc::SIG_ERR { Err(last_error()) } else { Ok(()) }
}

/// Waits for a child's end with nothing in hand, and ends as it did.
pub(crate) fn stand_by(child: i32) -> ! {
    let mut status = 0;
    // SAFETY: whatever was open here is never used again, and the pointer is to a live integer.
    unsafe {
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        while libc::waitpid(child, &raw mut status, 0) < 0 && *libc::__errno_location() == libc::EINTR {}
    }
    end(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 })
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
