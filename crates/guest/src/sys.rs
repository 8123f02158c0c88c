//! The system calls that rustix does not have, each behind a safe function. No policy is here.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use belljar_core::{Exit, Usage};
use rustix::io::{self, Errno};
use rustix::process::Pid;

/// Takes over a descriptor that whoever started us put there.
pub(crate) fn inherited(fd: RawFd) -> OwnedFd {
    // SAFETY: called once for each number, before anything else here owns a descriptor. Should the number not be open,
    // the first call on it says so.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What this process was started with.
///
/// # Safety
/// `argv` must be a list of `argc` strings of C, as `main` gets it.
#[cfg_attr(test, expect(dead_code, reason = "tests have an entry point of their own"))]
pub(crate) unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<CString> {
    // SAFETY: the caller's promise.
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|index| unsafe { CStr::from_ptr(*argv.add(index)) }.to_owned())
        .collect()
}

/// Puts every signal to its default action and blocks all of them: from here on they come only through [`child_signals`].
///
/// A runner inherits the mask, so only `SIGKILL` and `SIGSTOP` can touch it; a program gets a clean one from
/// [`unblock_signals`]. The dispositions outlive `exec` where they are "ignore" (Rust's own runtime does that to
/// `SIGPIPE` in whoever started us), so they are put right here, once.
pub(crate) fn seal_signals() {
    for signal in 1..32 {
        // SAFETY: sets a default action, which runs none of our code. `SIGKILL` and `SIGSTOP` are refused: no harm.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    let mut all = MaybeUninit::uninit();
    // SAFETY: `sigfillset` makes the set whole before `sigprocmask` reads it; both pointers outlive the calls.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
    }
}

