//! Which wall sandboxes have, and what each wall is told.

use std::path::PathBuf;

use belljar_backends::{
    Choice, DockerSettings, GvisorSettings, MicrovmSettings, WallSettings, WasmSettings, WishedWall,
};
use schemars::JsonSchema;
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWalls {
    /// The wall that sandboxes have.
    #[schemars(extend("enum" = wished_walls()))]
    backend: Option<String>,
    /// What `auto` may choose from.
    #[schemars(extend("items" = {"type": "string", "enum": walls()}))]
    allow: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDocker {
    /// The engine's socket, as `unix:///...` or a path.
    socket: Option<String>,
    /// The image of sandboxes whose template names none.
    image: Option<String>,
    /// Another runtime that the engine knows, such as `runsc`.
    runtime: Option<String>,
    /// Whether an image that is not there is fetched.
    pull: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGvisor {
    /// The program, if it is not in PATH.
    runsc: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMicrovm {
    /// The program that runs virtual machines, if it is not in PATH.
    vmm: Option<PathBuf>,
    /// The Linux that they start.
    kernel: Option<PathBuf>,
    /// Where the kernel's modules are.
    modules: Option<PathBuf>,
    /// The root file system of sandboxes whose template names none.
    image: Option<String>,
    /// The program that makes file systems, if it is not in PATH.
    mkfs: Option<PathBuf>,
    /// Whether machines are emulated where there is no KVM: for tests, no wall.
    emulation: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawWasm {
    /// Python as a WebAssembly module.
    python: Option<PathBuf>,
    /// JavaScript as a WebAssembly module.
    javascript: Option<PathBuf>,
}

/// Their names, and in the configuration the word that leaves the choice to us.
fn wished_walls() -> Vec<&'static str> {
    walls().into_iter().chain(["auto"]).collect()
}

pub(super) fn walls() -> Vec<&'static str> {
    Choice::ALL.map(Choice::name).to_vec()
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
