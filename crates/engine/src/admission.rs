//! Whose turn it is: so many programs at once in all, so many in one sandbox, and a bounded number waiting, first
//! come first served.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::EngineError;

#[derive(Debug)]
pub(crate) struct Admission {
    runs: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue_max: usize,
}

/// The right to run one program, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _run: OwnedSemaphorePermit,
    _seat: Option<OwnedSemaphorePermit>,
}

/// How many programs may run in one place; at least one, or nothing ever would.
pub(crate) fn seats(max: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(max.clamp(1, Semaphore::MAX_PERMITS)))
}

impl Admission {
    pub(crate) fn new(runs_max: usize, queue_max: usize) -> Admission {
        Admission { runs: seats(runs_max), waiting: AtomicUsize::new(0), queue_max }
    }

    /// Waits for a turn, in `place` too if one is given. The seat in the place comes first: waiting for it must not
    /// keep others from running elsewhere.
    pub(crate) async fn turn(&self, place: Option<&Arc<Semaphore>>) -> Result<Turn, EngineError> {
        let seat = place.map(|place| place.clone().try_acquire_owned());
        // Neither of these overtakes: a permit that is given back goes to the first that waits, if any does.
        if !matches!(seat, Some(Err(_)))
            && let Ok(run) = self.runs.clone().try_acquire_owned()
        {
            return Ok(Turn { _run: run, _seat: seat.and_then(Result::ok) });
        }
        let _place_in_queue = self.join_queue()?;
        // Nobody closes these semaphores, so that acquiring fails only if the engine is gone.
        let seat = match (place, seat) {
            (Some(place), Some(Err(_))) => {
                Some(place.clone().acquire_owned().await.map_err(|_| EngineError::ShuttingDown)?)
            }
            (_, seat) => seat.and_then(Result::ok),
        };
        let run = self.runs.clone().acquire_owned().await.map_err(|_| EngineError::ShuttingDown)?;
        Ok(Turn { _run: run, _seat: seat })
    }

    fn join_queue(&self) -> Result<InQueue<'_>, EngineError> {
        self.waiting
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
                (waiting < self.queue_max).then_some(waiting + 1)
            })
            .map_err(|_| EngineError::Busy)?;
        Ok(InQueue(&self.waiting))
    }
}

struct InQueue<'a>(&'a AtomicUsize);

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
