//! The root file system of sandboxes that have the host's programs: a directory of ours with links, small files and the
//! fittings, made once for a server, over which /usr and the interpreters are mounted.
//!
//! What is small is copied. Every mount of a sandbox costs it two milliseconds at its start.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use belljar_core::LayerKind;
use belljar_core::wire::{Bind, Setup, TRUST};

use crate::{fittings, slots};

/// What gVisor mounts itself, and what settle mounts the disk on.
const PLACES: [&str; 7] = ["proc", "sys", "dev", "workspace", "tmp", "var/tmp", "home/agent"];

/// What is copied of /etc at most; the rest is mounted.
const COPIED_BYTES_MAX: u64 = 32 * 1024 * 1024;
const COPIED_ENTRIES_MAX: u32 = 20_000;
const DEPTH_MAX: u32 = 16;

#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    /// What has to be mounted over it.
    pub(super) binds: Vec<Bind>,
    /// Versions of Python, such as `3.12`, that packages may come for.
    pub(super) pythons: Vec<String>,
    /// What it is of, which is kept as long.
    pub(super) _image: Option<belljar_images::Root>,
    /// The directory to remove with it.
    pub(super) _goes: Option<Gone>,
}

/// A directory that is removed when nobody has it any more.
#[derive(Debug)]
pub(super) struct Gone(pub(super) PathBuf);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Root {
    /// Makes it at `path`, which is not there yet.
    pub(super) fn build(path: PathBuf, setup: &Setup, fittings: &Path, trust: Option<&str>) -> io::Result<Root> {
        make_directory(&path)?;
        slots::link_all(fittings, &path.join("belljar"))?;
        for place in PLACES {
            make_directories(&path, place)?;
        }
        // For sandboxes without slots: there is no layer, and still a place for each.
        for kind in LayerKind::ALL {
            make_directories(&path, &format!("belljar/layers/{}", fittings::slot_of(kind)))?;
        }
        let is_fitted = |inside: &str| inside.starts_with("/belljar/bin/") || inside.starts_with("/belljar/lib/");
        let is_program = |inside: &str| is_fitted(inside) || inside.starts_with("/belljar/node/");
        for (inside, content) in setup.files.iter().filter(|(inside, _)| !is_program(inside)) {
            write(&path, inside, content.as_bytes())?;
        }
        if let Some(trust) = trust {
            write(&path, TRUST, trust.as_bytes())?;
        }
        let links = setup.links.iter().filter(|(inside, _)| !is_program(inside)).cloned();
        for (inside, target) in links.chain(fittings::root_links()) {
            symlink(target, make_parents(&path, &inside)?)?;
        }
        let mut room = Room { bytes: COPIED_BYTES_MAX, entries: COPIED_ENTRIES_MAX };
        let mut binds = Vec::new();
        for bind in &setup.binds {
            let at = make_parents(&path, &bind.inside)?;
            if bind.inside.starts_with("/etc/") && copy(Path::new(&bind.host), &at, DEPTH_MAX, &mut room).is_ok() {
                continue;
            }
            // What was copied of one that was too large is in the way of nothing: it is mounted over.
            if fs::metadata(&bind.host)?.is_dir() {
                make_directories(&path, bind.inside.trim_start_matches('/'))?;
            } else if !at.exists() {
                fs::write(&at, "")?;
            }
            binds.push(bind.clone());
        }
        Ok(Root { path, binds, pythons: Vec::new(), _image: None, _goes: None })
    }
}

struct Room {
    bytes: u64,
    entries: u32,
}

impl Room {
    fn take(&mut self, bytes: u64) -> io::Result<()> {
        let left = (self.bytes.checked_sub(bytes), self.entries.checked_sub(1));
        let (Some(bytes), Some(entries)) = left else { return Err(io::ErrorKind::QuotaExceeded.into()) };
        *self = Room { bytes, entries };
        Ok(())
    }
}

/// A copy for everybody to read. The first link is followed, and none below it.
fn copy(from: &Path, to: &Path, depth: u32, room: &mut Room) -> io::Result<()> {
    if depth == 0 {
        return Err(io::ErrorKind::QuotaExceeded.into());
    }
    let metadata = fs::metadata(from)?;
    room.take(if metadata.is_file() { metadata.len() } else { 0 })?;
    if metadata.is_file() {
        fs::copy(from, to)?;
        let mode = if metadata.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        return fs::set_permissions(to, Permissions::from_mode(mode));
    }
    if !metadata.is_dir() {
        return Ok(());
    }
    make_directory(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_symlink() {
            room.take(0)?;
            symlink(fs::read_link(&old)?, &new)?;
            continue;
        }
        match copy(&old, &new, depth - 1, room) {
            // For root's eyes only: not for a sandbox's either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

fn write(root: &Path, inside: &str, content: &[u8]) -> io::Result<()> {
    let path = make_parents(root, inside)?;
    fs::write(&path, content)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// Makes the directories on the way to a path of the sandbox's, and says where that is on the host.
fn make_parents(root: &Path, inside: &str) -> io::Result<PathBuf> {
    let relative = inside.trim_start_matches('/');
    if let Some((parent, _)) = relative.rsplit_once('/') {
        make_directories(root, parent)?;
    }
    Ok(root.join(relative))
}

fn make_directories(root: &Path, relative: &str) -> io::Result<()> {
    let mut at = root.to_owned();
    for part in relative.split('/') {
        at.push(part);
        match make_directory(&at) {
            // Never through a link: an image's could lead anywhere on the host.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(&at)?.is_dir() => {}
            other => other?,
        }
    }
    Ok(())
}

/// For everybody, whatever the server keeps to itself.
fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_everything_that_is_mounted_on() {
        let ground = tempfile::tempdir().unwrap();
        let fittings = fittings::directory(&ground.path().join("cache")).unwrap();
        let own = ground.path().join("home/python");
        fs::create_dir_all(&own).unwrap();
        let bind =
            |host: &Path, inside: &str| Bind { host: host.to_str().unwrap().to_owned(), inside: inside.to_owned() };
        let setup = Setup {
            binds: vec![
                bind(Path::new("/usr"), "/usr"),
                bind(&own, "/home/me/python"),
                bind(Path::new("/etc/hosts"), "/etc/hosts"),
            ],
            links: vec![("/bin".to_owned(), "usr/bin".to_owned())],
            files: vec![("/etc/passwd".to_owned(), "x".to_owned())],
            ..Setup::default()
        };
        let root = Root::build(ground.path().join("root"), &setup, &fittings, Some("pem")).unwrap();
        let inside: Vec<_> = root.binds.iter().map(|bind| bind.inside.as_str()).collect();
        assert_eq!(inside, ["/usr", "/home/me/python"]);
        for place in PLACES.iter().copied().chain(["usr", "home/me/python", "belljar/layers", "belljar/disk"]) {
            assert!(root.path.join(place).is_dir(), "{place}");
        }
        for file in ["etc/hosts", "etc/passwd", "belljar/settle", "belljar/ca.pem"] {
            assert!(root.path.join(file).is_file(), "{file}");
        }
        assert_eq!(fs::read_link(root.path.join("tools")).unwrap(), Path::new("/belljar/layers/tools"));
    }
}
