//! The one disk of a place, over every directory that programs may write.

use std::ffi::CString;

use belljar_seal::{At, Outcome, WRITABLE};
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::umask;

/// Where it is first mounted, before its parts go to their places. Ours, so that nothing of an image's is covered.
const STAGING: &str = "belljar/disk";

/// Mounts it, below the working directory, for this user. The places and the staging one have to be there.
pub(crate) fn mount_over_places(bytes: u64, user: u32) -> Outcome<()> {
    let size = format!("mode=0755,size={bytes}");
    // About one inode per 4 KiB, the size of the smallest file that takes space.
    let whole = format!("{size},nr_inodes={}", (bytes / 4096).max(1024));
    match mount_disk(whole) {
        // gVisor's kernel does not count them. What they take is memory of its own, which a cgroup around it holds.
        Err(Errno::INVAL) => mount_disk(size),
        other => other,
    }
    .at("mounting the disk")?;
    umask(Mode::empty());
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    for (number, (path, mode)) in WRITABLE.iter().enumerate() {
        let part = format!("{STAGING}/{number}");
        rustix::fs::mkdir(&part, Mode::from_raw_mode(*mode)).at("making a directory on the disk")?;
        rustix::fs::chown(&part, Some(uid), Some(gid)).at("giving a directory to the user")?;
        mount_bind(&part, *path).at("binding a part of the disk")?;
    }
    umask(Mode::from_raw_mode(0o022));
    unmount(STAGING, UnmountFlags::DETACH).at("unmounting the disk's staging place")
}

fn mount_disk(options: String) -> rustix::io::Result<()> {
    let options = CString::new(options).unwrap_or_default();
    mount("disk", STAGING, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str()))
}
