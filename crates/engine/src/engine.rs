//! The engine's door: each call is checked, finds its sandbox, and is carried out by a task of the engine's own.
//!
//! Why tasks: a caller may drop its call at any moment. Dropping only gives an order ([`Orders`]); the task that knows
//! what is alive where always comes to its own end, so that nothing is half done between two awaits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{
    Backend, BackendError, Content, FileError, FileErrorKind, Isolation, Language, Later, Limits, Listing, Program,
    Range, Report, Spec, State, Stream,
};
use tokio::task::JoinError;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::admission::Admission;
use crate::lease::Lessor;
use crate::outputs::Outputs;
use crate::run::{self, NotStarted, Orders, Outcome, Reach};
use crate::sandboxes::{self, InUse, Sandboxes};
use crate::teardown::{Tasks, Teardowns};
use crate::{
    Console, CreateRequest, EngineError, Principal, Run, RunId, RunRequest, SandboxId, SandboxInfo, Settings, Wish,
};
use crate::{check, limits};

/// The most that one [`Engine::read`] returns, whatever its range says.
pub const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The most entries that one [`Engine::list`] returns.
pub const LIST_ENTRIES_MAX: u32 = 10_000;

/// A file operation moves at most some megabytes within memory; a guest that takes longer is starved or stuck.
const FILE_MAX: Duration = Duration::from_secs(30);

/// Live sandboxes of one backend, and all that runs in them. Cheap to clone; when the last clone is dropped, everything
/// is stopped and closed as by [`Engine::shutdown`], only that nobody waits for it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Cancels `shared.stop`.
    _last: DropGuard,
}

/// What the engine's tasks hold. Not the guard: a task must not keep the engine from ending.
struct Shared {
    settings: Settings,
    languages: Vec<Language>,
    tasks: Tasks,
    lessor: Lessor,
    sandboxes: Arc<Sandboxes>,
    admission: Admission,
    outputs: Outputs,
    stop: CancellationToken,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("settings", self.settings()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Inside a tokio runtime, which the engine's tasks then run on.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Engine {
        let stop = CancellationToken::new();
        let tasks = Tasks::new();
        let teardowns = Teardowns::new(tasks.clone());
        let sandboxes = Sandboxes::new(&settings, teardowns.clone());
        tasks.spawn(sandboxes::expire(sandboxes.clone(), stop.clone()));
        let shared = Arc::new(Shared {
            languages: backend.capabilities().languages,
            lessor: Lessor::new(backend, teardowns),
            sandboxes,
            admission: Admission::new(settings.runs_max, settings.queue_max),
            outputs: Outputs::new(settings.kept_output_bytes_max),
            tasks,
            settings,
            stop: stop.clone(),
        });
        Engine { inner: Arc::new(Inner { shared, _last: stop.drop_guard() }) }
    }

    pub fn settings(&self) -> &Settings {
        &self.shared().settings
    }

    pub fn languages(&self) -> Vec<Language> {
        self.shared().languages.clone()
    }

    /// Runs a program to its end. Dropping the call stops the program with all that it started; a throw-away sandbox
    /// goes with it, a created one stays.
    pub async fn run(&self, who: &Principal, request: RunRequest) -> Result<Run, EngineError> {
        self.run_watched(who, request, None).await
    }

    /// The same, with someone at the program's streams while it runs.
    pub async fn run_with_console(
        &self,
        who: &Principal,
        request: RunRequest,
        console: Console,
    ) -> Result<Run, EngineError> {
        self.run_watched(who, request, Some(console)).await
    }

    async fn run_watched(
        &self,
        who: &Principal,
        request: RunRequest,
        console: Option<Console>,
    ) -> Result<Run, EngineError> {
        let shared = self.shared();
        let entered = shared.enter()?;
        check::program(&request.program, shared.settings.wall_max, &shared.languages)?;
        let id = RunId::random()?;
        let cancel = shared.stop.child_token();
        let _hung_up = cancel.clone().drop_guard();

        let (sandbox, task) = match request.sandbox {
            None => (None, shared.tasks.spawn(in_throw_away(shared.clone(), request.program, console, cancel))),
            Some(sandbox) => {
                let used = shared.sandboxes.take(who, &sandbox)?;
                let sandbox = used.named.id.clone();
                (Some(sandbox), shared.tasks.spawn(in_created(shared.clone(), used, request.program, console, cancel)))
            }
        };
        drop(entered);
        let (report, limits) = joined(task).await?;
        tracing::debug!(run = %id, ?sandbox, ending = ?report.ending, state = ?report.state,
            duration = ?report.duration, "a program ended");
        shared.outputs.keep(who, &id, &report);
        Ok(Run { id, report, limits, sandbox })
    }

