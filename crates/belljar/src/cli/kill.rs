//! `belljar kill`: the end of sandboxes and runs, in whichever server of this user they are.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::table::cell;
use crate::complaint::Complaint;
use crate::control::{self, Answer, Request};
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Kill {
    /// Sandboxes and runs, by their ids
    #[arg(value_name = "SANDBOX|RUN", required = true)]
    ids: Vec<String>,
}

impl Kill {
    /// Of several, those that are there are ended even if others are not.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        let reached = control::reach(wiring::usual_runtime().as_deref());
        let mut unknown = Vec::new();
        for id in &self.ids {
            let mut killed = false;
            let heard = control::ask_all(&reached, &Request::Kill { id: id.clone() });
            for answer in &heard.answers {
                match answer {
                    Answer::Killed(yes) => killed |= yes,
                    Answer::Error(words) => {
                        let what = format!("{} could not be ended: {}", cell(id, 40), cell(words, 300));
                        return Err(Complaint::new(what, "try again; `belljar ps` shows what is still there").into());
                    }
                    Answer::Overview(_) | Answer::Logs(_) => {}
                }
            }
            if killed {
                writeln!(std::io::stdout(), "ended {}", cell(id, 40))?;
            } else {
                heard.all()?;
                unknown.push(cell(id, 40));
            }
        }
        if unknown.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let what = format!("no running server has {}", unknown.join(", "));
        Err(Complaint::new(what, "`belljar ps` lists the ids of what runs; what has ended needs no end").into())
    }
}
