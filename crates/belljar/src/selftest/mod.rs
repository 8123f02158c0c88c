//! The walls' self-test: before anybody's program is run, programs of ours try from inside a real sandbox what must not
//! work. If something does, the server refuses to serve.
//!
//! ```text
//! pending ──▶ passed                  sandboxes can be opened
//!    │  ▲
//!    │  └── after a pause, or when ◀┐
//!    │      somebody knocks         │
//!    ├──▶ undone ───────────────────┘ no sandbox could be opened to test, or a probe did not answer
//!    └──▶ fired                       the server ends
//! ```
//!
//! Until it has passed, [`Held`] lets nobody open a sandbox, whichever way they come; the protocol is answered meanwhile.

mod facts;
mod held;
mod probes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::{Backend, BackendError, Limits, Sandbox, Spec};
use belljar_server::Readiness;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::facts::Facts;
pub(crate) use self::held::Held;
use self::probes::Programs;
pub(crate) use self::probes::{State, Verdict};

/// As long as the engine gives a backend to open a sandbox: a container engine may start cold.
const OPEN_MAX: Duration = Duration::from_secs(120);
/// For each program, on the host's own processor; an emulator has as many times longer as it says.
const PROGRAM_MAX: Duration = Duration::from_secs(10);
/// A sandbox that is being opened when the server ends is waited for, and closed: left alone it would leave something.
const LAST_OPENING: Duration = Duration::from_secs(5);
/// Until it is tried again what could not be tested; doubled each time, so that a wall that is missing costs little.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Little, so that it is soon taken.
const MEMORY_BYTES: u64 = 128 << 20;

/// How the test stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Pending,
    Passed,
    Fired(String),
    Undone(String),
}

/// Between the test and those who wait for it.
#[derive(Debug)]
pub(crate) struct Gate {
    standing: watch::Sender<Standing>,
    knocks: Notify,
}

impl Gate {
    pub(crate) fn new() -> Arc<Gate> {
        Arc::new(Gate { standing: watch::Sender::new(Standing::Pending), knocks: Notify::new() })
    }

    /// Where the operator wants no test.
    pub(crate) fn open(&self) {
        self.standing.send_replace(Standing::Passed);
    }
}

/// The test at work. [`SelfTest::end`] must be awaited before the server ends.
#[derive(Debug)]
pub(crate) struct SelfTest {
    gate: Arc<Gate>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl SelfTest {
    /// Inside a runtime. `backend` is the wall itself, without [`Held`].
    pub(crate) fn begin(backend: Arc<dyn Backend>, gate: Arc<Gate>, readiness: Readiness) -> SelfTest {
        SelfTest::begin_with(backend, gate, readiness, real)
    }

    fn begin_with(
        backend: Arc<dyn Backend>,
        gate: Arc<Gate>,
        readiness: Readiness,
        programs: fn(&dyn Backend) -> Result<Made, String>,
    ) -> SelfTest {
        let stop = CancellationToken::new();
        readiness.set_not_ready("the walls are being tested; ask again in a moment");
        let task = tokio::spawn(until_passed(backend, gate.clone(), readiness, stop.clone(), programs));
        SelfTest { gate, stop, task }
    }

    /// Returns when something has worked that must not, and says what. While nothing has, never.
    pub(crate) async fn fired(&self) -> String {
        let mut standing = self.gate.standing.subscribe();
        let fired = standing.wait_for(|standing| matches!(standing, Standing::Fired(_))).await;
        match fired.as_deref() {
            Ok(Standing::Fired(what)) => what.clone(),
            // The gate is held here, so that its sender is never gone.
            _ => std::future::pending().await,
        }
    }

    /// Gives up what is left of it, and returns when its sandbox is closed.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the self-test met a bug");
        }
    }
}

/// The programs, and what of the host they are tried against, which lasts as long as this.
#[derive(Debug)]
struct Made {
    programs: Programs,
    _facts: Option<Facts>,
}

fn real(backend: &dyn Backend) -> Result<Made, String> {
    let facts = Facts::look().map_err(|error| format!("nothing could be set up to test the walls against: {error}"))?;
    let languages = backend.capabilities().languages;
    let programs = Programs::of(&languages, &facts).ok_or("there is no interpreter to test the walls with")?;
    Ok(Made { programs, _facts: Some(facts) })
}

