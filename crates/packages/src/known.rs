//! What was answered before, in memory: the same set again costs no look at the disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Environment;

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// `None` where nothing of what was asked for could be had.
    pub(crate) environment: Option<Arc<Environment>>,
    pub(crate) left_out: Vec<(String, String)>,
    /// When it was resolved, in seconds since 1970.
    pub(crate) at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<String, (Answer, Instant)>>);

const ANSWERS_MAX: usize = 512;

/// After this an environment that nobody uses is no longer held for him who might ask again.
const IDLE: Duration = Duration::from_secs(600);

impl Known {
    fn all(&self) -> MutexGuard<'_, HashMap<String, (Answer, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &str) -> Option<Answer> {
        let mut all = self.all();
        let (answer, used) = all.get_mut(key)?;
        *used = Instant::now();
        Some(answer.clone())
    }

    pub(crate) fn put(&self, key: &str, answer: Answer) {
        let mut all = self.all();
        if all.len() >= ANSWERS_MAX {
            let oldest = all.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            oldest.map(|key| all.remove(&key));
        }
        all.insert(key.to_owned(), (answer, Instant::now()));
    }

    /// Lets go of what nobody uses but this; all of it, where the store is to be made smaller.
    pub(crate) fn let_go(&self, how: LetGo) {
        self.all().retain(|_, (answer, used)| {
            let in_use = answer.environment.as_ref().is_some_and(|environment| Arc::strong_count(environment) > 1);
            in_use || (how == LetGo::Idle && used.elapsed() < IDLE)
        });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetGo {
    Idle,
    Unused,
}
