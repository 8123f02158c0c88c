//! The root that all sandboxes share: built once, read-only, in a mount namespace that only the jail is in.
//!
//! ```text
//! /            a tmpfs of ours, the jail's whole world after pivot_root
//! ├── proc     of the jail's own processes: to write uid maps, and because the kernel lets a user namespace mount a new
//! │            proc only where it can see a whole one
//! ├── store    the layers of packages, if there is a store of them: single ones are shown to sandboxes (see `store`)
//! └── root     what a sandbox will see as /: links, small files, files of ours, read-only binds of /usr and the
//!              interpreters
//! ```
//!
//! Nothing is ever written on the host's disk, so nothing has to be removed: the namespace dies with the jail.

use std::ffi::CString;
use std::fs;
use std::io::{Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use belljar_core::wire::{Bind, Setup};
use belljar_seal::{At, Failure, Outcome, WRITABLE};
use rustix::fs::Mode;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::process::{chdir, getegid, geteuid, pivot_root, umask};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use crate::store::STORE;
use crate::sys;

/// Where the shared root is, in the jail's own world.
pub(crate) const ROOT: &str = "/root";

/// Where a sandbox's disk is first mounted, before its parts go to the places above.
pub(crate) const STAGING: &str = "mnt";

/// Where binds are kept that would be covered.
const KEPT: &str = "run/homes";

const OWN: UnshareFlags = UnshareFlags::NEWNS.union(UnshareFlags::NEWPID).union(UnshareFlags::NEWTIME);

const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
const DEVICE_LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// What the jail may do, which decides how a sandbox's user is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    /// Root of the host: each sandbox gets a host uid of its own.
    Root,
    /// An ordinary user, root only in a user namespace of ours: each sandbox is mapped to this one user.
    User,
}

/// The root as it stands.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) power: Power,
    pub(crate) late: Vec<Late>,
}

/// A bind below a place that each sandbox mounts its own disk on, such as /workspace/.venv: it would be covered, so each
/// sandbox makes it anew from where it is kept.
#[derive(Debug)]
pub(crate) struct Late {
    /// Both relative to the root.
    pub(crate) kept: PathBuf,
    pub(crate) inside: PathBuf,
}