async fn until_passed(
    backend: Arc<dyn Backend>,
    gate: Arc<Gate>,
    readiness: Readiness,
    stop: CancellationToken,
    programs: fn(&dyn Backend) -> Result<Made, String>,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        let tested = match programs(&*backend) {
            Ok(made) => attempt(&*backend, &made.programs, &stop).await,
            Err(why) => Err(NotTested::Undone(why)),
        };
        match tested {
            Ok(verdicts) => {
                let fired: Vec<&Verdict> = verdicts.iter().filter(|verdict| verdict.state == State::Fired).collect();
                if fired.is_empty() {
                    tracing::info!(took = ?begun.elapsed(), "the walls' self-test has passed");
                    readiness.set_ready();
                    gate.standing.send_replace(Standing::Passed);
                } else {
                    let words: Vec<String> = fired.iter().map(|verdict| verdict.to_string()).collect();
                    let words = words.join("; ");
                    tracing::error!(words, "the walls do not hold");
                    readiness.set_not_ready("the walls do not hold; nothing is run here");
                    gate.standing.send_replace(Standing::Fired(words));
                }
                return;
            }
            Err(NotTested::Stopped) => return,
            Err(NotTested::Undone(why)) => {
                tracing::warn!(
                    why,
                    ?pause,
                    "the walls could not be tested; this is tried again, and before any program is run"
                );
                readiness.set_not_ready("the walls could not be tested; `belljar doctor` tells more");
                gate.standing.send_replace(Standing::Undone(why));
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = gate.knocks.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
        gate.standing.send_replace(Standing::Pending);
    }
}

/// Why nothing is known.
#[derive(Debug, PartialEq, Eq)]
enum NotTested {
    Stopped,
    Undone(String),
}

impl From<BackendError> for NotTested {
    fn from(error: BackendError) -> NotTested {
        NotTested::Undone(error.to_string())
    }
}

/// The same for `belljar doctor`, once.
pub(crate) async fn examine(backend: &dyn Backend) -> Result<Vec<Verdict>, String> {
    let made = real(backend)?;
    attempt(backend, &made.programs, &CancellationToken::new()).await.map_err(|error| match error {
        NotTested::Undone(why) => why,
        NotTested::Stopped => "it was stopped".to_owned(),
    })
}

/// Opens a sandbox, has the programs run in it, and closes it: whatever comes, it is closed when this returns. Must not be
/// dropped before that.
async fn attempt(
    backend: &dyn Backend,
    programs: &Programs,
    stop: &CancellationToken,
) -> Result<Vec<Verdict>, NotTested> {
    let limits = Limits { memory_bytes: MEMORY_BYTES, disk_bytes: MEMORY_BYTES / 2, ..Limits::default() };
    let spec = Spec { limits, ..Spec::default() };
    let mut opening = backend.open(&spec);
    // Not dropped at a stop: what is half made is cleared away behind our back then, and the server may end before that.
    let opened = tokio::select! {
        biased;
        opened = tokio::time::timeout(OPEN_MAX, &mut opening) => opened,
        () = stop.cancelled() => tokio::time::timeout(LAST_OPENING, &mut opening).await,
    };
    let late = |_| NotTested::Undone("no sandbox could be opened in time".to_owned());
    let sandbox = opened.map_err(late)??;
    let tested = tokio::select! {
        biased;
        () = stop.cancelled() => Err(NotTested::Stopped),
        tested = in_sandbox(&*sandbox, programs) => tested,
    };
    if let Err(error) = sandbox.close().await {
        // It may have gone down with the program that took its memory.
        tracing::debug!(%error, "the sandbox of the self-test was not there to be closed");
    }
    tested
}

async fn in_sandbox(sandbox: &dyn Sandbox, programs: &Programs) -> Result<Vec<Verdict>, NotTested> {
    let time = PROGRAM_MAX * sandbox.slowness().max(1);
    let said = probes::run(sandbox, programs.checks(), time).await?;
    let taken = probes::run(sandbox, programs.memory(), time).await?;
    probes::judge(&said, &taken, sandbox.isolation()).map_err(NotTested::Undone)
}
