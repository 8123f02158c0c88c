//! The one way that modules are compiled and run: what was compiled with other settings is refused by wasmtime.

use wasmtime::{Config, Engine, OptLevel};

/// Stack of the code inside; CPython's own limit on recursion is met before.
pub(crate) const STACK_BYTES: usize = 8 * 1024 * 1024;

pub(crate) fn engine() -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        // The only way to stop code that asks for nothing.
        .epoch_interruption(true)
        .max_wasm_stack(STACK_BYTES)
        .async_stack_size(2 * STACK_BYTES)
        .cranelift_opt_level(OptLevel::Speed)
        // Nobody reads where in the interpreter it was.
        .wasm_backtrace_max_frames(None)
        .generate_address_map(false)
        .native_unwind_info(false);
    Engine::new(&config)
}
