//! The wall that the battery is played at: how its server is told of it, which cases are about it, and what its sandboxes are
//! on the host, where whatever is left of them has to be looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::client::hold;
use super::containers;
use super::proc::{self, Process};

/// What the cases call a wall, and what is known of it here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Native,
    /// Containers of an engine; the host's kernel is the surface, as it is for `native`.
    Oci,
    Gvisor,
    Microvm,
    Wasm,
}

impl Kind {
    /// By the name that the server has for it.
    fn named(backend: &str) -> Option<Kind> {
        Some(match backend {
            "native" => Kind::Native,
            "docker" => Kind::Oci,
            "gvisor" => Kind::Gvisor,
            "microvm" => Kind::Microvm,
            "wasm" => Kind::Wasm,
            _ => return None,
        })
    }

    /// The name that cases have for it in `applies_to`.
    pub(crate) fn in_cases(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Oci => "oci",
            Kind::Gvisor => "gvisor",
            Kind::Microvm => "microvm",
            Kind::Wasm => "wasm",
        }
    }

    /// Whether its programs are the host's own.
    pub(crate) fn has_hosts_programs(self) -> bool {
        matches!(self, Kind::Native | Kind::Gvisor)
    }
}

/// Cases in which the kernel that answers is the guest's own: what they look for is there, and is not the host's.
const GUESTS_OWN: &[(Kind, &str, &str)] = &[];

#[derive(Debug, Clone)]
pub struct Wall {
    pub(crate) kind: Kind,
    /// What the server's configuration says of it: `[walls] backend` and a table of its own, as `scripts/walls` writes it.
    pub(crate) configuration: String,
    /// By how much its sandboxes may be slower than what the cases reckon with.
    pub(crate) slowness: u32,
    /// Where its servers keep what they can make again, if not where they usually do.
    pub(crate) cache: Option<PathBuf>,
    /// The servers that were started for it, of which traces may be found.
    servers: Arc<Mutex<BTreeSet<u32>>>,
}

/// Sandboxes by the traces that they are found by, of each kind.
pub(crate) type Traces = BTreeMap<&'static str, BTreeSet<String>>;

impl Wall {
    /// The host's own kernel, which needs no word in a configuration.
    pub fn native() -> Wall {
        Wall { kind: Kind::Native, configuration: String::new(), slowness: 1, cache: None, servers: Arc::default() }
    }

    /// From a configuration that names a backend.
    pub fn configured(configuration: &str) -> Result<Wall, String> {
        let backend = setting(configuration, "backend").ok_or("the wall's configuration names no backend")?;
        let kind = Kind::named(backend).ok_or_else(|| format!("no cases are known for {backend}"))?;
        // A machine that is emulated takes several times as long for everything, and is for tests alone.
        let slowness = match kind {
            Kind::Microvm if configuration.contains("emulation = true") => 6,
            // It takes some fifteen milliseconds to start a process, and as long as that to open a file of the host's.
            Kind::Gvisor => 4,
            Kind::Microvm | Kind::Oci => 2,
            Kind::Native | Kind::Wasm => 1,
        };
        Ok(Wall { slowness, configuration: configuration.to_owned(), ..Wall::native() }.of_kind(kind))
    }

    fn of_kind(self, kind: Kind) -> Wall {
        Wall { kind, ..self }
    }

    /// For one run of the battery: its servers are told apart from those of another, and it keeps its things in this folder.
    pub(crate) fn at(&self, folder: &Path) -> Wall {
        // Interpreters for wasm are compiled ahead, by `belljar warmup`, into the usual one.
        let has_own = !matches!(self.kind, Kind::Native | Kind::Wasm);
        let cache = has_own.then(|| folder.join("cache"));
        Wall { cache, servers: Arc::default(), ..self.clone() }
    }

    pub(crate) fn started(&self, server: u32) {
        hold(&self.servers).insert(server);
    }

