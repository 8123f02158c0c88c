//! The engine's door: each call is checked, finds its sandbox, and is carried out by a task of the engine's own.
//!
//! Why tasks: a caller may drop its call at any moment. Dropping only gives an order ([`Orders`]); the task that knows
//! what is alive where always comes to its own end, so that nothing is half done between two awaits.

mod attending;
mod creating;
mod files;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{Backend, BackendError, Language, Network, Source, Spec, Then};
use tokio::sync::broadcast;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::attending::Attending;
pub use self::files::{LIST_ENTRIES_MAX, READ_BYTES_MAX};
use crate::admission::Admission;
use crate::carry::Carried;
use crate::flight::Flight;
use crate::jobs::Jobs;
use crate::kernels::Kind;
use crate::lease::{self, Lessor};
use crate::news::{News, Newsroom};
use crate::outputs::Outputs;
use crate::quota::Books;
use crate::sandboxes::{self, InUse, Sandboxes};
use crate::shared::{Entered, Shared};
use crate::teardown::{Tasks, Teardowns};
use crate::tenure::Tenure;
use crate::{
    Answer, Attendance, Away, Console, Departure, EngineError, Event, JobAction, JobView, Observer, Outside, Phase,
    PoolInfo, Principal, Quota, Refusal, Run, RunId, RunRequest, SandboxInfo, Settings, Stays, StdinThen, Wish,
};
use crate::{Overview, Printed, check, jobs, limits, network, overview, templates};

