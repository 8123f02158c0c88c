//! What `belljar doctor` shows of this wall.

use std::sync::Arc;

use belljar_core::{BackendError, Language, Probe, Wall, WallState};

use super::guests::{Guest, Missing};
use crate::cgroup::Cgroups;
use crate::native::{self, Jail};

pub(super) fn probe(
    jail: Result<Arc<Jail>, BackendError>,
    cgroups: &Cgroups,
    guests: &[Guest],
    missing: &[Missing],
) -> Probe {
    let place = match &jail {
        Ok(_) => WallState::Stands { detail: "each worker is in a place as native has them".to_owned() },
        Err(BackendError::Unavailable { why, fix }) => WallState::Missing { why: why.clone(), fix: fix.clone() },
        Err(other) => WallState::Missing { why: other.to_string(), fix: "run `belljar doctor` again".to_owned() },
    };
    let interpreters = match (guests, missing) {
        ([], [Missing { why, fix, .. }, ..]) => WallState::Missing { why: why.clone(), fix: fix.clone() },
        _ => {
            let names: Vec<&str> = guests.iter().map(|guest| guest.name.as_str()).collect();
            WallState::Stands { detail: format!("wasmtime, compiled ahead: {}", names.join(", ")) }
        }
    };
    let network = WallState::Stands { detail: "none: WASI has no sockets here".to_owned() };
    let walls = vec![
        Wall { name: "webassembly", state: interpreters },
        Wall { name: "place", state: place },
        Wall { name: "cgroup", state: native::cgroup_state(cgroups) },
        Wall { name: "network", state: network },
    ];
    let languages = Language::ALL
        .into_iter()
        .map(|language| Wall { name: language.name(), state: of_language(language, guests, missing) })
        .collect();
    Probe { walls, languages }
}

fn of_language(language: Language, guests: &[Guest], missing: &[Missing]) -> WallState {
    match guests.iter().find(|guest| Some(guest.language) == language.kernel()) {
        Some(guest) => WallState::Stands { detail: guest.name.clone() },
        None => {
            let lacks = missing.iter().find(|missing| Some(missing.language) == language.kernel());
            let why = lacks.map_or("WebAssembly has no processes", |missing| missing.why.as_str()).to_owned();
            WallState::Missing { why, fix: fix(language, missing) }
        }
    }
}

/// How to get a language that is not there.
pub(super) fn fix(language: Language, missing: &[Missing]) -> String {
    let lacks = missing.iter().find(|missing| Some(missing.language) == language.kernel());
    lacks.map_or_else(
        || format!("the wasm wall has no processes, and so no {language}: use run_code with python or javascript, or another wall"),
        |missing| missing.fix.clone(),
    )
}
