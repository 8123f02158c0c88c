//! The ways of confining code, one folder each, behind the contract of `belljar-core`.
//!
//! Each backend provides a confined place and a byte stream to the guest agent in it; [`link`] does the talking for
//! all of them. Who owns a sandbox, MCP and configuration files are not known here.

#![deny(unsafe_code)]

#[cfg(not(all(feature = "docker", feature = "wasm")))]
mod absent;
mod carried;
mod cgroup;
#[cfg(feature = "docker")]
mod docker;
mod fittings;
mod floor;
mod gvisor;
mod host;
mod ids;
mod images;
mod interpreters;
mod knocks;
mod layout;
mod link;
mod linked;
mod microvm;
mod native;
mod network;
mod questions;
mod registry;
mod run_directory;
mod settings;
mod slots;
mod store;
mod sys;
mod walls;
mod warm;
#[cfg(feature = "wasm")]
mod wasm;

use std::sync::OnceLock;

use belljar_core::BackendError;

pub use floor::{Floor, floor};
pub use host::{Host, OpenFiles, raise_open_files};
pub use native::Preload;
pub use registry::{Choice, Strongest, UnknownBackend, WishedWall, choose, strongest, warm_up};
pub use settings::{DockerSettings, GvisorSettings, MicrovmSettings, WallSettings, WasmSettings};
pub use walls::Walls;
pub use warm::NotWarm;
#[cfg(feature = "wasm")]
pub use wasm::{Fetched, NotCompiled, compile as compile_wasm, fetched as fetched_wasm};

/// What could not be done, on our own side of the wall.
fn setup(step: &str, why: &dyn std::fmt::Display) -> BackendError {
    BackendError::Setup { step: step.to_owned(), why: why.to_string() }
}

/// For the name of what is not finished yet: no other thread or process has the same, nor one of another container with the same
/// cache, in which process numbers say nothing.
fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    static OURS: OnceLock<u64> = OnceLock::new();
    let ours = OURS.get_or_init(|| getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id())));
    format!("{ours:016x}-{}", GIVEN.fetch_add(1, Ordering::Relaxed))
}
