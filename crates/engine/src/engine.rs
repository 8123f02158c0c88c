//! The engine's door: each call is checked, finds its sandbox, and is carried out by a task of the engine's own.
//!
//! Why tasks: a caller may drop its call at any moment. Dropping only gives an order ([`Orders`]); the task that knows
//! what is alive where always comes to its own end, so that nothing is half done between two awaits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{
    Backend, BackendError, Content, FileError, FileErrorKind, Ground, Language, Listing, Network, Range, Source, Spec,
    Then,
};
use tokio::sync::broadcast;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::admission::Admission;
use crate::carry::Carried;
use crate::flight::Flight;
use crate::jobs::Jobs;
use crate::kernels::Kind;
use crate::lease::{self, Lessor};
use crate::news::{News, Newsroom};
use crate::outputs::Outputs;
use crate::provision::{NotProvided, Shelf};
use crate::quota::Books;
use crate::sandboxes::{self, Arrival, InUse, Sandboxes};
use crate::shared::{Entered, Shared};
use crate::teardown::{Tasks, Teardowns};
use crate::tenure::Tenure;
use crate::{
    Answer, Attendance, Away, Console, CreateRequest, Departure, EngineError, Event, JobAction, JobView, Observer,
    Outside, Phase, PoolInfo, Principal, Quota, Refusal, Run, RunId, RunRequest, SandboxId, SandboxInfo, Settings,
    Stays, StdinThen, Wants, Wish,
};
use crate::{Overview, Printed, check, jobs, limits, network, overview, questions, templates, traffic};

