//! A run carried out: the place for it, its turn, the program itself, and what it came to.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{
    BackendError, Calls, Changes, Ending, Ground, Isolation, Limits, Program, Range, Report, Sandbox, Source, Spec,
    State, Stream, Usage,
};
use belljar_packages::InstallError;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::admission::Turn;
use crate::desks::{Desks, Place};
use crate::effort::{Effort, Meter};
use crate::flight::{Controls, Flight};
use crate::kernels::{Kind, Seat};
use crate::lease::Lease;
use crate::network::{self, Granted};
use crate::provision::{NotProvided, Shelf};
use crate::rich::Told;
use crate::run::{self, At, NotStarted, Orders, Outcome, Reach};
use crate::sandboxes::InUse;
use crate::shared::{Entered, Shared};
use crate::traffic::{Toll, Traffic};
use crate::{
    EngineError, Event, Failure, Installation, LeftFile, Lost, Refusal, Run, SandboxId, Wish, limits, questions,
};

/// What is kept of the files that a throw-away sandbox leaves.
const LEFT_FILES_MAX: usize = 20;
const LEFT_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;
const LEFT_BYTES_MAX: u64 = 8 * 1024 * 1024;
const LEFT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Carried {
    pub(crate) shared: Arc<Shared>,
    pub(crate) flight: Arc<Flight>,
    pub(crate) program: Program,
    pub(crate) controls: Controls,
    pub(crate) watcher: Option<mpsc::UnboundedSender<(Stream, Vec<u8>)>>,
    pub(crate) kind: Kind,
}

/// Sees to it that whoever waits for a run hears of its end, also if a backend panics.
struct Finishing {
    shared: Arc<Shared>,
    flight: Arc<Flight>,
}

impl Drop for Finishing {
    fn drop(&mut self) {
        let Finishing { shared, flight } = self;
        flight.release();
        if flight.outcome().is_none() {
            tracing::error!(run = %flight.id, "a run panicked");
            let error = BackendError::Setup { step: "task".into(), why: "it panicked".into() };
            let error = EngineError::Backend(error);
            tell_end(shared, flight, Err(&error));
            flight.finish(Err(error));
        }
    }
}

impl Carried {
    /// In the sandbox that is given, or in one for this program alone.
    pub(crate) async fn until_its_end(self, used: Option<InUse>, entered: Entered) {
        let (shared, flight) = (self.shared.clone(), self.flight.clone());
        let finishing = Finishing { shared: shared.clone(), flight: flight.clone() };
        let mut lease = None;
        let outcome = match used {
            None => self.in_throw_away(&mut lease).await,
            Some(used) => self.in_created(used).await,
        };
        let outcome = outcome.map(Arc::new);
        if let Ok(run) = &outcome {
            tracing::debug!(run = %run.id, sandbox = ?run.sandbox, ending = ?run.report.ending,
                state = ?run.report.state, duration = ?run.report.duration, "a program ended");
            shared.outputs.keep(&flight.owner, run);
            if let Some(sandbox) = &run.sandbox {
                shared.news.tell_changes(&flight.owner, sandbox, &run.changes);
            }
        }
        tell_end(&shared, &flight, outcome.as_deref());
        flight.finish(outcome);
        if flight.is_job() {
            shared.jobs.forget();
        }
        match &mut lease {
            Some(lease) => lease.hold(flight.leave_slot()),
            None => drop(flight.leave_slot()),
        }
        drop((finishing, entered));
        // Last: closing the sandbox is no concern of the caller's, who has the answer by now.
        drop(lease);
    }

