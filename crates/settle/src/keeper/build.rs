//! The directory in which a layer is built: a disk of its own, whose content goes in before the guest is started and comes out
//! after it has ended. Drives are read-only, so this is the one way in which anything gets out of a machine but by its guest.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use belljar_core::BUILD;
use belljar_core::wire::{CHUNK_MAX, Entry, EntryKind, FromKeeper};
use belljar_seal::{At, Failure, Outcome};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::control::Control;
use super::{drives, place};

/// Who builds.
const USER: u32 = 1000;

/// No directory of a package is as deep.
const DEPTH_MAX: usize = 256;

fn directory() -> PathBuf {
    PathBuf::from(format!("{}{BUILD}", place::PLACE))
}

pub(super) fn prepare(bytes: u64, drive: Option<u8>, file_system: &str) -> Outcome<()> {
    let to = directory();
    let options = CString::new(format!("mode=0755,uid={USER},gid={USER},size={bytes}")).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("build", &to, "tmpfs", flags, Some(options.as_c_str())).at("mounting a disk to build on")?;
    let Some(drive) = drive else { return Ok(()) };
    let from = Path::new("/run/build");
    std::fs::create_dir_all(from).at("making a directory")?;
    drives::mount_drive(drive, "/run/build", file_system)?;
    copy(from, &to, 0)?;
    unmount(from, UnmountFlags::empty()).at("unmounting a drive")
}

fn copy(from: &Path, to: &Path, depth: usize) -> Outcome<()> {
    if depth > DEPTH_MAX {
        return Err(Failure { step: "copying what is built on".to_owned(), errno: libc::ELOOP });
    }
    for entry in std::fs::read_dir(from).at("reading a directory")? {
        let entry = entry.at("reading a directory")?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = source.symlink_metadata().at("looking at a file")?;
        if metadata.is_dir() {
            std::fs::create_dir(&target).at("making a directory")?;
            copy(&source, &target, depth + 1)?;
        } else if metadata.is_symlink() {
            symlink(std::fs::read_link(&source).at("reading a link")?, &target).at("making a link")?;
        } else if metadata.is_file() {
            std::fs::copy(&source, &target).at("copying a file")?;
        } else {
            continue;
        }
        lchown(&target, Some(USER), Some(USER)).at("giving a file to the user")?;
        if !metadata.is_symlink() {
            std::fs::set_permissions(&target, metadata.permissions()).at("setting permissions")?;
        }
    }
    Ok(())
}

/// Sends all of it. What is neither a file, nor a directory, nor a link, is left out.
pub(super) fn collect(control: &mut Control) -> Outcome<()> {
    let top = directory();
    let mut left = vec![(top.clone(), 0)];
    while let Some((directory, depth)) = left.pop() {
        if depth > DEPTH_MAX {
            return Err(Failure { step: "collecting what was built".to_owned(), errno: libc::ELOOP });
        }
        for entry in std::fs::read_dir(&directory).at("reading a directory")? {
            let path = entry.at("reading a directory")?.path();
            let metadata = path.symlink_metadata().at("looking at a file")?;
            let below = path.strip_prefix(&top).unwrap_or(&path);
            if metadata.is_dir() {
                send(control, below, &metadata, EntryKind::Directory)?;
                left.push((path, depth + 1));
            } else if metadata.is_symlink() {
                let target = std::fs::read_link(&path).at("reading a link")?;
                send(control, below, &metadata, EntryKind::Link(target.as_os_str().as_bytes().to_vec()))?;
            } else if metadata.is_file() {
                send(control, below, &metadata, EntryKind::File(metadata.len()))?;
                send_content(control, &path, metadata.len())?;
            }
        }
    }
    Ok(())
}

fn send(control: &mut Control, path: &Path, metadata: &Metadata, kind: EntryKind) -> Outcome<()> {
    control.send(&FromKeeper::Entry(Entry {
        path: path.as_os_str().as_bytes().to_vec(),
        kind,
        mode: metadata.permissions().mode() & 0o777,
        modified_s: metadata.mtime(),
        modified_ns: metadata.mtime_nsec() as u32,
    }))
}

/// Just as many bytes as were told: nothing changes them any more.
fn send_content(control: &mut Control, path: &Path, length: u64) -> Outcome<()> {
    let mut file = File::open(path).at("opening a file")?.take(length);
    let mut buffer = vec![0; CHUNK_MAX];
    let mut sent = 0;
    loop {
        let count = file.read(&mut buffer).at("reading a file")?;
        if count == 0 {
            break;
        }
        sent += count as u64;
        control.send(&FromKeeper::Content(buffer[..count].to_vec()))?;
    }
    if sent == length { Ok(()) } else { Err(Failure { step: "reading a file".to_owned(), errno: libc::EIO }) }
}
