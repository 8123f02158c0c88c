//! Asking a person, through whatever the client has for that: a form while its request is open, or a request that ends with
//! the question and comes again with the answer. The program that waits is not run again; it waits.
//!
//! ```text
//! flow ── a call waits for a decision ──▶ form ──▶ the client ──▶ form ──▶ gateway::approval
//!   │                                                  ▲
//!   └── the request ends: state (a handle) ── comes again with it
//! ```

mod code;
mod direct;
mod elicit;
mod flow;
mod form;
mod held;
mod inquiry;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{InputRequiredResult, ProtocolVersion};
use rmcp::service::{Peer, RequestContext};

pub(crate) use direct::{direct, permit};
pub(crate) use flow::{Asking, Unanswered, attend, wait_for_job};
pub(crate) use held::Desk;
pub(crate) use inquiry::{inquiries, resolve};
pub(crate) use state::digest;

/// How long a person may take. Then nobody is there, and what waits is denied.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How whoever called can be asked.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// By a form that goes to the client while its request is open.
    Elicits { peer: Peer<RoleServer>, titles: form::Titles },
    /// By ending the request with a form.
    Returns,
    /// Not at all.
    Nobody,
}

impl Way {
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Way {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        // One that names no form of it means the only one that there was at first.
        if !elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none()) {
            return Way::Nobody;
        }
        match context.protocol_version() {
            Some(version) if version >= ProtocolVersion::V_2026_07_28 => Way::Returns,
            Some(version) if version >= ProtocolVersion::V_2025_11_25 => {
                Way::Elicits { peer: context.peer.clone(), titles: form::Titles::OfChoices }
            }
            _ => Way::Elicits { peer: context.peer.clone(), titles: form::Titles::BesideNames },
        }
    }
}

/// What a request came back with.
#[derive(Debug, Default)]
pub(crate) struct CameBack(Mutex<Option<state::Answered>>);

impl CameBack {
    pub(crate) fn with(answered: state::Answered) -> CameBack {
        CameBack(Mutex::new(Some(answered)))
    }

    fn answered(&self) -> MutexGuard<'_, Option<state::Answered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<state::Answered> {
        self.answered().take()
    }

    /// The job that it comes back to, if it does.
    pub(crate) fn job(&self) -> Option<String> {
        match &*self.answered() {
            Some(state::Answered::Job { id, .. }) => Some(id.clone()),
            _ => None,
        }
    }
}

/// A question in the place of an answer.
pub(crate) type Question = Box<InputRequiredResult>;

#[cfg(test)]
mod tests;
