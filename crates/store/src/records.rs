//! The engine's events, written down: in the history, in the audit, or in both.

use std::sync::Arc;

use belljar_engine::{EngineError, Event, Observer, Principal, SandboxId};
use serde::Serialize;

use crate::entry::{self, Began, Closed, Code, Decision, Ended, Entry, Opened};
use crate::refusals::{Refusals, Room};
use crate::time::{ms, now_ms};
use crate::{AuditFile, History};

#[derive(Debug, Clone, Default)]
pub struct Records {
    pub history: Option<Arc<History>>,
    pub audit: Option<Arc<AuditFile>>,
    refusals: Arc<Refusals>,
    /// Of what nobody could be asked about, which comes as fast as refusals do, and is refused.
    unasked: Arc<Refusals>,
}

/// Programs that were refused and have no line of their own.
#[derive(Serialize)]
struct Unwritten {
    principal: String,
    count: u64,
}

impl Records {
    pub fn new(history: Option<History>, audit: Option<AuditFile>) -> Records {
        Records { history: history.map(Arc::new), audit: audit.map(Arc::new), ..Records::default() }
    }

    /// What a person said, or that nobody could be asked. It does not wait.
    pub fn decided(&self, decision: Decision) {
        let now = now_ms();
        // Told by the refusals that are left out.
        drop(self.unasked.of_the_last_minute(now));
        if decision.outcome == "nobody" && self.unasked.take(&decision.principal) == Room::Counted {
            return;
        }
        if let Some(audit) = &self.audit {
            audit.note("decision", &decision);
        }
        self.remember(now, || Entry::Decided(decision));
    }

    pub fn are_kept(&self) -> bool {
        self.history.is_some() || self.audit.is_some()
    }
}

impl Observer for Records {
    fn observe(&self, event: &Event<'_>) {
        let now = now_ms();
        self.leave_out(self.refusals.of_the_last_minute(now));
        match event {
            Event::SandboxOpened { owner, sandbox, template, limits, isolation, took } => {
                let opened = Opened {
                    principal: owner.as_str().to_owned(),
                    sandbox: sandbox.to_string(),
                    template: template.map(str::to_owned),
                    memory_bytes: limits.memory_bytes,
                    took_ms: ms(*took),
                    backend: isolation.backend.clone(),
                    isolation: (*isolation).clone(),
                };
                if let Some(audit) = &self.audit {
                    audit.note("sandbox-opened", &opened);
                }
                self.remember(now, || Entry::Opened(opened));
            }
            Event::SandboxClosed { owner, sandbox, why } => {
                let (principal, sandbox) = (owner.as_str().to_owned(), sandbox.to_string());
                let closed = Closed { principal, sandbox, why: why.name() };
                if let Some(audit) = &self.audit {
                    audit.note("sandbox-closed", &closed);
                }
                self.remember(now, || Entry::Closed(closed));
            }
            // It begins, or is refused.
            Event::RunAsked { .. } | Event::SandboxRefused { .. } => {}
            Event::RunRefused { owner, run, sandbox, source, why } => {
                if self.refusals.take(owner.as_str()) == Room::Counted {
                    return;
                }
                let task = entry::task(owner, run, *sandbox, source, self.code());
                self.write_run(now, entry::refused(task, why));
            }
            Event::RunBegan { owner, run, sandbox, program, waited } => {
                if let Some(history) = &self.history {
                    let code = if history.keeps_code { Code::Whole } else { Code::DigestOnly };
                    let task = entry::task(owner, run, named(*sandbox), &program.source, code);
                    history.push(now, Entry::Began(Began { task, waited_ms: ms(*waited) }));
                }
            }
            Event::RunEnded { owner, run, program, sandbox, outcome, network_bytes } => {
                let task = entry::task(owner, run, named(*sandbox), &program.source, self.code());
                self.write_run(now, entry::ended(task, *outcome, *network_bytes));
            }
        }
    }

    fn end(&self) {
        self.leave_out(self.refusals.all());
        if let Some(history) = &self.history {
            history.end();
        }
    }

    fn has_lost(&self, owner: &Principal, sandbox: &str) -> bool {
        // No longer than any id is.
        let history = self.history.as_ref().filter(|_| sandbox.len() <= entry::ID_BYTES_MAX);
        history.is_some_and(|history| history.has_lost(owner.as_str(), sandbox))
    }

    fn can_record(&self) -> bool {
        self.audit.as_ref().is_none_or(|audit| audit.can_be_written())
    }
}

fn named(sandbox: Option<&SandboxId>) -> Option<&str> {
    sandbox.map(SandboxId::as_str)
}

impl Records {
    /// What a task needs of the text, so that each of them finds what it keeps.
    fn code(&self) -> Code {
        let keeps = self.audit.as_ref().is_some_and(|audit| audit.keeps_code())
            || self.history.as_ref().is_some_and(|history| history.keeps_code);
        if keeps { Code::Whole } else { Code::DigestOnly }
    }

    /// A run that has ended, or never began.
    fn write_run(&self, now: i64, mut ended: Ended) {
        let code = ended.task.code.take();
        // What the audit could not take was not run for just that, and is told by a line of its own when it can again.
        if let Some(audit) = self.audit.as_ref().filter(|_| ended.error_kind != Some(EngineError::NotRecorded.name())) {
            ended.task.code = code.clone().filter(|_| audit.keeps_code());
            audit.note("run", &ended);
        }
        if let Some(history) = &self.history {
            ended.task.code = code.filter(|_| history.keeps_code);
            history.push(now, Entry::Ended(Box::new(ended)));
        }
    }

    /// Refusals that were only counted.
    fn leave_out(&self, unwritten: Vec<(String, u64)>) {
        for (principal, count) in unwritten {
            if let Some(history) = &self.history {
                history.leave_out(count);
            }
            if let Some(audit) = &self.audit {
                audit.note("runs-refused", &Unwritten { principal, count });
            }
        }
    }

    fn remember(&self, now: i64, entry: impl FnOnce() -> Entry) {
        if let Some(history) = &self.history {
            history.push(now, entry());
        }
    }
}

#[cfg(test)]
mod tests;