/// How long a job's input waits for a program that does not read.
const STDIN_WAIT: Duration = Duration::from_secs(5);

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

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("settings", self.settings()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Inside a tokio runtime, which the engine's tasks then run on.
    pub fn new(backend: Arc<dyn Backend>, settings: Settings) -> Engine {
        Engine::with_gauge(backend, settings, Outside::default(), lease::host_gauge)
    }

    /// The same, with what programs may get from outside.
    pub fn with_outside(backend: Arc<dyn Backend>, settings: Settings, outside: Outside) -> Engine {
        Engine::with_gauge(backend, settings, outside, lease::host_gauge)
    }

    /// With another word on the host's memory, for what is prepared to go by.
    pub(crate) fn with_gauge(
        backend: Arc<dyn Backend>,
        settings: Settings,
        outside: Outside,
        gauge: impl FnOnce() -> lease::Gauge,
    ) -> Engine {
        let Outside { provisions, calls, observers } = outside;
        let stop = CancellationToken::new();
        let tasks = Tasks::new();
        let teardowns = Teardowns::new(tasks.clone());
        let news = Newsroom::new();
        let observers: Arc<[Arc<dyn Observer>]> = observers.into();
        let sandboxes = Sandboxes::new(&settings, teardowns.clone(), news.clone(), observers.clone(), stop.clone());
        tasks.spawn(sandboxes::expire(sandboxes.clone(), stop.clone()));
        let known_jobs = Arc::new(Jobs::default());
        tasks.spawn(jobs::forget_old(known_jobs.clone(), stop.clone()));
        let capabilities = backend.capabilities();
        let mut lessor = Lessor::new(backend, teardowns);
        if let Some(pool) = &settings.pool {
            let limits = limits::grant(&Wish::default(), &settings.ceiling);
            let waiting = Some(Language::Python).filter(|language| capabilities.languages.contains(language));
            // With tools a sandbox begins with their files, which are not known yet: what is prepared then goes by what is asked for.
            let usual = limits.ok().filter(|_| waiting.is_some() && calls.is_none()).map(|limits| Spec {
                limits,
                waiting,
                ..Spec::default()
            });
            lessor.prepare(pool, usual.as_ref(), gauge(), &tasks, stop.clone());
        }
        let shared = Arc::new(Shared {
            templates: templates::all(&capabilities.interpreters, &settings.templates),
            languages: capabilities.languages,
            interpreters: capabilities.interpreters,
            missing: capabilities.missing,
            lessor,
            sandboxes,
            admission: Admission::new(settings.runs_max, settings.queue_max),
            books: Books::new(settings.quota),
            outputs: Outputs::new(settings.kept_output_bytes_max),
            provisions,
            calls,
            observers,
            jobs: known_jobs,
            news,
            tasks,
            settings,
            begun: Instant::now(),
            draining: stop.child_token(),
            work: TaskTracker::new(),
            stop: stop.clone(),
        });
        Engine { inner: Arc::new(Inner { shared, _last: stop.drop_guard() }) }
    }

    pub fn settings(&self) -> &Settings {
        &self.shared().settings
    }

    /// How many sandboxes may stand, and how long, at this moment.
    pub fn tenure(&self) -> Tenure {
        self.shared().sandboxes.tenure()
    }

    /// From now on.
    pub fn change_tenure(&self, tenure: Tenure) {
        self.shared().sandboxes.change_tenure(tenure);
    }

    pub fn languages(&self) -> Vec<Language> {
        self.shared().languages.clone()
    }

    /// Runs a program to its end. Dropping the call stops the program with all that it started; a throw-away sandbox
    /// goes with it, a created one stays.
    pub async fn run(&self, who: &Principal, request: RunRequest) -> Result<Run, EngineError> {
        let flight = self.begin(who, request, None, None, Phase::default(), None)?;
        let attending = Attending::new(self.shared(), flight, Departure::default());
        attending.until_the_end().await.map(Arc::unwrap_or_clone)
    }

    /// The same, with someone at the program's streams while it runs.
    pub async fn run_with_console(
        &self,
        who: &Principal,
        request: RunRequest,
        console: Console,
    ) -> Result<Run, EngineError> {
        let phase = console.phase.clone();
        let flight = self.begin(who, request, Some(console), None, phase, None)?;
        let attending = Attending::new(self.shared(), flight, Departure::default());
        attending.until_the_end().await.map(Arc::unwrap_or_clone)
    }

    /// Runs a program and stays for its end as long as `attendance` says; then it goes on as a job.
    ///
    /// A caller that hung up, and sends the same request again, gets the answer of the run that it began.
    pub async fn attend(
        &self,
        who: &Principal,
        request: RunRequest,
        attendance: Attendance,
    ) -> Result<Answer, EngineError> {
        let shared = self.shared();
        let stays = match attendance.stays {
            Stays::Away(away) => {
                let flight = self.begin(who, request, None, Some(away), attendance.phase, attendance.occasion)?;
                return Ok(Answer::Job(jobs::view(&flight, Some(0))?));
            }
            Stays::For(time) => time,
        };
        if let Some(sandbox) = &request.sandbox {
            // One that is gone has no answers either.
            drop(shared.sandboxes.take(who, sandbox).inspect_err(|error| self.refuse(who, &request, error))?);
        }
        let flight = match shared.jobs.adopt_soon(who, &request).await {
            Some(flight) => flight,
            None => self.begin(who, request, None, None, attendance.phase, attendance.occasion)?,
        };
        if let Some(listener) = attendance.listener {
            flight.log().overhear(flight.id.clone(), listener);
        }
        let mut attending = Attending::new(shared, flight, attendance.departure);
        match attending.stay(stays, attendance.leave.as_ref()).await {
            Some(finished) => {
                attending.is_answered();
                Ok(Answer::Finished(finished?))
            }
            // With too many jobs, or sandboxes where it has one to itself, there is no place to come back to, so it is
            // waited for after all.
            None if shared.make_job(&attending.flight).is_err() => {
                Ok(Answer::Finished(attending.until_the_end().await?))
            }
            None => {
                attending.is_answered();
                match attending.flight.outcome() {
                    // It came to its end in the same moment.
                    Some(finished) => Ok(Answer::Finished(finished?)),
                    None => Ok(Answer::Job(jobs::view(&attending.flight, Some(0))?)),
                }
            }
        }
    }

    /// Comes back to a run that was left, and stays for its end as before. It is a job already, and is still one after a
    /// caller that hangs up; one that cancels ends it.
    pub async fn rejoin(&self, who: &Principal, id: &str, attendance: Attendance) -> Result<Answer, EngineError> {
        let flight = self.shared().jobs.find(who, id)?;
        let stays = match attendance.stays {
            Stays::For(time) => time,
            Stays::Away(_) => Duration::ZERO,
        };
        let mut attending = Attending::again(self.shared(), flight, attendance.departure);
        let finished = attending.stay(stays, attendance.leave.as_ref()).await;
        attending.is_answered();
        match finished {
            Some(finished) => Ok(Answer::Finished(finished?)),
            None => Ok(Answer::Job(jobs::view(&attending.flight, Some(0))?)),
        }
    }

    /// Does something with a job of the caller's, and says how it stands. Without an offset its output goes on where the
    /// last look ended.
    pub async fn job(
        &self,
        who: &Principal,
        id: &str,
        action: JobAction,
        offset: Option<u64>,
    ) -> Result<JobView, EngineError> {
        let flight = self.shared().jobs.find(who, id)?;
        match action {
            JobAction::Poll => {}
            JobAction::Wait(time) => drop(timeout(time, flight.finished()).await),
            JobAction::Signal(signal) => flight.signal(signal),
            JobAction::Stdin { bytes, then } => {
                if bytes.len() > check::STDIN_BYTES_MAX {
                    return Err(EngineError::StdinTooLong { max_bytes: check::STDIN_BYTES_MAX });
                }
                let ended = flight.outcome().is_some();
                match flight.input() {
                    // A program that has just ended takes everything.
                    Some(input) => match timeout(STDIN_WAIT, input.send(bytes)).await {
                        Ok(_) => {}
                        Err(_) => return Err(EngineError::StdinNotTaken),
                    },
                    None if ended => {}
                    None => return Err(EngineError::NoLiveStdin),
                }
                if then == StdinThen::End {
                    flight.end_input();
                }
            }
        }
        jobs::view(&flight, offset)
    }

    /// The caller's jobs, oldest first, without their output.
    pub fn jobs(&self, who: &Principal) -> Vec<JobView> {
        let views = self.shared().jobs.list(who).into_iter().map(|flight| jobs::summary(&flight));
        views.collect()
    }

    /// Starts a run, as a task of the engine's.
    fn begin(
        &self,
        who: &Principal,
        request: RunRequest,
        console: Option<Console>,
        away: Option<Away>,
        phase: Phase,
        occasion: Option<u64>,
    ) -> Result<Arc<Flight>, EngineError> {
        let shared = self.shared();
        let (entered, mut used) =
            self.may_begin(who, &request).inspect_err(|error| self.refuse(who, &request, error))?;
        if let Some(used) = &mut used {
            used.is_for_run();
            if away == Some(Away::LetsSandboxExpire) {
                used.rest();
            }
        }
        let sandbox = used.as_ref().map(|used| used.named.id.clone());
        if let Some(sandbox) = &sandbox {
            shared.jobs.outdate(sandbox.as_str());
        }
        let cancel = shared.stop.child_token();
        let mut program = request.program.clone();
        if let Source::Cell { then, .. } = &mut program.source {
            *then = if used.is_some() { Then::More } else { Then::End };
        }
        let (flight, mut controls) =
            Flight::new(RunId::random()?, who.clone(), request, sandbox, phase, occasion, cancel);
        if away.is_some() {
            shared.make_job(&flight).inspect_err(|error| self.refuse(who, &flight.request, error))?;
        }
        shared.tell(&Event::RunAsked { owner: who, run: &flight.id });
        let watcher = console.map(|console| {
            controls.input = Some(console.input);
            console.output
        });
        let kind = if away.is_some() { Kind::Job } else { Kind::Attended };
        let task = Carried { shared: shared.clone(), flight: flight.clone(), program, controls, watcher, kind };
        // Boxed: it is large, and would be moved on its way into the task.
        shared.tasks.spawn(Box::pin(task.until_its_end(used, entered)));
        Ok(flight)
    }

    /// Tells those who watch of a program that was not run, for a reason that whoever asks the engine has.
    pub fn was_refused(&self, who: &Principal, source: &Source, why: &Refusal) {
        self.shared().tell_refused(who, source, None, why);
    }

    fn refuse(&self, who: &Principal, request: &RunRequest, error: &EngineError) {
        let (source, sandbox) = (&request.program.source, request.sandbox.as_deref());
        self.shared().tell_refused(who, source, sandbox, &Refusal::from(error));
    }

    /// Whether a run may be asked for, and in which sandbox that stands.
    fn may_begin(&self, who: &Principal, request: &RunRequest) -> Result<(Entered, Option<InUse>), EngineError> {
        let shared = self.shared();
        let entered = shared.enter()?;
        shared.books.came(who);
        shared.can_record()?;
        check::program(&request.program, shared.settings.wall_max)?;
        check::packages(&request.wants.packages)?;
        if !request.wants.packages.is_empty() && shared.provisions.is_none() {
            return Err(EngineError::NoPackages);
        }
        if request.sandbox.is_some() && !request.wants.network.is_empty() {
            return Err(EngineError::NetworkIsSet);
        }
        let granted = network::grant(&request.wants.network, &shared.settings.network)?;
        let used = request.sandbox.as_deref().map(|sandbox| shared.sandboxes.take(who, sandbox)).transpose()?;
        if used.as_ref().is_none_or(|used| used.named.shelf.ground().is_own()) {
            check::language(&request.program.source, &shared.languages, &shared.missing)?;
        }
        shared.books.may_run(who)?;
        shared.admission.check(who, shared.books.quota(who).runs)?;
        if used.as_ref().map_or(granted.network != Network::None, |used| used.named.has_network) {
            shared.books.may_move(who)?;
        }
        Ok((entered, used))
    }

    /// Ends a sandbox and the programs in it; returns when nothing of it is left.
    pub async fn destroy(&self, who: &Principal, id: &str) -> Result<(), EngineError> {
        let _entered = self.shared().enter()?;
        self.end(who, id).await
    }

    async fn end(&self, who: &Principal, id: &str) -> Result<(), EngineError> {
        let gone = self.shared().sandboxes.destroy(who, id)?;
        tracing::info!(sandbox = id, owner = who.as_str(), "a sandbox was destroyed");
        joined(gone).await
    }

    /// The caller's own, oldest first.
    pub fn sandboxes(&self, who: &Principal) -> Vec<SandboxInfo> {
        self.shared().sandboxes.list(who)
    }

    /// A recent run of the caller's, if there was more to it than an answer shows, and it is not forgotten yet.
    pub fn kept(&self, who: &Principal, run: &str) -> Option<Arc<Run>> {
        self.shared().outputs.get(who, run)
    }

    /// What happens from now on to all sandboxes, of whoever they are.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.shared().news.subscribe()
    }

    /// All that stands and runs at the moment, of whoever it is: for the operator.
    pub fn overview(&self) -> Overview {
        overview::of(self.shared())
    }

    /// What a run has printed, of whoever it is; or, of a sandbox, its latest. For the operator.
    pub fn look_at(&self, id: &str) -> Option<Printed> {
        overview::printed(self.shared(), id)
    }

    /// Ends a run or a sandbox, of whoever it is, at the operator's word; `false` when there is none of that id. Of a sandbox
    /// nothing is left on return. While the server drains, too: that waits for just what he may want ended.
    pub async fn kill(&self, id: &str) -> Result<bool, EngineError> {
        if let Some(owner) = self.shared().sandboxes.owner(id) {
            let _task = self.shared().tasks.token();
            return match self.end(&owner, id).await {
                Ok(()) => Ok(true),
                // It went by itself in the same moment.
                Err(EngineError::UnknownSandbox | EngineError::SandboxGone { .. }) => Ok(false),
                Err(error) => Err(error),
            };
        }
        let flight = self.shared().jobs.under_way().into_iter().find(|flight| flight.id.as_str() == id);
        let Some(flight) = flight.filter(|flight| flight.outcome().is_none()) else { return Ok(false) };
        tracing::info!(run = id, owner = flight.owner.as_str(), "a run is ended by the operator");
        flight.cancel.cancel();
        Ok(true)
    }

    /// What is prepared for callers to come.
    pub fn prepared(&self) -> Vec<PoolInfo> {
        self.shared().lessor.prepared()
    }

    /// How many wait for their turn.
    pub fn waiting(&self) -> usize {
        self.shared().admission.waiting()
    }

    /// The names that [`CreateRequest::template`] may have.
    pub fn templates(&self) -> Vec<String> {
        self.shared().templates.iter().map(|template| template.name.clone()).collect()
    }

    /// Another quota for everyone who has none of its own, from now on.
    pub fn change_quota(&self, everyone: Quota) {
        self.shared().books.change(everyone);
    }

    /// What holds for a principal: its own word, and where it has none, everyone's.
    pub fn quota(&self, who: &Principal) -> Quota {
        self.shared().books.quota(who)
    }

    /// Takes no new work from here on, and returns when all that was taken has come to its end, jobs too, or `at_most`
    /// is over; then whether it has. [`Engine::shutdown`] makes an end of the rest.
    pub async fn drain(&self, at_most: Duration) -> bool {
        let shared = self.shared();
        shared.draining.cancel();
        shared.work.close();
        timeout(at_most, shared.work.wait()).await.is_ok()
    }

    /// Is cancelled when no new work is taken any more.
    pub fn draining(&self) -> CancellationToken {
        self.shared().draining.child_token()
    }

    /// Is cancelled when what still runs is stopped.
    pub fn stopping(&self) -> CancellationToken {
        self.shared().stop.child_token()
    }

    /// Takes no new work, stops what runs, closes all sandboxes; returns when nothing is left.
    pub async fn shutdown(&self) {
        let shared = self.shared();
        shared.stop.cancel(); // each task sees it; the one that watches expiry closes the sandboxes
        shared.tasks.ended().await;
        if let Some(provisions) = &shared.provisions {
            provisions.packages.end().await;
        }
        for observer in shared.observers.iter() {
            observer.end();
        }
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
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
