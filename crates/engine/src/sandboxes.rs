//! The created sandboxes: whose they are, who uses them now, and when they end.
//!
//! ```text
//! create ──▶ standing ──▶ closing ──▶ gone      destroyed, idle, too old, lost, doubtful, or the engine ends
//! ```
//!
//! A sandbox leaves the table in the same step in which it begins to close, so that nobody finds one that is going
//! down. Those who use it then hold [`InUse`]; they are told by `closing`, and the backend's `close` waits until the
//! last of them has let go.

mod in_use;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::{Isolation, Layer, Limits, Sandbox};
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedSemaphorePermit, RwLock, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

pub(crate) use self::in_use::InUse;
use crate::admission::seats;
use crate::desks::Desks;
use crate::effort::Meter;
use crate::kernels::Kernels;
use crate::news::{Newsroom, SandboxEvent};
use crate::provision::Shelf;
use crate::quota::Hold;
use crate::teardown::Teardowns;
use crate::tenure::{Slots, Tenure};
use crate::traffic::Toll;
use crate::{Closed, EngineError, Event, Gone, Observer, Principal, SandboxId, SandboxInfo, Settings, observer};

/// Shorter idle times would end a sandbox between two calls of the same agent.
const IDLE_MIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Sandboxes {
    table: Mutex<Table>,
    /// A sandbox came that may end before all others.
    arrived: Notify,
    /// A slot comes back when nothing of the sandbox is left.
    slots: Slots,
    teardowns: Arc<Teardowns>,
    news: Newsroom,
    observers: Arc<[Arc<dyn Observer>]>,
    /// The engine ends.
    stop: CancellationToken,
    runs_per_sandbox_max: usize,
}

#[derive(Debug)]
struct Table {
    standing: HashMap<SandboxId, Arc<Named>>,
    /// False once the engine ends: what comes later is closed at once.
    open: bool,
    /// What became of those that were here, oldest first, so that their owners can be told.
    gone: VecDeque<(SandboxId, Principal, Gone)>,
}

/// Past this the oldest are forgotten, and are as if they had never been.
const GONE_MAX: usize = 4096;

/// How long a caller waits for the room that fallen sandboxes leave.
const FALLEN_GO_IN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) id: SandboxId,
    pub(crate) owner: Principal,
    pub(crate) limits: Limits,
    pub(crate) isolation: Isolation,
    idle: Duration,
    born: Instant,
    pub(crate) seats: Arc<Semaphore>,
    pub(crate) kernels: Kernels,
    pub(crate) shelf: Shelf,
    pub(crate) desks: Desks,
    /// What it sees of the tools that it can call.
    pub(crate) files: tokio::sync::Mutex<Vec<Layer>>,
    /// Whether it was opened with a network.
    pub(crate) has_network: bool,
    pub(crate) toll: Toll,
    pub(crate) meter: Meter,
    pub(crate) closing: CancellationToken,
    place: Arc<RwLock<Option<Place>>>,
    activity: Mutex<Activity>,
    runs: AtomicU64,
}

/// A sandbox that was opened for somebody.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: SandboxId,
    pub(crate) limits: Limits,
    pub(crate) idle: Option<Duration>,
    pub(crate) sandbox: Box<dyn Sandbox>,
    pub(crate) shelf: Shelf,
    pub(crate) files: Vec<Layer>,
    pub(crate) slot: OwnedSemaphorePermit,
    pub(crate) hold: Hold,
    pub(crate) has_network: bool,
}

#[derive(Debug)]
struct Place {
    sandbox: Box<dyn Sandbox>,
    slot: OwnedSemaphorePermit,
    hold: Hold,
}

#[derive(Debug)]
struct Activity {
    users: usize,
    last: Instant,
    /// Programs that were asked for and have not come to their end, those among them that keep it from being idle or not.
    runs: usize,
    /// When the last of them had.
    calm_since: Instant,
}

