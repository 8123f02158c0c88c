//! Makes the places that programs are confined in, and turns a process in each into the guest agent.
//!
//! ```text
//! native backend ── Setup ──▶ jail: builds the root that all sandboxes share, in namespaces of its own
//!                ── Open  ──▶ jail ── clone into fresh namespaces ──▶ child: own mounts, then one wall after the
//!                ◀─ pidfd ──                                           other, then exec of the guest
//!                ── Zygote ─▶ jail ── the same with fewer ──────────▶ an interpreter, which forks itself into sandboxes
//! ```
//!
//! One thread, on purpose: a process that clones without exec may only have one, and "die with your parent" is a
//! promise between threads. No configuration, no logging, no network. When the backend's end of the control socket
//! closes, the jail ends, and the kernel ends every sandbox with it.

#![deny(unsafe_code)]

mod child;
mod control;
mod doors;
mod open;
mod place;
mod root;
mod store;
mod sys;
mod zygote;

use std::process::ExitCode;

fn main() -> ExitCode {
    match control::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
