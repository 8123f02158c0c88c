//! `belljar warmup`: does once what every first run would otherwise pay for.

use std::io::Write;
use std::process::ExitCode;

use belljar_backends::{Choice, warm_up};
use clap::Args;

use crate::complaint::Complaint;
use crate::wiring;

/// Compiles Go's own library once, for all sandboxes to come
#[derive(Debug, Args)]
pub(super) struct Warmup {}

impl Warmup {
    pub(super) fn execute(self, choice: Choice) -> anyhow::Result<ExitCode> {
        writeln!(std::io::stderr(), "belljar: compiling Go's library; this takes about a minute, once")?;
        let cache = warm_up(choice, &wiring::host()).map_err(|error| {
            let told = error.to_string();
            match told.split_once("; ") {
                Some((what, hint)) => Complaint::new(what, hint),
                None => Complaint::new(told, "belljar doctor says what this machine has"),
            }
        })?;
        writeln!(std::io::stderr(), "belljar: ready; servers that start from now on use it")?;
        writeln!(std::io::stdout(), "{}", cache.display())?;
        Ok(ExitCode::SUCCESS)
    }
}