    /// Leaves the lease behind, so that it ends after the run.
    async fn in_throw_away(self, lease: &mut Option<Lease>) -> Result<Run, EngineError> {
        let Carried { shared, flight, program, controls, watcher, .. } = self;
        let orders = Orders { cancel: flight.cancel.child_token(), closing: CancellationToken::new() };
        let limits = limits::grant(&Wish::default(), &shared.settings.ceiling)?;
        let waiting = match &program.source {
            Source::Cell { language, .. } => language.kernel(),
            Source::Code { .. } | Source::Command(_) => None,
        };
        let granted = network::grant(&flight.request.wants.network, &shared.settings.network)?;
        let mut shelf = Shelf::new(&flight.owner, &Ground::default(), Vec::new());
        let provided = tokio::select! {
            biased;
            refusal = orders.refusal() => return Err(refusal),
            provided = provide_ahead(&shared, &flight, &program, &mut shelf) => provided,
        };
        let installed = match provided {
            Ok(installed) => installed,
            Err(NotProvided::Refused(error)) => return Err(error),
            Err(NotProvided::Failed { error }) => {
                return Ok(not_installed(&flight, &error, State::Fresh, shared.lessor.no_isolation(), limits));
            }
        };
        let Granted { network, env } = granted;
        let files = tokio::select! {
            biased;
            refusal = orders.refusal() => return Err(refusal),
            files = shared.files(&flight.owner) => files,
        };
        let (layers, owner) = ([shelf.layers(), files].concat(), shelf.owner(shared.provisions.as_ref()));
        let ground = shelf.ground().clone();
        let spec = Spec { limits, waiting, network, env, ground, layers, owner, ..Spec::default() };
        let ready = async {
            flight.hold(turn(&shared, &flight, None).await?);
            let hold = shared.books.hold_memory(&flight.owner, limits.memory_bytes)?;
            Ok((hold, shared.lessor.lease(&spec).await?))
        };
        // Dropping the lease, here or at the end, closes the sandbox behind the caller's back.
        let (_hold, opened) = tokio::select! {
            biased;
            refusal = orders.refusal() => return Err(refusal),
            ready = ready => ready?,
        };
        let lease = lease.insert(opened);
        let sandbox = lease.sandbox()?;
        let isolation = sandbox.isolation().clone();
        let (desks, place) = (Desks::default(), place(&shared, &flight));
        let at = At { sandbox, limits: &limits, desks: &desks, place: place.as_ref() };
        let (toll, meter) = (Toll::default(), Meter::default());
        let traffic = Traffic::new(sandbox, &toll, &shared.books, &flight.owner);
        let effort = Effort::new(sandbox, &meter, &limits, &shared.books, &flight.owner);
        tell_beginning(&shared, &flight);
        let running = run::run(at, program, &flight, controls, watcher, &orders);
        let outcome = tokio::select! {
            outcome = running => outcome,
            never = traffic.watch(&orders.cancel) => match never {},
            never = effort.watch(&orders.cancel, &traffic.stopped) => match never {},
            () = always(questions::answer_all(sandbox, &shared, &shelf, &desks)) => return Err(EngineError::Lost),
        };
        let calls = made(place.as_ref());
        let outcome = bill(&flight, &traffic, effort, outcome).map_err(|NotStarted { error, .. }| error)?;
        // Nobody was promised that anything of it would remain, so only the place itself can be lost.
        let (state, lost) = match outcome.reach {
            Reach::Answered => (State::Fresh, None),
            Reach::Silent => (State::Lost, Some(Lost::Sandbox)),
        };
        let left = if lost.is_none() { left_files(sandbox, &outcome.changes).await } else { Vec::new() };
        let (refused, reached) = (sandbox.refused(), sandbox.reached());
        Ok(Run { left, lost, installed, refused, reached, calls, ..told(&flight, outcome, state, isolation, limits) })
    }