    pub async fn create(&self, who: &Principal, request: CreateRequest) -> Result<SandboxInfo, EngineError> {
        let shared = self.shared();
        let _entered = shared.enter()?;
        let limits = limits::grant(&request.wish, &shared.settings.ceiling)?;
        let age_max = shared.settings.age_max;
        if request.idle.is_some_and(|idle| idle > age_max) {
            return Err(EngineError::LimitTooHigh { name: "timeout", max: format!("{} seconds", age_max.as_secs()) });
        }
        check::env(&request.env)?;
        let id = SandboxId::random()?;
        let slot = shared.sandboxes.slot().await?;
        let spec = Spec { limits, env: request.env, ..Spec::default() };
        let sandbox = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
            opened = shared.lessor.open(&spec) => opened?,
        };
        let info = shared.sandboxes.add(who, id, limits, request.idle, sandbox, slot)?;
        tracing::info!(sandbox = %info.id, owner = who.as_str(), "a sandbox was created");
        Ok(info)
    }

    /// Ends a sandbox and the programs in it; returns when nothing of it is left.
    pub async fn destroy(&self, who: &Principal, id: &str) -> Result<(), EngineError> {
        let _entered = self.shared().enter()?;
        let gone = self.shared().sandboxes.destroy(who, id)?;
        tracing::info!(sandbox = id, owner = who.as_str(), "a sandbox was destroyed");
        joined(gone).await
    }

    /// The caller's own, oldest first.
    pub fn sandboxes(&self, who: &Principal) -> Vec<SandboxInfo> {
        self.shared().sandboxes.list(who)
    }

    /// At most [`READ_BYTES_MAX`] of a file.
    pub async fn read(&self, who: &Principal, id: &str, path: &str, range: Range) -> Result<Content, EngineError> {
        let path = checked(path)?;
        let range = Range { length: range.length.min(READ_BYTES_MAX), ..range };
        self.with_files(who, id, |shared, used| async move {
            let answer = shared.file_answer(&used, used.sandbox().read(&path, range)).await;
            settle(used, answer)
        })
        .await
    }

    pub async fn write(&self, who: &Principal, id: &str, path: &str, bytes: Vec<u8>) -> Result<(), EngineError> {
        let path = checked(path)?;
        self.with_files(who, id, |shared, used| async move {
            if bytes.len() as u64 > used.named.limits.disk_bytes {
                return Err(EngineError::Backend(BackendError::File(FileError { kind: FileErrorKind::NoSpace, path })));
            }
            let answer = shared.file_answer(&used, used.sandbox().write(&path, bytes)).await;
            settle(used, answer)
        })
        .await
    }

    /// At most [`LIST_ENTRIES_MAX`] entries.
    pub async fn list(
        &self,
        who: &Principal,
        id: &str,
        path: &str,
        depth: u32,
        entries_max: u32,
    ) -> Result<Listing, EngineError> {
        let path = checked(path)?;
        let entries_max = entries_max.min(LIST_ENTRIES_MAX);
        self.with_files(who, id, |shared, used| async move {
            let answer = shared.file_answer(&used, used.sandbox().list(&path, depth, entries_max)).await;
            settle(used, answer)
        })
        .await
    }

    /// A whole stream of a recent run of the caller's, if it was long enough to be kept and is not forgotten yet.
    pub fn kept_output(&self, who: &Principal, run: &str, stream: Stream) -> Option<Arc<[u8]>> {
        self.shared().outputs.get(who, run, stream)
    }

    /// Takes no new work, stops what runs, closes all sandboxes; returns when nothing is left.
    pub async fn shutdown(&self) {
        let shared = self.shared();
        shared.stop.cancel(); // each task sees it; the one that watches expiry closes the sandboxes
        shared.tasks.ended().await;
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
    /// Carries out a file operation as a task, which ends with the call.
    async fn with_files<T, F>(
        &self,
        who: &Principal,
        id: &str,
        operation: impl FnOnce(Arc<Shared>, InUse) -> F,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let shared = self.shared();
        let entered = shared.enter()?;
        let used = shared.sandboxes.take(who, id)?;
        let task = AbortOnDropHandle::new(shared.tasks.spawn(operation(shared.clone(), used)));
        drop(entered);
        joined(task).await
    }
}

