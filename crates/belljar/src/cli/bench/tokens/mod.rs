//! `belljar bench tokens`: what work costs a model in tokens, in four ways, without a model.
//!
//! The tools are those of public servers, as they were recorded; the workflows are really played, through this very server,
//! against upstreams that answer with made-up data. What the model reads is what came back; what it writes is in the workflow.

mod stage;
mod table;

use std::io::Write;
use std::process::ExitCode;

use anyhow::anyhow;
use belljar_backends::Choice;
use belljar_gateway::tokens::Encoding;
use belljar_gateway::tokens::arms::{Arm, play};
use belljar_gateway::tokens::recorded::{Recorded, select};
use belljar_gateway::tokens::transcript::{Bill, Counter};
use belljar_gateway::tokens::workflows::{self, Workflow};
use clap::Args;
use serde_json::{Value, json};

use self::stage::Served;
use super::progress::Progress;
use crate::complaint::Complaint;

#[derive(Debug, Args)]
pub(super) struct Tokens {
    /// Play only these workflows
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Play each only with this many tools
    #[arg(long, value_name = "NUMBER")]
    tools: Option<usize>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a target is missed
    #[arg(long)]
    check: bool,
}

/// One workflow with so many tools.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) workflow: &'static Workflow,
    pub(super) tools: usize,
    pub(super) servers: usize,
    /// By encoding and arm.
    pub(super) bills: Vec<(Encoding, Vec<(Arm, Bill)>)>,
}

impl Row {
    pub(super) fn bill(&self, encoding: Encoding, arm: Arm) -> Option<&Bill> {
        let (_, bills) = self.bills.iter().find(|(other, _)| *other == encoding)?;
        bills.iter().find(|(other, _)| *other == arm).map(|(_, bill)| bill)
    }
}

impl Tokens {
    pub(super) fn execute(&self, choice: Choice) -> anyhow::Result<ExitCode> {
        super::server::end_servers_on_signal()?;
        let all = Recorded::all()?;
        let progress = Progress::new();
        let mut counters = Encoding::ALL.map(Counter::new);
        let mut rows = Vec::new();
        for workflow in self.workflows()? {
            for &size in workflow.sizes.iter().filter(|size| self.tools.is_none_or(|wanted| wanted == **size)) {
                progress.step(&format!("{} with {size} tools", workflow.name));
                let tools = select(&all, workflow.needed, size);
                let mut stage = Served::start(choice.name(), &tools)?;
                let played = play(workflow, &tools, &mut stage).map_err(|error| anyhow!("{error:#}"))?;
                let of = |counter: &mut Counter| {
                    let encoding = counter.encoding();
                    (encoding, played.iter().map(|(arm, transcript)| (*arm, transcript.bill(counter))).collect())
                };
                let (number, servers) = (tools.iter().map(|server| server.tools.len()).sum(), tools.len());
                rows.push(Row { workflow, tools: number, servers, bills: counters.iter_mut().map(of).collect() });
            }
        }
        drop(progress);
        let verdicts = table::judge(&rows);
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{:#}", as_json(&all, &rows, &verdicts))?;
        } else {
            write!(out, "{}", table::draw(&all, &rows, &verdicts))?;
        }
        let missed = verdicts.iter().any(|verdict| !verdict.met);
        Ok(if self.check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn workflows(&self) -> Result<Vec<&'static Workflow>, Complaint> {
        let known = |name: &String| workflows::ALL.iter().any(|workflow| workflow.name == name);
        if let Some(unknown) = self.only.iter().find(|name| !known(name)) {
            let names: Vec<&str> = workflows::ALL.iter().map(|workflow| workflow.name).collect();
            let what = format!("there is no workflow {unknown:?}");
            return Err(Complaint::new(what, format!("use some of: {}", names.join(", "))));
        }
        let is_wanted =
            |workflow: &&Workflow| self.only.is_empty() || self.only.iter().any(|name| name == workflow.name);
        Ok(workflows::ALL.iter().filter(is_wanted).collect())
    }
}

fn as_json(all: &[Recorded], rows: &[Row], verdicts: &[table::Verdict]) -> Value {
    let servers: Vec<Value> = all
        .iter()
        .map(|server| json!({"server": server.server, "package": server.package, "version": server.version, "tools": server.tools.len()}))
        .collect();
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let arms = row.bills.iter().flat_map(|(encoding, bills)| {
                bills.iter().map(|(arm, bill)| {
                    json!({"encoding": encoding.name(), "arm": arm.name(), "turns": bill.turns, "input": bill.input,
                        "output": bill.output, "billed": bill.total(), "peak": bill.peak, "weighted": bill.weighted.round()})
                })
            });
            json!({"workflow": row.workflow.name, "tools": row.tools, "servers": row.servers, "arms": arms.collect::<Vec<_>>()})
        })
        .collect();
    let verdicts: Vec<Value> = verdicts
        .iter()
        .map(|verdict| json!({"target": verdict.target, "percent": verdict.percent, "wanted": verdict.wanted, "met": verdict.met}))
        .collect();
    json!({"catalogue": servers, "rows": rows, "targets": verdicts})
}
