//! Files of a sandbox, read and written from outside.

use std::sync::Arc;

use belljar_core::{BackendError, Content, FileError, FileErrorKind, Listing, Range};
use tokio_util::task::AbortOnDropHandle;

use super::{Engine, joined};
use crate::sandboxes::InUse;
use crate::shared::Shared;
use crate::{EngineError, Principal, check};

/// The most that one [`Engine::read`] returns, whatever its range says.
pub const READ_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// The most entries that one [`Engine::list`] returns.
pub const LIST_ENTRIES_MAX: u32 = 10_000;

impl Engine {
    /// At most [`READ_BYTES_MAX`] of a file.
    pub async fn read(&self, who: &Principal, id: &str, path: &str, range: Range) -> Result<Content, EngineError> {
        let path = checked(path)?;
        let range = Range { length: range.length.min(READ_BYTES_MAX), ..range };
        self.with_files(who, id, |shared, used| async move {
            let answer = shared.file_answer(&used, used.sandbox().read(&path, range)).await;
            settle(used, answer)
        })
        .await
    }

    pub async fn write(&self, who: &Principal, id: &str, path: &str, bytes: Vec<u8>) -> Result<(), EngineError> {
        let path = checked(path)?;
        self.shared().jobs.outdate(id);
        self.with_files(who, id, |shared, used| async move {
            if bytes.len() as u64 > used.named.limits.disk_bytes {
                return Err(EngineError::Backend(BackendError::File(FileError { kind: FileErrorKind::NoSpace, path })));
            }
            let answer = shared.file_answer(&used, used.sandbox().write(&path, bytes)).await;
            if answer.is_ok() {
                shared.news.tell_written(&used.named.owner, &used.named.id, &path);
            }
            settle(used, answer)
        })
        .await
    }

    /// At most [`LIST_ENTRIES_MAX`] entries.
    pub async fn list(
        &self,
        who: &Principal,
        id: &str,
        path: &str,
        depth: u32,
        entries_max: u32,
    ) -> Result<Listing, EngineError> {
        let path = checked(path)?;
        let entries_max = entries_max.min(LIST_ENTRIES_MAX);
        self.with_files(who, id, |shared, used| async move {
            let answer = shared.file_answer(&used, used.sandbox().list(&path, depth, entries_max)).await;
            settle(used, answer)
        })
        .await
    }

    /// Carries out a file operation as a task, which ends with the call.
    async fn with_files<T, F>(
        &self,
        who: &Principal,
        id: &str,
        operation: impl FnOnce(Arc<Shared>, InUse) -> F,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let shared = self.shared();
        let entered = shared.enter()?;
        let used = shared.sandboxes.take(who, id)?;
        let operation = operation(shared.clone(), used);
        let task = async move {
            let answer = operation.await;
            drop(entered);
            answer
        };
        joined(AbortOnDropHandle::new(shared.tasks.spawn(task))).await
    }
}

/// Lets go of a sandbox after a file operation: one that is gone leaves the table.
fn settle<T>(mut used: InUse, answer: Result<T, EngineError>) -> Result<T, EngineError> {
    if matches!(answer, Err(EngineError::Lost)) || !used.sandbox().is_alive() {
        used.doubt();
    }
    answer
}

fn checked(path: &str) -> Result<String, EngineError> {
    check::path(path).map_err(|error| EngineError::Backend(BackendError::File(error)))?;
    Ok(path.to_owned())
}
