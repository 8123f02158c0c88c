//! Where this process's cgroups are, read from the kernel's two tables.

use std::path::{Path, PathBuf};

use super::{Controller, Version};

/// A tree that has controllers we use, and the directory in it that is our own cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    pub(super) own: PathBuf,
    /// The whole tree, as far as it is mounted.
    pub(super) top: PathBuf,
}

/// `mountinfo` and `memberships` are the texts of /proc/self/mountinfo and /proc/self/cgroup.
pub(super) fn find(mountinfo: &str, memberships: &str) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for mount in mountinfo.lines().filter_map(parse_mount) {
        let (version, controllers, key) = if mount.kind == "cgroup2" {
            (Version::Two, Controller::ALL.to_vec(), "")
        } else {
            let of_mount = |controller: &Controller| mount.options.split(',').any(|option| option == controller.name());
            let controllers: Vec<_> = Controller::ALL.into_iter().filter(of_mount).collect();
            let Some(first) = controllers.first() else { continue };
            let key = first.name();
            (Version::One, controllers, key)
        };
        // A controller belongs to one tree only; a second mount of the same tree adds nothing.
        let taken = |controller: &Controller| found.iter().any(|found| found.controllers.contains(controller));
        if version == Version::One && controllers.iter().any(taken) {
            continue;
        }
        let Some(membership) = membership(memberships, key) else { continue };
        let below = Path::new(membership).strip_prefix(mount.root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let top = PathBuf::from(&mount.point);
        found.push(Found { version, controllers, own: top.join(below), top });
    }
    // Where version 1 has a controller, version 2 cannot.
    let in_one: Vec<_> = found
        .iter()
        .filter(|found| found.version == Version::One)
        .flat_map(|found| found.controllers.clone())
        .collect();
    for tree in found.iter_mut().filter(|found| found.version == Version::Two) {
        tree.controllers.retain(|controller| !in_one.contains(controller));
    }
    found.retain(|found| !found.controllers.is_empty());
    found
}

struct Mount<'a> {
    root: &'a str,
    point: String,
    kind: &'a str,
    options: &'a str,
}

/// A line of mountinfo: `id parent dev root point options... - type source super-options`.
fn parse_mount(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let kind = after.next().filter(|kind| kind.starts_with("cgroup"))?;
    let options = after.nth(1)?;
    let mut before = before.split(' ').skip(3);
    let root = before.next()?;
    let point = before.next()?.replace("\\040", " ");
    Some(Mount { root, point, kind, options })
}

/// The path in a line `number:controllers:path`; the line of version 2 has no controllers.
fn membership<'a>(memberships: &'a str, controller: &str) -> Option<&'a str> {
    memberships.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let controllers = parts.nth(1)?;
        let path = parts.next()?;
        let same = if controller.is_empty() {
            controllers.is_empty()
        } else {
            controllers.split(',').any(|name| name == controller)
        };
        same.then_some(path)
    })
}
