//! Clocks and the descriptor that we are started with.
#![expect(
    unsafe_code,
    reason = "a stream that is a number, and code that was compiled before; each block says what it relies on"
)]

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Takes a descriptor that this process was started with. Once for each number.
pub(crate) fn inherited(number: i32) -> OwnedFd {
    // SAFETY: whoever starts us puts it there, nothing else of ours has that number, and it is taken once.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The clock that files are stamped by.
pub(crate) fn file_clock() -> Duration {
    of(ClockId::RealtimeCoarse)
}

/// What this thread has used of the processor.
pub(crate) fn thread_cpu() -> Duration {
    of(ClockId::ThreadCPUTime)
}

pub(crate) fn wall_clock() -> Duration {
    of(ClockId::Realtime)
}

fn of(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Maps native code that was compiled before.
pub(crate) fn load_compiled(engine: &wasmtime::Engine, path: &std::path::Path) -> wasmtime::Result<wasmtime::Module> {
    // SAFETY: the file was written by `cache` with an engine of the same settings, which wasmtime checks; nobody but the
    // server's user could change it before the sandbox was made, and in the sandbox it is read-only.
    unsafe { wasmtime::Module::deserialize_file(engine, path) }
}
