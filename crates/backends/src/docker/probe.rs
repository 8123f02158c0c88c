//! What `belljar doctor` shows of an engine: whether it answers, and what its containers are confined by.

use belljar_core::{BackendError, Language, Probe, Wall, WallState};

use super::container::Ways;
use super::engine::Engine;
use super::{Fetch, Ready};

/// `comes` is whether an image that is missing will be fetched by the first who needs it.
pub(super) fn probe(
    engine: Result<(&Engine, &Ways), &BackendError>,
    ready: Result<&Ready, &BackendError>,
    comes: Fetch,
) -> Probe {
    let (engine, ways) = match engine {
        Ok(there) => there,
        Err(error) => {
            return Probe { walls: vec![Wall { name: "engine", state: missing(error) }], languages: Vec::new() };
        }
    };
    let stands = |detail: String| WallState::Stands { detail };
    let user = match engine.user_namespace() {
        Some(how) => stands(format!("a user namespace: {how}")),
        None => WallState::Weaker {
            why: "containers run as uid 1000 of the host's, without a user namespace".to_owned(),
            fix: "use a rootless engine, or \"userns-remap\": \"default\" in /etc/docker/daemon.json".to_owned(),
        },
    };
    let runtime = match &ways.runtime {
        Some(name) if !engine.has_runtime(name) => WallState::Missing {
            why: format!("the engine has no runtime {name}"),
            fix: "add it under \"runtimes\" in /etc/docker/daemon.json, or take `runtime` out of [docker]".to_owned(),
        },
        Some(name) => stands(name.clone()),
        None => stands("the engine's own".to_owned()),
    };
    let image = match ready {
        Ok(ready) => stands(format!("{}, fitted", ready.reference)),
        Err(BackendError::Unavailable { why, fix }) if comes == Fetch::Yes && why.contains("has no image") => {
            WallState::Weaker { why: format!("{why} yet: the first sandbox waits for it"), fix: fix.clone() }
        }
        Err(error) => missing(error),
    };
    let seccomp = match &ways.seccomp {
        Some(_) => stands("the engine's, with our list; ours inside, which looks at arguments too".to_owned()),
        None => WallState::Weaker {
            why: "the engine's own profile, and our filters inside".to_owned(),
            fix: "start the server with a cache directory of its own, where the engine can read a profile".to_owned(),
        },
    };
    let walls = vec![
        Wall {
            name: "engine",
            state: stands(format!("{} {} at {}", engine.name(), engine.version, engine.socket.display())),
        },
        Wall { name: "runtime", state: runtime },
        Wall { name: "image", state: image },
        Wall { name: "seccomp", state: seccomp },
        Wall { name: "user", state: user },
        Wall { name: "cgroup", state: cgroup(engine) },
        Wall {
            name: "network",
            state: stands("none, or by doors to what is granted; never one of the engine's".to_owned()),
        },
    ];
    let languages = ready.map_or_else(
        |_| Vec::new(),
        |ready| {
            let of = |language: Language| {
                let state = match ready.survey.languages().contains(&language) {
                    true => stands(format!("in {}", ready.reference)),
                    false => WallState::Missing {
                        why: format!("{} has none", ready.reference),
                        fix: "set image in [docker] to one that has it".to_owned(),
                    },
                };
                Wall { name: language.name(), state }
            };
            Language::ALL.into_iter().map(of).collect()
        },
    );
    Probe { walls, languages }
}

fn missing(error: &BackendError) -> WallState {
    match error {
        BackendError::Unavailable { why, fix } => WallState::Missing { why: why.clone(), fix: fix.clone() },
        other => WallState::Missing { why: other.to_string(), fix: "run `belljar doctor` again".to_owned() },
    }
}

fn cgroup(engine: &Engine) -> WallState {
    let lacks: Vec<&str> =
        [("memory", engine.info.memory_limit), ("pids", engine.info.pids_limit), ("cpu", engine.info.cpu_cfs_quota)]
            .into_iter()
            .filter(|(_, there)| *there == Some(false))
            .map(|(name, _)| name)
            .collect();
    if lacks.is_empty() {
        return WallState::Stands { detail: "memory pids cpu".to_owned() };
    }
    WallState::Weaker {
        why: format!("the engine cannot hold {}", lacks.join(", ")),
        fix: "delegate these controllers to the engine (for a rootless one: Delegate=cpu memory pids)".to_owned(),
    }
}
