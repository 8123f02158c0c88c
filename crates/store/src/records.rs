//! The engine's events, written down: in the history, in the audit, or in both.

use std::sync::Arc;

use belljar_engine::{Event, Observer};

use crate::entry::{self, Began, Closed, Code, Entry, Opened};
use crate::time::{ms, now_ms};
use crate::{AuditFile, History};

#[derive(Debug, Clone, Default)]
pub struct Records {
    pub history: Option<Arc<History>>,
    pub audit: Option<Arc<AuditFile>>,
}

impl Records {
    pub fn are_kept(&self) -> bool {
        self.history.is_some() || self.audit.is_some()
    }
}

impl Observer for Records {
    fn observe(&self, event: &Event<'_>) {
        let now = now_ms();
        let code = |keep: bool| if keep { Code::Whole } else { Code::DigestOnly };
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
            // What never began is nobody's run.
            Event::RunAsked { .. } | Event::Refused { .. } => {}
            Event::RunBegan { owner, run, sandbox, program, waited } => {
                if let Some(history) = &self.history {
                    let task = entry::task(owner, run, *sandbox, program, code(history.keeps_code));
                    history.push(now, Entry::Began(Began { task, waited_ms: ms(*waited) }));
                }
            }
            Event::RunEnded { owner, run, program, sandbox, outcome, network_bytes } => {
                let keep = self.audit.as_ref().is_some_and(|audit| audit.keeps_code());
                let task = entry::task(owner, run, *sandbox, program, code(keep));
                let mut ended = entry::ended(task, *outcome, *network_bytes);
                if let Some(audit) = &self.audit {
                    audit.note("run", &ended);
                }
                self.remember(now, || {
                    // The history has its own word on the text, from the beginning.
                    if !self.history.as_ref().is_some_and(|history| history.keeps_code) {
                        ended.task.code = None;
                    }
                    Entry::Ended(Box::new(ended))
                });
            }
        }
    }

    fn end(&self) {
        if let Some(history) = &self.history {
            history.end();
        }
    }

    fn can_record(&self) -> bool {
        self.audit.as_ref().is_none_or(|audit| audit.can_be_written())
    }
}

impl Records {
    fn remember(&self, now: i64, entry: impl FnOnce() -> Entry) {
        if let Some(history) = &self.history {
            history.push(now, entry());
        }
    }
}
