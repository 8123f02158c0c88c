//! What `belljar doctor` shows of this wall, and the words for what keeps a sandbox from opening.

use std::fs;

use belljar_core::{BackendError, Probe, Wall, WallState};

use super::Gvisor;
use super::runsc::{FIX, NoRunsc};
use super::trial;

pub(super) fn probe(gvisor: &Gvisor) -> Probe {
    let stands = |detail: &str| WallState::Stands { detail: detail.to_owned() };
    let runsc = match &gvisor.runsc {
        Ok(runsc) => stands(&format!("{} at {}, platform systrap", runsc.version, runsc.program.display())),
        Err(NoRunsc(why)) => WallState::Missing { why: why.clone(), fix: FIX.to_owned() },
    };
    let root = match &gvisor.base {
        Ok(base) => stands(&format!("read-only, {} directories of the host", base.root.binds.len())),
        Err(why) => WallState::Missing {
            why: why.clone(),
            fix: "start the server with a home directory of its own, on a disk with some room".to_owned(),
        },
    };
    let user = match &gvisor.runsc {
        Ok(runsc) if runsc.rootless => match no_user_namespaces() {
            Some((why, fix)) => WallState::Missing { why, fix },
            None => WallState::Weaker {
                why: "gVisor's kernel runs as the server's own user, in a user namespace".to_owned(),
                fix: "nothing has to be done; a root server has cgroups for every sandbox too".to_owned(),
            },
        },
        _ => stands("gVisor's kernel is in a user namespace, without the host's files but those shown"),
    };
    let cgroup = match gvisor.cgroups.describe() {
        Some(detail) if gvisor.cgroups.are_complete() => WallState::Stands { detail },
        Some(detail) => WallState::Weaker {
            why: format!("{detail}; the others are not held from outside"),
            fix: "delegate cpu, memory and pids to this server's cgroup (Delegate=cpu memory pids in its unit)"
                .to_owned(),
        },
        None => WallState::Weaker {
            why: format!("{}; memory is watched from inside alone, CPU is not held", gvisor.cgroups.why_none()),
            fix: "start it with `systemd-run --user --scope -p Delegate=yes belljar serve`, as root without --user"
                .to_owned(),
        },
    };
    // That it is there proves little: a first process has to speak.
    let runs = match (&gvisor.runsc, &gvisor.base) {
        (Ok(runsc), Ok(base)) => match trial::run(runsc, base) {
            Ok(took) => stands(&format!("a first process spoke after {} ms", took.as_millis())),
            Err(said) => match explain("a trial", &said) {
                BackendError::Unavailable { why, fix } => WallState::Missing { why, fix },
                other => WallState::Missing { why: other.to_string(), fix: FIX.to_owned() },
            },
        },
        _ => WallState::Missing { why: "not tried".to_owned(), fix: "mend the others first".to_owned() },
    };
    let walls = vec![
        Wall { name: "runsc", state: runsc },
        Wall { name: "root", state: root },
        Wall { name: "trial", state: runs },
        Wall { name: "user", state: user },
        Wall { name: "cgroup", state: cgroup },
        Wall { name: "network", state: stands("loopback of gVisor's own, or by doors to what is granted") },
    ];
    Probe { walls, languages: gvisor.interpreters.probe() }
}

/// Why runsc did not get as far as a guest that speaks, in words, with the way out.
pub(super) fn explain(step: &str, said: &str) -> BackendError {
    let text = if said.is_empty() { step.to_owned() } else { format!("{step}: {said}") };
    let (why, fix) = if let Some(found) = no_user_namespaces().filter(|_| !crate::sys::is_admin()) {
        found
    } else if said.contains("max_user_namespaces") || said.contains("operation not permitted") {
        (
            format!("runsc may not make its namespaces here: {text}"),
            "run belljar on the host, as root, or in a container with --privileged".to_owned(),
        )
    } else {
        (
            format!("runsc could not start a sandbox: {text}"),
            "run `belljar doctor --backend gvisor`; docs/gvisor.md says what it needs".to_owned(),
        )
    };
    BackendError::Unavailable { why, fix }
}

/// Where an ordinary user can make none.
fn no_user_namespaces() -> Option<(String, String)> {
    let setting = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let known = [
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    known.into_iter().find(|(path, value, _)| setting(path) == *value).map(|(.., fix)| {
        (
            "user namespaces are turned off for ordinary users, and runsc needs one".to_owned(),
            format!("sudo sysctl -w {fix} (and a file in /etc/sysctl.d to keep it), or run the server as root"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runsc_said_is_told() {
        let BackendError::Unavailable { why, .. } = explain("waiting for the guest", "no such bundle") else {
            panic!("another error")
        };
        assert!(why.contains("waiting for the guest: no such bundle"), "{why}");
    }
}