/// Files of ours that every sandbox shall have, with their paths.
pub(crate) type Files = Vec<(&'static str, OwnedFd)>;

/// In the namespaces of [`enter_own_namespaces`].
pub(crate) fn build(setup: &Setup, power: Power, files: Files) -> Outcome<Root> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at("making mounts private")?;

    // Our tmpfs covers this directory, in our namespace only; an interpreter that lives below it, or the store, would be
    // covered too.
    let needed = || setup.binds.iter().map(|bind| &bind.host).chain(&setup.store);
    let base = ["/mnt", "/media", "/srv", "/var/tmp", "/tmp"]
        .into_iter()
        .find(|base| Path::new(base).is_dir() && !needed().any(|host| host.starts_with(base)))
        .ok_or_else(|| Failure { step: "finding a directory to mount on".to_owned(), errno: libc::ENOENT })?;
    mount("belljar", base, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755,size=16m"))
        .at("mounting the jail's tmpfs")?;
    chdir(base).at("entering the jail's tmpfs")?;
    // Whoever started the server may have kept what he makes to himself; this is for sandboxes to see.
    umask(Mode::from_raw_mode(0o022));
    let late = fill(setup, files)?;

    pivot_root(".", ".").at("pivot_root")?;
    unmount(".", UnmountFlags::DETACH).at("detaching the host's root")?;
    chdir("/").at("entering the new root")?;
    Ok(Root { power, late })
}

/// Namespaces for the jail and all below it: mounts, since the shared root is nobody else's; processes, so that a zygote
/// sees none but the jail's, and can enter those of the sandboxes, which only whoever is above them can; the clock, which
/// none of them can set. The next child is the first process in it.
pub(crate) fn enter_own_namespaces() -> Outcome<Power> {
    let user = geteuid();
    let group = getegid();
    let admin = capabilities(None).at("reading capabilities")?.effective.contains(CapabilitySet::SYS_ADMIN);
    if user.is_root() && admin {
        sys::unshare(OWN).at("unshare of mounts")?;
        return Ok(Power::Root);
    }
    sys::unshare(UnshareFlags::NEWUSER | OWN).at("unshare of users and mounts")?;
    write_map("/proc/self/setgroups", "deny").at("denying setgroups")?;
    write_map("/proc/self/uid_map", &format!("0 {} 1", user.as_raw())).at("mapping the user")?;
    write_map("/proc/self/gid_map", &format!("0 {} 1", group.as_raw())).at("mapping the group")?;
    Ok(Power::User)
}

pub(crate) fn write_map(path: &str, line: &str) -> std::io::Result<()> {
    fs::write(path, line)
}

/// Lays the shared root out below the working directory.
fn fill(setup: &Setup, files: Files) -> Outcome<Vec<Late>> {
    fs::create_dir("root").at("making the root")?;
    fs::create_dir("proc").at("making the proc directory")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "proc", "proc", flags, None).at("mounting /proc")?;
    if let Some(host) = &setup.store {
        fs::create_dir(STORE).at("making the store's place")?;
        mount_bind_recursive(host, STORE).at("binding the store of layers")?;
        attributes(Path::new(STORE), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
    }
    // The size is a bound, not a cost: there is little in it besides our own program.
    mount("belljar", "root", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0755,size=64m"))
        .at("mounting the shared root")?;

    let root = Path::new("root");
    for (path, mode) in WRITABLE {
        make_directory(&root.join(path))?;
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).at("setting a mode")?;
    }
    // An image may have a link for some of them.
    let is_link = |path: &str| setup.links.iter().any(|(link, _)| link.trim_start_matches('/') == path);
    for path in ["proc", STAGING, "run", "etc", "opt", "srv"].into_iter().filter(|path| !is_link(path)) {
        make_directory(&root.join(path))?;
    }
    for device in DEVICES {
        let inside = root.join("dev").join(device);
        fs::write(&inside, "").at("making a device's place")?;
        mount_bind_recursive(Path::new("/dev").join(device), &inside).at("binding a device")?;
        attributes(&inside, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
    }
    for (name, target) in DEVICE_LINKS {
        symlink(target, root.join("dev").join(name)).at("linking in /dev")?;
    }
    for directory in &setup.directories {
        make_directory(&root.join(below_root(directory)?))?;
    }
    let mut late = Vec::new();
    for bind in &setup.binds {
        let inside = below_root(&bind.inside)?;
        if WRITABLE.iter().any(|(place, _)| inside.starts_with(place)) {
            let kept = Path::new(KEPT).join(late.len().to_string());
            bind_read_only(bind, &root.join(&kept))?;
            late.push(Late { kept, inside });
        } else {
            bind_read_only(bind, &root.join(inside))?;
        }
    }
    for (path, target) in &setup.links {
        let path = root.join(below_root(path)?);
        make_parent(&path)?;
        symlink(target, path).at("making a link")?;
    }
    for (path, content) in &setup.files {
        let path = root.join(below_root(path)?);
        make_parent(&path)?;
        fs::write(&path, content).at("writing a small file")?;
        if content.starts_with("#!") {
            fs::set_permissions(path, fs::Permissions::from_mode(0o555)).at("setting a mode")?;
        }
    }
    for (path, file) in files {
        write_file(&root.join(below_root(path)?), file)?;
    }
    attributes(root, libc::MOUNT_ATTR_RDONLY)?;
    Ok(late)
}

/// Puts a file of ours there, as a copy: a memory file is in no mount that it could be bound from. None for an empty one.
fn write_file(path: &Path, from: OwnedFd) -> Outcome<()> {
    let mut from = fs::File::from(from);
    if from.seek(SeekFrom::End(0)).at("reading our own program")? == 0 {
        return Ok(());
    }
    from.rewind().at("reading our own program")?;
    make_parent(path)?;
    let mut file = fs::File::create(path).at("making our own program")?;
    std::io::copy(&mut from, &mut file).at("writing our own program")?;
    file.set_permissions(fs::Permissions::from_mode(0o555)).at("setting a mode")
}

fn bind_read_only(bind: &Bind, to: &Path) -> Outcome<()> {
    let at = |what: &str| format!("binding {}: {what}", bind.host);
    if fs::metadata(&bind.host).at(&at("looking at it"))?.is_dir() {
        make_directory(to)?;
    } else {
        make_parent(to)?;
        fs::write(to, "").at(&at("making its place"))?;
    }
    mount_bind_recursive(&bind.host, to).at(&at("mounting"))?;
    attributes(to, libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
}

fn attributes(path: &Path, attributes: u64) -> Outcome<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())
        .map_err(|_| Failure { step: "naming a mount".to_owned(), errno: libc::EINVAL })?;
    sys::mount_attributes(&path, attributes, libc::AT_RECURSIVE).at("setting mount attributes")
}

/// A path of the sandbox as one relative to its root.
fn below_root(path: &str) -> Outcome<PathBuf> {
    let relative = path.trim_start_matches('/');
    if relative.is_empty() || Path::new(relative).components().any(|part| part.as_os_str() == "..") {
        return Err(Failure { step: format!("placing {path}"), errno: libc::EINVAL });
    }
    Ok(PathBuf::from(relative))
}

fn make_directory(path: &Path) -> Outcome<()> {
    fs::create_dir_all(path).at("making a directory")
}

fn make_parent(path: &Path) -> Outcome<()> {
    path.parent().map_or(Ok(()), make_directory)
}