    async fn in_created(self, used: InUse) -> Result<Run, EngineError> {
        let Carried { shared, flight, program, controls, watcher, kind } = self;
        let orders = Orders { cancel: flight.cancel.child_token(), closing: used.named.closing.clone() };
        let language = match &program.source {
            Source::Cell { language, .. } => Some(*language),
            _ => None,
        };
        let ready = async {
            let kernel = match language {
                Some(language) => used.named.kernels.seat(language, &flight.id, kind).await?,
                None => None,
            };
            // At once: who comes meanwhile is told what the kernel is about to do.
            if let Some(kernel) = &kernel {
                flight.sits_in(kernel.marker());
            }
            let provided = provide_into(&shared, &flight, &program, &used).await;
            if provided.is_ok() {
                flight.hold(turn(&shared, &flight, Some(&used.named.seats)).await?);
            }
            Ok((kernel, provided))
        };
        let (mut kernel, provided): (Option<Seat>, _) = tokio::select! {
            biased;
            refusal = orders.refusal() => return Err(refusal),
            ready = ready => ready?,
        };
        let installed = match provided {
            Ok(installed) => installed,
            Err(NotProvided::Refused(error)) => return Err(error),
            Err(NotProvided::Failed { error }) => {
                let (isolation, limits) = (used.named.isolation.clone(), used.named.limits);
                let run = not_installed(&flight, &error, State::Preserved, isolation, limits);
                return Ok(Run { expires_in: Some(used.expires_in()), ..run });
            }
        };
        let mut used = used;
        let before = used.count_run();
        used.doubt(); // stays so if the program is out of reach or the backend panics
        let limits = used.named.limits;
        show_files(&shared, &flight, &used).await;
        let place = place(&shared, &flight);
        let desks = &used.named.desks;
        let at = At { sandbox: used.sandbox(), limits: &limits, desks, place: place.as_ref() };
        tell_beginning(&shared, &flight);
        let traffic = Traffic::new(used.sandbox(), &used.named.toll, &shared.books, &flight.owner);
        let effort = Effort::new(used.sandbox(), &used.named.meter, &limits, &shared.books, &flight.owner);
        let outcome = tokio::select! {
            outcome = run::run(at, program, &flight, controls, watcher, &orders) => outcome,
            never = traffic.watch(&orders.cancel) => match never {},
            never = effort.watch(&orders.cancel, &traffic.stopped) => match never {},
        };
        let outcome = bill(&flight, &traffic, effort, outcome);
        let calls = made(place.as_ref());
        let reach = match &outcome {
            Ok(outcome) => outcome.reach,
            Err(not_started) => not_started.reach,
        };
        let ends = shared.stop.is_cancelled() || orders.closing.is_cancelled();
        let stands = reach == Reach::Answered && !ends && used.sandbox().is_alive();
        if stands {
            used.trust();
        }
        let outcome = outcome.map_err(|NotStarted { error, .. }| {
            used.uncount_run();
            error
        })?;
        if let (Some(kernel), Some(names)) = (&mut kernel, &outcome.told.names) {
            (*kernel.names).clone_from(names);
        }
        let state = if stands { outcome.kernel.unwrap_or(before) } else { State::Lost };
        let lost = match (stands, outcome.kernel, language, &mut kernel) {
            (false, ..) => Some(Lost::Sandbox),
            (true, Some(State::Lost), Some(language), Some(kernel)) => {
                Some(Lost::Kernel { language, names: std::mem::take(&mut *kernel.names) })
            }
            _ => None,
        };
        let expires_in = stands.then(|| used.expires_in());
        let isolation = used.named.isolation.clone();
        let (refused, reached) = (used.sandbox().refused(), used.sandbox().reached());
        let run = Run {
            lost,
            expires_in,
            installed,
            refused,
            reached,
            calls,
            ..told(&flight, outcome, state, isolation, limits)
        };
        // Before the seat is free: nobody gets one in a sandbox that is in doubt.
        drop(used);
        Ok(run)
    }
}

fn tell_beginning(shared: &Shared, flight: &Flight) {
    flight.begins();
    shared.tell(&Event::RunBegan {
        owner: &flight.owner,
        run: &flight.id,
        sandbox: flight.sandbox.as_ref(),
        program: &flight.request.program,
        waited: flight.begun.elapsed(),
    });
}

/// One that never began was refused, whatever kept it from beginning.
fn tell_end(shared: &Shared, flight: &Flight, outcome: Result<&Run, &EngineError>) {
    if !flight.has_begun() {
        let why = match outcome {
            Ok(run) => Refusal {
                kind: run.report.ending.name(),
                words: run.rich.error.as_ref().map(|error| error.value.clone()).unwrap_or_default(),
            },
            Err(_) if flight.cancel.is_cancelled() && !shared.stop.is_cancelled() => {
                Refusal { kind: "cancelled", words: "its caller gave it up".to_owned() }
            }
            Err(error) => Refusal::from(error),
        };
        shared.tell(&Event::RunRefused {
            owner: &flight.owner,
            run: &flight.id,
            sandbox: flight.sandbox.as_ref().map(SandboxId::as_str),
            source: &flight.request.program.source,
            why: &why,
        });
    } else {
        shared.tell(&Event::RunEnded {
            owner: &flight.owner,
            run: &flight.id,
            program: &flight.request.program,
            sandbox: flight.sandbox.as_ref(),
            outcome,
            network_bytes: flight.network_bytes(),
        });
    }
}

/// What a sandbox that is to be opened needs; nothing where no packages are installed.
async fn provide_ahead(
    shared: &Shared,
    flight: &Flight,
    program: &Program,
    shelf: &mut Shelf,
) -> Result<Option<Installation>, NotProvided> {
    let Some(provisions) = &shared.provisions else { return Ok(None) };
    let (wants, interpreters) = (&flight.request.wants, &shared.interpreters);
    provisions.ahead(&program.source, wants, shelf, interpreters, &flight.phase).await
}

/// What is missing in one that stands.
async fn provide_into(
    shared: &Shared,
    flight: &Flight,
    program: &Program,
    used: &InUse,
) -> Result<Option<Installation>, NotProvided> {
    let Some(provisions) = &shared.provisions else { return Ok(None) };
    let (wants, shelf) = (&flight.request.wants, &used.named.shelf);
    provisions.into(used.sandbox(), &program.source, wants, shelf, &flight.phase).await
}

