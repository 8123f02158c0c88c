//! Memory, processes and CPU of a sandbox as a whole, through whichever cgroups this host has.
//!
//! Version 2 has one tree; version 1 a tree for each controller. In both, a server owns one directory
//! `belljar-<pid>-<start time>` below its own cgroup, and each sandbox one below that. The name tells the next server
//! whose directories may go after a kill -9.

mod find;
mod group;
mod sweep;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use belljar_core::Limits;

pub(super) use group::Group;

use find::Found;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Pids,
    Cpu,
}

impl Controller {
    const ALL: [Controller; 3] = [Controller::Memory, Controller::Pids, Controller::Cpu];

    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Pids => "pids",
            Controller::Cpu => "cpu",
        }
    }
}

/// A directory of this server's, in one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tree {
    version: Version,
    controllers: Vec<Controller>,
    /// `belljar-<pid>-<start time>`, made when the first sandbox needs it.
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// What this host offers. Nothing is made before the first sandbox.
#[derive(Debug)]
pub(super) struct Cgroups {
    trees: Vec<Tree>,
    why_none: String,
    next: AtomicU64,
}

impl Cgroups {
    pub(super) fn find() -> Cgroups {
        let name = sweep::own_name();
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let found = find::find(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        let mut trees = Vec::new();
        let mut why_none = "this host has no cgroup controllers".to_owned();
        for Found { version, controllers, own } in found {
            sweep::remove_dead(&own);
            let tree = Tree { version, controllers, directory: own.join(&name) };
            match tree.prepare(&own) {
                Ok(controllers) if !controllers.is_empty() => trees.push(Tree { controllers, ..tree }),
                Ok(_) => {}
                Err(error) => why_none = format!("no cgroup is delegated to this user ({error})"),
            }
        }
        // A host with controllers in both is possible, and rare; there version 1 has the ones that matter to it.
        if trees.iter().any(|tree| tree.version == Version::One) {
            trees.retain(|tree| tree.version == Version::One);
        }
        Cgroups { trees, why_none, next: AtomicU64::new(1) }
    }

    pub(super) fn why_none(&self) -> &str {
        &self.why_none
    }

    pub(super) fn describe(&self) -> Option<String> {
        (!self.trees.is_empty()).then(|| describe(&self.trees))
    }

    /// Makes the cgroups of one sandbox; `None` where this host gives us none.
    pub(super) fn create(&self, limits: &Limits) -> io::Result<Option<Group>> {
        if self.trees.is_empty() {
            return Ok(None);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Group::create(&self.trees, &number.to_string(), limits).map(Some)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for tree in &self.trees {
            let _ = fs::remove_dir(&tree.directory);
        }
    }
}

impl Tree {
    /// Where the server itself goes when it may not stay in its cgroup.
    fn leaf(&self) -> PathBuf {
        let mut leaf = self.directory.clone().into_os_string();
        leaf.push("-server");
        leaf.into()
    }

    /// Makes our directory and finds out which controllers work in it.
    fn prepare(&self, own: &Path) -> io::Result<Vec<Controller>> {
        if self.version == Version::One {
            fs::create_dir(&self.directory)?;
            return Ok(self.controllers.clone());
        }
        // A cgroup of version 2 gives controllers to its children, or has processes, never both; only the root may. So
        // where we are the only process in ours, as in a systemd scope or a container, we step into a leaf first.
        let controllers = match enable(own, &self.controllers) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let leaf = self.leaf();
                fs::create_dir(&leaf)?;
                fs::write(leaf.join("cgroup.procs"), std::process::id().to_string())?;
                enable(own, &self.controllers)?
            }
            other => other?,
        };
        fs::create_dir(&self.directory)?;
        enable(&self.directory, &controllers)
    }
}

/// Hands controllers down to the children of a cgroup of version 2: those that are there and that we may.
fn enable(directory: &Path, wanted: &[Controller]) -> io::Result<Vec<Controller>> {
    let control = directory.join("cgroup.subtree_control");
    let has = |text: &str, controller: &Controller| text.split_whitespace().any(|name| name == controller.name());
    let available = fs::read_to_string(directory.join("cgroup.controllers"))?;
    for controller in wanted.iter().filter(|controller| has(&available, controller)) {
        let enabled = fs::read_to_string(&control)?;
        if !has(&enabled, controller) {
            fs::write(&control, format!("+{}", controller.name()))?;
        }
    }
    let enabled = fs::read_to_string(&control)?;
    Ok(wanted.iter().copied().filter(|controller| has(&enabled, controller)).collect())
}

fn describe(trees: &[Tree]) -> String {
    let version = if trees.iter().any(|tree| tree.version == Version::Two) { "v2" } else { "v1" };
    let names: Vec<_> = trees.iter().flat_map(|tree| &tree.controllers).map(|controller| controller.name()).collect();
    format!("{version}: {}", names.join(" "))
}

#[cfg(test)]
mod tests;
