//! How many created sandboxes may stand, and for how long. The operator may change it while they stand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Settings;

/// What can change while the engine runs, of what [`Settings`] said at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenure {
    /// Created sandboxes at once. Those that stand stay, even if they are more.
    pub sandboxes_max: usize,
    /// How long a sandbox that is created from now on stays without being used.
    pub idle: Duration,
    /// How long any of them stays however much it is used.
    pub age_max: Duration,
}

impl From<&Settings> for Tenure {
    fn from(settings: &Settings) -> Self {
        Tenure { sandboxes_max: settings.sandboxes_max, idle: settings.idle, age_max: settings.age_max }
    }
}

/// One slot for each sandbox that may stand.
#[derive(Debug)]
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    tenure: Tenure,
    /// Slots that are still held, and are no more when they come back.
    owed: usize,
}

impl Slots {
    pub(crate) fn new(tenure: Tenure) -> Slots {
        let free = Arc::new(Semaphore::new(tenure.sandboxes_max.min(Semaphore::MAX_PERMITS)));
        Slots { free, now: Mutex::new(Now { tenure, owed: 0 }) }
    }

    pub(crate) fn tenure(&self) -> Tenure {
        self.now().tenure
    }

    pub(crate) fn change(&self, tenure: Tenure) {
        let mut now = self.now();
        let bound = |tenure: Tenure| tenure.sandboxes_max.min(Semaphore::MAX_PERMITS);
        let (before, after) = (bound(now.tenure), bound(tenure));
        now.tenure = tenure;
        now.owed += before.saturating_sub(after);
        let more = after.saturating_sub(before);
        let kept = more.min(now.owed);
        now.owed -= kept;
        self.free.add_permits(more - kept);
        now.owed -= self.free.forget_permits(now.owed);
    }

    /// One that is free at this moment.
    pub(crate) fn take(&self) -> Option<OwnedSemaphorePermit> {
        let mut now = self.now();
        now.owed -= self.free.forget_permits(now.owed);
        self.free.clone().try_acquire_owned().ok()
    }

    /// One that becomes free soon.
    pub(crate) async fn wait(&self, at_most: Duration) -> Option<OwnedSemaphorePermit> {
        let slot = timeout(at_most, self.free.clone().acquire_owned()).await.ok()?.ok()?;
        let mut now = self.now();
        if now.owed == 0 {
            return Some(slot);
        }
        now.owed -= 1;
        slot.forget();
        None
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sandboxes_max: usize) -> Tenure {
        Tenure { sandboxes_max, idle: Duration::from_secs(1), age_max: Duration::from_secs(2) }
    }

    fn all(slots: &Slots) -> Vec<OwnedSemaphorePermit> {
        std::iter::from_fn(|| slots.take()).take(100).collect()
    }

    #[test]
    fn fewer_slots_wait_for_those_that_are_held_and_more_are_there_at_once() {
        let slots = Slots::new(of(4));
        let mut held = all(&slots);
        assert_eq!(held.len(), 4);
        slots.change(of(2));
        held.truncate(2);
        assert!(slots.take().is_none(), "the two that came back are no more");
        held.truncate(1);
        held.extend(all(&slots));
        assert_eq!(held.len(), 2);
        slots.change(of(5));
        held.extend(all(&slots));
        assert_eq!(held.len(), 5);
        // What was owed is made good by what is added, and nothing is counted twice.
        slots.change(of(1));
        slots.change(of(6));
        held.extend(all(&slots));
        assert_eq!(held.len(), 6);
        slots.change(of(usize::MAX));
        drop(held);
        slots.change(of(3));
        assert_eq!(all(&slots).len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_gets_no_slot_that_is_no_more() {
        let slots = Slots::new(of(1));
        let held = slots.take().unwrap();
        slots.change(of(0));
        let waiting = slots.wait(Duration::from_secs(5));
        let freed = async {
            tokio::task::yield_now().await;
            drop(held);
        };
        assert!(tokio::join!(waiting, freed).0.is_none());
        slots.change(of(1));
        assert!(slots.wait(Duration::from_secs(5)).await.is_some());
    }
}
