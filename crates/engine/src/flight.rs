//! One run under way, as those see it who wait for it, come back to it, or talk to it.
//!
//! ```text
//!            ┌── attended ──▶ answered
//! begun ─────┤      │ takes long, or was to be in the background
//!            │      ▼
//!            │     job ─────▶ answered whenever it is asked
//!            └── orphaned: its caller hung up ── the same request comes again ──▶ attended
//!                   └── nobody comes ──▶ cancelled
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use belljar_core::{Source, Stdin};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::Turn;
use crate::kernels::JobMarker;
use crate::log::{Full, Log, Part};
use crate::phase::Phase;
use crate::{EngineError, Principal, Run, RunId, RunRequest, SandboxId};

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: RunId,
    pub(crate) owner: Principal,
    pub(crate) request: RunRequest,
    pub(crate) sandbox: Option<SandboxId>,
    pub(crate) begun: Instant,
    pub(crate) phase: Phase,
    pub(crate) cancel: CancellationToken,
    /// As [`crate::Attendance::occasion`].
    pub(crate) occasion: Option<u64>,
    log: Mutex<Log>,
    standing: Mutex<Standing>,
    signals: mpsc::UnboundedSender<i32>,
    input: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    outcome: Mutex<Option<Result<Arc<Run>, EngineError>>>,
    ended: OnceLock<Ended>,
    finished: CancellationToken,
    /// How much of its output was told to those who ask without saying from where.
    told: AtomicU64,
    times_left: AtomicU64,
    began: AtomicBool,
    network_bytes: AtomicU64,
}

/// When a run had ended, and about how much memory what is known of it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) at: Instant,
    pub(crate) bytes: usize,
}

/// What a run takes of which nothing else is known.
const FLIGHT_BYTES: usize = 4096;

/// What a run holds that a job must not keep from others.
#[derive(Debug, Default)]
struct Standing {
    is_job: bool,
    /// Its output is in its run, and no longer in its log.
    is_told: bool,
    turn: Option<Turn>,
    kernel: Option<JobMarker>,
    /// Of a job that has a throw-away sandbox, the room for that.
    slot: Option<OwnedSemaphorePermit>,
}

/// The other ends of a flight, for the task that carries it out.
#[derive(Debug)]
pub(crate) struct Controls {
    pub(crate) signals: mpsc::UnboundedReceiver<i32>,
    pub(crate) input: Option<mpsc::Receiver<Vec<u8>>>,
}

/// Pieces of live input that may wait for a program.
const INPUT_QUEUE: usize = 16;

