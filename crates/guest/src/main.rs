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
mod ask;
mod asks;
mod calls;
mod cells;
mod changes;
mod connection;
mod doors;
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
mod zygote;

use std::ffi::CString;

use agent::Given;
use ask::Tool;
use belljar_core::wire::{PORTS_MAX, RUNNER_NAME, SETTLED, ZYGOTE_NAME};

/// The C entry point. The agent returns only when the host has hung up or broken the protocol; then the kernel kills what is
/// left.
///
/// # Safety
/// For the C library to call, with what the process was started with.
#[cfg(not(test))]
#[expect(unsafe_code, reason = "an entry point needs its C name")]
// SAFETY: there is no other `main` in this program, and its signature is the one that C gives it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn main(argc: i32, argv: *const *const std::ffi::c_char) -> i32 {
    // SAFETY: whoever calls is the C library, with what it was started with.
    become_what_is_asked(&unsafe { sys::arguments(argc, argv) })
}

/// The same executable has more uses, told by its name: a zygote is started by it, what a zygote has forked into a sandbox
/// gets its runner from it, and it is what programs of the sandbox find as pip and as tools.
fn become_what_is_asked(arguments: &[CString]) -> i32 {
    match arguments {
        [name, kernel] if name.as_bytes() == RUNNER_NAME.as_bytes() => runner::run_forked(kernel),
        [name, interpreter] if name.as_bytes() == ZYGOTE_NAME.as_bytes() => zygote::start(interpreter),
        [name, words @ ..] if let Some(tool) = Tool::called(name) => ask::main(tool, words),
        [name, words @ ..] if calls::is_called(name) => calls::main(words),
        [_, word, doors] if word.as_bytes() == SETTLED.as_bytes() => {
            let doors =
                doors.to_str().ok().and_then(|doors| doors.parse().ok()).filter(|doors| *doors <= PORTS_MAX + 2);
            doors.map_or(2, |doors| agent::main(Given::Settled { doors }))
        }
        _ => agent::main(Given::Stream),
    }
}

/// Unit tests have an entry point of their own; this one is then only looked at by the compiler.
#[cfg(test)]
const _: fn(&[CString]) -> i32 = become_what_is_asked;
