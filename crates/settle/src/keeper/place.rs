//! The place that the guest lives in: what is ours over the image's root, both read-only, and beside them what every place
//! has of its own.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;

use belljar_core::wire::{Plan, TRUST};
use belljar_seal::{At, Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags, makedev};
use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};
use rustix::process::{PidfdFlags, Signal, chdir, chroot, pidfd_open, pidfd_send_signal};

use super::memory::Memory;
use super::{Settings, drives, fresh, sys};

pub(super) const PLACE: &str = "/place";

/// Files of the kernel that are of no use inside. It is the machine's own kernel that they tell of, not the host's.
const MASKED: [&str; 8] =
    ["kallsyms", "kcore", "key-users", "keys", "kmsg", "sysrq-trigger", "timer_list", "vmallocinfo"];

/// An empty file of the machine's own, which is shown in their place.
const NOTHING: &str = "/nothing";

const HARMLESS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// The kernel's own file systems, for this process alone.
pub(super) fn mount_kernels() -> Outcome<()> {
    mount("dev", "/dev", "devtmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, None).at("mounting /dev")?;
    mount("proc", "/proc", "proc", HARMLESS, None).at("mounting /proc")?;
    mount("sys", "/sys", "sysfs", HARMLESS, None).at("mounting /sys")
}

pub(super) fn build(settings: &Settings) -> Outcome<()> {
    drives::mount_drive(0, "/root", &settings.file_system)?;
    drives::mount_drive(1, "/fittings", &settings.file_system)?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    let lower = Some(c"lowerdir=/fittings:/root");
    mount("place", PLACE, "overlay", flags, lower).at("putting what is ours over the root")?;
    make_devices()?;
    fresh::write_identity([0; 16])?;
    rustix::system::sethostname(b"belljar").at("setting the host name")
}

fn make_devices() -> Outcome<()> {
    let at = format!("{PLACE}/dev");
    mount("dev", at.as_str(), "tmpfs", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"mode=0755,size=64k"))
        .at("mounting the place's /dev")?;
    let nodes = [("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)];
    for (name, minor) in nodes {
        let mode = Mode::from_raw_mode(0o666);
        let path = format!("{at}/{name}");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, mode, makedev(1, minor))
            .at("making a device")?;
        // Whatever this process's mask took away.
        rustix::fs::chmod(&path, mode).at("making a device")?;
    }
    for (name, to) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(to, format!("{at}/{name}")).at("making a link")?;
    }
    std::fs::create_dir(format!("{at}/shm")).at("making a directory")?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount(&at, flags, c"").at("closing the place's /dev")
}

/// Starts the guest, as process 1 of the place, with this stream. The handle tells of its end.
pub(super) fn enter(plan: &Plan, stream: OwnedFd, memory: &Memory, trust: Option<&str>) -> Outcome<OwnedFd> {
    let show = |from: &str, at: &str| mount_bind(from, format!("{PLACE}{at}")).at("showing a file");
    show(fresh::MACHINE_ID, "/etc/machine-id")?;
    if let Some(trust) = trust {
        std::fs::write("/run/ca.pem", trust).at("writing certificates")?;
        show("/run/ca.pem", TRUST)?;
    }
    let door = memory.door()?;
    sys::new_processes().at("unshare of processes")?;
    match sys::fork().at("fork of the guest")? {
        Some(child) => pidfd_open(child, PidfdFlags::empty()).at("watching the guest"),
        None => {
            // Its own number is another's by the time that some of it fails.
            let told_to = rustix::io::fcntl_dupfd_cloexec(&stream, crate::TOLD_TO_FD);
            let Err(failure) = become_guest(plan, &stream, &door);
            if let Ok(told_to) = told_to {
                crate::tell(told_to, failure);
            }
            belljar_seal::end(1)
        }
    }
}

fn become_guest(plan: &Plan, stream: &OwnedFd, door: &OwnedFd) -> Outcome<Infallible> {
    rustix::io::write(door, b"0").at("joining a cgroup")?;
    sys::new_surroundings().at("unshare")?;
    let proc = format!("{PLACE}/proc");
    mount("proc", proc.as_str(), "proc", HARMLESS, None).at("mounting the place's /proc")?;
    mount_bind(fresh::BOOT_ID, format!("{proc}/sys/kernel/random/boot_id")).at("showing a file")?;
    // Not /dev/null, which anybody may open for writing.
    rustix::fs::open(NOTHING, OFlags::CREATE | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).at("making a mask")?;
    for file in MASKED {
        match mount_bind(NOTHING, format!("{proc}/{file}")) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(errno).at("masking a kernel file"),
        }
    }
    chdir(PLACE).at("entering the place")?;
    chroot(".").at("entering the place")?;
    crate::settle(plan, [stream.as_fd(), stream.as_fd()]).map_err(|failure: Failure| failure)
}

/// Ends the guest, and with it everything in the place.
pub(super) fn end(child: &OwnedFd) -> Outcome<()> {
    pidfd_send_signal(child, Signal::KILL).at("ending the guest")?;
    let mut watched = [PollFd::new(child, PollFlags::IN)];
    poll(&mut watched, None).at("waiting for the guest's end").map(drop)
}
