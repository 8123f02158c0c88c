//! The same interpreter with wasmtime and nothing of ours: what `belljar bench` compares the wall with, and what compiles our
//! own programs for it.

use std::path::Path;

use wasmtime::{Linker, Store};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p1::{self, WasiP1Ctx};

use crate::{cache, engine};

/// The word by which the one binary is started as this, before the compiled module and the program in Python.
pub const FLOOR: &str = "--wasm-floor";

/// Runs a program in a compiled CPython, with this process's standard streams and no directory.
pub fn floor(compiled: &Path, program: &str) -> wasmtime::Result<()> {
    let mut streams = WasiCtxBuilder::new();
    streams.inherit_stdio();
    run(compiled, program, streams)
}

/// The same with other streams.
pub(crate) fn run(compiled: &Path, program: &str, mut streams: WasiCtxBuilder) -> wasmtime::Result<()> {
    let engine = engine::engine()?;
    let module = cache::load(&engine, compiled)?;
    let mut linker: Linker<WasiP1Ctx> = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |context| context)?;
    let context = streams.args(&["python3", "-c", program]).build_p1();
    let mut store = Store::new(&engine, context);
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = linker.instantiate(&mut store, &module)?;
    instance.get_typed_func::<(), ()>(&mut store, "_start")?.call(&mut store, ())
}
