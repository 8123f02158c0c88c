//! CPython for WASI: the drivers of every other place, with a boot of its own.

use std::path::Path;
use std::sync::Arc;

use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p2::pipe::{MemoryInputPipe, MemoryOutputPipe};

use crate::instance::{self, Kind, Launch};
use crate::{cache, floor};

const BOOT: &str = include_str!("python/boot.py");
const ONCE: &str = include_str!("python/once.py");
const COMPILE: &str = include_str!("python/compile.py");
const FAILED: &str = include_str!("../../guest/src/kernels/python/failed.py");
const CALLED: &str = include_str!("../../guest/src/kernels/python/called.py");

/// Of the compiled driver, many times what it has.
const DRIVER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The parts of the driver, by the names that they call each other by. Ours are those that have to do with processes.
const PARTS: [(&str, &str); 20] = [
    ("core", include_str!("../../guest/src/kernels/python/core.py")),
    ("serve", include_str!("python/serve.py")),
    ("kernel", include_str!("../../guest/src/kernels/python/kernel.py")),
    ("live", include_str!("../../guest/src/kernels/python/live.py")),
    ("packages", include_str!("../../guest/src/kernels/python/packages.py")),
    ("errors", include_str!("../../guest/src/kernels/python/errors.py")),
    ("values", include_str!("../../guest/src/kernels/python/values.py")),
    ("source", include_str!("../../guest/src/kernels/python/source.py")),
    ("last", include_str!("../../guest/src/kernels/python/last.py")),
    ("loop", include_str!("../../guest/src/kernels/python/loop.py")),
    ("settings", include_str!("../../guest/src/kernels/python/settings.py")),
    ("streams", include_str!("../../guest/src/kernels/python/streams.py")),
    ("insist", include_str!("python/insist.py")),
    ("tables", include_str!("../../guest/src/kernels/python/tables.py")),
    ("pictures", include_str!("../../guest/src/kernels/python/pictures.py")),
    ("figures", include_str!("../../guest/src/kernels/python/figures.py")),
    ("charts", include_str!("../../guest/src/kernels/python/charts.py")),
    ("magics", include_str!("../../guest/src/kernels/python/magics.py")),
    ("ipython", include_str!("../../guest/src/kernels/python/ipython.py")),
    ("called", CALLED),
];

/// All of it in one.
fn text() -> String {
    PARTS.iter().map(|(name, text)| format!("\0{name}\n{text}")).collect()
}

/// With the driver as it was compiled ahead, if it was: to compile it took a sixth of the time of a fresh run.
pub(crate) fn kernel(env: Vec<(String, String)>, driver: Option<Vec<u8>>) -> Launch {
    launch(&["-s", "-X", "utf8", "-c", BOOT], env, driver.unwrap_or_else(|| text().into_bytes()))
}

/// What tells one text of the driver from another.
pub(crate) fn driver_digest() -> String {
    cache::digest(text().as_bytes())
}

/// Has a compiled CPython compile the driver: no other one reads what comes of it.
pub(crate) fn compile_driver(compiled: &Path) -> wasmtime::Result<Vec<u8>> {
    let said = MemoryOutputPipe::new(DRIVER_BYTES_MAX);
    let mut streams = WasiCtxBuilder::new();
    streams.stdin(MemoryInputPipe::new(text())).stdout(said.clone());
    let compiled = compiled.to_owned();
    let compiling = instance::thread(move || floor::run(&compiled, COMPILE, streams))?;
    compiling.join().unwrap_or_else(|_| Err(wasmtime::Error::msg("it panicked")))?;
    Ok(said.contents().to_vec())
}

pub(crate) fn program(code: String, env: Vec<(String, String)>, directory: &str) -> Launch {
    launch(&["-u", "-s", "-X", "utf8", "-c", ONCE, FAILED, CALLED, directory], env, code.into_bytes())
}

fn launch(arguments: &[&str], env: Vec<(String, String)>, library: Vec<u8>) -> Launch {
    let arguments = std::iter::once("python3").chain(arguments.iter().copied()).map(str::to_owned).collect();
    Launch { arguments, env, library: Arc::from(library), kind: Kind::Command }
}
