//! The walls that a process puts around itself, in an order in which each still can be put up.

use std::os::fd::OwnedFd;

use belljar_core::wire::Open;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

use crate::error::{At, Failure, Outcome};
use crate::root::WRITABLE;
use crate::seccomp::Finish;
use crate::sys;

/// Seals this process and all that it will ever start. After this, no call can take anything back.
pub(crate) fn seal(open: &Open, landlock_abi: u32, finish: &Finish) -> Outcome<()> {
    limits(open)?;
    drop_capabilities()?;
    set_no_new_privs(true).at("no_new_privs")?;
    if landlock_abi > 0 {
        landlock().map_err(|_| Failure { step: "landlock".to_owned(), errno: libc::EINVAL })?;
    }
    finish.install()
}

fn limits(open: &Open) -> Outcome<()> {
    let mut limits = vec![
        // Not 0: a host that pipes core dumps to a program of its own heeds only this value, and 1 fits no core.
        (libc::RLIMIT_CORE, 1),
        (libc::RLIMIT_MEMLOCK, 0),
        (libc::RLIMIT_MSGQUEUE, 0),
        (libc::RLIMIT_NICE, 0),
        (libc::RLIMIT_RTPRIO, 0),
        (libc::RLIMIT_SIGPENDING, 1024),
        (libc::RLIMIT_NOFILE, u64::from(open.open_files)),
        (libc::RLIMIT_NPROC, u64::from(open.processes)),
    ];
    if let Some(data_bytes) = open.data_bytes {
        // Not RLIMIT_AS: WebAssembly and garbage collectors reserve far more than they use.
        limits.push((libc::RLIMIT_DATA, data_bytes));
    }
    for (resource, most) in limits {
        sys::limit(resource, most).at("setting a resource limit")?;
    }
    Ok(())
}

fn drop_capabilities() -> Outcome<()> {
    for (_, capability) in CapabilitySet::all().iter_names() {
        match remove_capability_from_bounding_set(capability) {
            // A kernel older than our list of capabilities.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(errno) => return Err(errno).at("dropping the bounding set"),
        }
    }
    clear_ambient_capability_set().at("clearing ambient capabilities")?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .at("dropping capabilities")
}

/// A second wall behind the mounts: everything may be read and run, only the sandbox's own places and the harmless
/// devices written; signals and abstract sockets stay inside.
fn landlock() -> Result<(), Box<dyn std::error::Error>> {
    // The newest the crate knows; it falls back to what the kernel has, which `Ready` told the backend.
    let abi = ABI::V6;
    let all = AccessFs::from_all(abi);
    let read = AccessFs::from_read(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .scope(Scope::from_all(abi))?
        .create()?
        .add_rule(beneath("/", read)?)?
        .add_rule(beneath("/proc", read | AccessFs::WriteFile | AccessFs::Truncate)?)?;
    for (path, _) in WRITABLE {
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
