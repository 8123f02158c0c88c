//! All that stands and runs at one moment, for the operator. Nobody's handle to anything: callers see their own only.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Source;

use crate::flight::Flight;
use crate::shared::Shared;
use crate::{PoolInfo, Principal, Printed, RunId, SandboxId, SandboxInfo};

#[derive(Debug, Clone)]
pub struct Overview {
    pub backend: String,
    /// Since the engine was made.
    pub uptime: Duration,
    /// With whose each is, oldest first.
    pub sandboxes: Vec<(Principal, SandboxInfo)>,
    /// Those that have not ended, oldest first.
    pub runs: Vec<RunInfo>,
    pub prepared: Vec<PoolInfo>,
}

#[derive(Debug, Clone)]
pub struct RunInfo {
    pub id: RunId,
    pub owner: Principal,
    /// `None` for a throw-away one.
    pub sandbox: Option<SandboxId>,
    /// The language, or `command`.
    pub kind: &'static str,
    pub age: Duration,
    /// Whether its program was started; until then it waits for its turn, its packages or its place.
    pub has_begun: bool,
    /// Whether nobody waits for it.
    pub is_job: bool,
}

pub(crate) fn of(shared: &Shared) -> Overview {
    let under_way = shared.jobs.under_way().into_iter().filter(|flight| flight.outcome().is_none());
    Overview {
        backend: shared.lessor.no_isolation().backend,
        uptime: shared.begun.elapsed(),
        sandboxes: shared.sandboxes.all(),
        runs: under_way.map(|flight| info(&flight)).collect(),
        prepared: shared.lessor.prepared(),
    }
}

fn info(flight: &Flight) -> RunInfo {
    let kind = match &flight.request.program.source {
        Source::Code { language, .. } | Source::Cell { language, .. } => language.name(),
        Source::Command(_) => "command",
    };
    RunInfo {
        id: flight.id.clone(),
        owner: flight.owner.clone(),
        sandbox: flight.sandbox.clone(),
        kind,
        age: flight.begun.elapsed(),
        has_begun: flight.has_begun(),
        is_job: flight.is_job(),
    }
}

/// Of the run with this id, or of the latest in the sandbox with this id.
pub(crate) fn printed(shared: &Shared, id: &str) -> Option<Printed> {
    let is_it = |flight: &&Arc<Flight>| {
        flight.id.as_str() == id || flight.sandbox.as_ref().is_some_and(|own| own.as_str() == id)
    };
    if let Some(flight) = shared.jobs.under_way().iter().rev().find(is_it) {
        let ended = flight.outcome().and_then(Result::ok);
        let part = flight.output_since(0, ended.as_deref());
        let ending = match (&ended, flight.outcome()) {
            (Some(run), _) => Some(run.report.ending.name()),
            (None, Some(_)) => Some("failed"),
            (None, None) => None,
        };
        let (stdout, stderr, missed) = (part.stdout, part.stderr, part.missed);
        return Some(Printed { run: flight.id.clone(), stdout, stderr, missed, ending });
    }
    shared.outputs.find(id)
}