    /// Why this wall is not measured by a case that is about walls like it.
    pub(crate) fn guests_own(&self, case: &str) -> Option<&'static str> {
        GUESTS_OWN.iter().find(|(kind, id, _)| *kind == self.kind && *id == case).map(|(_, _, why)| *why)
    }

    /// How many tasks of the host one of a sandbox may be.
    pub(crate) fn tasks_per_process(&self) -> usize {
        match self.kind {
            // One in the kernel of its own, one that its code runs in, and one that stops that.
            Kind::Gvisor => 3,
            _ => 1,
        }
    }

    /// A server, first, and all processes that are its doing: those below it, and those that an engine has for it.
    pub(crate) fn family(&self, server: u32) -> Vec<Process> {
        let mut family = proc::family(server);
        if let Some(engine) = self.engine_folder() {
            let shims = proc::marked(&engine);
            let shims = shims.iter().filter(|pid| proc::is_named(**pid, &["containerd-shim", "conmon"]));
            family.extend(shims.flat_map(|shim| proc::family(*shim).into_iter().skip(1)));
        }
        family
    }

    /// An engine's own are the engine's: it has some for each container, and those are looked for by themselves.
    pub(crate) fn mounts(&self) -> usize {
        proc::mounts(self.engine_folder().as_deref())
    }

    /// Where the tests' own engine has everything: its socket, and what its helpers are started with.
    fn engine_folder(&self) -> Option<String> {
        let socket = Path::new(self.socket()?);
        Some(socket.parent()?.display().to_string())
    }

    fn socket(&self) -> Option<&str> {
        let socket = (self.kind == Kind::Oci).then(|| setting(&self.configuration, "socket"))??;
        Some(socket.strip_prefix("unix://").unwrap_or(socket))
    }

    /// The sandboxes that are there now, as the host shows them.
    pub(crate) fn traces(&self) -> Traces {
        let servers = hold(&self.servers).clone();
        let mut traces = Traces::from([("cgroups", proc::sandbox_cgroups(&servers))]);
        match self.kind {
            Kind::Oci => {
                let found = self.socket().map(|socket| containers::of_servers(Path::new(socket), &servers));
                // An engine that does not answer has none that could be counted; whatever needs it fails by itself.
                traces.insert("containers", found.and_then(Result::ok).unwrap_or_default());
            }
            Kind::Gvisor => {
                let mut bundles = BTreeSet::new();
                self.cache.iter().for_each(|cache| walk_bundles(cache, 0, &mut bundles));
                traces.insert("bundles", bundles);
            }
            Kind::Microvm => {
                let vmm = setting(&self.configuration, "vmm").unwrap_or("qemu-system");
                let name = Path::new(vmm).file_name().unwrap_or_default().to_string_lossy().into_owned();
                let is_machine = |pid: &u32| proc::is_named(*pid, &[&name, "qemu-system", "firecracker"]);
                let below = servers.iter().flat_map(|server| proc::family(*server).into_iter().skip(1));
                let machines = below.map(|process| process.pid).filter(is_machine);
                traces.insert("machines", machines.map(|pid| pid.to_string()).collect());
            }
            Kind::Native | Kind::Wasm => {}
        }
        traces
    }
}

/// Directories with an OCI bundle. Bounded: a root file system may be beside them.
fn walk_bundles(folder: &Path, depth: usize, found: &mut BTreeSet<String>) {
    const DEPTH_MAX: usize = 5;
    if folder.join("config.json").is_file() {
        found.insert(folder.display().to_string());
        return;
    }
    if depth == DEPTH_MAX {
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != "root" {
            walk_bundles(&entry.path(), depth + 1, found);
        }
    }
}

/// The value of a line `name = "value"`. Not a reader of TOML: the file is our own.
fn setting<'a>(configuration: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (left, right) = line.split_once('=')?;
        (left.trim() == name).then(|| right.trim().trim_matches('"'))
    };
    configuration.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::host::Folder;

    #[test]
    fn a_wall_is_read_from_its_configuration() {
        let wall =
            Wall::configured("[walls]\nbackend = \"docker\"\n[docker]\nsocket = \"unix:///a/b/c.sock\"\n").unwrap();
        assert_eq!((wall.kind, wall.socket()), (Kind::Oci, Some("/a/b/c.sock")));
        assert_eq!(wall.engine_folder().unwrap(), "/a/b");
        assert!(Wall::configured("[walls]\nallow = []\n").is_err());
        assert!(Wall::configured("[walls]\nbackend = \"paper\"\n").is_err());
        assert!(
            Wall::configured("[walls]\nbackend = \"microvm\"\n[microvm]\nemulation = true\n").unwrap().slowness > 2
        );
    }

    #[test]
    fn bundles_are_found_and_a_root_is_not_searched() {
        let folder = Folder::create("/tmp", "secbat-test-").unwrap();
        for path in ["run/s1/a", "run/s1/b", "run/s1/root/usr"] {
            fs::create_dir_all(folder.0.join(path)).unwrap();
            fs::write(folder.0.join(path).join("config.json"), "{}").unwrap();
        }
        let mut found = BTreeSet::new();
        walk_bundles(&folder.0, 0, &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn whoever_is_excused_is_in_the_cases() {
        let ids: Vec<String> =
            crate::battery::case::lines().map(|line| line.unwrap()["id"].as_str().unwrap().to_owned()).collect();
        for (kind, id, why) in GUESTS_OWN {
            assert!(ids.iter().any(|known| known == id) && !why.is_empty(), "{kind:?} {id}");
        }
    }
}
