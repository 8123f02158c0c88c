//! Asking a person. A call that needs one waits here, and its program with it; nothing is run again.
//!
//! ```text
//! broker ── request ──▶ waiting ── taken by whoever attends the occasion ──▶ asked ── decide ──▶ broker goes on
//!                          └── nobody attends: refused at once
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::{oneshot, watch};

/// What a person is asked about.
#[derive(Debug, Clone, PartialEq)]
pub enum Subject {
    /// A call of a tool, with the very arguments that it will have.
    Call { server: String, tool: String, arguments: Map<String, Value> },
    /// A program, before it runs.
    Code { language: String, code: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Among all of this process.
    pub id: u64,
    pub subject: Subject,
}

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// This one.
    Once,
    /// This one, and every other call of the same tool in this run.
    Run,
    /// This one, and every call of the same tool with the same arguments, for as long as the server runs.
    Same,
    Deny,
}

/// Occasions on which somebody can be asked. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Approvals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    occasions: HashMap<u64, Occasion>,
}

#[derive(Debug)]
struct Occasion {
    owner: String,
    waiting: Vec<(Pending, oneshot::Sender<Verdict>)>,
    /// Heard by everyone who waits for something to be wanted; its end is the end of the occasion.
    news: watch::Sender<()>,
}

impl Occasion {
    /// What still waits, in order; what nobody wants any more is forgotten.
    fn waiting(&mut self) -> Vec<Pending> {
        self.waiting.retain(|(_, decide)| !decide.is_closed());
        self.waiting.iter().map(|(pending, _)| pending.clone()).collect()
    }
}

/// Calls that come within this time of the first are shown together.
const BATCH: Duration = Duration::from_millis(50);

impl Approvals {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody of this owner's can be asked from here on, until [`Approvals::close`]. The number is for
    /// [`belljar_core::Caller::occasion`].
    pub fn open(&self, owner: &str) -> u64 {
        let mut state = self.state();
        state.last += 1;
        let occasion = state.last;
        let news = watch::Sender::new(());
        state.occasions.insert(occasion, Occasion { owner: owner.to_owned(), waiting: Vec::new(), news });
        occasion
    }

    /// Nobody can be asked any more; whoever waits is refused.
    pub fn close(&self, occasion: u64) {
        self.state().occasions.remove(&occasion);
    }

    /// Waits until somebody has decided. `None` if nobody can be asked.
    pub async fn request(&self, occasion: u64, subject: Subject) -> Option<Verdict> {
        let decided = {
            let mut state = self.state();
            state.last += 1;
            let id = state.last;
            let occasion = state.occasions.get_mut(&occasion)?;
            let (decide, decided) = oneshot::channel();
            occasion.waiting.push((Pending { id, subject }, decide));
            occasion.news.send_replace(());
            decided
        };
        decided.await.ok()
    }

    /// Returns when something waits for a decision, with all of it, in order. Nothing is taken: it waits until it is decided,
    /// or nobody wants it any more. `None` when the occasion is closed.
    pub async fn wanted(&self, occasion: u64) -> Option<Vec<Pending>> {
        loop {
            let news = {
                let mut state = self.state();
                let open = state.occasions.get_mut(&occasion)?;
                if open.waiting().is_empty() { Some(open.news.subscribe()) } else { None }
            };
            if let Some(mut news) = news {
                // It fails when the occasion is closed, which the next turn sees.
                let _ = news.changed().await;
                continue;
            }
            tokio::time::sleep(BATCH).await;
            let waiting = self.state().occasions.get_mut(&occasion)?.waiting();
            if !waiting.is_empty() {
                return Some(waiting);
            }
        }
    }

    /// What waits for a decision at this moment.
    pub fn waiting(&self, occasion: u64) -> Vec<Pending> {
        self.state().occasions.get_mut(&occasion).map(Occasion::waiting).unwrap_or_default()
    }

    /// Decides on some of them. Others' occasions are as unknown ones: nothing happens.
    pub fn decide(&self, owner: &str, occasion: u64, ids: &[u64], verdict: Verdict) {
        let mut state = self.state();
        let Some(open) = state.occasions.get_mut(&occasion).filter(|open| open.owner == owner) else { return };
        let (decided, waiting) = open.waiting.drain(..).partition(|(pending, _)| ids.contains(&pending.id));
        open.waiting = waiting;
        let decided: Vec<(Pending, oneshot::Sender<Verdict>)> = decided;
        for (_, decide) in decided {
            // Whoever wanted it may have gone.
            let _ = decide.send(verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str) -> Subject {
        Subject::Call { server: "s".into(), tool: tool.into(), arguments: Map::new() }
    }

    fn ids(pending: &[Pending]) -> Vec<u64> {
        pending.iter().map(|pending| pending.id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_come_together_are_shown_together_to_everyone_who_waits() {
        let approvals = Approvals::default();
        let occasion = approvals.open("me");
        let asks = |tool| {
            let approvals = approvals.clone();
            tokio::spawn(async move { approvals.request(occasion, call(tool)).await })
        };
        let (one, other) = (approvals.clone(), approvals.clone());
        let one = tokio::spawn(async move { one.wanted(occasion).await });
        let other = tokio::spawn(async move { other.wanted(occasion).await });
        tokio::task::yield_now().await;
        let (first, second) = (asks("a"), asks("b"));
        let wanted = one.await.unwrap().unwrap();
        assert_eq!((wanted.len(), &wanted), (2, &other.await.unwrap().unwrap()));
        let ids = ids(&wanted);
        approvals.decide("another", occasion, &ids, Verdict::Once);
        assert_eq!(approvals.waiting(occasion).len(), 2, "others' word counts for nothing");
        approvals.decide("me", occasion, &ids[..1], Verdict::Once);
        approvals.decide("me", occasion, &ids[1..], Verdict::Deny);
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(Verdict::Once), Some(Verdict::Deny)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_occasion_that_is_closed_lets_everyone_go() {
        let approvals = Approvals::default();
        let occasion = approvals.open("me");
        let listener = tokio::spawn({
            let approvals = approvals.clone();
            async move { approvals.wanted(occasion).await }
        });
        tokio::task::yield_now().await;
        approvals.close(occasion);
        assert_eq!(listener.await.unwrap(), None);
        assert_eq!(approvals.request(occasion, call("a")).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_wants_any_more_is_not_shown() {
        let approvals = Approvals::default();
        let occasion = approvals.open("me");
        let gone = tokio::time::timeout(Duration::from_millis(10), approvals.request(occasion, call("a")));
        assert!(gone.await.is_err());
        assert!(approvals.waiting(occasion).is_empty());
    }
}
