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

use crate::sys;
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
        for Found { version, controllers, own, top } in found {
            // Below our own cgroup, where whoever started us set limits for us; or, for root in a shell that it shares
            // its cgroup with, at the top, as container engines do.
            let places = if version == Version::Two && sys::is_admin() { vec![own, top] } else { vec![own] };
            for place in places {
                sweep::remove_dead(&place);
                let tree = Tree { version, controllers: controllers.clone(), directory: place.join(&name) };
                match tree.prepare(&place) {
                    Ok(controllers) if !controllers.is_empty() => {
                        trees.push(Tree { controllers, ..tree });
                        break;
                    }
                    Ok(_) => why_none = "no controller is handed down to this server's cgroup".to_owned(),
                    Err(error) => why_none = why(&error),
                }
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

    /// Whether there is one for each thing that we hold with them.
    pub(super) fn are_complete(&self) -> bool {
        missing(&self.trees).is_empty()
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
            tree.remove();
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
            self.weigh();
            return Ok(self.controllers.clone());
        }
        // A cgroup of version 2 gives controllers to its children, or has processes, never both; only the root may. So
        // we step into a leaf first, which helps where we are alone in ours, as in a systemd scope or a container. Not
        // only when told "busy": pids and cpu without memory are let through, and then no child can have processes.
        let is_root = !own.join("cgroup.type").exists();
        let controllers = if is_root { enable(own, &self.controllers)? } else { self.step_aside(own)? };
        if controllers.is_empty() {
            return Ok(controllers);
        }
        let made = fs::create_dir(&self.directory).inspect(|()| self.weigh());
        made.and_then(|()| enable(&self.directory, &controllers)).inspect_err(|_| self.remove())
    }

    /// Lets all sandboxes together weigh as many processes, where a cgroup would weigh as one: on a busy host each would
    /// else get less of the processor than a program that is run without us. A wish; without it they are only slower.
    fn weigh(&self) {
        if !self.controllers.contains(&Controller::Cpu) {
            return;
        }
        let processes = 4 * std::thread::available_parallelism().map_or(1, usize::from);
        let (file, one, most) = match self.version {
            Version::One => ("cpu.shares", 1024, 262_144),
            Version::Two => ("cpu.weight", 100, 10_000),
        };
        let _ = fs::write(self.directory.join(file), (processes * one).min(most).to_string());
    }

    /// Moves the server into a leaf below its cgroup, if that is all it takes for the cgroup to give controllers.
    fn step_aside(&self, own: &Path) -> io::Result<Vec<Controller>> {
        let leaf = self.leaf();
        fs::create_dir(&leaf)?;
        let enabled = enter(&leaf).and_then(|()| enable(own, &self.controllers));
        if !enabled.as_ref().is_ok_and(|controllers| !controllers.is_empty()) {
            // Others are in it too, or it has none to give. Back: whoever put us there counts on finding us there.
            let _ = enter(own);
            let _ = fs::remove_dir(&leaf);
        }
        enabled
    }

    /// Removes our directory, and goes back to where we were started if we had to leave it.
    fn remove(&self) {
        let _ = fs::remove_dir(&self.directory);
        let leaf = self.leaf();
        if let Some(own) = self.directory.parent().filter(|_| leaf.is_dir()) {
            // It gave none when we came, or we could not have been in it. While it gives some, nobody may enter.
            let _ = hand_down(own, '-', &self.controllers);
            let _ = enter(own);
            let _ = fs::remove_dir(&leaf);
        }
    }
}

/// Moves this process, all threads of it.
fn enter(directory: &Path) -> io::Result<()> {
    fs::write(directory.join("cgroup.procs"), std::process::id().to_string())
}

/// All in one write, which the kernel does wholly or not at all.
fn hand_down(directory: &Path, sign: char, controllers: &[Controller]) -> io::Result<()> {
    let words: Vec<_> = controllers.iter().map(|controller| format!("{sign}{}", controller.name())).collect();
    fs::write(directory.join("cgroup.subtree_control"), words.join(" "))
}

/// For the caller, who can do nothing with a number; the way out is the doctor's to say.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ResourceBusy => "other processes share this server's cgroup".to_owned(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "no cgroup is delegated to this server".to_owned()
        }
        _ => format!("no cgroup could be made ({error})"),
    }
}

/// Hands controllers down to the children of a cgroup of version 2: those that are there and that we may.
fn enable(directory: &Path, wanted: &[Controller]) -> io::Result<Vec<Controller>> {
    let control = directory.join("cgroup.subtree_control");
    let has = |text: &str, controller: &Controller| text.split_whitespace().any(|name| name == controller.name());
    let (available, enabled) =
        (fs::read_to_string(directory.join("cgroup.controllers"))?, fs::read_to_string(&control)?);
    let missing: Vec<_> = wanted.iter().copied().filter(|one| has(&available, one) && !has(&enabled, one)).collect();
    if !missing.is_empty() {
        hand_down(directory, '+', &missing)?;
    }
    let enabled = fs::read_to_string(&control)?;
    Ok(wanted.iter().copied().filter(|controller| has(&enabled, controller)).collect())
}

fn describe(trees: &[Tree]) -> String {
    let version = if trees.iter().any(|tree| tree.version == Version::Two) { "v2" } else { "v1" };
    let names: Vec<_> = trees.iter().flat_map(|tree| &tree.controllers).map(|controller| controller.name()).collect();
    let missing: Vec<_> = missing(trees).into_iter().map(Controller::name).collect();
    let without = if missing.is_empty() { String::new() } else { format!("; without {}", missing.join(", ")) };
    format!("{version}: {}{without}", names.join(" "))
}

fn missing(trees: &[Tree]) -> Vec<Controller> {
    let has = |controller: &Controller| trees.iter().any(|tree| tree.controllers.contains(controller));
    Controller::ALL.into_iter().filter(|controller| !has(controller)).collect()
}

#[cfg(test)]
mod tests;
