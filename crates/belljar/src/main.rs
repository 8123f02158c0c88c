//! The one binary: reads the command line, wires the rooms together, and decides nothing about how a program is run.

#![forbid(unsafe_code)]

mod cli;
mod complaint;
mod config;
mod install;
mod wiring;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    wiring::log();
    match cli::execute(arguments) {
        Ok(code) => code,
        Err(error) => complaint::tell(&error),
    }
}