/// Its turn, among its owner's others and everybody else's.
async fn turn(shared: &Shared, flight: &Flight, seats: Option<&Arc<Semaphore>>) -> Result<Turn, EngineError> {
    let runs_max = shared.books.quota(&flight.owner).runs;
    shared.admission.turn(&flight.owner, runs_max, seats, &flight.phase).await
}

/// Charges its owner for a run, and says in its outcome if it was stopped for what it cost.
fn bill(
    flight: &Flight,
    traffic: &Traffic<'_>,
    effort: Effort<'_>,
    outcome: Result<Outcome, NotStarted>,
) -> Result<Outcome, NotStarted> {
    traffic.charge();
    flight.moved(traffic.since_it_began());
    effort.charge(match &outcome {
        Ok(Outcome { reach: Reach::Silent, .. }) => None,
        Ok(Outcome { usage, .. }) => Some(Duration::from_millis(usage.cpu_ms)),
        Err(_) => Some(Duration::ZERO),
    });
    let mut outcome = outcome?;
    if let Some(over) = traffic.stopped.get() {
        let value = format!("the program was stopped: {over}");
        let traceback = format!("QuotaError: {value}");
        outcome.told.rich.error = Some(Failure { name: "QuotaError".into(), value, traceback });
    }
    Ok(outcome)
}

/// Where this run's calls are answered.
fn place(shared: &Shared, flight: &Flight) -> Option<Arc<Place>> {
    shared.calls.as_ref().map(|calls| Place::begin(&**calls, flight))
}

fn made(place: Option<&Arc<Place>>) -> Calls {
    place.map(|place| place.calls()).unwrap_or_default()
}

/// What there is to call may be something else since the sandbox was made, and it is to see that.
async fn show_files(shared: &Shared, flight: &Flight, used: &InUse) {
    if shared.calls.is_none() {
        return;
    }
    let now = shared.files(&flight.owner).await;
    let mut shown = used.named.files.lock().await;
    for layer in now {
        if shown.contains(&layer) {
            continue;
        }
        if let Err(error) = used.sandbox().add_layer(&layer).await {
            // It calls what it likes all the same.
            tracing::warn!(%error, "a sandbox does not see what there is to call by now");
            return;
        }
        shown.retain(|other| other.kind != layer.kind);
        shown.push(layer);
    }
}

/// Goes on for ever when its work has come to an end.
async fn always(work: impl Future<Output = ()>) {
    work.await;
    std::future::pending().await
}

/// A run that never began, since its packages could not be had.
fn not_installed(flight: &Flight, error: &InstallError, state: State, isolation: Isolation, limits: Limits) -> Run {
    let value = error.words.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    let traceback = format!("InstallError: {}\n{}", error.words.trim_end(), error.kind.next_step());
    let outcome = Outcome {
        told: Told::failed(Failure { name: "InstallError".into(), value, traceback }),
        changes: Changes::default(),
        ending: Ending::NotInstalled,
        duration: Duration::ZERO,
        usage: Usage::default(),
        kernel: None,
        reach: Reach::Answered,
    };
    told(flight, outcome, state, isolation, limits)
}

fn told(flight: &Flight, outcome: Outcome, state: State, isolation: Isolation, limits: Limits) -> Run {
    let output = flight.output();
    Run {
        id: flight.id.clone(),
        report: Report {
            stdout: output.stdout,
            stderr: output.stderr,
            ending: outcome.ending,
            state,
            duration: outcome.duration,
            usage: outcome.usage,
            isolation,
        },
        rich: outcome.told.rich,
        changes: outcome.changes,
        left: Vec::new(),
        lost: None,
        expires_in: None,
        limits,
        sandbox: flight.sandbox.clone(),
        installed: None,
        refused: Vec::new(),
        reached: Vec::new(),
        calls: Calls::default(),
    }
}

/// Copies of the files that go with a throw-away sandbox, as far as they are few and small.
async fn left_files(sandbox: &dyn Sandbox, changes: &Changes) -> Vec<LeftFile> {
    let mut left = Vec::new();
    let mut room = LEFT_BYTES_MAX;
    let read_all = async {
        for entry in changes.entries.iter().take(LEFT_FILES_MAX) {
            let length = LEFT_FILE_BYTES_MAX.min(room);
            if entry.metadata.size > length {
                continue;
            }
            match sandbox.read(&entry.path, Range { offset: 0, length }).await {
                Ok(content) if content.size <= length => {
                    room -= content.bytes.len() as u64;
                    left.push(LeftFile { path: entry.path.clone(), bytes: content.bytes });
                }
                // Grown or gone since it was listed.
                Ok(_) | Err(BackendError::File(_)) => {}
                Err(_) => return,
            }
        }
    };
    // What was read by then is kept.
    let _ = timeout(LEFT_MAX, read_all).await;
    left
}