impl Flight {
    pub(crate) fn new(
        id: RunId,
        owner: Principal,
        request: RunRequest,
        sandbox: Option<SandboxId>,
        phase: Phase,
        occasion: Option<u64>,
        cancel: CancellationToken,
    ) -> (Arc<Flight>, Controls) {
        let (signals, signalled) = mpsc::unbounded_channel();
        let live = request.program.stdin == Stdin::Live;
        let (writer, reader) = mpsc::channel(INPUT_QUEUE);
        let flight = Arc::new(Flight {
            id,
            owner,
            request,
            sandbox,
            begun: Instant::now(),
            phase,
            cancel,
            occasion,
            log: Mutex::new(Log::new(0)),
            standing: Mutex::default(),
            signals,
            input: Mutex::new(live.then_some(writer)),
            outcome: Mutex::new(None),
            ended: OnceLock::new(),
            finished: CancellationToken::new(),
            told: AtomicU64::new(0),
            times_left: AtomicU64::new(0),
            began: AtomicBool::new(false),
            network_bytes: AtomicU64::new(0),
        });
        (flight, Controls { signals: signalled, input: live.then_some(reader) })
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the run holds into keeping; a job leaves its turn to others at once.
    pub(crate) fn hold(&self, mut turn: Turn) {
        let mut standing = self.standing();
        if standing.is_job {
            turn.leave_to_others();
        }
        standing.turn = Some(turn);
    }

    pub(crate) fn sits_in(&self, kernel: JobMarker) {
        let mut standing = self.standing();
        if standing.is_job {
            kernel.mark(&self.id);
        }
        standing.kernel = Some(kernel);
    }

    /// From here on nobody waits for it: others may have its turn, and its oldest output makes room for the new.
    pub(crate) fn become_job(&self, slot: Option<OwnedSemaphorePermit>) {
        let mut standing = self.standing();
        standing.is_job = true;
        // One that has ended in the same moment leaves its room to nobody any more.
        standing.slot = slot.filter(|_| self.outcome().is_none());
        if let Some(turn) = &mut standing.turn {
            turn.leave_to_others();
        }
        if let Some(kernel) = &standing.kernel {
            kernel.mark(&self.id);
        }
        self.log().when_full(Full::Forgets);
    }

    /// All of its output, at its end. That of a job is asked for again; nobody else comes back for it.
    pub(crate) fn output(&self) -> Part {
        let mut standing = self.standing();
        if standing.is_job {
            return self.log().since(0);
        }
        standing.is_told = true;
        self.log().take_all()
    }

    pub(crate) fn is_job(&self) -> bool {
        self.standing().is_job
    }

    /// Whether its output has left its log, and its end is not told yet.
    pub(crate) fn is_between(&self) -> bool {
        self.standing().is_told && self.outcome().is_none()
    }

    /// Its output from an offset on. One that became a job in the moment of its end has it in its run, all or nothing.
    pub(crate) fn output_since(&self, offset: u64, ended: Option<&Run>) -> Part {
        let is_told = self.standing().is_told;
        let part = self.log().since(offset);
        match ended {
            Some(run) if is_told && offset < part.end => {
                Part { stdout: run.report.stdout.clone(), stderr: run.report.stderr.clone(), missed: 0, end: part.end }
            }
            _ if is_told => Part { missed: 0, ..part },
            _ => part,
        }
    }

    /// The room that it took as a job, for its sandbox to give back. Once it has its outcome, or another comes.
    pub(crate) fn leave_slot(&self) -> Option<OwnedSemaphorePermit> {
        self.standing().slot.take()
    }

    /// Lets go of everything.
    pub(crate) fn release(&self) {
        let mut standing = self.standing();
        standing.turn = None;
        standing.kernel = None;
        standing.slot = None;
    }

    pub(crate) fn finish(&self, outcome: Result<Arc<Run>, EngineError>) {
        let bytes = self.bytes(outcome.as_deref().ok());
        let _ = self.ended.set(Ended { at: Instant::now(), bytes });
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.finished.cancel();
    }

    /// How it ended, once it has.
    pub(crate) fn outcome(&self) -> Option<Result<Arc<Run>, EngineError>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn finished(&self) -> Result<Arc<Run>, EngineError> {
        self.finished.cancelled().await;
        self.outcome().unwrap_or(Err(EngineError::ShuttingDown))
    }

    /// Its program is about to be started.
    pub(crate) fn begins(&self) {
        self.began.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.began.load(Ordering::Relaxed)
    }

    /// What went through its sandbox's network while it ran.
    pub(crate) fn network_bytes(&self) -> u64 {
        self.network_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.network_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn signal(&self, signal: i32) {
        // One that has ended takes no signal, and its end is what the caller is told.
        let _ = self.signals.send(signal);
    }

    /// The way to its standard input; `None` when that was whole from the beginning, or has ended.
    pub(crate) fn input(&self) -> Option<mpsc::Sender<Vec<u8>>> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn end_input(&self) {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// How often a caller has hung up on it.
    pub(crate) fn times_left(&self) -> u64 {
        self.times_left.load(Ordering::Relaxed)
    }

    pub(crate) fn was_left(&self) {
        self.times_left.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` while it is under way.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.get().copied()
    }

    fn bytes(&self, run: Option<&Run>) -> usize {
        let program = &self.request.program;
        let code = match &program.source {
            Source::Code { code, .. } | Source::Cell { code, .. } => code.len(),
            Source::Command(line) => line.len(),
        };
        let env: usize = program.env.iter().map(|(name, value)| name.len() + value.len()).sum();
        let stdin = match &program.stdin {
            Stdin::Whole(bytes) => bytes.len(),
            Stdin::Live => 0,
        };
        FLIGHT_BYTES + code + env + stdin + run.map_or(0, Run::bytes) + self.log().memory()
    }

    /// The offset up to which its output was told, moved on to `end`.
    pub(crate) fn told_up_to(&self, end: u64) -> u64 {
        self.told.swap(end, Ordering::Relaxed)
    }

    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }
}
