//! What `belljar doctor` shows: each wall of this backend, whether it stands here, and if not, how to get it.

use std::fs;
use std::sync::Arc;

use belljar_core::{BackendError, Probe, Wall, WallState};

use super::jail::{Jail, Refusal};
use crate::cgroup::Cgroups;
use crate::interpreters::Interpreters;

pub(super) fn probe(
    jail: Result<Arc<Jail>, BackendError>,
    cgroups: &Cgroups,
    interpreters: &Interpreters,
    own_ids: bool,
) -> Probe {
    let stands = |detail: &str| WallState::Stands { detail: detail.to_owned() };
    let namespaces = match &jail {
        Ok(_) => stands("user pid mount net ipc uts cgroup time"),
        Err(BackendError::Unavailable { why, fix }) => WallState::Missing { why: why.clone(), fix: fix.clone() },
        Err(other) => WallState::Missing { why: other.to_string(), fix: "run `belljar doctor` again".to_owned() },
    };
    let user = if own_ids {
        stands("each sandbox has a host user of its own")
    } else {
        WallState::Weaker {
            why: "sandboxes run as the server's own user, inside a user namespace".to_owned(),
            fix: "for a host user of its own for each sandbox, run the server as root".to_owned(),
        }
    };
    let walls = vec![
        Wall { name: "namespaces", state: namespaces },
        Wall { name: "seccomp", state: seccomp() },
        Wall { name: "landlock", state: landlock(jail.as_ref().ok().map(|jail| jail.landlock_abi())) },
        Wall { name: "cgroup", state: cgroup(cgroups) },
        Wall { name: "user", state: user },
        Wall {
            name: "network",
            state: stands("none, or by doors to what is granted: a network namespace without a way out"),
        },
    ];
    Probe { walls, languages: interpreters.probe() }
}

fn seccomp() -> WallState {
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.contains("errno") => WallState::Stands { detail: "allow-list".to_owned() },
        _ => WallState::Missing {
            why: "this kernel has no seccomp filters".to_owned(),
            fix: "use a kernel built with CONFIG_SECCOMP_FILTER".to_owned(),
        },
    }
}

fn landlock(abi: Option<u32>) -> WallState {
    match abi {
        Some(0) => WallState::Weaker {
            why: "this kernel has no landlock, or only its first version; the mounts stand alone".to_owned(),
            fix: "use Linux 5.19 or later with landlock in the `lsm=` list of the kernel's command line".to_owned(),
        },
        Some(abi @ ..6) => WallState::Weaker {
            why: format!("abi {abi}: file access is held, signals and abstract sockets by namespaces alone"),
            fix: "use Linux 6.12 or later".to_owned(),
        },
        Some(abi) => WallState::Stands { detail: format!("abi {abi}") },
        None => WallState::Missing {
            why: "not tried, since no sandbox could be made".to_owned(),
            fix: "mend the namespaces first".to_owned(),
        },
    }
}

pub(crate) fn cgroup(cgroups: &Cgroups) -> WallState {
    match cgroups.describe() {
        Some(detail) if cgroups.are_complete() => WallState::Stands { detail },
        Some(detail) => WallState::Weaker {
            why: format!("{detail}, whose limit is not held, or by rlimits and a watch alone"),
            fix: "delegate cpu, memory and pids to this server's cgroup (Delegate=cpu memory pids in its unit)"
                .to_owned(),
        },
        None => WallState::Weaker {
            why: format!("{}; memory and processes are held by rlimits and a watch, CPU is not", cgroups.why_none()),
            fix: "start it with `systemd-run --user --scope -p Delegate=yes belljar serve`, as root without --user"
                .to_owned(),
        },
    }
}

/// Why the jail or a sandbox could not be made, in words, with the way out.
pub(crate) fn explain(refusal: &Refusal) -> BackendError {
    let Refusal { step, errno } = refusal;
    let setting = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let denied = [libc::EPERM, libc::EACCES].contains(errno);
    let (why, fix) = if step.starts_with("unshare") && setting("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        (
            "unprivileged user namespaces are turned off on this host".to_owned(),
            "sudo sysctl -w kernel.unprivileged_userns_clone=1 (and a file in /etc/sysctl.d to keep it)".to_owned(),
        )
    } else if step.starts_with("unshare")
        && (setting("/proc/sys/user/max_user_namespaces") == "0" || *errno == libc::ENOSPC)
    {
        (
            "this host allows no user namespaces".to_owned(),
            "sudo sysctl -w user.max_user_namespaces=15000 (and a file in /etc/sysctl.d to keep it)".to_owned(),
        )
    } else if denied && setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        (
            "AppArmor keeps unprivileged user namespaces from working (Ubuntu 23.10 and later)".to_owned(),
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for belljar that has \
             `userns,`"
                .to_owned(),
        )
    } else if denied && step.contains("proc") {
        (
            "this looks like a container whose /proc is masked, in which no new /proc can be mounted".to_owned(),
            "start the container with --security-opt systempaths=unconfined, or run belljar on the host".to_owned(),
        )
    } else if denied && step.starts_with("unshare") {
        (
            "making user namespaces is forbidden here, as in a container with the default seccomp profile".to_owned(),
            "start the container with --security-opt seccomp=unconfined, or run belljar on the host".to_owned(),
        )
    } else if *errno == libc::ENOSYS {
        (format!("this kernel is too old: {step}"), "use Linux 5.12 or later; 5.19 for landlock".to_owned())
    } else if denied && (step == "starting the jail" || step.starts_with("keeping the")) {
        (
            "this host does not run programs from memory (vm.memfd_noexec)".to_owned(),
            "sudo sysctl -w vm.memfd_noexec=0".to_owned(),
        )
    } else {
        let error = std::io::Error::from_raw_os_error(*errno);
        (format!("the sandbox could not be prepared: {step}: {error}"), "see docs/security.md, \"Hosts\"".to_owned())
    };
    BackendError::Unavailable { why, fix }
}
