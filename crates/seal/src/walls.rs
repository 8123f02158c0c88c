//! The walls that a process puts around itself, in an order in which each still can be put up.

use std::os::fd::OwnedFd;

use belljar_core::BUILD;
use belljar_core::wire::Bounds;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::error::{At, Failure, Outcome};
use crate::seccomp::Filter;
use crate::sys;

/// Directories of a sandbox that it mounts its own file system on, with their modes.
pub const WRITABLE: [(&str, u32); 5] =
    [("workspace", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("home/agent", 0o755), ("dev/shm", 0o1777)];

/// Whether a sandbox has landlock: this kernel may have none that is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landlock {
    Up,
    /// As up, and the directory in which a layer is built is writable too.
    UpForBuilding,
    None,
}

/// Seals this process, whose working directory is its root, and all that it will ever start. After this, no call can take
/// anything back.
pub fn seal(bounds: &Bounds, landlock: Landlock, last: &Filter) -> Outcome<()> {
    limits(bounds)?;
    drop_capabilities()?;
    set_no_new_privs(true).at("no_new_privs")?;
    let building = match landlock {
        Landlock::Up => Some(None),
        Landlock::UpForBuilding => Some(Some(BUILD.trim_start_matches('/'))),
        Landlock::None => None,
    };
    if let Some(building) = building {
        restrict_paths(building).map_err(|_| Failure { step: "landlock".to_owned(), errno: libc::EINVAL })?;
    }
    last.install()
}

pub fn limits(bounds: &Bounds) -> Outcome<()> {
    let mut limits = vec![
        // Not 0: a host that pipes core dumps to a program of its own heeds only this value, and 1 fits no core.
        (libc::RLIMIT_CORE, 1),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
        (libc::RLIMIT_SIGPENDING, 1024),
        (libc::RLIMIT_NOFILE, u64::from(bounds.open_files)),
        (libc::RLIMIT_NPROC, u64::from(bounds.processes)),
    ];
    if let Some(data_bytes) = bounds.data_bytes {
        // Not RLIMIT_AS: WebAssembly and garbage collectors reserve far more than they use.
        limits.push((libc::RLIMIT_DATA, data_bytes));
    }
    for (resource, most) in limits {
        match sys::limit(resource, most) {
            // gVisor's kernel has none of what these hold: no queues of that kind, no priorities.
            Err(rustix::io::Errno::PERM) if FOREIGN_TO_GVISOR.contains(&resource) && is_gvisors() => {}
            other => other.at("setting a resource limit")?,
        }
    }
    Ok(())
}

const FOREIGN_TO_GVISOR: [libc::__rlimit_resource_t; 4] =
    [libc::RLIMIT_MSGQUEUE, libc::RLIMIT_NICE, libc::RLIMIT_RTPRIO, libc::RLIMIT_SIGPENDING];

/// Whether the kernel below us is gVisor's, by a file that only it has.
pub(crate) fn is_gvisors() -> bool {
    std::path::Path::new("/proc/sentry-meminfo").exists()
}

/// Lets nothing that this process will ever start get a capability back. While one may: it takes a capability.
pub fn drop_bounding_set() -> Outcome<()> {
    for (_, capability) in CapabilitySet::all().iter_names() {
        match remove_capability_from_bounding_set(capability) {
            // A kernel older than our list of capabilities.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            // Whoever made the place took them, and with them the one that it takes to drop more.
            Err(rustix::io::Errno::PERM) if capability_is_in_bounding_set(capability) == Ok(false) => {}
            Err(errno) => return Err(errno).at("dropping the bounding set"),
        }
    }
    Ok(())
}

/// Gives up all capabilities, for good.
pub fn drop_capabilities() -> Outcome<()> {
    drop_bounding_set()?;
    match clear_ambient_capability_set() {
        // It has none that could be kept so.
        Err(rustix::io::Errno::INVAL) if is_gvisors() => {}
        other => other.at("clearing ambient capabilities")?,
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .at("dropping capabilities")
}

/// The newest that the crate knows; it falls back to what the kernel has, which the jail tells the backend.
const NEWEST: ABI = ABI::V6;

/// A second wall behind the mounts: everything may be read and run, only the sandbox's own places and the harmless
/// devices written. Not its scopes for signals and abstract sockets: what a zygote has forked into a sandbox and what the
/// guest has started there are two domains, and have to reach each other.
fn restrict_paths(building: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?
        .add_rule(beneath("/", read)?)?
        .add_rule(beneath("/proc", read | AccessFs::WriteFile | AccessFs::Truncate)?)?;
    for path in WRITABLE.iter().map(|(path, _)| *path).chain(building) {
        rules = rules.add_rule(beneath(path, all)?)?;
    }
    for device in ["dev/null", "dev/zero", "dev/full"] {
        rules = rules.add_rule(beneath(device, read | AccessFs::WriteFile)?)?;
    }
    rules.restrict_self()?;
    Ok(())
}

fn beneath(path: &str, access: BitFlags<AccessFs>) -> Result<PathBeneath<OwnedFd>, Box<dyn std::error::Error>> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(PathBeneath::new(file, access))
}
