//! Runs that take long, as tasks of the protocol's extension: for clients that declare it, in place of a job in words. A task
//! is a job of the engine's under the same name, so that `job` can be asked about it as well.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_engine::{Engine, EngineError, JobAction, JobView, Principal};
use rmcp::ErrorData;
use rmcp::model::{CreateTaskResult, DetailedTask, InputResponses, JsonObject, Task, TaskPayload, TaskStatus};
use rmcp::task_manager::current_timestamp;

use crate::approval::{self, Desk};
use crate::tools;

const OWN_MAX: usize = 128;
const ALL_MAX: usize = 4096;
const POLL_MS: u64 = 1000;
/// How long a task is surely there. The engine keeps its jobs by number and size, far longer on most days.
const TTL_MS: u64 = 10 * 60 * 1000;
const KILL: i32 = 9;

/// One for all connections.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<VecDeque<Known>>);

#[derive(Debug, Clone)]
struct Known {
    owner: String,
    id: String,
    created: String,
    updated: String,
    is_over: bool,
    is_cancelled: bool,
}

/// A task of somebody else's and one that never was get the same answer.
fn unknown() -> ErrorData {
    let sentence = "there is no such task: it is not yours, or it is forgotten; call the tool again";
    ErrorData::invalid_params(sentence, None)
}

impl Known {
    fn task(&self, status: TaskStatus) -> Task {
        Task::new(self.id.clone(), status, self.created.clone(), self.updated.clone())
            .with_ttl_ms(TTL_MS)
            .with_poll_interval_ms(POLL_MS)
    }
}

impl Tasks {
    fn all(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, who: &Principal, id: &str) -> Result<Known, ErrorData> {
        let all = self.all();
        let found = all.iter().find(|known| known.id == id && known.owner == who.as_str());
        found.cloned().ok_or_else(unknown)
    }

    fn note(&self, who: &Principal, id: &str, change: impl FnOnce(&mut Known)) {
        if let Some(known) = self.all().iter_mut().find(|known| known.id == id && known.owner == who.as_str()) {
            change(known);
        }
    }

    /// A run has become one.
    pub(crate) fn begin(&self, who: &Principal, job: &JobView) -> CreateTaskResult {
        let now = current_timestamp();
        let known = Known {
            owner: who.as_str().to_owned(),
            id: job.id.as_str().to_owned(),
            created: now.clone(),
            updated: now,
            is_over: false,
            is_cancelled: false,
        };
        let mut all = self.all();
        all.retain(|other| other.id != known.id || other.owner != known.owner);
        if all.iter().filter(|other| other.owner == known.owner).count() >= OWN_MAX
            && let Some(oldest) = all.iter().position(|other| other.owner == known.owner)
        {
            all.remove(oldest);
        }
        if all.len() >= ALL_MAX {
            all.pop_front();
        }
        let task = known.task(TaskStatus::Working).with_status_message("the program is still running");
        all.push_back(known);
        CreateTaskResult::new(task)
    }

    /// How a task stands, and what it came to.
    pub(crate) async fn get(
        &self,
        engine: &Engine,
        desk: &Desk,
        who: &Principal,
        id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        self.find(who, id)?;
        let job = engine.job(who, id, JobAction::Poll, Some(0)).await;
        let payload = match job {
            Ok(JobView { ended: None, .. }) => match approval::inquiries(desk, who.as_str(), id) {
                Some(input_requests) => TaskPayload::InputRequired { input_requests },
                None => TaskPayload::Working,
            },
            Ok(job) => {
                let is_cancelled = self.find(who, id)?.is_cancelled;
                match &job.ended {
                    Some(run) if !is_cancelled => {
                        TaskPayload::Completed { result: object(&tools::ended(engine, who, &job, run)) }
                    }
                    _ => TaskPayload::Cancelled,
                }
            }
            Err(EngineError::UnknownJob) => return Err(unknown()),
            Err(error) => {
                let error = ErrorData::internal_error(error.to_string(), None);
                TaskPayload::Failed { error: object(&error) }
            }
        };
        let is_over = !matches!(payload, TaskPayload::Working | TaskPayload::InputRequired { .. });
        self.note(who, id, |known| {
            if is_over && !known.is_over {
                known.is_over = true;
                known.updated = current_timestamp();
            }
        });
        Ok(DetailedTask::new(self.find(who, id)?.task(TaskStatus::Working), payload))
    }

    /// A person's answers to what a task waits for.
    pub(crate) fn update(
        &self,
        desk: &Desk,
        who: &Principal,
        id: &str,
        answers: &InputResponses,
    ) -> Result<(), ErrorData> {
        self.find(who, id)?;
        approval::resolve(desk, who.as_str(), id, answers);
        Ok(())
    }

    /// Ends the program; nothing happens to a task that is over.
    pub(crate) async fn cancel(&self, engine: &Engine, who: &Principal, id: &str) -> Result<(), ErrorData> {
        self.find(who, id)?;
        let Ok(job) = engine.job(who, id, JobAction::Poll, Some(0)).await else { return Ok(()) };
        if job.ended.is_some() {
            return Ok(());
        }
        self.note(who, id, |known| {
            known.is_cancelled = true;
            known.updated = current_timestamp();
        });
        // One that has just ended takes no signal.
        let _ = engine.job(who, id, JobAction::Signal(KILL), Some(0)).await;
        Ok(())
    }
}

fn object(value: &impl serde::Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => JsonObject::new(),
    }
}