impl Named {
    fn activity(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when no program that somebody asked for has been there; `None` while one is.
    pub(crate) fn calm_since(&self) -> Option<Instant> {
        let activity = self.activity();
        (activity.runs == 0).then_some(activity.calm_since)
    }

    /// When it ends if nothing uses it from `now` on; while it is used, that moves with `now`.
    fn ends(&self, now: Instant, age_max: Duration) -> Instant {
        let activity = self.activity();
        let last = if activity.users > 0 { now } else { activity.last };
        later(last, self.idle).min(later(self.born, age_max))
    }

    /// Why it ends, at its end.
    fn expiry(&self, now: Instant, age_max: Duration) -> Gone {
        if later(self.born, age_max) <= now { Gone::Old(age_max) } else { Gone::Idle(self.idle) }
    }

    fn info(&self, now: Instant, age_max: Duration) -> SandboxInfo {
        SandboxInfo {
            id: self.id.clone(),
            limits: self.limits,
            isolation: self.isolation.clone(),
            idle: self.idle,
            expires_in: self.ends(now, age_max).saturating_duration_since(now),
            age: now.saturating_duration_since(self.born),
            runs: self.runs.load(Ordering::Relaxed),
        }
    }
}

/// An operator may write "for ever" as a duration that no clock can hold.
fn later(from: Instant, by: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    from.checked_add(by).unwrap_or_else(|| from + FAR)
}

impl Sandboxes {
    pub(crate) fn new(
        settings: &Settings,
        teardowns: Arc<Teardowns>,
        news: Newsroom,
        observers: Arc<[Arc<dyn Observer>]>,
        stop: CancellationToken,
    ) -> Arc<Sandboxes> {
        Arc::new(Sandboxes {
            table: Mutex::new(Table { standing: HashMap::new(), open: true, gone: VecDeque::new() }),
            arrived: Notify::new(),
            slots: Slots::new(settings.into()),
            teardowns,
            news,
            observers,
            stop,
            runs_per_sandbox_max: settings.runs_per_sandbox_max,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tenure(&self) -> Tenure {
        self.slots.tenure()
    }

    /// Those that are too old by it go at once.
    pub(crate) fn change_tenure(&self, tenure: Tenure) {
        self.slots.change(tenure);
        self.arrived.notify_one();
    }

    fn age_max(&self) -> Duration {
        self.tenure().age_max
    }

    /// Room for one more, before it is opened.
    pub(crate) async fn slot(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        if let Some(slot) = self.slots.take() {
            return Ok(slot);
        }
        let waited = match self.close_fallen() {
            0 => None,
            _ => self.slots.wait(FALLEN_GO_IN).await,
        };
        waited.ok_or_else(|| EngineError::TooManySandboxes { max: self.tenure().sandboxes_max })
    }

    /// The same for who cannot wait; whoever asks again has the room of those that fell.
    pub(crate) fn slot_now(&self) -> Result<OwnedSemaphorePermit, EngineError> {
        self.slots.take().ok_or_else(|| {
            self.close_fallen();
            EngineError::TooManySandboxes { max: self.tenure().sandboxes_max }
        })
    }

    /// Sandboxes that fell while nobody used them, and still take room; returns how many.
    fn close_fallen(&self) -> usize {
        let has_fallen = |named: &Arc<Named>| {
            named.place.try_read().is_ok_and(|place| place.as_ref().is_some_and(|place| !place.sandbox.is_alive()))
        };
        let fallen: Vec<_> = self.table().standing.values().filter(|named| has_fallen(named)).cloned().collect();
        for named in &fallen {
            self.close_if_standing(named);
        }
        fallen.len()
    }

    pub(crate) fn add(&self, owner: &Principal, arrival: Arrival) -> Result<SandboxInfo, EngineError> {
        let Arrival { id, limits, idle, sandbox, shelf, files, slot, hold, has_network } = arrival;
        let now = Instant::now();
        let tenure = self.tenure();
        let named = Arc::new(Named {
            id,
            owner: owner.clone(),
            limits,
            isolation: sandbox.isolation().clone(),
            idle: idle.unwrap_or(tenure.idle).max(IDLE_MIN).min(tenure.age_max),
            born: now,
            seats: seats(self.runs_per_sandbox_max),
            kernels: Kernels::default(),
            shelf,
            desks: Desks::default(),
            files: tokio::sync::Mutex::new(files),
            has_network,
            toll: Toll::default(),
            meter: Meter::default(),
            closing: CancellationToken::new(),
            place: Arc::new(RwLock::new(Some(Place { sandbox, slot, hold }))),
            activity: Mutex::new(Activity { users: 0, last: now, runs: 0, calm_since: now }),
            runs: AtomicU64::new(0),
        });
        let info = named.info(now, tenure.age_max);
        let mut table = self.table();
        if !table.open {
            drop(table);
            self.close(&named, Closed::Shutdown);
            return Err(EngineError::ShuttingDown);
        }
        table.standing.insert(named.id.clone(), named);
        drop(table);
        self.arrived.notify_one();
        self.news.tell(owner, &info.id, SandboxEvent::Created);
        Ok(info)
    }

    /// Finds a sandbox and holds on to it.
    pub(crate) fn take(self: &Arc<Self>, who: &Principal, id: &str) -> Result<InUse, EngineError> {
        let now = Instant::now();
        let age_max = self.age_max();
        let table = self.table();
        let found = table.find(who, id).cloned();
        let named = match found {
            Ok(named) => named,
            Err(error) => {
                drop(table);
                return Err(self.or_of_before(error, who, id));
            }
        };
        // Not swept yet, and already over.
        if named.ends(now, age_max) <= now {
            return Err(EngineError::SandboxGone { why: named.expiry(now, age_max) });
        }
        let place = named.place.clone().try_read_owned().map_err(|_| EngineError::UnknownSandbox)?;
        let place = OwnedRwLockReadGuard::try_map(place, Option::as_ref).map_err(|_| EngineError::UnknownSandbox)?;
        let used = InUse::new(self.clone(), named, place);
        drop(table);
        Ok(used)
    }

    pub(crate) fn list(&self, who: &Principal) -> Vec<SandboxInfo> {
        let now = Instant::now();
        let age_max = self.age_max();
        let mut infos: Vec<_> = self
            .table()
            .standing
            .values()
            .filter(|named| named.owner == *who)
            .map(|named| named.info(now, age_max))
            .filter(|info| !info.expires_in.is_zero())
            .collect();
        infos.sort_by(|a, b| b.age.cmp(&a.age).then_with(|| a.id.as_str().cmp(b.id.as_str())));
        infos
    }

    /// Everybody's, oldest first, with their owners.
    pub(crate) fn all(&self) -> Vec<(Principal, SandboxInfo)> {
        let now = Instant::now();
        let age_max = self.age_max();
        let table = self.table();
        let mut all: Vec<_> =
            table.standing.values().map(|named| (named.owner.clone(), named.info(now, age_max))).collect();
        all.sort_by(|(_, a), (_, b)| b.age.cmp(&a.age).then_with(|| a.id.as_str().cmp(b.id.as_str())));
        all
    }

    /// Whose it is, if it stands.
    pub(crate) fn owner(&self, id: &str) -> Option<Principal> {
        self.table().standing.get(id).map(|named| named.owner.clone())
    }

    /// Takes a sandbox away from its owner; the handle is done when nothing of it is left.
    pub(crate) fn destroy(
        &self,
        who: &Principal,
        id: &str,
    ) -> Result<JoinHandle<Result<(), EngineError>>, EngineError> {
        let mut table = self.table();
        let found = table.find(who, id).cloned();
        if let Ok(named) = &found {
            table.remove(named, Gone::Destroyed);
        }
        drop(table);
        let named = found.map_err(|error| self.or_of_before(error, who, id))?;
        Ok(self.close(&named, Closed::Destroyed))
    }

    /// Why a sandbox is not here, as far as somebody remembers more than we do.
    fn or_of_before(&self, error: EngineError, who: &Principal, id: &str) -> EngineError {
        match error {
            EngineError::UnknownSandbox if self.observers.iter().any(|observer| observer.has_lost(who, id)) => {
                EngineError::SandboxGone { why: Gone::WithItsServer }
            }
            error => error,
        }
    }

    /// Closes what is past its time, and says when to look again.
    fn sweep(&self) -> Option<Instant> {
        let now = Instant::now();
        let age_max = self.age_max();
        let mut over = Vec::new();
        let mut next: Option<Instant> = None;
        let mut table = self.table();
        for named in table.standing.values() {
            let ends = named.ends(now, age_max);
            if ends <= now {
                over.push(named.clone());
            } else {
                next = Some(next.map_or(ends, |next| next.min(ends)));
            }
        }
        let over = over.into_iter().map(|named| {
            let why = named.expiry(now, age_max);
            table.remove(&named, why);
            (named, why)
        });
        let over: Vec<_> = over.collect();
        drop(table);
        for (named, why) in over {
            tracing::info!(sandbox = %named.id, owner = named.owner.as_str(), "a sandbox expired");
            self.close(&named, why.into());
        }
        next
    }

    /// Closes all, and whatever is added later.
    fn close_all(&self) {
        let all = {
            let mut table = self.table();
            table.open = false;
            std::mem::take(&mut table.standing)
        };
        for named in all.values() {
            self.close(named, Closed::Shutdown);
        }
    }

    /// Once for each sandbox, after it left the table.
    fn close(&self, named: &Arc<Named>, why: Closed) -> JoinHandle<Result<(), EngineError>> {
        named.closing.cancel();
        let event = Event::SandboxClosed { owner: &named.owner, sandbox: &named.id, why };
        observer::tell(&self.observers, &event);
        self.news.tell(&named.owner, &named.id, SandboxEvent::Gone);
        let named = named.clone();
        self.teardowns.begin(async move {
            let place = named.place.write().await.take();
            place.map(|Place { sandbox, slot, hold }| {
                // What it moved while no program ran in it that anybody waited for.
                hold.charge_egress(named.toll.rest(sandbox.moved_bytes()));
                (sandbox, (slot, hold))
            })
        })
    }

    /// Its owner's quota ends it.
    pub(crate) fn close_spent(&self, named: &Arc<Named>) {
        let removed = self.table().remove(named, Gone::Spent);
        if removed {
            self.close(named, Gone::Spent.into());
        }
    }

    fn close_if_standing(&self, named: &Arc<Named>) {
        let removed = self.table().remove(named, Gone::Lost);
        if removed {
            // A program that the engine's end stopped leaves its sandbox in doubt too.
            let why = if self.stop.is_cancelled() { Closed::Shutdown } else { Closed::Lost };
            self.close(named, why);
        }
    }
}

impl Table {
    fn find(&self, who: &Principal, id: &str) -> Result<&Arc<Named>, EngineError> {
        if let Some(named) = self.standing.get(id).filter(|named| named.owner == *who) {
            return Ok(named);
        }
        let gone = self.gone.iter().rev().find(|(gone, owner, _)| gone.as_str() == id && owner == who);
        Err(gone.map_or(EngineError::UnknownSandbox, |(_, _, why)| EngineError::SandboxGone { why: *why }))
    }

    /// Takes a sandbox out and remembers why; `false` when it was out already.
    fn remove(&mut self, named: &Named, why: Gone) -> bool {
        if self.standing.remove(&named.id).is_none() {
            return false;
        }
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back((named.id.clone(), named.owner.clone(), why));
        true
    }
}

/// Closes each sandbox when its time is over, and all of them when the engine stops.
pub(crate) async fn expire(sandboxes: Arc<Sandboxes>, stop: CancellationToken) {
    loop {
        // A sandbox in use counts as if its use ended now, so that `next` is never too late and the end of a use
        // needs to wake nobody.
        let next = sandboxes.sweep();
        let until_next = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sandboxes.arrived.notified() => {}
            () = until_next => {}
        }
    }
    sandboxes.close_all();
}
