//! What an operator can say of the walls.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WallSettings {
    pub docker: DockerSettings,
    pub gvisor: GvisorSettings,
    pub microvm: MicrovmSettings,
    pub wasm: WasmSettings,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DockerSettings {
    /// The engine's socket, as `unix:///run/docker.sock` or a path; the usual ones are tried without it.
    pub socket: Option<String>,
    /// The user's runtime directory, where rootless engines have theirs.
    pub user_runtime: Option<PathBuf>,
    /// The image of sandboxes that name none.
    pub image: Option<String>,
    /// The engine's runtime for our containers, such as `runsc`.
    pub runtime: Option<String>,
    /// Whether an image that the engine lacks is fetched.
    pub pull: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GvisorSettings {
    /// The program; looked for in `PATH` without it.
    pub runsc: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MicrovmSettings {
    /// `qemu-system-x86_64` or `firecracker`; looked for in `PATH` without it.
    pub vmm: Option<PathBuf>,
    /// The guest's kernel; the distribution's without it.
    pub kernel: Option<PathBuf>,
    /// Where that kernel's modules are, if not where its distribution puts them.
    pub modules: Option<PathBuf>,
    /// The image of sandboxes that name none: a template's name, or the path of a directory that is a root file system.
    pub image: Option<String>,
    /// The program that makes images of file systems: `mkfs.erofs` or `mke2fs`; looked for in `PATH` without it.
    pub mkfs: Option<PathBuf>,
    /// Whether a machine that is emulated will do. It is no wall.
    pub emulation: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WasmSettings {
    /// CPython for WASI, in place of the one that `belljar warmup` fetches.
    pub python: Option<PathBuf>,
    /// QuickJS for WASI.
    pub javascript: Option<PathBuf>,
    /// The program that is the worker, if not this one.
    pub worker: Option<PathBuf>,
}
