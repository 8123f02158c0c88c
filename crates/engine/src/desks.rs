//! The desks of the programs that run in one sandbox: by its number each finds its own, and none after its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::{BackendError, Caller, Calls, Desk, HostCalls, Later, Sandbox, Soon, Spool};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::flight::Flight;

/// Where a program finds what was too large for an answer.
const SPOOL: &str = "/workspace/.results";

/// Waiting for tools and people does not count as the program's time, but not for ever.
const PAUSE_MAX: Duration = Duration::from_secs(45 * 60);

#[derive(Debug, Default)]
pub(crate) struct Desks(Mutex<HashMap<u32, Arc<Place>>>);

/// One program's.
pub(crate) struct Place {
    desk: Box<dyn Desk>,
    pub(crate) clock: Clock,
    /// Cancelled when the program has ended.
    pub(crate) over: CancellationToken,
    /// For files of its own.
    folder: String,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Place {
    pub(crate) fn begin(calls: &dyn HostCalls, flight: &Flight) -> Arc<Place> {
        let caller = Caller {
            owner: flight.owner.as_str().to_owned(),
            run: flight.id.as_str().to_owned(),
            sandbox: flight.sandbox.as_ref().map(|sandbox| sandbox.as_str().to_owned()),
            occasion: flight.occasion,
        };
        let folder: String = flight.id.as_str().chars().filter(char::is_ascii_alphanumeric).collect();
        let folder = format!("{SPOOL}/{}", &folder[folder.len().saturating_sub(8)..]);
        let desk = if flight.owner.may_call() { calls.begin(caller) } else { Box::new(Closed) as Box<dyn Desk> };
        Arc::new(Place { desk, clock: Clock::default(), over: CancellationToken::new(), folder })
    }

    /// The answer to a question; the program's time stands still meanwhile. `None` when the program ended before it.
    pub(crate) async fn ask(&self, question: &[u8], sandbox: &dyn Sandbox) -> Option<Vec<u8>> {
        let _pause = self.clock.pause();
        let spool = InSandbox { sandbox, folder: &self.folder };
        tokio::select! {
            biased;
            () = self.over.cancelled() => None,
            answer = self.desk.ask(question, &spool) => Some(answer),
        }
    }

    pub(crate) fn calls(&self) -> Calls {
        self.desk.calls()
    }
}

/// The desk of a program whose owner may call nothing.
#[derive(Debug)]
struct Closed;

impl Desk for Closed {
    fn ask<'a>(&'a self, _: &'a [u8], _: &'a dyn Spool) -> Soon<'a, Vec<u8>> {
        const WORDS: &str =
            "the token of this program's caller has not the scope tools, so that no tools can be called";
        let error = json!({"error": {"type": "PolicyDenied", "message": WORDS, "retryable": false}});
        Box::pin(async move { format!("{error}\n").into_bytes() })
    }

    fn calls(&self) -> Calls {
        Calls::default()
    }
}

impl Desks {
    fn all(&self) -> MutexGuard<'_, HashMap<u32, Arc<Place>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program of this number may call until the answer is dropped.
    pub(crate) fn seat<'a>(&'a self, number: u32, place: Option<&Arc<Place>>) -> Option<Seated<'a>> {
        let place = place?;
        self.all().insert(number, place.clone());
        Some(Seated { desks: self, number })
    }

    pub(crate) fn find(&self, number: Option<u32>) -> Option<Arc<Place>> {
        self.all().get(&number?).cloned()
    }
}

#[derive(Debug)]
pub(crate) struct Seated<'a> {
    desks: &'a Desks,
    number: u32,
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.desks.all().remove(&self.number) {
            place.over.cancel();
        }
    }
}

/// How long a program has waited for others.
#[derive(Debug, Default)]
pub(crate) struct Clock(Mutex<Waited>);

#[derive(Debug, Default)]
struct Waited {
    before: Duration,
    /// How many calls are under way, and since when there was one.
    now: usize,
    since: Option<Instant>,
}

impl Clock {
    fn waited(&self) -> MutexGuard<'_, Waited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self) -> Pause<'_> {
        let mut waited = self.waited();
        waited.now += 1;
        waited.since.get_or_insert_with(Instant::now);
        Pause(self)
    }

    /// All in all, up to now.
    pub(crate) fn total(&self) -> Duration {
        let waited = self.waited();
        let current = waited.since.map(|since| since.elapsed()).unwrap_or_default();
        (waited.before + current).min(PAUSE_MAX)
    }
}

struct Pause<'a>(&'a Clock);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut waited = self.0.waited();
        waited.now -= 1;
        if waited.now == 0
            && let Some(since) = waited.since.take()
        {
            waited.before += since.elapsed();
        }
    }
}

#[derive(Debug)]
struct InSandbox<'a> {
    sandbox: &'a dyn Sandbox,
    folder: &'a str,
}

impl Spool for InSandbox<'_> {
    fn keep<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> Later<'a, String> {
        Box::pin(async move {
            // It is ours, of letters and digits; and what it means is decided inside the walls anyway.
            let path = format!("{}/{name}", self.folder);
            match tokio::time::timeout(WRITE_MAX, self.sandbox.write(&path, bytes)).await {
                Ok(written) => written.map(|()| path),
                Err(_) => Err(BackendError::Setup { step: "writing a result".into(), why: "it took too long".into() }),
            }
        })
    }
}

const WRITE_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn overlapping_waits_count_once() {
        let clock = Clock::default();
        let second = Duration::from_secs(1);
        let first = clock.pause();
        tokio::time::advance(second).await;
        let other = clock.pause();
        tokio::time::advance(second).await;
        drop(first);
        tokio::time::advance(second).await;
        assert_eq!(clock.total(), 3 * second);
        drop(other);
        tokio::time::advance(second).await;
        assert_eq!(clock.total(), 3 * second);
        drop(clock.pause());
        assert_eq!(clock.total(), 3 * second);
    }
}
