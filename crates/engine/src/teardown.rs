//! Closing sandboxes off the path of any request: counted, bounded in time, and waited for at the end.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_core::{BackendError, Sandbox};
use tokio::runtime::Handle;
use tokio::sync::Notify;
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
    pending: AtomicUsize,
    /// Told when there is room again.
    fewer: Notify,
}

impl Teardowns {
    pub(crate) fn new(tasks: Tasks) -> Arc<Teardowns> {
        Arc::new(Teardowns { tasks, pending: AtomicUsize::new(0), fewer: Notify::new() })
    }

    /// Whether few enough sandboxes are on their way down.
    pub(crate) fn have_room(&self) -> bool {
        self.pending.load(Ordering::SeqCst) < PENDING_MAX
    }

    /// Returns when they are.
    pub(crate) async fn room(&self) {
        while !self.have_room() {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            // Listens before the second look, or a word between look and wait would be missed.
            fewer.as_mut().enable();
            if !self.have_room() {
                fewer.await;
            }
        }
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
        teardowns.pending.fetch_add(1, Ordering::SeqCst);
        Counted(teardowns)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.pending.fetch_sub(1, Ordering::SeqCst) == PENDING_MAX {
            self.0.fewer.notify_waiters();
        }
    }
}
