//! The command line. One file per command.

mod bench;
mod doctor;
mod install;
mod run;
mod serve;
mod values;

use std::process::ExitCode;

use belljar_backends::Choice;
use clap::{Parser, Subcommand};

/// Run AI agents' code under glass: a sandbox without Docker, KVM, root or an account.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Which wall to put around the code
    #[arg(long, global = true, default_value = "native", value_name = "NAME")]
    backend: Choice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP on standard input and output, or over HTTP
    Serve(serve::Serve),
    /// Run one program in a fresh sandbox
    Run(run::Run),
    /// Check every wall and language of this machine, and say what is missing
    Doctor(doctor::Doctor),
    /// Set up an MCP client to start belljar
    Install(install::Install),
    /// Measure a sandboxed run against a bare one
    Bench(bench::Bench),
}

pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Serve(serve) => serve.execute(arguments.backend),
        Command::Run(run) => run.execute(arguments.backend),
        Command::Doctor(doctor) => doctor.execute(arguments.backend),
        Command::Install(install) => install.execute(arguments.backend),
        Command::Bench(bench) => bench.execute(arguments.backend),
    }
}
