//! The command line. One file per command.

mod bench;
mod config;
mod doctor;
mod history;
mod install;
mod kill;
mod logs;
mod ps;
mod run;
mod serve;
mod table;
mod template;
mod token;
mod tools;
mod values;
mod warmup;

use std::path::PathBuf;
use std::process::ExitCode;

use belljar_backends::WishedWall;
use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::wiring::{self, LogFormat};

/// Run AI agents' code under glass: a sandbox without Docker, KVM, root or an account.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Arguments {
    /// Which wall to put around the code: native (the usual), wasm, docker, gvisor, microvm, or auto
    #[arg(long, global = true, value_name = "NAME")]
    backend: Option<WishedWall>,
    /// The configuration to use in place of ~/.config/belljar/belljar.toml
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How the log on standard error is written; BELLJAR_LOG_FORMAT says the same [default: human]
    #[arg(long, global = true, value_enum, hide_possible_values = true, value_name = "human|json")]
    log_format: Option<LogFormat>,
    #[command(subcommand)]
    command: Command,
}

impl Arguments {
    pub(crate) fn log_format(&self) -> Option<LogFormat> {
        self.log_format
    }
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
    /// Issue, list and revoke the tokens of those who may call over HTTP
    Token(token::Token),
    /// List, search and call the tools of other MCP servers
    Tools(tools::Tools),
    /// List the sandboxes and runs of every server of yours that is running
    Ps(ps::Ps),
    /// Show what a run has printed so far
    Logs(logs::Logs),
    /// End sandboxes and runs
    Kill(kill::Kill),
    /// List the runs that were
    History(history::History),
    /// Show or check the configuration
    Config(config::Configuration),
}

pub(crate) fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { backend, config, command, .. } = arguments;
    let named = config.clone();
    let read = move || -> anyhow::Result<Config> {
        let mut config = wiring::sources(named.clone()).read()?;
        config.walls.backend.or_flag(backend);
        Ok(config)
    };
    let configuration = || read().inspect(|config| wiring::tell_only(&config.log.value));
    match command {
        Command::Serve(serve) => serve.execute(read),
        Command::Warmup(warmup) => warmup.execute(&configuration()?),
        Command::Config(config) => config.execute(configuration),
        Command::Ps(ps) => ps.execute(&configuration()?),
        Command::Logs(logs) => logs.execute(),
        Command::Kill(kill) => kill.execute(),
        Command::History(history) => history.execute(&configuration()?),
        Command::Run(run) => run.execute(configuration()?),
        Command::Template(template) => template.execute(&configuration()?),
        Command::Tools(tools) => tools.execute(configuration()?),
        Command::Doctor(doctor) => doctor.execute(backend, &configuration()?),
        Command::Token(token) => token.execute(),
        Command::Install(install) => install.execute(backend),
        Command::Bench(bench) => bench.execute(&configuration()?, config.clone()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_the_flags_of_serve_are_found_by_their_headings() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let serve = command.find_subcommand("serve").unwrap();
        let known = ["Transport", "Access", "Sandboxes", "Tools", "Watching"];
        let own = serve.get_arguments().filter(|argument| !argument.is_global_set() && argument.get_id() != "help");
        for argument in own {
            let heading = argument.get_help_heading().unwrap_or_default();
            assert!(known.contains(&heading), "--{}: {heading:?}; serve/mod.rs has the headings", argument.get_id());
        }
    }
}