pub(crate) fn unblock_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` makes the set whole before `sigprocmask` reads it; both pointers outlive the calls.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// A descriptor that is readable when a child has died or stopped.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is whole before `signalfd` reads it; what comes back is a new descriptor that nobody else owns.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(last_errno()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// A copy of this process: `None` in the copy.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: this process has one thread, so the copy has all of its state and may run any code.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(last_errno()) } else { Ok(Pid::from_raw(pid)) }
}

/// Runs `child` in a new process that borrows this one's memory until it calls [`exec`] or returns, which ends it.
///
/// Nothing is copied, so this costs a fraction of [`fork`]; and what `child` wrote is there to read afterwards.
pub(crate) fn vfork(mut child: &mut dyn FnMut()) -> io::Result<Pid> {
    extern "C" fn enter(child: *mut c_void) -> c_int {
        // SAFETY: the pointer is to the `child` below, whose owner is suspended and so neither uses nor frees it.
        let child = unsafe { &mut *child.cast::<&mut dyn FnMut()>() };
        child();
        127
    }
    #[repr(align(16))]
    struct Stack(MaybeUninit<[u8; 32 * 1024]>);
    let mut stack = Stack(MaybeUninit::uninit());
    // SAFETY: `CLONE_VFORK` suspends us until the child has left our memory, so the stack and the closure outlive its
    // use of them. The stack's end is its start plus its size, and 16-aligned as the ABI asks. No signal handler can
    // run on the shared memory, since none is ever installed.
    let pid = unsafe {
        let end = stack.0.as_mut_ptr().add(1).cast::<c_void>();
        let argument = (&raw mut child).cast::<c_void>();
        libc::clone(enter, end, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, argument)
    };
    Pid::from_raw(pid.max(0)).ok_or_else(last_errno)
}

/// A list of strings as `execve` wants it, made ahead of the fork.
#[derive(Debug)]
pub(crate) struct Strings {
    pointers: Vec<*const c_char>,
    #[expect(dead_code, reason = "the pointers point into these")]
    owned: Vec<CString>,
}

impl Strings {
    pub(crate) fn new(owned: Vec<CString>) -> Strings {
        let pointers = owned.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Strings { pointers, owned }
    }
}

/// Becomes another program. Returns only the reason why not.
pub(crate) fn exec(program: &CStr, argv: &Strings, envp: &Strings) -> Errno {
    // SAFETY: both lists end with a null pointer, and their strings live as long as the lists, which nobody changes.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), envp.pointers.as_ptr()) };
    last_errno()
}

/// The same with the environment that this process has. Returns only on failure.
pub(crate) fn exec_in_own_environment(program: &CStr, argv: &Strings) {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: as above; the C library keeps the environment in the same form, and there is no other thread to change it.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), environ) };
}

/// Makes `fd` the descriptor `number`, which an `exec` keeps. Those that are still to be placed must be higher.
pub(crate) fn keep_as(fd: &OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: no owner of `number` is used again: this is called only in a process that is about to become another.
    let done = unsafe { libc::dup2(fd.as_raw_fd(), number) };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Closes every descriptor from `first` on. Only for a process whose owned descriptors are never used again.
pub(crate) fn close_from(first: RawFd) {
    // SAFETY: no memory is involved; the callers keep the promise above. It cannot fail on a kernel that has it (5.9).
    unsafe { libc::syscall(libc::SYS_close_range, first, c_int::MAX, 0) };
}

/// What `wait4` had to tell.
#[derive(Debug)]
pub(crate) enum Waited {
    /// There is no child at all.
    Childless,
    /// There are children, and none has anything new.
    Nothing,
    Stopped(Pid),
    Ended {
        pid: Pid,
        exit: Exit,
        usage: Usage,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until a child has ended.
    Wait,
    /// Look only; tells of stopped children too.
    Look,
}

/// Reaps one child.
pub(crate) fn wait_any(patience: Patience) -> Waited {
    let flags = match patience {
        Patience::Wait => 0,
        Patience::Look => libc::WNOHANG | libc::WUNTRACED,
    };
    let mut status: c_int = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live memory of the right types; zeroes are a valid `rusage`.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, flags, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    let Some(pid) = Pid::from_raw(pid.max(0)) else {
        return if pid < 0 { Waited::Childless } else { Waited::Nothing };
    };
    if libc::WIFSTOPPED(status) {
        return Waited::Stopped(pid);
    }
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    let microseconds = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    let usage = Usage {
        cpu_ms: (microseconds(usage.ru_utime) + microseconds(usage.ru_stime)) / 1000,
        memory_peak_bytes: usage.ru_maxrss as u64 * 1024,
    };
    Waited::Ended { pid, exit, usage }
}

/// Kills every process of the pid namespace but the caller, which must be its first. No fork can slip through: the
/// kernel holds its process list still meanwhile.
pub(crate) fn kill_everyone() {
    // SAFETY: no memory is involved. `agent::main` has made sure that we are process 1.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Sends a signal to a process group. One that is gone gets none.
pub(crate) fn signal_group(group: Pid, signal: c_int) {
    let group = group.as_raw_nonzero().get();
    // Negated, 1 would be everyone.
    if group > 1 {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(-group, signal) };
    }
}

/// The process that connected the other end of a socket, by its number here.
///
/// Not rustix's, whose number cannot be the 0 that the kernel has for a process of elsewhere.
pub(crate) fn peer(socket: &OwnedFd) -> Option<Pid> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointers are to live memory, and the length is that of what the first points to.
    let failed = unsafe {
        let into = (&raw mut credentials).cast::<c_void>();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut length)
    };
    if failed == 0 { Pid::from_raw(credentials.pid.max(0)) } else { None }
}

/// The process that sent what is next to be read from a socket whose listener passes credentials. Takes nothing of it.
pub(crate) fn sender(socket: &OwnedFd) -> rustix::io::Result<Option<Pid>> {
    const SPACE: usize = 64;
    let (mut byte, mut space) = (0u8, [0u64; SPACE / 8]);
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: `msghdr` is numbers and pointers, for which zero is a value. All that it is then made to point to is live, with its
    // lengths. The kernel's headers lie whole in the space, which is what the macros look for; what they lead to may be
    // unaligned, and is read as such.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = space.as_mut_ptr().cast();
        message.msg_controllen = SPACE as _;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) < 0 {
            return Err(last_errno());
        }
        let mut next = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(header) = next.as_ref() {
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_CREDENTIALS {
                let credentials = libc::CMSG_DATA(header).cast::<libc::ucred>().read_unaligned();
                return Ok(Pid::from_raw(credentials.pid.max(0)));
            }
            next = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(None)
    }
}

/// The clock that file systems stamp with, since 1970. It goes in ticks.
pub(crate) fn file_clock() -> Duration {
    Clock(libc::CLOCK_REALTIME_COARSE).read().unwrap_or_default()
}

/// A clock of the kernel's, such as the CPU time of another process.
#[derive(Debug)]
pub(crate) struct Clock(libc::clockid_t);

impl Clock {
    pub(crate) fn of(process: Pid) -> Option<Clock> {
        let mut clock = 0;
        // SAFETY: the pointer is to a live clock id, which the call fills in.
        let failed = unsafe { libc::clock_getcpuclockid(process.as_raw_nonzero().get(), &raw mut clock) };
        (failed == 0).then_some(Clock(clock))
    }

    /// `None` when the process whose it is is gone.
    pub(crate) fn read(&self) -> Option<Duration> {
        let mut time = MaybeUninit::<libc::timespec>::zeroed();
        // SAFETY: the pointer is to live memory of the right type, for which zeroes are a value.
        let (failed, time) = unsafe {
            let failed = libc::clock_gettime(self.0, time.as_mut_ptr());
            (failed, time.assume_init())
        };
        (failed == 0).then(|| Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), time.tv_nsec as u32))
    }
}

/// The time in which /proc tells when processes started.
pub(crate) fn boot_ticks() -> u64 {
    let now = Clock(libc::CLOCK_BOOTTIME).read().unwrap_or_default();
    now.as_secs() * ticks_per_second() + u64::from(now.subsec_nanos()) * ticks_per_second() / 1_000_000_000
}

/// In how many parts of a second /proc tells times.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: no memory is involved.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// Ends this process in the way `exit` says.
pub(crate) fn end_as(exit: Exit) -> ! {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::OutOfMemory => 137,
        Exit::Signal(signal) => {
            let mut set = MaybeUninit::uninit();
            // Only this signal is let through: others may be waiting, sent by the program to confuse us.
            // SAFETY: the set is whole before it is read; the rest are plain numbers.
            unsafe {
                libc::sigemptyset(set.as_mut_ptr());
                libc::sigaddset(set.as_mut_ptr(), signal);
                libc::kill(libc::getpid(), signal);
                libc::sigprocmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
            }
            128 + signal
        }
    };
    // SAFETY: ends the process; nothing runs after it.
    unsafe { libc::_exit(code) }
}

/// The C library's word, from what the kernel gave it at the start. rustix would ask the kernel again, which before 6.4
/// only answers in a file that a process which is not dumpable may not read, and panic.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: no memory is involved.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

fn last_errno() -> Errno {
    // SAFETY: glibc's `errno` is a live integer of this thread.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
