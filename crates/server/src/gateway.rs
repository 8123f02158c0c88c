//! Code mode as the server sees it: what it tells the model of other servers' tools, and whom it asks. Whoever has the
//! servers stands behind [`CodeMode`]; without one, everything is as if there were no other servers.

use std::fmt::Debug;

use belljar_core::Soon;
use belljar_gateway::Gateway;
pub use belljar_gateway::Search;
use belljar_gateway::approval::Approvals;
use belljar_gateway::audit::Decided;
use belljar_gateway::error::CallError;
pub use belljar_gateway::search::Detail;
use rmcp::model::{CallToolResult, JsonObject, Tool};
use tokio::sync::watch;

/// The tools of other servers. `who` is always the name of the principal that a request came from.
pub trait CodeMode: Debug + Send + Sync {
    /// Whether there are servers at all. Without any, programs may still have to be approved, and personal data be hidden.
    fn has_servers(&self) -> bool;
    /// What there is to call, for the description of `run_code`, within its budget. May wait a few seconds for servers that
    /// were never asked before.
    fn note<'a>(&'a self, who: &'a str) -> Soon<'a, String>;
    /// Text for the model.
    fn search<'a>(&'a self, who: &'a str, wanted: Search) -> Soon<'a, Result<String, CallError>>;
    /// The tools that may be called without a program, under names that are unlike each other, always in the same order.
    fn direct_tools<'a>(&'a self, who: &'a str) -> Soon<'a, Vec<Tool>>;
    /// A call of one of those; `None` when there is none of that name. Dropping it cancels the call.
    fn direct_call<'a>(&'a self, call: DirectCall) -> Soon<'a, Option<Result<CallToolResult, CallError>>>;
    /// Where calls wait for a person.
    fn approvals(&self) -> &Approvals;
    /// Whether a person has to approve each program before it runs.
    fn approves_code(&self) -> bool;
    /// Writes down what came of that.
    fn decided(&self, decided: &Decided);
    /// Puts tokens in the place of personal data, in a text on its way to the model.
    fn hide(&self, who: &str, text: &mut String);
    /// Notes down what an answer about a run cost in tokens, and what the run's calls would have cost without it. A run that
    /// is looked at again is told again, with the same `calls` and `direct`, which count once.
    fn account(&self, who: &str, run: &str, calls: u64, entered: u64, direct: u64);
    /// Counts up whenever the tools are others.
    fn changes(&self) -> watch::Receiver<u64>;
    /// Those behind it, if some of them are forwarded whole.
    fn forwards(&self) -> Option<&Gateway> {
        None
    }
}

/// A call that the model makes itself.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectCall {
    pub who: String,
    /// By which somebody can be asked, as of [`Approvals::open`].
    pub occasion: Option<u64>,
    pub name: String,
    pub arguments: JsonObject,
    pub aim: Aim,
}

/// What a call that the model makes itself is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    Call,
    /// Only to be permitted; it is made elsewhere. The name is the upstream's own, and the result says how it was permitted.
    Permit {
        server: String,
    },
}

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod real;
#[cfg(test)]
mod tests;
