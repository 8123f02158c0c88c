//! The command line. One file per command.

mod bench;
mod config;
mod doctor;
mod install;
mod run;
mod serve;
mod template;
mod tools;
mod values;
mod warmup;

use std::path::PathBuf;
use std::process::ExitCode;

use belljar_backends::WishedWall;
use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::wiring;

/// Run AI agents' code under glass: a sandbox without Docker, KVM, root or an account.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Which wall to put around the code: native (the usual), wasm, docker, gvisor, microvm, or auto
    #[arg(long, global = true, value_name = "NAME")]
    backend: Option<WishedWall>,
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
    /// Make root file systems for sandboxes of images, tars and directories
    Template(template::Template),
    /// List, search and call the tools of other MCP servers
    Tools(tools::Tools),
    /// Show the configuration
    Config(config::Configuration),
}

pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { backend, config, command } = arguments;
    let configuration = || -> anyhow::Result<Config> {
        let mut config = Config::read(config.as_deref(), wiring::usual_config())?;
        config.walls.backend.or_flag(backend);
        Ok(config)
    };
    match command {
        Command::Serve(serve) => serve.execute(configuration()?),
        Command::Warmup(warmup) => warmup.execute(&configuration()?),
        Command::Config(config) => config.execute(&configuration()?),
        Command::Run(run) => run.execute(configuration()?),
        Command::Template(template) => template.execute(&configuration()?),
        Command::Tools(tools) => tools.execute(configuration()?),
        Command::Doctor(doctor) => doctor.execute(backend, &configuration()?),
        Command::Install(install) => install.execute(backend),
        Command::Bench(bench) => bench.execute(&configuration()?, config.clone()),
    }
}
