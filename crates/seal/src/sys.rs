//! The kernel calls that no safe wrapper has.
#![expect(unsafe_code, reason = "raw system calls; each block says what it relies on")]

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

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
