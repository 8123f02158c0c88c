//! Callers that wait for a run, and what becomes of it when they leave.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::flight::Flight;
use crate::shared::Shared;
use crate::{Departure, EngineError, Run};

/// A caller that waits for a run. Leaving before the end cancels the run, unless it hung up and may come back.
pub(super) struct Attending {
    shared: Arc<Shared>,
    pub(super) flight: Arc<Flight>,
    departure: Departure,
    answered: bool,
    /// Whether it is a job already, to which a caller came back.
    again: bool,
}

impl Attending {
    pub(super) fn new(shared: &Arc<Shared>, flight: Arc<Flight>, departure: Departure) -> Attending {
        shared.jobs.attend(&flight);
        Attending { shared: shared.clone(), flight, departure, answered: false, again: false }
    }

    pub(super) fn again(shared: &Arc<Shared>, flight: Arc<Flight>, departure: Departure) -> Attending {
        Attending { shared: shared.clone(), flight, departure, answered: false, again: true }
    }

    /// The end of the run; `None` if that does not come in time, or the caller wants to leave before it.
    pub(super) async fn stay(
        &self,
        time: Duration,
        leave: Option<&CancellationToken>,
    ) -> Option<Result<Arc<Run>, EngineError>> {
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

    pub(super) async fn until_the_end(mut self) -> Result<Arc<Run>, EngineError> {
        let finished = self.flight.finished().await;
        self.is_answered();
        finished
    }

    pub(super) fn is_answered(&mut self) {
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
