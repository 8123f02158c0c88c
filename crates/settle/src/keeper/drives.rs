//! File systems in drives. All are read-only, and nothing in them is a device or gives anybody rights.

use std::time::{Duration, Instant};

use belljar_core::wire::{DRIVES_FOR_LAYERS, DRIVES_OWN};
use belljar_seal::{At, Failure, Outcome};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, mount};

use super::{place, sys};

/// Drives come up by themselves once their driver is there.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Mounts what is in drive `number`, counted from 0, at `at`.
pub(super) fn mount_drive(number: u8, at: &str, file_system: &str) -> Outcome<()> {
    let device = format!("/dev/vd{}", char::from(b'a' + number % 26));
    let until = Instant::now() + PATIENCE;
    let drive = loop {
        match rustix::fs::open(&device, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) if Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            other => break other.at("opening a drive")?,
        }
    };
    // What the kernel has read of an empty drive, when it looked for partitions, is not what is in it now.
    sys::forget_read(&drive).at("reading a drive anew")?;
    drop(drive);
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    mount(device.as_str(), at, file_system, flags, None).at(&format!("mounting drive {number}"))
}

/// Shows a layer at one of the places for them. The path is the host's word, and still leads nowhere else.
pub(super) fn show_layer(drive: u8, at: &str, file_system: &str) -> Outcome<()> {
    let is_for_layers = (DRIVES_OWN..DRIVES_OWN + DRIVES_FOR_LAYERS).contains(&drive);
    let is_plain = !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_lowercase());
    if !is_for_layers || !is_plain {
        return Err(Failure { step: "showing a layer".to_owned(), errno: libc::EINVAL });
    }
    mount_drive(drive, &format!("{}/belljar/layers/{at}", place::PLACE), file_system)
}
