//! The one binary: reads the command line, wires the rooms together, and decides nothing about how a program is run.

#![forbid(unsafe_code)]

mod cli;
mod complaint;
mod config;
mod control;
mod install;
mod otel;
mod selftest;
mod watching;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    // Started again by the jail, inside the walls: then it is the worker of the wasm wall, and nothing else.
    #[cfg(feature = "wasm")]
    if std::env::args_os().next().is_some_and(|name| name == belljar_wasm::NAME) {
        return ExitCode::from(belljar_wasm::main() as u8);
    }
    #[cfg(feature = "wasm")]
    if let Some(code) = as_floor() {
        return code;
    }
    let arguments = cli::Arguments::parse();
    wiring::log(arguments.log_format());
    match cli::execute(arguments) {
        Ok(code) => code,
        Err(error) => complaint::tell(&error),
    }
}

/// For `bench`, which starts us so: wasmtime with nothing of ours around it.
#[cfg(feature = "wasm")]
fn as_floor() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    words.next().filter(|word| word == belljar_wasm::FLOOR)?;
    let (module, program) = (words.next()?, words.next()?.into_string().ok()?);
    let ran = belljar_wasm::floor(module.as_ref(), &program);
    Some(if ran.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
