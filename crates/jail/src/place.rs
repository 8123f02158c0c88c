//! The file system that a process sees, made of the shared root and what is its own.

use belljar_seal::{At, Outcome, WRITABLE};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};
use rustix::process::{chdir, pivot_root, umask};

use crate::root::{Late, ROOT, STAGING};
use crate::store::Tree;

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

/// Enters the shared root with a disk of one's own over it, in five places, and with what comes from the store.
pub(crate) fn mount_own(disk_bytes: u64, late: &[Late], trees: &[Tree]) -> Outcome<()> {
    // The inherited mounts are locked, and pivot_root wants one that is not: a bind of the tree onto itself.
    mount_bind_recursive(ROOT, ROOT).at("binding the root")?;
    chdir(ROOT).at("entering the root")?;

    // About one inode per 4 KiB, the size of the smallest file that takes space.
    let options = format!("mode=0755,size={disk_bytes},nr_inodes={}", (disk_bytes / 4096).max(1024));
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
    trees.iter().try_for_each(Tree::put)?;
    unmount(STAGING, UnmountFlags::DETACH).at("unmounting the disk's staging place")
}

/// Mounts /proc for the processes of this namespace, without what tells of the host.
pub(crate) fn mount_proc() -> Outcome<()> {
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

/// Makes what was mounted the root, and lets go of the jail's.
pub(crate) fn enter_root() -> Outcome<()> {
    pivot_root(".", ".").at("pivot_root")?;
    unmount(".", UnmountFlags::DETACH).at("detaching the jail's root")?;
    chdir("/").at("entering the sandbox's root")
}
