//! The life of a sandbox's first process, from the clone to the exec of the guest.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::wire::{self, FromGuest, Open};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Gid, Signal, Uid, chdir, pivot_root, set_parent_process_death_signal, umask};
use rustix::thread::{
    CapabilitiesSecureBits, UnshareFlags, set_capabilities_secure_bits, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::error::{At, Failure, Outcome};
use crate::root::{Late, ROOT, STAGING, WRITABLE};
use crate::seccomp::Finish;
use crate::{seal, sys};

/// Kernel files that tell about the host, or that could change it were a permission check ever missed. Absent ones are
/// skipped. Everything else in /proc stays: `ps`, `free` and `os.cpus()` work.
const MASKED_FILES: [&str; 16] = [
    "cmdline",
    "config.gz",
    "diskstats",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "partitions",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
    "vmallocinfo",
];
const MASKED_DIRECTORIES: [&str; 6] = ["acpi", "bus", "fs", "irq", "pressure", "scsi"];

/// The user that programs are, inside.
pub(crate) const INSIDE_ID: u32 = 1000;

/// What a new sandbox is made from.
pub(crate) struct Given<'a> {
    pub(crate) open: &'a Open,
    pub(crate) stream: &'a OwnedFd,
    /// Gets one byte when the jail has mapped our user.
    pub(crate) wait: OwnedFd,
    /// `tasks` files of version 1.
    pub(crate) cgroups: &'a [OwnedFd],
    pub(crate) late: &'a [Late],
    pub(crate) landlock_abi: u32,
    pub(crate) finish: &'a Finish,
    /// The executable that it becomes.
    pub(crate) guest: BorrowedFd<'a>,
}

/// Confines this process and becomes the guest. What goes wrong is told on the stream.
pub(crate) fn become_guest(given: Given<'_>) -> ! {
    let stream = given.stream;
    let Err(failure) = confine(given);
    let mut frame = Vec::new();
    if wire::encode(&FromGuest::Broken { step: failure.step, errno: failure.errno }, &mut frame).is_ok() {
        let _ = rustix::io::write(stream, &frame);
    }
    sys::end(1)
}

fn confine(given: Given<'_>) -> Outcome<std::convert::Infallible> {
    for tasks in given.cgroups {
        // "0" is whoever writes it: the one form for which the kernel does not stop all forks of the machine.
        rustix::io::write(tasks, b"0").at("joining a cgroup")?;
    }
    // Until the jail has mapped our user there is nothing else that we may do.
    let mut byte = [0];
    if rustix::io::read(&given.wait, &mut byte).at("waiting for the jail")? == 0 {
        sys::end(1);
    }
    take_own_user(given.open.host_id)?;
    // After the change of user, which would clear it.
    set_parent_process_death_signal(Some(Signal::KILL)).at("asking to die with the jail")?;
    sys::default_children().at("resetting SIGCHLD")?;
    sys::unshare(UnshareFlags::NEWCGROUP).at("unshare of cgroups")?;

    mount_own(given.open, given.late)?;
    enter_root()?;

    rustix::system::sethostname(b"belljar").at("setting the host name")?;
    let socket =
        socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).at("making a socket")?;
    sys::loopback_up(socket.as_fd()).at("bringing loopback up")?;
    drop(socket);

    arrange_descriptors(given.stream)?;
    seal::seal(given.open, given.landlock_abi, given.finish)?;
    let errno = sys::exec(given.guest, c"belljar-guest");
    Err(Failure { step: "exec of the guest".to_owned(), errno: errno.raw_os_error() })
}

/// Becomes the sandbox's user, keeping for now the capabilities that the new namespaces gave us.
fn take_own_user(host_id: Option<u32>) -> Outcome<()> {
    let bits = CapabilitiesSecureBits::NO_SETUID_FIXUP | CapabilitiesSecureBits::NO_ROOT;
    set_capabilities_secure_bits(bits).at("setting secure bits")?;
    // Root must drop its groups. An ordinary user cannot: setgroups is denied in its namespaces.
    if host_id.is_some() {
        set_thread_groups(&[]).at("dropping groups")?;
    }
    let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    set_thread_res_gid(gid, gid, gid).at("setting the group")?;
    set_thread_res_uid(uid, uid, uid).at("setting the user")
}

/// Mounts what is the sandbox's own over the shared root: one disk in five places, and /proc.
fn mount_own(open: &Open, late: &[Late]) -> Outcome<()> {
    // The inherited mounts are locked, and pivot_root wants one that is not: a bind of the tree onto itself.
    mount_bind_recursive(ROOT, ROOT).at("binding the root")?;
    chdir(ROOT).at("entering the root")?;

    // About one inode per 4 KiB, the size of the smallest file that takes space.
    let options = format!("mode=0755,size={},nr_inodes={}", open.disk_bytes, (open.disk_bytes / 4096).max(1024));
    let options = std::ffi::CString::new(options).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("disk", STAGING, "tmpfs", flags, Some(options.as_c_str())).at("mounting the disk")?;
    umask(Mode::empty());
    for (number, (path, mode)) in WRITABLE.iter().enumerate() {
        let part = format!("{STAGING}/{number}");
        rustix::fs::mkdir(&part, Mode::from_raw_mode(*mode)).at("making a directory on the disk")?;
        mount_bind(&part, *path).at("binding a part of the disk")?;
    }
    umask(Mode::from_raw_mode(0o022));
    for Late { kept, inside } in late {
        if std::fs::metadata(kept).at("looking at a kept bind")?.is_dir() {
            std::fs::create_dir_all(inside).at("making a place on the disk")?;
        } else {
            std::fs::create_dir_all(inside.parent().unwrap_or(inside)).at("making a place on the disk")?;
            std::fs::write(inside, "").at("making a place on the disk")?;
        }
        mount_bind_recursive(kept, inside).at("binding over the disk")?;
    }
    unmount(STAGING, UnmountFlags::DETACH).at("unmounting the disk's staging place")?;

    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).at("mounting /proc")?;
    for file in MASKED_FILES {
        mask("dev/null", &format!("proc/{file}"))?;
    }
    for directory in MASKED_DIRECTORIES {
        mask(STAGING, &format!("proc/{directory}"))?;
    }
    Ok(())
}

fn mask(with: &str, path: &str) -> Outcome<()> {
    match mount_bind(with, path) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("masking a kernel file"),
    }
}

fn enter_root() -> Outcome<()> {
    pivot_root(".", ".").at("pivot_root")?;
    unmount(".", UnmountFlags::DETACH).at("detaching the jail's root")?;
    chdir("/").at("entering the sandbox's root")
}

/// 0, 1 and 2 are /dev/null, 3 is the stream, and nothing else survives the exec.
fn arrange_descriptors(stream: &OwnedFd) -> Outcome<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).at("opening /dev/null")?;
    for number in 0..3 {
        sys::place(&null, number).at("placing a descriptor")?;
    }
    sys::place(stream, 3).at("placing the stream")?;
    sys::close_at_exec_from(4).at("closing descriptors")
}
