//! Room that all callers use together, and of which no one gets more than a share: whoever takes all of that still leaves
//! the rest to others.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_engine::Principal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug)]
pub(crate) struct Shares {
    all: Arc<Semaphore>,
    of_one: usize,
    /// Of those who have taken something.
    own: Mutex<HashMap<Principal, Arc<Semaphore>>>,
}

/// Some of the room, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The caller has its share.
    Own,
    /// Others have what is left.
    All,
}

impl fmt::Display for Full {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Full::Own => "you have too many streams open; close some",
            Full::All => "there are too many streams open; try again later",
        })
    }
}

impl Shares {
    pub(crate) fn new(all: usize, of_one: usize) -> Shares {
        Shares { all: Arc::new(Semaphore::new(all)), of_one: of_one.min(all), own: Mutex::default() }
    }

    /// One, or at once why not.
    pub(crate) fn try_take(&self, who: &Principal) -> Result<Taken, Full> {
        let own = self.own(who).try_acquire_owned().map_err(|_| Full::Own)?;
        let all = self.all.clone().try_acquire_owned().map_err(|_| Full::All)?;
        Ok(Taken { own, all })
    }

    /// As many, waiting for them. What waits for more of its own than it has holds up nobody else.
    pub(crate) async fn take(&self, who: &Principal, many: usize) -> Option<Taken> {
        let many = u32::try_from(many.min(self.of_one)).unwrap_or(u32::MAX);
        // Neither is ever closed.
        let own = self.own(who).acquire_many_owned(many).await.ok()?;
        let all = self.all.clone().acquire_many_owned(many).await.ok()?;
        Some(Taken { own, all })
    }

    fn own(&self, who: &Principal) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever has taken something, or waits to, holds on to where it is from.
        own.retain(|_, room| Arc::strong_count(room) > 1);
        own.entry(who.clone()).or_insert_with(|| Arc::new(Semaphore::new(self.of_one))).clone()
    }
}

impl Taken {
    /// Gives back what is more than this.
    pub(crate) fn keep(&mut self, many: usize) {
        for permit in [&mut self.own, &mut self.all] {
            drop(permit.split(permit.num_permits().saturating_sub(many)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_leaves_the_rest_to_others() {
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let shares = Shares::new(5, 3);
        let mut of_ann: Vec<Taken> = (0..3).map(|_| shares.try_take(&ann).unwrap()).collect();
        assert_eq!(shares.try_take(&ann).unwrap_err(), Full::Own);
        let of_bob = [shares.try_take(&bob).unwrap(), shares.try_take(&bob).unwrap()];
        assert_eq!(shares.try_take(&bob).unwrap_err(), Full::All);
        of_ann.pop();
        assert!(shares.try_take(&bob).is_ok());
        drop((of_ann, of_bob));
        shares.try_take(&ann).unwrap();
        assert_eq!(shares.own.lock().unwrap().len(), 1, "who has nothing is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_is_there_for_whoever_waits() {
        let (ann, bob) = (Principal::new("ann"), Principal::new("bob"));
        let shares = Shares::new(8, 4);
        let mut taken = shares.take(&ann, 100).await.unwrap();
        let soon = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(soon, shares.take(&ann, 2)).await.is_err(), "a share is all that one gets");
        let _of_bob = shares.take(&bob, 4).await.unwrap();
        taken.keep(2);
        shares.take(&ann, 2).await.unwrap();
    }
}