impl Shared {
    /// Counted before the look at `stop`, while a shutdown sets that before it counts: one of the two sees the other.
    fn enter(&self) -> Result<TaskTrackerToken, EngineError> {
        let token = self.tasks.token();
        if self.stop.is_cancelled() { Err(EngineError::ShuttingDown) } else { Ok(token) }
    }

    async fn file_answer<T>(&self, used: &InUse, operation: Later<'_, T>) -> Result<T, EngineError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(EngineError::ShuttingDown),
            () = used.named.closing.cancelled() => Err(EngineError::UnknownSandbox),
            answer = timeout(FILE_MAX, operation) => match answer {
                Ok(answer) => answer.map_err(run::told),
                Err(_) => Err(EngineError::NotAnswering),
            },
        }
    }
}

/// Lets go of a sandbox after a file operation: one that is gone leaves the table.
fn settle<T>(mut used: InUse, answer: Result<T, EngineError>) -> Result<T, EngineError> {
    if matches!(answer, Err(EngineError::Lost)) || !used.sandbox().is_alive() {
        used.doubt();
    }
    answer
}

fn checked(path: &str) -> Result<String, EngineError> {
    check::path(path).map_err(|error| EngineError::Backend(BackendError::File(error)))?;
    Ok(path.to_owned())
}

async fn in_throw_away(
    shared: Arc<Shared>,
    program: Program,
    console: Option<Console>,
    cancel: CancellationToken,
) -> Result<(Report, Limits), EngineError> {
    let orders = Orders { cancel, closing: CancellationToken::new() };
    let limits = limits::grant(&Wish::default(), &shared.settings.ceiling)?;
    let spec = Spec { limits, ..Spec::default() };
    let ready = async {
        let turn = shared.admission.turn(None).await?;
        Ok((turn, shared.lessor.lease(&spec).await?))
    };
    // Dropping the lease, here or at the end, closes the sandbox behind the caller's back.
    let (_turn, lease) = tokio::select! {
        biased;
        refusal = orders.refusal() => return Err(refusal),
        ready = ready => ready?,
    };
    let sandbox = lease.sandbox()?;
    let isolation = sandbox.isolation().clone();
    let outcome = run::run(sandbox, program, &limits, console, &orders).await;
    let outcome = outcome.map_err(|NotStarted { error, .. }| error)?;
    let state = match outcome.reach {
        Reach::Answered => State::Fresh,
        Reach::Silent => State::Lost,
    };
    Ok((report(outcome, state, isolation), limits))
}

async fn in_created(
    shared: Arc<Shared>,
    used: InUse,
    program: Program,
    console: Option<Console>,
    cancel: CancellationToken,
) -> Result<(Report, Limits), EngineError> {
    let orders = Orders { cancel, closing: used.named.closing.clone() };
    let _turn = tokio::select! {
        biased;
        refusal = orders.refusal() => return Err(refusal),
        turn = shared.admission.turn(Some(&used.named.seats)) => turn?,
    };
    // Bound after the turn, so dropped before it: nobody gets this seat while the sandbox is in doubt.
    let mut used = used;
    let state = used.count_run();
    used.doubt(); // stays so if the program is out of reach or the backend panics
    let outcome = run::run(used.sandbox(), program, &used.named.limits, console, &orders).await;
    let reach = match &outcome {
        Ok(outcome) => outcome.reach,
        Err(not_started) => not_started.reach,
    };
    let ends = shared.stop.is_cancelled() || orders.closing.is_cancelled();
    let stands = reach == Reach::Answered && !ends && used.sandbox().is_alive();
    if stands {
        used.trust();
    }
    match outcome {
        Ok(outcome) => {
            let state = if stands { state } else { State::Lost };
            Ok((report(outcome, state, used.named.isolation.clone()), used.named.limits))
        }
        Err(NotStarted { error, .. }) => {
            used.uncount_run();
            Err(error)
        }
    }
}

fn report(outcome: Outcome, state: State, isolation: Isolation) -> Report {
    Report {
        stdout: outcome.capture.stdout,
        stderr: outcome.capture.stderr,
        ending: outcome.ending,
        state,
        duration: outcome.duration,
        usage: outcome.usage,
        isolation,
    }
}

/// A task's answer. A panic in a backend ends the call, not the engine.
async fn joined<T>(task: impl Future<Output = Result<Result<T, EngineError>, JoinError>>) -> Result<T, EngineError> {
    task.await.unwrap_or_else(|error| {
        if error.is_cancelled() {
            return Err(EngineError::ShuttingDown);
        }
        tracing::error!(%error, "a task panicked");
        Err(EngineError::Backend(BackendError::Setup { step: "task".into(), why: error.to_string() }))
    })
}
