//! Which wall sandboxes have, and what each wall is told.

use std::path::PathBuf;

use belljar_backends::{
    Choice, DockerSettings, GvisorSettings, MicrovmSettings, WallSettings, WasmSettings, WishedWall,
};
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls {
    pub(crate) backend: Value<WishedWall>,
    /// What `auto` may choose from.
    pub(crate) allow: Value<Vec<Choice>>,
    pub(crate) settings: WallSettings,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWalls {
    backend: Option<String>,
    allow: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDocker {
    socket: Option<String>,
    image: Option<String>,
    runtime: Option<String>,
    pull: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGvisor {
    runsc: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMicrovm {
    vmm: Option<PathBuf>,
    kernel: Option<PathBuf>,
    modules: Option<PathBuf>,
    image: Option<String>,
    mkfs: Option<PathBuf>,
    emulation: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWasm {
    python: Option<PathBuf>,
    javascript: Option<PathBuf>,
}

/// All but the one that has no processes: whoever wants that says so.
const AUTO: [Choice; 4] = [Choice::Native, Choice::Docker, Choice::Gvisor, Choice::Microvm];

impl Walls {
    pub(super) fn resolve(
        walls: RawWalls,
        docker: RawDocker,
        gvisor: RawGvisor,
        microvm: RawMicrovm,
        wasm: RawWasm,
    ) -> Result<Walls, Complaint> {
        let unknown = |error: belljar_backends::UnknownBackend| {
            Complaint::new(format!("in the configuration: [walls]: {error}"), "see docs/walls.md for what each is")
        };
        let backend = walls.backend.map(|name| name.parse()).transpose().map_err(unknown)?;
        let allow = walls.allow.map(|names| names.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>());
        let allow = allow.transpose().map_err(unknown)?;
        if allow.as_ref().is_some_and(Vec::is_empty) {
            let what = "in the configuration: [walls]: nothing is in `allow`";
            return Err(Complaint::new(what, "name at least one wall, or leave it out"));
        }
        let RawMicrovm { vmm, kernel, modules, image, mkfs, emulation } = microvm;
        Ok(Walls {
            backend: Value::of(WishedWall::Named(Choice::Native), backend),
            allow: Value::of(AUTO.to_vec(), allow),
            settings: WallSettings {
                docker: DockerSettings {
                    socket: docker.socket,
                    user_runtime: None,
                    image: docker.image,
                    runtime: docker.runtime,
                    pull: docker.pull.unwrap_or(true),
                },
                gvisor: GvisorSettings { runsc: gvisor.runsc },
                microvm: MicrovmSettings { vmm, kernel, modules, image, mkfs, emulation: emulation.unwrap_or(false) },
                wasm: WasmSettings { python: wasm.python, javascript: wasm.javascript, worker: None },
            },
        })
    }
}
