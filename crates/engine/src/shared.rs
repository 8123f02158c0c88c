//! What the engine and its tasks have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{HostCalls, Language, Later, Layer, Source};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::admission::Admission;
use crate::flight::Flight;
use crate::jobs::Jobs;
use crate::lease::Lessor;
use crate::news::Newsroom;
use crate::outputs::Outputs;
use crate::quota::Books;
use crate::sandboxes::{InUse, Sandboxes};
use crate::teardown::Tasks;
use crate::{EngineError, Event, Observer, Principal, Provisions, Refusal, RunId, Settings, Template, observer, run};

/// A file operation moves at most some megabytes within memory; a guest that takes longer is starved or stuck.
const FILE_MAX: Duration = Duration::from_secs(30);

/// What the engine's tasks hold. Not the guard: a task must not keep the engine from ending.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) languages: Vec<Language>,
    pub(crate) interpreters: Vec<(Language, String)>,
    /// Those that are not here, and how to get each.
    pub(crate) missing: Vec<(Language, String)>,
    pub(crate) tasks: Tasks,
    pub(crate) lessor: Lessor,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) admission: Admission,
    pub(crate) books: Arc<Books>,
    pub(crate) outputs: Outputs,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) templates: Vec<Template>,
    /// `None` where no packages are installed.
    pub(crate) provisions: Option<Provisions>,
    /// `None` where there are no tools to call.
    pub(crate) calls: Option<Arc<dyn HostCalls>>,
    pub(crate) observers: Arc<[Arc<dyn Observer>]>,
    pub(crate) news: Newsroom,
    pub(crate) begun: Instant,
    /// Nothing new is taken; cancelled with `stop` at the latest.
    pub(crate) draining: CancellationToken,
    /// What was taken and is not answered yet.
    pub(crate) work: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Of a call that was let in, until it is answered.
#[derive(Debug)]
pub(crate) struct Entered {
    _task: TaskTrackerToken,
    _work: TaskTrackerToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn template(&self, name: Option<&str>) -> Result<Template, EngineError> {
        let Some(name) = name else { return Ok(Template::default()) };
        self.templates.iter().find(|template| template.name == name).cloned().ok_or_else(|| {
            let available = self.templates.iter().map(|template| template.name.clone()).collect();
            EngineError::UnknownTemplate { name: name.chars().take(40).collect(), available }
        })
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        observer::tell(&self.observers, event);
    }

    /// A program that nobody runs, told as it would have been.
    pub(crate) fn tell_refused(&self, owner: &Principal, source: &Source, sandbox: Option<&str>, why: &Refusal) {
        // Without random numbers nothing runs either, and that is told in the log.
        if let Ok(run) = RunId::random() {
            self.tell(&Event::RunRefused { owner, run: &run, sandbox, source, why });
        }
    }

    /// Whether all that has to be written down of what begins now could be.
    pub(crate) fn can_record(&self) -> Result<(), EngineError> {
        let can = self.observers.iter().all(|observer| observer.can_record());
        if can { Ok(()) } else { Err(EngineError::NotRecorded) }
    }

    /// Makes a job of a run. It holds no turn from then on, so that one with a sandbox of its own takes the room of a created
    /// one: places that stand are as many as the host has descriptors for, whoever they are for.
    pub(crate) fn make_job(&self, flight: &Arc<Flight>) -> Result<(), EngineError> {
        let slot = match &flight.sandbox {
            Some(_) => None,
            None => Some(self.sandboxes.slot_now()?),
        };
        self.jobs.add(flight, slot)
    }

    /// What a sandbox of this owner's is to see of the tools that it can call.
    pub(crate) async fn files(&self, who: &Principal) -> Vec<Layer> {
        match &self.calls {
            Some(calls) if who.may_call() => calls.layers(who.as_str()).await,
            _ => Vec::new(),
        }
    }

    /// Counted before the look at `draining`, while a shutdown sets that before it counts: one of the two sees the other.
    pub(crate) fn enter(&self) -> Result<Entered, EngineError> {
        let entered = Entered { _task: self.tasks.token(), _work: self.work.token() };
        if self.draining.is_cancelled() { Err(EngineError::ShuttingDown) } else { Ok(entered) }
    }

    pub(crate) async fn file_answer<T>(&self, used: &InUse, operation: Later<'_, T>) -> Result<T, EngineError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(EngineError::ShuttingDown),
            () = used.named.closing.cancelled() => Err(match used.sandbox().is_alive() {
                true => EngineError::UnknownSandbox,
                false => EngineError::Lost,
            }),
            answer = timeout(FILE_MAX, operation) => match answer {
                Ok(answer) => answer.map_err(run::told),
                Err(_) => Err(EngineError::NotAnswering),
            },
        }
    }
}
