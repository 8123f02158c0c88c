//! The kernel calls that no safe wrapper has.
#![expect(unsafe_code, reason = "raw system calls; each block says what it relies on")]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Pid;

type Answer<T> = Result<T, Errno>;

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn done(code: i64) -> Answer<()> {
    if code == 0 { Ok(()) } else { Err(last_error()) }
}

pub(super) fn load_module(file: BorrowedFd<'_>) -> Answer<()> {
    // SAFETY: the parameters are a string that ends in NUL; the kernel reads the module from the descriptor.
    done(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) })
}

/// The next child is the first process of a pid namespace.
pub(super) fn new_processes() -> Answer<()> {
    // SAFETY: touches no memory, and only what is forked later.
    done(unsafe { libc::unshare(libc::CLONE_NEWPID) }.into())
}

/// This process sees other messages, host names and cgroups from here on. Mounts stay shared: what the keeper mounts later
/// is to be seen.
pub(super) fn new_surroundings() -> Answer<()> {
    // SAFETY: touches no memory; this process has one thread.
    done(unsafe { libc::unshare(libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP) }.into())
}

/// `None` in the child.
pub(super) fn fork() -> Answer<Option<Pid>> {
    // SAFETY: this process has one thread, so the child may do whatever it could.
    match unsafe { libc::fork() } {
        -1 => Err(last_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

pub(super) fn set_clock(since_1970_ns: u64) -> Answer<()> {
    let time = libc::timespec {
        tv_sec: (since_1970_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (since_1970_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: reads one `timespec`, which outlives the call.
    done(unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) }.into())
}

/// As `struct rand_pool_info`, with room for what we give.
#[repr(C)]
struct Pool {
    entropy_bits: libc::c_int,
    size: libc::c_int,
    bytes: [u8; Pool::MAX],
}

impl Pool {
    const MAX: usize = 64;
}

const RNDADDENTROPY: libc::c_ulong = 0x4008_5203;
const RNDRESEEDCRNG: libc::c_ulong = 0x5207;

/// Adds what the host gives to the kernel's generator, and has it begin anew: what it gives from then on no copy of this
/// machine gives too.
pub(super) fn add_entropy(bytes: &[u8]) -> Answer<()> {
    let bytes = &bytes[..bytes.len().min(Pool::MAX)];
    let mut pool = Pool { entropy_bits: bytes.len() as i32 * 8, size: bytes.len() as i32, bytes: [0; Pool::MAX] };
    pool.bytes[..bytes.len()].copy_from_slice(bytes);
    let device = std::fs::File::options().write(true).open("/dev/urandom").map_err(|error| errno_of(&error))?;
    // SAFETY: the first reads `size` bytes after the two numbers, all of which are there; the second takes nothing.
    unsafe {
        done(libc::ioctl(device.as_raw_fd(), RNDADDENTROPY as _, &raw const pool).into())?;
        done(libc::ioctl(device.as_raw_fd(), RNDRESEEDCRNG as _).into())
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

const BLKFLSBUF: libc::c_ulong = 0x1261;

/// Drops what the kernel remembers of a drive's content.
pub(super) fn forget_read(drive: &OwnedFd) -> Answer<()> {
    // SAFETY: takes nothing.
    done(unsafe { libc::ioctl(drive.as_raw_fd(), BLKFLSBUF as _, 0) }.into())
}

/// A connection to the host by a socket of virtual machines.
pub(super) fn connect_to_host(port: u32) -> Answer<OwnedFd> {
    // SAFETY: `socket` touches no memory; the descriptor is new and nobody else's.
    let socket = unsafe {
        let socket = libc::socket(libc::AF_VSOCK, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(last_error());
        }
        OwnedFd::from_raw_fd(socket)
    };
    // SAFETY: `sockaddr_vm` is integers, for which zero is a value.
    let mut address: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
    address.svm_family = libc::AF_VSOCK as libc::sa_family_t;
    address.svm_cid = libc::VMADDR_CID_HOST;
    address.svm_port = port;
    let length = size_of::<libc::sockaddr_vm>() as libc::socklen_t;
    // SAFETY: reads one address of that length, which outlives the call.
    done(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }.into())?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Ends the machine. What could not be switched off ends with its first process, by the kernel's panic.
pub(super) fn switch_off() -> ! {
    // SAFETY: touches no memory. What is not written yet is in no drive: all are read-only.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_AUTOBOOT);
    }
    belljar_seal::end(1)
}
