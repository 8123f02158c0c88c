//! The kernel calls that no safe wrapper has.
#![expect(unsafe_code, reason = "raw system calls; each block says what it relies on")]

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Sets a resource limit, hard and soft, for this process.
pub(crate) fn limit(resource: libc::__rlimit_resource_t, most: u64) -> Result<(), Errno> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel fills the struct given.
    if unsafe { libc::getrlimit(resource, &raw mut limit) } != 0 {
        return Err(last_error());
    }
    // Never above what we were given: raising a hard limit takes a capability.
    let most = most.min(limit.rlim_max);
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the kernel reads the struct given.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 { Ok(()) } else { Err(last_error()) }
}

/// The version of landlock that this kernel has, 0 for none.
pub fn landlock_abi() -> u32 {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the kernel reads no struct and makes no descriptor; it returns the version.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Becomes the program in `file`, with these arguments and this environment. Returns only on failure.
pub fn exec(file: BorrowedFd<'_>, arguments: &[CString], environment: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end in null, their strings end in NUL and outlive the call.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    last_error()
}

/// Brings the loopback interface of this network namespace up.
pub fn loopback_up(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: `ifreq` is integers and arrays of them, for which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Puts `fd` at `number`, kept over exec.
pub(crate) fn place(fd: impl AsFd, number: i32) -> Result<(), Errno> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: neither call touches memory. The caller owns the lowest numbers at this point: nothing else uses them.
    // A dup onto itself would leave the close-on-exec flag as it is.
    let done = unsafe { if fd == number { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, number) } };
    if done >= 0 { Ok(()) } else { Err(last_error()) }
}

/// Lets every descriptor from `first` on close at exec.
pub(crate) fn close_at_exec_from(first: u32) -> Result<(), Errno> {
    // The largest number that a descriptor can have: for gVisor's kernel one more is less than none.
    let last = i32::MAX as u32;
    // SAFETY: setting the flag touches no memory and closes nothing now.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(last_error()) }
}

/// Ends this process at once, running nothing of ours.
pub fn end(code: i32) -> ! {
    // SAFETY: _exit does not return and runs no destructor that could touch what the parent shares with us.
    unsafe { libc::_exit(code) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
