//! The command line. One file per command.

mod bench;
mod config;
mod doctor;
mod install;
mod run;
mod serve;
mod tools;
mod values;
mod warmup;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use belljar_backends::Choice;
use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::wiring;

/// Run AI agents' code under glass: a sandbox without Docker, KVM, root or an account.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Which wall to put around the code
    #[arg(long, global = true, default_value = "native", value_name = "NAME")]
    backend: Choice,
    /// The configuration to use in place of ~/.config/belljar/config.toml
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// Prepare what makes first runs quick: scientific packages, Go's library
    Warmup(warmup::Warmup),
    /// List, search and call the tools of other MCP servers
    Tools(tools::Tools),
    /// Show the configuration
    Config(config::Configuration),
}

pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Serve(serve) => serve.execute(arguments.backend, configuration(arguments.config.as_deref())?),
        Command::Warmup(warmup) => warmup.execute(arguments.backend, &configuration(arguments.config.as_deref())?),
        Command::Config(config) => config.execute(&configuration(arguments.config.as_deref())?),
        Command::Run(run) => run.execute(arguments.backend, configuration(arguments.config.as_deref())?),
        Command::Tools(tools) => tools.execute(configuration(arguments.config.as_deref())?),
        Command::Doctor(doctor) => doctor.execute(arguments.backend),
        Command::Install(install) => install.execute(arguments.backend),
        Command::Bench(bench) => bench.execute(arguments.backend, arguments.config),
    }
}

fn configuration(named: Option<&Path>) -> anyhow::Result<Config> {
    Ok(Config::read(named, wiring::usual_config())?)
}
