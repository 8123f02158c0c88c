//! One program, from its start until nothing of it is alive.
//!
//! ```text
//! starting ──▶ running ──▶ finished
//!                 │ wall, output, cancelled, closing
//!                 ├──────▶ interrupted ──▶ finished     a cell, whose kernel then lives on
//!                 ▼             │ no answer
//!              stopping ◀───────┘
//!                 ├──────▶ finished          within the grace
//!                 └──────▶ out of reach      past it: the sandbox must go
//! ```
//!
//! Not here: whose turn it is, and what becomes of the sandbox; [`Outcome::reach`] says what is known of it.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{
    BackendError, Changes, Ending, Event, Exit, FileError, Finish, Limit, Limits, Program, Running, Sandbox, Source,
    State, StdinWriter, Stream, Then, Usage,
};
use tokio::pin;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::EngineError;
use crate::desks::{Desks, Place};
use crate::flight::{Controls, Flight};
use crate::log::Kept;
use crate::rich::Told;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// How long a kernel may take to stop its cell and stay alive, and how long one may take whose memory nobody needs.
const INTERRUPT_GRACE: Duration = Duration::from_millis(1000);
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long a stopped program may take to be gone. The guest kills a tree in a few milliseconds; past this it does
/// not answer, and waiting on would break the promise of the wall limit.
const GRACE: Duration = Duration::from_millis(300);

/// The same in a sandbox that was created: there are files and variables in it, which are worth more than an answer in time. A
/// guest that only did not get its turn on a busy host answers within this.
const GRACE_CREATED: Duration = Duration::from_secs(3);

/// And so much more for each GiB that it may have used: a killed process is gone when its memory is given back.
const GRACE_PER_GIB: Duration = Duration::from_millis(100);

fn grace(flight: &Flight, limits: &Limits, slowness: u32) -> Duration {
    let at_least = if flight.sandbox.is_some() { GRACE_CREATED } else { Duration::ZERO };
    let grace = GRACE + GRACE_PER_GIB.mul_f64(limits.memory_bytes as f64 / (1u64 << 30) as f64);
    (grace * slowness.max(1)).max(at_least)
}

/// How long a guest may take to start a program. It counts before the wall limit does, which begins with the program.
const START_MAX: Duration = Duration::from_secs(30);

/// Whether the program's place answered to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The program is known to be gone, with all that it started.
    Answered,
    /// Nothing is known of it. Only closing the sandbox makes an end of it.
    Silent,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) told: Told,
    pub(crate) changes: Changes,
    pub(crate) ending: Ending,
    pub(crate) duration: Duration,
    pub(crate) usage: Usage,
    /// What a cell's kernel remembered.
    pub(crate) kernel: Option<State>,
    pub(crate) reach: Reach,
}

/// No program ran, as far as we know.
#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) error: EngineError,
    pub(crate) reach: Reach,
}

/// What may end a run before its time.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Nobody waits for it any more, or the engine ends.
    pub(crate) cancel: CancellationToken,
    /// Its sandbox is on its way down.
    pub(crate) closing: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Cancel,
    Close,
}

impl Orders {
    async fn given(&self) -> Order {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Order::Cancel,
            () = self.closing.cancelled() => Order::Close,
        }
    }

    /// So long, or less where what is in the sandbox goes anyway.
    async fn lose_patience(&self, grace: Duration) {
        let in_haste = async {
            self.closing.cancelled().await;
            sleep(GRACE).await;
        };
        tokio::select! {
            () = in_haste => {}
            () = sleep(grace) => {}
        }
    }

    /// What a caller hears whose program did not start for an order.
    pub(crate) async fn refusal(&self) -> EngineError {
        self.given().await.refusal()
    }
}

impl Order {
    fn refusal(self) -> EngineError {
        match self {
            Order::Cancel => EngineError::ShuttingDown,
            Order::Close => EngineError::UnknownSandbox,
        }
    }

    fn ending(self) -> Ending {
        match self {
            Order::Cancel => Ending::Cancelled,
            Order::Close => Ending::Killed { signal: 9 },
        }
    }
}

/// Where the program runs, and where its calls are answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) sandbox: &'a dyn Sandbox,
    pub(crate) limits: &'a Limits,
    pub(crate) desks: &'a Desks,
    /// `None` where there is nothing to call.
    pub(crate) place: Option<&'a Arc<Place>>,
}

