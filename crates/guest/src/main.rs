//! The first process in every sandbox, whatever the backend: it starts programs, does files and reaps, over one framed
//! stream to the host.
//!
//! It knows nothing of MCP, configuration or the host. It is inside the walls and has no more rights than the code it
//! starts; what it has is a place of its own: nothing in the sandbox can signal process 1 or look into it.

// The runtime that Rust puts before `main` would read /proc/self/maps and set up handlers that nobody here uses: a
// twentieth of a millisecond in every sandbox.
#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod agent;
mod cells;
mod changes;
mod files;
mod kernels;
mod launch;
mod memory;
mod process;
mod processes;
mod program;
mod runner;
mod stream;
#[expect(unsafe_code, reason = "all that rustix has no safe call for is in this one file")]
mod sys;
mod tree;

/// The C entry point. Returns only when the host has hung up or broken the protocol; then the kernel kills what is left.
#[cfg(not(test))]
#[expect(unsafe_code, reason = "an entry point needs its C name")]
// SAFETY: there is no other `main` in this program, and its signature is the one that C gives it.
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: i32, _argv: *const *const u8) -> i32 {
    agent::main()
}

/// Unit tests have an entry point of their own; this one is then only looked at by the compiler.
#[cfg(test)]
const _: fn() -> i32 = agent::main;
