//! Where what happens is written down: the audit's file and the history.

use std::path::PathBuf;
use std::sync::Arc;

use belljar_egress::{Attempt, Audit as EgressAudit, Ended};
use belljar_gateway::audit::{Audit as CallAudit, Decided, Line};
use belljar_store::{AuditFile, AuditSettings, Call, Decision, History, HistorySettings, Records, StoreError};

use crate::complaint::Complaint;
use crate::config::Config;

const MIB: u64 = 1 << 20;

pub(super) fn records(config: &Config) -> Result<Records, Complaint> {
    Ok(Records::new(history(config)?, audit(config)?))
}

/// The database of the history, whether it is there or not.
pub(crate) fn history_file(config: &Config) -> Option<PathBuf> {
    config.history.file.value.clone().or_else(|| Some(super::usual_state()?.join("history.db")))
}

/// `None` where it is turned off, or where the user has no place for it. One that was named has to be had.
fn history(config: &Config) -> Result<Option<History>, Complaint> {
    let ours = &config.history;
    let Some(file) = history_file(config).filter(|_| ours.enabled.value) else { return Ok(None) };
    let is_named = ours.file.value.is_some();
    let bytes_max = u64::from(ours.max_mb.value) * MIB;
    match History::open(HistorySettings { file, days: ours.days.value, bytes_max, code: ours.code.value }) {
        Ok(history) => Ok(Some(history)),
        Err(error @ StoreError::NoPlace { .. }) if !is_named => {
            tracing::info!(%error, "nothing is remembered: name a place for it as [history] file");
            Ok(None)
        }
        Err(error) => Err(complain(&error)),
    }
}

pub(crate) fn complain(error: &StoreError) -> Complaint {
    let hint = match error {
        StoreError::NoPlace { .. } => "name another file below [history], or set enabled = false there",
        StoreError::Newer { .. } => "use that Belljar, name another file below [history], or set enabled = false there",
        StoreError::NotOurs { .. } => "name another file below [history]",
        StoreError::InUse { .. } => "try again in a moment; the file is whole, and stays where it is",
        StoreError::Broken { .. } => "move it away, and a new one is made; or set enabled = false below [history]",
    };
    Complaint::new(error.to_string(), hint)
}

fn audit(config: &Config) -> Result<Option<AuditFile>, Complaint> {
    let ours = &config.audit;
    let Some(file) = ours.file.value.clone() else { return Ok(None) };
    let shown = file.display().to_string();
    let settings = AuditSettings {
        file,
        bytes_max: u64::from(ours.max_mb.value) * MIB,
        keep: ours.keep.value,
        code: ours.code.value,
        required: ours.required.value,
    };
    AuditFile::open(settings).map(Some).map_err(|error| {
        let what = format!("the audit file {shown} cannot be opened: {error}");
        Complaint::new(what, "name one that can be written, below [audit]")
    })
}

/// Connections.
pub(super) fn of_egress(records: &Records) -> Arc<dyn EgressAudit> {
    match &records.audit {
        Some(file) => Arc::new(Connections(file.clone())),
        None => Arc::new(belljar_egress::LogOnly),
    }
}

/// Calls, in the same file as connections.
pub(super) fn of_calls(records: &Records) -> Arc<dyn CallAudit> {
    if records.are_kept() { Arc::new(Calls(records.clone())) } else { Arc::new(belljar_gateway::audit::LogOnly) }
}

#[derive(Debug)]
struct Connections(Arc<AuditFile>);

impl EgressAudit for Connections {
    fn attempt(&self, attempt: &Attempt) {
        self.0.note("egress", attempt);
    }

    fn ended(&self, ended: &Ended) {
        self.0.note("egress-ended", ended);
    }
}

#[derive(Debug)]
struct Calls(Records);

impl CallAudit for Calls {
    fn called(&self, line: &Line) {
        match &self.0.audit {
            Some(audit) => audit.note("call", line),
            None => belljar_gateway::audit::LogOnly.called(line),
        }
        if let Some(history) = &self.0.history {
            history.called(Call {
                principal: line.owner.clone(),
                run: line.run.clone(),
                server: line.server.clone(),
                tool: line.tool.clone(),
                decision: line.decision,
                outcome: line.outcome,
                milliseconds: line.milliseconds,
            });
        }
    }

    fn decided(&self, decided: &Decided) {
        if self.0.audit.is_none() {
            belljar_gateway::audit::LogOnly.decided(decided);
        }
        self.0.decided(Decision {
            principal: decided.owner.clone(),
            run: decided.run.clone(),
            what: decided.what,
            name: decided.name.clone(),
            sha256: decided.sha256.clone(),
            outcome: decided.outcome,
        });
    }
}