/// Runs `program` to its end. Must not be dropped before that in a sandbox that is used again: drop the callers'
/// side, give the order, and let this come to its end.
pub(crate) async fn run(
    at: At<'_>,
    program: Program,
    flight: &Flight,
    controls: Controls,
    watcher: Option<mpsc::UnboundedSender<(Stream, Vec<u8>)>>,
    orders: &Orders,
) -> Result<Outcome, NotStarted> {
    let At { sandbox, limits, .. } = at;
    let wall = program.wall;
    let cwd = program.cwd.clone();
    let manner = Manner::of(&program.source);
    let slowness = sandbox.slowness().max(1);
    let grace = grace(flight, limits, slowness);
    let mut running = start(sandbox, program, orders, grace).await?;
    let started = Instant::now();
    let _seated = at.desks.seat(running.number(), at.place);
    // When its time is over, what it waited for others aside.
    let ends = || started + wall + at.place.map(|place| place.clock.total()).unwrap_or_default();
    flight.log().limit(limits.output_bytes);
    let (mut told, mut changes) = (Told::default(), Changes::default());
    let Controls { mut signals, input } = controls;
    let typing = pass_on(input, running.stdin());
    pin!(typing);
    let mut typed = false;
    let mut phase = Phase::Running;
    let mut in_haste = false;
    let mut stopped: Option<Ending> = None;
    // Rings at the wall limit, and again when the patience of each later phase is over.
    let alarm = sleep(wall);
    pin!(alarm);

    let finish = loop {
        // In this order, so that a program that floods cannot put off its end.
        let stop = tokio::select! {
            biased;
            order = orders.given(), if stopped.is_none() => order.ending(),
            () = &mut alarm => match phase {
                Phase::Running if ends() > Instant::now() => {
                    alarm.as_mut().reset(ends());
                    continue;
                }
                Phase::Running => Ending::Stopped { limit: Limit::Wall },
                Phase::Interrupted => {
                    running.stop();
                    phase = Phase::Stopping;
                    alarm.as_mut().reset(Instant::now() + grace);
                    continue;
                }
                Phase::Stopping => {
                    tracing::warn!(?grace, "a stopped program did not finish; its sandbox goes");
                    break None;
                }
            },
            // What is in the sandbox goes anyway.
            () = orders.closing.cancelled(), if phase == Phase::Stopping && !in_haste => {
                in_haste = true;
                let soon = alarm.deadline().min(Instant::now() + GRACE * slowness);
                alarm.as_mut().reset(soon);
                continue;
            }
            () = &mut typing, if !typed => {
                typed = true;
                continue;
            }
            Some(signal) = signals.recv() => {
                match signal {
                    SIGKILL => running.stop(),
                    _ => running.signal(signal),
                }
                continue;
            }
            event = running.next() => match event {
                Ok(Event::Output { stream, bytes }) => {
                    let mut log = flight.log();
                    if let Some(watcher) = &watcher {
                        // Nobody has to watch to the end.
                        let _ = watcher.send((stream, bytes[..log.room_for(bytes.len())].to_vec()));
                    }
                    match log.take(stream, &bytes) {
                        Kept::InPart if stopped.is_none() => Ending::Stopped { limit: Limit::Output },
                        _ => continue,
                    }
                }
                Ok(Event::Record(record)) => {
                    told.take(&record);
                    continue;
                }
                Ok(Event::Changed(all)) => {
                    changes = all;
                    continue;
                }
                Ok(Event::Finished(finish)) => break Some(finish),
                // The guest answered in order: it is the program that could not be started.
                Err(BackendError::File(error)) => return Err(refused(error, cwd.as_deref())),
                Err(error) => {
                    tracing::warn!(?error, "a sandbox was lost under its program");
                    break None;
                }
            },
        };
        stopped = Some(stop);
        let patience = match manner.end(stop) {
            End::Interrupt => {
                running.signal(SIGINT);
                phase = Phase::Interrupted;
                slowness * if manner == Manner::AskedWhere { LAST_WORDS } else { INTERRUPT_GRACE }
            }
            End::Stop => {
                running.stop();
                phase = Phase::Stopping;
                grace
            }
        };
        alarm.as_mut().reset(Instant::now() + patience);
    };

    Ok(Outcome {
        ending: stopped.unwrap_or_else(|| ending(finish)),
        duration: started.elapsed(),
        usage: finish.map(|finish| finish.usage).unwrap_or_default(),
        kernel: finish.and_then(|finish| finish.kernel),
        reach: if finish.is_some() { Reach::Answered } else { Reach::Silent },
        told,
        changes,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// It was asked to stop, as by Ctrl-C, and may do so in order.
    Interrupted,
    /// It was killed, and is to be gone in a moment.
    Stopping,
}

/// How a program is brought to its end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// At once.
    Killed,
    /// A kernel that remembers: it is worth a moment to let it live.
    Asked,
    /// A kernel whose memory nobody needs. Where its time is over, where it was tells what it was at.
    AskedWhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Interrupt,
    Stop,
}

impl Manner {
    fn of(source: &Source) -> Manner {
        match source {
            Source::Cell { language, then, .. } if language.kernel().is_some() => match then {
                Then::More => Manner::Asked,
                Then::End => Manner::AskedWhere,
            },
            _ => Manner::Killed,
        }
    }

    fn end(self, ending: Ending) -> End {
        match (self, ending) {
            // Its sandbox is on its way down: nothing of it will be left to remember.
            (_, Ending::Killed { .. }) | (Manner::Killed, _) => End::Stop,
            (Manner::AskedWhere, Ending::Stopped { limit: Limit::Wall }) | (Manner::Asked, _) => End::Interrupt,
            (Manner::AskedWhere, _) => End::Stop,
        }
    }
}

/// Passes live input to a program until either has had enough; dropping the writer is the end of the input.
async fn pass_on(input: Option<mpsc::Receiver<Vec<u8>>>, writer: Option<Box<dyn StdinWriter>>) {
    let (Some(mut input), Some(mut writer)) = (input, writer) else { return };
    while let Some(piece) = input.recv().await {
        if writer.write(piece).await.is_err() {
            return;
        }
    }
}

fn ending(finish: Option<Finish>) -> Ending {
    match finish.map(|finish| finish.exit) {
        Some(Exit::Code(code)) => Ending::Exited { code },
        Some(Exit::Signal(signal)) => Ending::Killed { signal },
        Some(Exit::OutOfMemory) => Ending::Stopped { limit: Limit::Memory },
        // The place went down, and all in it was killed.
        None => Ending::Killed { signal: 9 },
    }
}

async fn start(
    sandbox: &dyn Sandbox,
    program: Program,
    orders: &Orders,
    grace: Duration,
) -> Result<Box<dyn Running>, NotStarted> {
    let cwd = program.cwd.clone();
    let starting = sandbox.start(program);
    pin!(starting);
    let answer = tokio::select! {
        biased;
        order = orders.given() => {
            // It may have started by now without our knowing. If it answers, the run goes on to be stopped in order.
            tokio::select! {
                answer = &mut starting => Ok(answer),
                () = orders.lose_patience(grace) => Err(order.refusal()),
            }
        }
        answer = timeout(START_MAX, &mut starting) => answer.map_err(|_| EngineError::NotAnswering),
    };
    match answer {
        Ok(Ok(running)) => Ok(running),
        Ok(Err(BackendError::File(error))) => Err(refused(error, cwd.as_deref())),
        Ok(Err(error)) => {
            let reach = match error {
                BackendError::Lost { .. } => Reach::Silent,
                _ => Reach::Answered,
            };
            Err(NotStarted { error: told(error), reach })
        }
        Err(error) => Err(NotStarted { error, reach: Reach::Silent }),
    }
}

/// A program that the guest could not start: for the one path that a caller gives with it, or for a reason of ours.
fn refused(FileError { kind, path }: FileError, cwd: Option<&str>) -> NotStarted {
    let error = if cwd == Some(path.as_str()) {
        EngineError::BadCwd { kind }
    } else {
        told(BackendError::Setup { step: format!("starting {path}"), why: kind.to_string() })
    };
    NotStarted { error, reach: Reach::Answered }
}

/// A backend's failure as the engine's, the details of what no caller can act on going to the log.
pub(crate) fn told(error: BackendError) -> EngineError {
    match error {
        BackendError::File(_) | BackendError::Lacks { .. } => EngineError::Backend(error),
        BackendError::Lost { why } => {
            tracing::warn!(why, "a sandbox was lost");
            EngineError::Lost
        }
        BackendError::Unavailable { .. } | BackendError::Setup { .. } => {
            tracing::error!(?error, "a sandbox refused");
            EngineError::Backend(error)
        }
    }
}
