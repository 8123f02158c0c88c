//! The task that keeps sandboxes prepared: opens them, replaces them, and gives them back when memory is short.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Backend;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::memory::{self, Gauge};
use super::pools::{Next, Pools};
use crate::teardown::Teardowns;

/// The server answers its client first.
const START_AFTER: Duration = Duration::from_millis(25);

/// How long it waits for a backend that is still getting ready, whose first sandboxes would be slow and large.
const SETTLED_MAX: Duration = Duration::from_secs(30);

/// Openings at once, for so many cores one, and at least one: the others are for those who run something, or open their
/// own.
const CORES_PER_OPENING: usize = 2;
const OPENINGS_MAX: usize = 4;

/// Turns that it leaves to others before it does anything. An answer is handed from task to task on its way out, and what
/// an opening does on the server's own thread, which may be the only one, takes longer than all of that.
const AFTER_YOU: usize = 2;

/// How often it looks for what has become too old or too much, while there is anything.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How old its knowledge of the host's memory may be.
const MEMORY_KNOWN_FOR: Duration = Duration::from_secs(1);

/// How soon it looks again whether there is room for another beside those on their way down.
const ROOM_AGAIN: Duration = Duration::from_millis(20);

/// How long an opening may go on when the engine ends: what is opened can be closed in order, and what is dropped halfway
/// only goes by itself.
const LAST_OPENINGS: Duration = Duration::from_secs(5);

pub(super) struct Keeper {
    pools: Arc<Pools>,
    backend: Arc<dyn Backend>,
    teardowns: Arc<Teardowns>,
    gauge: Gauge,
    openings: JoinSet<()>,
    openings_max: usize,
    memory_read: Option<Instant>,
    is_short: bool,
}

impl Keeper {
    pub(super) fn new(pools: Arc<Pools>, backend: Arc<dyn Backend>, teardowns: Arc<Teardowns>, gauge: Gauge) -> Keeper {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let openings_max = (cores / CORES_PER_OPENING).clamp(1, OPENINGS_MAX);
        let openings = JoinSet::new();
        Keeper { pools, backend, teardowns, gauge, openings, openings_max, memory_read: None, is_short: false }
    }

    /// Until the engine ends; then nothing prepared is left.
    pub(super) async fn keep(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.can_begin() => {}
        }
        while !stop.is_cancelled() {
            for _ in 0..AFTER_YOU {
                tokio::task::yield_now().await;
            }
            let next = self.look();
            let until_next = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.pools.wake.notified() => {}
                Some(_) = self.openings.join_next() => {}
                () = until_next => {}
            }
        }
        let last = async { while self.openings.join_next().await.is_some() {} };
        if timeout(LAST_OPENINGS, last).await.is_err() {
            self.openings.shutdown().await;
        }
        self.pools.close_all();
    }

    async fn can_begin(&self) {
        sleep(START_AFTER).await;
        // If it takes longer, then as it is.
        let _ = timeout(SETTLED_MAX, self.backend.settled()).await;
    }

    /// Does what is to be done now, and says when to look again at the latest.
    fn look(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.read_memory(now);
        self.pools.tidy(now, self.is_short);
        let mut again = (!self.pools.is_empty()).then(|| now + LOOK_EVERY);
        let mut at_latest = |instant: Instant| again = Some(again.map_or(instant, |again| again.min(instant)));
        while self.openings.len() < self.openings_max {
            if !self.teardowns.have_room() {
                at_latest(now + ROOM_AGAIN);
                break;
            }
            match self.pools.next(now) {
                Next::Open(opening) => {
                    let backend = self.backend.clone();
                    self.openings.spawn(async move {
                        let opened = super::open_in_time(&*backend, &opening.spec).await;
                        opening.ends(opened);
                    });
                }
                Next::Wait(until) => {
                    if let Some(until) = until {
                        at_latest(until);
                    }
                    break;
                }
            }
        }
        again
    }

    fn read_memory(&mut self, now: Instant) {
        if self.memory_read.is_some_and(|read| now.saturating_duration_since(read) < MEMORY_KNOWN_FOR) {
            return;
        }
        self.memory_read = Some(now);
        let bounds = (self.gauge)();
        let is_short = memory::is_short(&bounds, self.is_short);
        match (self.is_short, is_short) {
            (false, true) => tracing::info!(?bounds, "memory is short; no sandbox is kept prepared"),
            (true, false) => tracing::info!(?bounds, "there is memory again; sandboxes are prepared"),
            _ => {}
        }
        self.is_short = is_short;
    }
}