/// The most that one [`Engine::read`] returns, whatever its range says.
pub const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The most entries that one [`Engine::list`] returns.
pub const LIST_ENTRIES_MAX: u32 = 10_000;

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
            jobs: Jobs::default(),
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
                if let Err(refused) = shared.jobs.add(&flight) {
                    flight.cancel.cancel();
                    self.refuse(who, &flight.request, &refused);
                    return Err(refused);
                }
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
            // With too many jobs there is no place to come back to, so it is waited for after all.
            None if shared.jobs.add(&attending.flight).is_err() => {
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
        if let (Some(used), Some(Away::LetsSandboxExpire)) = (&mut used, away) {
            used.rest();
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

    pub async fn create(&self, who: &Principal, request: CreateRequest) -> Result<SandboxInfo, EngineError> {
        let created = self.try_create(who, request).await;
        created.inspect_err(|error| {
            self.shared().tell(&Event::SandboxRefused { owner: who, why: &Refusal::from(error) });
        })
    }

    async fn try_create(&self, who: &Principal, request: CreateRequest) -> Result<SandboxInfo, EngineError> {
        let shared = self.shared();
        let _entered = shared.enter()?;
        shared.can_record()?;
        let template = shared.template(request.template.as_deref())?;
        let limits = limits::grant(&request.wish.over(&template.wish), &shared.settings.ceiling)?;
        let age_max = shared.sandboxes.tenure().age_max;
        if request.idle.is_some_and(|idle| idle > age_max) {
            return Err(EngineError::LimitTooHigh { name: "timeout", max: format!("{} seconds", age_max.as_secs()) });
        }
        check::env(&request.env)?;
        check::packages(&request.wants.packages)?;
        let wished = if request.wants.network.is_empty() { &template.network } else { &request.wants.network };
        let granted = network::grant(wished, &shared.settings.network)?;
        let has_network = granted.network != Network::None;
        if has_network {
            shared.books.may_move(who)?;
        }
        let id = SandboxId::random()?;
        let hold = shared.books.hold_sandbox(who, limits.memory_bytes)?;
        let slot = shared.sandboxes.slot().await?;
        let env = over(granted.env, over(template.env, request.env));
        let waiting = templates::kernel(&template.ground, &shared.interpreters, &shared.languages);
        let packages = [template.packages, request.wants.packages].concat();
        let shelf = self.furnish(who, &template.ground, packages).await?;
        let files = shared.files(who).await;
        let layers = [shelf.layers(), files.clone()].concat();
        let (network, ground) = (granted.network, template.ground);
        let owner = shelf.owner(shared.provisions.as_ref());
        let spec = Spec { limits, env, network, ground, layers, owner, waiting, ..Spec::default() };
        let opening = Instant::now();
        let sandbox = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
            opened = shared.lessor.open(&spec) => opened?,
        };
        let arrival = Arrival { id, limits, idle: request.idle, sandbox, shelf, files, slot, hold, has_network };
        // Before anybody can close it: its end is told after its beginning.
        shared.tell(&Event::SandboxOpened {
            owner: who,
            sandbox: &arrival.id,
            template: request.template.as_deref(),
            limits: &arrival.limits,
            isolation: arrival.sandbox.isolation(),
            took: opening.elapsed(),
        });
        let info = shared.sandboxes.add(who, arrival)?;
        self.answer_questions(who, &info.id);
        tracing::info!(sandbox = %info.id, owner = who.as_str(), "a sandbox was created");
        Ok(info)
    }

    /// What a created sandbox has of packages: those it was asked for, or what most ask for, if that is there.
    async fn furnish(&self, who: &Principal, ground: &Ground, packages: Vec<String>) -> Result<Shelf, EngineError> {
        let shared = self.shared();
        let Some(provisions) = &shared.provisions else {
            return if packages.is_empty() {
                Ok(Shelf::new(who, ground, Vec::new()))
            } else {
                Err(EngineError::NoPackages)
            };
        };
        provisions.packages.look_for_base(ground).await;
        let base = provisions.packages.base(ground);
        let mut shelf = Shelf::new(who, ground, base.into_iter().collect());
        if !packages.is_empty() {
            let wants = Wants { packages, network: Vec::new() };
            // Without a program there is nothing to infer from, and the shell's packages are Python's.
            let (nothing, phase) = (Source::Command(String::new()), Phase::default());
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
                provided = provisions.ahead(&nothing, &wants, &mut shelf, &[], &phase) => match provided {
                    Ok(_) => {}
                    Err(NotProvided::Refused(error)) => return Err(error),
                    Err(NotProvided::Failed { error }) => {
                        return Err(EngineError::NotInstalled { next_step: error.kind.next_step(), words: error.words });
                    }
                },
            }
        }
        Ok(shelf)
    }

    /// As long as the sandbox stands.
    fn answer_questions(&self, who: &Principal, id: &SandboxId) {
        let shared = self.shared().clone();
        let Ok(mut used) = shared.sandboxes.take(who, id.as_str()) else { return };
        used.rest();
        self.shared().tasks.spawn(async move {
            let closing = used.named.closing.clone();
            tokio::select! {
                () = closing.cancelled() => {}
                () = questions::answer_all(used.sandbox(), &shared, &used.named.shelf, &used.named.desks) => {}
                never = traffic::watch_created(&used, &shared) => match never {},
            }
        });
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
        self.shared().jobs.outdate(id);
        self.with_files(who, id, |shared, used| async move {
            if bytes.len() as u64 > used.named.limits.disk_bytes {
                return Err(EngineError::Backend(BackendError::File(FileError { kind: FileErrorKind::NoSpace, path })));
            }
            let answer = shared.file_answer(&used, used.sandbox().write(&path, bytes)).await;
            if answer.is_ok() {
                shared.news.tell_written(&used.named.owner, &used.named.id, &path);
            }
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
    /// nothing is left on return.
    pub async fn kill(&self, id: &str) -> Result<bool, EngineError> {
        if let Some(owner) = self.shared().sandboxes.owner(id) {
            return match self.destroy(&owner, id).await {
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
        let operation = operation(shared.clone(), used);
        let task = async move {
            let answer = operation.await;
            drop(entered);
            answer
        };
        joined(AbortOnDropHandle::new(shared.tasks.spawn(task))).await
    }
}

/// A caller that waits for a run. Leaving before the end cancels the run, unless it hung up and may come back.
struct Attending {
    shared: Arc<Shared>,
    flight: Arc<Flight>,
    departure: Departure,
    answered: bool,
    /// Whether it is a job already, to which a caller came back.
    again: bool,
}

impl Attending {
    fn new(shared: &Arc<Shared>, flight: Arc<Flight>, departure: Departure) -> Attending {
        shared.jobs.attend(&flight);
        Attending { shared: shared.clone(), flight, departure, answered: false, again: false }
    }

    fn again(shared: &Arc<Shared>, flight: Arc<Flight>, departure: Departure) -> Attending {
        Attending { shared: shared.clone(), flight, departure, answered: false, again: true }
    }

    /// The end of the run; `None` if that does not come in time, or the caller wants to leave before it.
    async fn stay(&self, time: Duration, leave: Option<&CancellationToken>) -> Option<Result<Arc<Run>, EngineError>> {
        let leaves = async {
            match leave {
                Some(leave) => leave.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            finished = self.flight.finished() => Some(finished),
            () = leaves => None,
            () = tokio::time::sleep(time) => None,
        }
    }

    async fn until_the_end(mut self) -> Result<Arc<Run>, EngineError> {
        let finished = self.flight.finished().await;
        self.is_answered();
        finished
    }

    fn is_answered(&mut self) {
        self.answered = true;
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let shared = &self.shared;
        if self.again {
            if !self.answered && !self.departure.is_hang_up() {
                self.flight.cancel.cancel();
            }
            return;
        }
        if self.answered {
            shared.jobs.leave(&self.flight);
            return;
        }
        // In this order, so that whoever looks finds it in one of the two places.
        let orphaned = self.departure.is_hang_up() && !shared.stop.is_cancelled() && shared.jobs.orphan(&self.flight);
        shared.jobs.leave(&self.flight);
        if orphaned {
            let (shared, flight, departure) = (shared.clone(), self.flight.clone(), self.departure.clone());
            let mourning = async move { shared.jobs.mourn(flight, departure, shared.stop.clone()).await };
            self.shared.tasks.spawn(mourning);
        } else {
            self.flight.cancel.cancel();
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

/// Variables, of which the second list's go before the first's.
fn over(base: Vec<(String, String)>, own: Vec<(String, String)>) -> Vec<(String, String)> {
    let kept = base.into_iter().filter(|(name, _)| !own.iter().any(|(other, _)| other == name));
    let kept: Vec<_> = kept.collect();
    kept.into_iter().chain(own).collect()
}

fn checked(path: &str) -> Result<String, EngineError> {
    check::path(path).map_err(|error| EngineError::Backend(BackendError::File(error)))?;
    Ok(path.to_owned())
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
