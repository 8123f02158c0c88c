//! Those who are told what the engine does, as it does it: history, audit, figures, traces.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Isolation, Limits, Program, Source};

use crate::{EngineError, Gone, Principal, Run, RunId, SandboxId};

/// Told of what happens. It is called on the way of a run, so that it must not wait for anything.
pub trait Observer: Send + Sync + fmt::Debug {
    fn observe(&self, event: &Event<'_>);

    /// Nothing comes any more: the engine has ended. What is still to be written is written here, in a moment.
    fn end(&self) {}

    /// Whether what is about to begin could be written down. Where one of them says no, nothing begins.
    fn can_record(&self) -> bool {
        true
    }

    /// Whether a sandbox of this owner's was lost with a server that is no more. Asked of those that are not known here, and
    /// answered at once.
    fn has_lost(&self, _owner: &Principal, _sandbox: &str) -> bool {
        false
    }
}

/// Tells all of them, in order.
pub(crate) fn tell(observers: &[Arc<dyn Observer>], event: &Event<'_>) {
    for observer in observers {
        observer.observe(event);
    }
}

#[derive(Debug, Clone)]
pub enum Event<'a> {
    SandboxOpened {
        owner: &'a Principal,
        sandbox: &'a SandboxId,
        template: Option<&'a str>,
        limits: &'a Limits,
        isolation: &'a Isolation,
        /// How long it took; with what was prepared, little.
        took: Duration,
    },
    SandboxClosed {
        owner: &'a Principal,
        sandbox: &'a SandboxId,
        why: Closed,
    },
    /// Somebody wants a program run. Told on the very task of the caller's, before anything else of the run is; not all that
    /// is asked for begins.
    RunAsked {
        owner: &'a Principal,
        run: &'a RunId,
    },
    /// Somebody wanted a sandbox, and was told why there is none.
    SandboxRefused {
        owner: &'a Principal,
        why: &'a Refusal,
    },
    /// Somebody wanted a program run, and it never began. Told in the place of all the others but [`Event::RunAsked`].
    RunRefused {
        owner: &'a Principal,
        run: &'a RunId,
        /// As the caller wrote it, whether there is one or not.
        sandbox: Option<&'a str>,
        source: &'a Source,
        why: &'a Refusal,
    },
    /// It has its turn and its place, and is about to be started.
    RunBegan {
        owner: &'a Principal,
        run: &'a RunId,
        /// `None` for a throw-away one.
        sandbox: Option<&'a SandboxId>,
        program: &'a Program,
        /// How long it waited for its turn and its place.
        waited: Duration,
    },
    /// Once for each that began, before its caller hears of it.
    RunEnded {
        owner: &'a Principal,
        run: &'a RunId,
        program: &'a Program,
        sandbox: Option<&'a SandboxId>,
        outcome: Result<&'a Run, &'a EngineError>,
        /// Bytes that went through the sandbox's network meanwhile, both ways.
        network_bytes: u64,
    },
}

/// Why a program was not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// A word of ours.
    pub kind: &'static str,
    /// What its caller was told.
    pub words: String,
}

impl From<&EngineError> for Refusal {
    fn from(error: &EngineError) -> Refusal {
        let words = match error {
            // It quotes what was written, which may be an address with a password in it.
            EngineError::BadHost(_) => "network names something that is no host".to_owned(),
            error => error.to_string(),
        };
        Refusal { kind: error.name(), words }
    }
}

/// Why a sandbox is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Destroyed,
    /// What ran on in it was past its owner's quota.
    Spent,
    Idle,
    TooOld,
    /// It went down by itself.
    Lost,
    /// The server ended.
    Shutdown,
}

impl Closed {
    /// One word, for records.
    pub fn name(self) -> &'static str {
        match self {
            Closed::Destroyed => "destroyed",
            Closed::Spent => "quota",
            Closed::Idle => "idle",
            Closed::TooOld => "too-old",
            Closed::Lost => "lost",
            Closed::Shutdown => "shutdown",
        }
    }
}

impl From<Gone> for Closed {
    fn from(gone: Gone) -> Closed {
        match gone {
            Gone::Idle(_) => Closed::Idle,
            Gone::Old(_) => Closed::TooOld,
            Gone::Destroyed => Closed::Destroyed,
            Gone::Spent => Closed::Spent,
            Gone::Lost | Gone::WithItsServer => Closed::Lost,
        }
    }
}
