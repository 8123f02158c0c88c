//! QEMU's command line. It is given no path of anything private: drives and snapshots come as descriptors.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use belljar_core::wire::{GUEST_PORT, KEEPER_PORT};

use super::Acceleration;
use crate::microvm::vmm::{Beginning, Machine};

/// The numbers of the descriptors that QEMU gets.
pub(super) const GUEST_FD: i32 = 10;
pub(super) const KEEPER_FD: i32 = 11;
pub(super) const QMP_FD: i32 = 12;
pub(super) const CONSOLE_FD: i32 = 13;
pub(super) const KERNEL_FD: i32 = 14;
pub(super) const INITRAMFS_FD: i32 = 15;
pub(super) const FROM_FD: i32 = 16;
pub(super) const TO_FD: i32 = 17;
pub(super) const KVM_FD: i32 = 18;
pub(super) const DRIVES_FD: i32 = 20;

/// How QEMU names a descriptor that it was given for a file.
pub(super) fn file_of(fd: i32) -> String {
    format!("/dev/fdset/{fd}")
}

/// What a drive's content is called, which changes with it, and the drive, which stays.
pub(super) fn content_name(drive: u8, change: u32) -> String {
    format!("content{drive}-{change}")
}

pub(super) fn drive_name(drive: u8) -> String {
    format!("drive{drive}")
}

pub(super) fn command(program: &Path, acceleration: Acceleration, machine: &Machine, from: Beginning<'_>) -> Command {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: &str| words.extend([OsString::from(name), OsString::from(value)]);
    add("-M", "microvm,acpi=on,rtc=on,isa-serial=on");
    match acceleration {
        Acceleration::Kvm => {
            add("-add-fd", &format!("fd={KVM_FD},set={KVM_FD}"));
            add("-accel", &format!("kvm,device={}", file_of(KVM_FD)));
        }
        Acceleration::Emulation => add("-accel", "tcg"),
    }
    // Not SeaBIOS: it puts tables to the end of memory, and QEMU an initramfs over them.
    add("-bios", "qboot.rom");
    add("-cpu", if acceleration == Acceleration::Kvm { "host" } else { "max" });
    add("-smp", &machine.cpus().to_string());
    add("-m", &format!("{}M", machine.memory_bytes.div_ceil(1 << 20)));
    add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    add("-kernel", &format!("/dev/fd/{KERNEL_FD}"));
    add("-initrd", &format!("/dev/fd/{INITRAMFS_FD}"));
    add("-append", &machine.command_line);
    for (name, fd) in [("guest", GUEST_FD), ("keeper", KEEPER_FD), ("qmp", QMP_FD), ("console", CONSOLE_FD)] {
        add("-chardev", &format!("socket,id={name},fd={fd}"));
    }
    add("-mon", "chardev=qmp,mode=control");
    add("-serial", "chardev:console");
    add("-device", "virtio-serial-device,id=ports,max_ports=4");
    add("-device", &format!("virtserialport,bus=ports.0,nr=1,chardev=guest,name={GUEST_PORT}"));
    add("-device", &format!("virtserialport,bus=ports.0,nr=2,chardev=keeper,name={KEEPER_PORT}"));
    for drive in 0..machine.drives.len() as u8 {
        let fd = DRIVES_FD + i32::from(drive);
        let (content, name) = (content_name(drive, 0), drive_name(drive));
        add("-add-fd", &format!("fd={fd},set={fd}"));
        let file = file_of(fd);
        add("-blockdev", &format!("driver=file,node-name={content},filename={file},read-only=on,locking=off"));
        add("-blockdev", &format!("driver=raw,node-name={name},file={content},read-only=on"));
        add("-device", &format!("virtio-blk-device,drive={name}"));
    }
    if from.to.is_some() {
        add("-add-fd", &format!("fd={TO_FD},set={TO_FD}"));
    }
    if from.from.is_some() {
        add("-add-fd", &format!("fd={FROM_FD},set={FROM_FD}"));
        add("-incoming", "defer");
    }
    words.extend(["-nodefaults", "-no-user-config", "-nographic", "-no-reboot"].map(OsString::from));
    let mut command = Command::new(program);
    command.args(words).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A bare machine, by QEMU's own means: it boots, says one line on its console, and ends.
pub(super) fn floor(acceleration: Acceleration, kernel: &Path, initramfs: &Path, line: &str) -> Vec<OsString> {
    let (accel, cpu) = match acceleration {
        Acceleration::Kvm => ("kvm", "host"),
        Acceleration::Emulation => ("tcg", "max"),
    };
    let line = format!("{line} loglevel=0 belljar.fs=floor");
    let words = ["-M", "microvm,acpi=on,rtc=on,isa-serial=on", "-bios", "qboot.rom", "-accel", accel, "-cpu", cpu];
    let more =
        ["-smp", "1", "-m", "256M", "-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio"];
    let mut words: Vec<OsString> = words.into_iter().chain(more).map(OsString::from).collect();
    words.extend(["-kernel".into(), kernel.into(), "-initrd".into(), initramfs.into(), "-append".into(), line.into()]);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_no_network_no_default_and_no_way_to_start_anything() {
        let machine = Machine {
            memory_bytes: 256 << 20,
            cpu_milli: 1500,
            kernel: "/k".into(),
            initramfs: "/i".into(),
            command_line: "quiet".to_owned(),
            drives: vec!["/private/root".into(), "/private/fittings".into()],
        };
        let from = Beginning { from: Some(Path::new("/private/snapshot")), to: None };
        let command = command(Path::new("qemu"), Acceleration::Kvm, &machine, from);
        let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let line = words.join(" ");
        for needed in ["-nodefaults", "-no-user-config", "spawn=deny", "-smp 2", "-incoming defer", "-accel kvm"] {
            assert!(line.contains(needed), "{needed}: {line}");
        }
        for never in ["netdev", "-net", "virtfs", "usb", "vnc", "/private", "tcg"] {
            assert!(!line.contains(never), "{never}: {line}");
        }
        assert_eq!(command.get_envs().count(), 0);
    }
}
