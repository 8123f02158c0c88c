//! The worker of the `wasm` wall: WebAssembly interpreters in one process, which speaks the guest's side of the wire.
//!
//! ```text
//! host ── frames ──▶ worker (first process of a place) ──▶ one thread for each interpreter: wasmtime, WASI
//!      ◀─ frames ──     files, changed files, questions        control, streams and questions are its own descriptors
//! ```
//!
//! The place around it is made by the jail, as that of any other guest, so that whoever breaks out of WebAssembly is in an
//! ordinary sandbox. Code reaches files through WASI alone: directories that were opened for it beforehand.
//! [`cache`] is for the host: interpreters that were compiled ahead. Not here: who asks, and where interpreters come from.

#![deny(unsafe_code)]

pub mod cache;
mod engine;
mod floor;
mod instance;
mod javascript;
mod kernels;
mod line;
mod python;
mod questions;
mod rewrite;
mod runs;
mod sys;
mod wasi;
mod worker;

// The guest's own, which knows nothing of processes: the two are the same to the host.
#[path = "../../guest/src/changes.rs"]
#[expect(dead_code, reason = "the guest forks, and looks again after that")]
mod changes;
#[path = "../../guest/src/files/mod.rs"]
mod files;
#[path = "../../guest/src/stream.rs"]
#[expect(dead_code, reason = "the guest may have to write to another descriptor than it reads")]
mod stream;

pub use floor::{FLOOR, floor};
pub use kernels::DRIVER;
pub use wasi::LINES;
pub use worker::main;

/// The name that the jail starts whatever is its guest by.
pub const NAME: &str = "belljar-guest";
