//! Closing sandboxes off the path of any request: counted, bounded in time, and waited for at the end.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{BackendError, Sandbox};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::Instrument;

use crate::EngineError;

/// Sandboxes that may be on their way down before new ones wait: past this the host is slower at closing than
/// callers at opening, and would drown in half-closed ones.
const PENDING_MAX: usize = 64;

/// Closing kills and unmounts; a backend that takes longer is stuck, and waiting more would hang a shutdown.
const CLOSE_MAX: Duration = Duration::from_secs(30);

/// Everything that the engine started and that must have ended before it is gone.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    /// Kept, so that a drop outside the runtime can still start a teardown.
    runtime: Handle,
}

impl Tasks {
    /// Inside a tokio runtime.
    pub(crate) fn new() -> Tasks {
        Tasks { tracker: TaskTracker::new(), runtime: Handle::current() }
    }

    pub(crate) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.tracker.spawn_on(task.in_current_span(), &self.runtime)
    }

    /// Counts as a task until dropped.
    pub(crate) fn token(&self) -> TaskTrackerToken {
        self.tracker.token()
    }

    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[derive(Debug)]
pub(crate) struct Teardowns {
    tasks: Tasks,
    pending: watch::Sender<usize>,
}

impl Teardowns {
    pub(crate) fn new(tasks: Tasks) -> Arc<Teardowns> {
        Arc::new(Teardowns { tasks, pending: watch::Sender::new(0) })
    }

    /// Returns when few enough sandboxes are on their way down.
    pub(crate) async fn room(&self) {
        // It fails only when the sender is gone, which `self` holds.
        let _ = self.pending.subscribe().wait_for(|pending| *pending < PENDING_MAX).await;
    }

    /// Closes the sandbox that `reached` comes to, if it comes to one; what comes with it is dropped when nothing of
    /// it is left.
    pub(crate) fn begin<T: Send + 'static>(
        self: &Arc<Self>,
        reached: impl Future<Output = Option<(Box<dyn Sandbox>, T)>> + Send + 'static,
    ) -> JoinHandle<Result<(), EngineError>> {
        let counted = Counted::new(self.clone());
        self.tasks.spawn(async move {
            let _counted = counted;
            match reached.await {
                Some((sandbox, beside)) => {
                    let closed = close(sandbox).await;
                    drop(beside);
                    closed
                }
                None => Ok(()),
            }
        })
    }
}

async fn close(sandbox: Box<dyn Sandbox>) -> Result<(), EngineError> {
    match tokio::time::timeout(CLOSE_MAX, sandbox.close()).await {
        // It fell before we came: nothing is left either way.
        Ok(Ok(()) | Err(BackendError::Lost { .. })) => Ok(()),
        Ok(Err(error)) => {
            tracing::error!(%error, "a sandbox could not be closed");
            Err(EngineError::Backend(error))
        }
        Err(_) => {
            tracing::error!(waited = ?CLOSE_MAX, "a sandbox did not close in time and was given up");
            Err(EngineError::NotAnswering)
        }
    }
}

/// One pending teardown.
struct Counted(Arc<Teardowns>);

impl Counted {
    fn new(teardowns: Arc<Teardowns>) -> Counted {
        teardowns.pending.send_modify(|pending| *pending += 1);
        Counted(teardowns)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.pending.send_modify(|pending| *pending -= 1);
    }
}
