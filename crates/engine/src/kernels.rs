//! The kernels of one sandbox, as the engine knows them: whose turn it is in each, and what it remembers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::Language;
use tokio::sync::OwnedMutexGuard;

use crate::rich::Names;
use crate::{EngineError, RunId};

/// One for each language that has kernels.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    python: Kernel,
    javascript: Kernel,
    shell: Kernel,
}

#[derive(Debug, Default)]
struct Kernel {
    memory: Arc<tokio::sync::Mutex<Names>>,
    holder: Arc<Mutex<Holder>>,
    /// Jobs that wait for their turn: nobody queues behind those either.
    jobs: Mutex<Vec<RunId>>,
}

/// A job in the queue of a kernel.
struct Queued<'a> {
    jobs: &'a Mutex<Vec<RunId>>,
    run: &'a RunId,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).retain(|job| job != self.run);
    }
}

/// Who has a kernel now.
#[derive(Debug, Default)]
struct Holder {
    run: Option<RunId>,
    /// A job may take hours, so nobody queues behind it.
    is_job: bool,
}

/// Whether someone waits for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Attended,
    Job,
}

/// A kernel for the time of one cell.
#[derive(Debug)]
pub(crate) struct Seat {
    /// What its driver last told of its names.
    pub(crate) names: OwnedMutexGuard<Names>,
    holder: Arc<Mutex<Holder>>,
}

impl Kernels {
    fn of(&self, language: Language) -> Option<&Kernel> {
        match language.kernel()? {
            Language::Python => Some(&self.python),
            Language::JavaScript => Some(&self.javascript),
            Language::Shell => Some(&self.shell),
            _ => None,
        }
    }

    /// Waits until the language's kernel is free; `None` where it has none.
    pub(crate) async fn seat(&self, language: Language, run: &RunId, kind: Kind) -> Result<Option<Seat>, EngineError> {
        let Some(kernel) = self.of(language) else { return Ok(None) };
        if let Holder { run: Some(job), is_job: true } = &*lock(&kernel.holder) {
            return Err(EngineError::KernelBusy { language, job: job.to_string() });
        }
        let _queued = {
            let mut jobs = kernel.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(job) = jobs.first() {
                return Err(EngineError::KernelBusy { language, job: job.to_string() });
            }
            (kind == Kind::Job).then(|| {
                jobs.push(run.clone());
                Queued { jobs: &kernel.jobs, run }
            })
        };
        let names = kernel.memory.clone().lock_owned().await;
        *lock(&kernel.holder) = Holder { run: Some(run.clone()), is_job: false };
        Ok(Some(Seat { names, holder: kernel.holder.clone() }))
    }
}

impl Seat {
    pub(crate) fn marker(&self) -> JobMarker {
        JobMarker(self.holder.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *lock(&self.holder) = Holder::default();
    }
}

/// Says in a kernel's place that the run which has it is a job.
#[derive(Debug, Clone)]
pub(crate) struct JobMarker(Arc<Mutex<Holder>>);

impl JobMarker {
    /// Of a run that has left its seat, nothing is said.
    pub(crate) fn mark(&self, run: &RunId) {
        let mut holder = lock(&self.0);
        if holder.run.as_ref() == Some(run) {
            holder.is_job = true;
        }
    }
}

fn lock(holder: &Mutex<Holder>) -> MutexGuard<'_, Holder> {
    holder.lock().unwrap_or_else(PoisonError::into_inner)
}
