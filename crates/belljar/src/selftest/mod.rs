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
//! Each wall that a sandbox of this server can have is tested by itself, the server's own first. Until it has passed,
//! [`Held`] lets nobody open a sandbox behind it, whichever way they come; the protocol is answered meanwhile.

mod facts;
mod held;
mod probes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::{Backend, BackendError, Ground, Limits, Sandbox, Spec};
use belljar_engine::Template;
use belljar_server::Readiness;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
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

/// How the test of a wall stands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Pending,
    Passed,
    Fired(String),
    Undone(String),
}

/// Between the test of one wall and those who wait for it.
#[derive(Debug)]
struct Gate {
    wall: String,
    /// What sandboxes behind it can stand on. It is the wall that is tested: the first that can be opened will do.
    grounds: Vec<Ground>,
    standing: watch::Sender<Standing>,
    knocks: Notify,
}

/// One for each wall that a sandbox of this server can have, its own first. A clone is the same.
#[derive(Debug, Clone)]
pub(crate) struct Gates(Arc<[Gate]>);

impl Gates {
    /// Only templates name another wall than the server's own.
    pub(crate) fn new(own: &str, templates: &[Template]) -> Gates {
        let mut walls = vec![(own.to_owned(), vec![Ground::default()])];
        for Template { ground: Ground { wall, image, .. }, .. } in templates {
            let Some(name) = wall.as_ref().filter(|name| *name != own) else { continue };
            let ground = Ground { wall: wall.clone(), image: image.clone(), ..Ground::default() };
            match walls.iter_mut().find(|(known, _)| known == name) {
                Some((_, grounds)) if grounds.contains(&ground) => {}
                Some((_, grounds)) => grounds.push(ground),
                None => walls.push((name.clone(), vec![ground])),
            }
        }
        let gate = |(wall, grounds)| {
            let (standing, knocks) = (watch::Sender::new(Standing::Pending), Notify::new());
            Gate { wall, grounds, standing, knocks }
        };
        Gates(walls.into_iter().map(gate).collect())
    }

    /// Where the operator wants no test.
    pub(crate) fn open(&self) {
        for gate in &*self.0 {
            gate.standing.send_replace(Standing::Passed);
        }
    }

    /// Of the wall that a sandbox is to have; `None` for one that nobody tests.
    fn before(&self, ground: &Ground) -> Option<&Gate> {
        match &ground.wall {
            None => self.0.first(),
            Some(name) => self.0.iter().find(|gate| gate.wall == *name),
        }
    }
}

/// The tests at work. [`SelfTest::end`] must be awaited before the server ends.
#[derive(Debug)]
pub(crate) struct SelfTest {
    stop: CancellationToken,
    /// One for each wall, of which there are few kinds. Each says what fired, if something did.
    tasks: JoinSet<Option<String>>,
}

impl SelfTest {
    /// Inside a runtime. `backend` has all the walls, without [`Held`].
    pub(crate) fn begin(backend: Arc<dyn Backend>, gates: Gates, readiness: Readiness) -> SelfTest {
        // What a server that was killed has left is in nobody's way.
        tokio::task::spawn_blocking(facts::sweep);
        SelfTest::begin_with(backend, gates, readiness, real)
    }

    fn begin_with(backend: Arc<dyn Backend>, gates: Gates, readiness: Readiness, make: Make) -> SelfTest {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (at, gate) in gates.0.iter().enumerate() {
            readiness.waits_for(&gate.wall, "the walls are being tested; ask again in a moment");
            let (backend, gates) = (backend.clone(), gates.clone());
            let (readiness, stop) = (readiness.clone(), stop.clone());
            tasks.spawn(async move {
                let (own, gate) = (gates.0.first()?, gates.0.get(at)?);
                if at > 0 {
                    // The first run will most likely want the server's own wall: the others are not in its way.
                    let mut standing = own.standing.subscribe();
                    tokio::select! {
                        () = stop.cancelled() => return None,
                        _ = standing.wait_for(|standing| *standing != Standing::Pending) => {}
                    }
                }
                until_passed(&*backend, gate, &readiness, &stop, make).await
            });
        }
        SelfTest { stop, tasks }
    }

    /// Returns when something has worked that must not, and says what. While nothing has, never.
    pub(crate) async fn fired(&mut self) -> String {
        while let Some(ended) = self.tasks.join_next().await {
            if let Some(what) = unless_a_bug(ended) {
                return what;
            }
        }
        std::future::pending().await
    }

    /// Gives up what is left of it, and returns when its sandboxes are closed.
    pub(crate) async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            unless_a_bug(ended);
        }
    }
}

/// A test that met a bug has not passed: nothing is opened behind its wall.
fn unless_a_bug(ended: Result<Option<String>, tokio::task::JoinError>) -> Option<String> {
    ended.unwrap_or_else(|error| {
        tracing::error!(%error, "the self-test met a bug");
        None
    })
}

