//! `belljar logs`: what a run has printed, so far or in all.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::complaint::Complaint;
use crate::control::{self, Answer, Logs as Printed, Request};
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Logs {
    /// A run, or a sandbox for the latest run in it, by its id
    #[arg(value_name = "RUN|SANDBOX")]
    id: String,
    /// Print JSON, with both streams as they came
    #[arg(long)]
    json: bool,
}

impl Logs {
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let reached = control::reach(wiring::usual_runtime().as_deref());
        let mut heard = control::ask_all(&reached, &Request::Logs { id: self.id.clone() });
        let found = std::mem::take(&mut heard.answers).into_iter().find_map(|answer| match answer {
            Answer::Logs(printed) => printed,
            _ => None,
        });
        let Some(printed) = found else {
            heard.all()?;
            let id = super::table::cell(&self.id, 40);
            let hint = "`belljar ps` lists what runs, `belljar history` what ran. A server keeps in memory what its latest runs \
                        printed; with the server that goes, and the history has none of it";
            return Err(Complaint::new(format!("no running server has output of {id}"), hint).into());
        };
        show(&printed, self.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn show(printed: &Printed, as_json: bool) -> std::io::Result<()> {
    if as_json {
        return writeln!(std::io::stdout(), "{:#}", json!(printed));
    }
    if printed.missed > 0 {
        writeln!(std::io::stderr(), "belljar: the first {} bytes are forgotten", printed.missed)?;
    }
    // A program's output is no word of ours, and a terminal obeys what it reads.
    std::io::stdout().write_all(belljar_server::clean(printed.stdout.as_bytes()).as_bytes())?;
    std::io::stderr().write_all(belljar_server::clean(printed.stderr.as_bytes()).as_bytes())?;
    Ok(())
}