/// The programs, the closest lookers first, and what of the host they are tried against, which lasts as long as this.
#[derive(Debug)]
struct Made {
    programs: Vec<Programs>,
    _facts: Option<Facts>,
}

type Make = fn(&dyn Backend, &Ground) -> Result<Made, String>;

fn real(backend: &dyn Backend, ground: &Ground) -> Result<Made, String> {
    let failed = |error| format!("nothing could be set up to test the walls against: {error}");
    let facts = Facts::look().map_err(failed)?;
    // What another wall or an image has is known when a program wants it.
    let languages = if ground.is_own() { backend.capabilities().languages } else { probes::LANGUAGES.to_vec() };
    let programs = Programs::of(&languages, &facts).map_err(failed)?;
    Ok(Made { programs, _facts: Some(facts) })
}

/// Tests a wall until it is known whether it holds. Returns what fired, if something did.
async fn until_passed(
    backend: &dyn Backend,
    gate: &Gate,
    readiness: &Readiness,
    stop: &CancellationToken,
    make: Make,
) -> Option<String> {
    let wall = &gate.wall;
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        match on_any(backend, &gate.grounds, stop, make).await {
            Ok(verdicts) => {
                let fired = verdicts.iter().filter(|verdict| verdict.state == State::Fired);
                let words: Vec<String> = fired.map(|verdict| format!("{verdict} (behind {wall})")).collect();
                if words.is_empty() {
                    tracing::info!(wall, took = ?begun.elapsed(), "the walls' self-test has passed");
                    readiness.has(wall);
                    gate.standing.send_replace(Standing::Passed);
                    return None;
                }
                let words = words.join("; ");
                tracing::error!(words, "the walls do not hold");
                readiness.waits_for(wall, "the walls do not hold; nothing is run here");
                gate.standing.send_replace(Standing::Fired(words.clone()));
                return Some(words);
            }
            Err(NotTested::Stopped) => return None,
            Err(NotTested::Undone(why)) => {
                tracing::warn!(
                    wall,
                    why,
                    ?pause,
                    "the walls could not be tested; this is tried again, and before any program is run"
                );
                let told = format!("the walls of {wall} could not be tested; `belljar doctor` tells more");
                readiness.waits_for(wall, told);
                gate.standing.send_replace(Standing::Undone(why));
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
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

/// The same for `belljar doctor`, once, of one wall.
pub(crate) async fn examine(backend: &dyn Backend) -> Result<Vec<Verdict>, String> {
    on_any(backend, &[Ground::default()], &CancellationToken::new(), real).await.map_err(|error| match error {
        NotTested::Undone(why) => why,
        NotTested::Stopped => "it was stopped".to_owned(),
    })
}

/// On the first ground that can be tested: a template with an image that is not there must not be in the way of others.
async fn on_any(
    backend: &dyn Backend,
    grounds: &[Ground],
    stop: &CancellationToken,
    make: Make,
) -> Result<Vec<Verdict>, NotTested> {
    let mut first = None;
    for ground in grounds {
        if stop.is_cancelled() {
            return Err(NotTested::Stopped);
        }
        let made = make(backend, ground).map_err(NotTested::Undone)?;
        match attempt(backend, ground, &made.programs, stop).await {
            Err(NotTested::Undone(why)) => first = first.or(Some(why)),
            known => return known,
        }
    }
    Err(NotTested::Undone(first.unwrap_or_default()))
}

/// Opens a sandbox, has the programs run in it, and closes it: whatever comes, it is closed when this returns. Must not be
/// dropped before that.
async fn attempt(
    backend: &dyn Backend,
    ground: &Ground,
    programs: &[Programs],
    stop: &CancellationToken,
) -> Result<Vec<Verdict>, NotTested> {
    let limits = Limits { memory_bytes: MEMORY_BYTES, disk_bytes: MEMORY_BYTES / 2, ..Limits::default() };
    let spec = Spec { limits, ground: ground.clone(), ..Spec::default() };
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

async fn in_sandbox(sandbox: &dyn Sandbox, programs: &[Programs]) -> Result<Vec<Verdict>, NotTested> {
    let time = PROGRAM_MAX * sandbox.slowness().max(1);
    for programs in programs {
        let said = match probes::run(sandbox, programs.checks(), time).await {
            Err(BackendError::Lacks { .. }) => continue,
            said => said?,
        };
        let taken = probes::run(sandbox, programs.memory(), time).await?;
        return probes::judge(&said, &taken, sandbox.isolation()).map_err(NotTested::Undone);
    }
    Err(NotTested::Undone("there is no interpreter to test the walls with".to_owned()))
}
