//! Zygotes, from the host's side: interpreters that were started once, have loaded what they could, and fork into sandboxes.
//!
//! One for each interpreter that sandboxes ask for, and for each layer of packages that is used more than once. Where there
//! is none yet, or none any more, the guest starts the kernel itself: slower, and the same in all else.
//!
//! A zygote can enter every sandbox of its jail. One that loads a layer runs what its packages do, so it has a jail of its
//! own: what is in that are sandboxes of one owner with the same layer and without a network (docs/decisions/0012).

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use belljar_core::wire::{self, CgroupEntry, Fork, JailReply, JailRequest, Zygote as Wanted};
use belljar_core::{BackendError, Layer};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::timeout;

use super::jail::{Given, Jail};
use super::kernel::Ends;
use super::{probe, setup};
use crate::cgroup::Group;
use crate::sys;

/// Past this an interpreter is not loading but stuck.
const START_MAX: Duration = Duration::from_secs(60);

/// A fork is a millisecond or a few.
const FORK_MAX: Duration = Duration::from_secs(10);

/// All that are forked from one share its hash secret and where things lie in memory, so that one in use is replaced now
/// and then: what code in one sandbox learns of that is of no use in another for long.
const AGE_MAX: Duration = Duration::from_secs(15 * 60);

/// One that is not used for so long is let go: each is some ten megabytes or, with scientific packages, a hundred and more.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// Those with a layer at once, and how long one has to be unused to make room for another.
const LAYERED_MAX: usize = 8;
const LAYERED_IDLE_MIN: Duration = Duration::from_secs(60);

/// The use of a layer that it is started at: most are used once.
const LAYERED_USES: u32 = 2;

/// How many interpreters and layers are remembered by their uses alone.
const SLOTS_MAX: usize = 256;

/// After a failure, since the next try would fail too.
const REST: Duration = Duration::from_secs(60);

/// The largest first word: a list of modules.
const WORD_MAX: usize = 64 * 1024;

/// How the first word of one begins that is ready; any other says why it is not.
const READY: &str = "{\"preloaded\"";

#[derive(Debug, Default)]
pub(super) struct Zygotes {
    slots: Mutex<HashMap<Key, Slot>>,
    /// How many are on their way.
    starting: watch::Sender<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    interpreter: String,
    layer: Option<Layer>,
    /// Of sandboxes with that layer.
    owner: Option<String>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Arc<Zygote>>,
    is_starting: bool,
    rests_until: Option<Instant>,
    uses: u32,
}

impl Slot {
    fn is_idle(&self) -> bool {
        self.current.as_ref().is_some_and(|zygote| zygote.unused_for() > IDLE_MAX)
    }

    fn is_there(&self) -> bool {
        self.is_starting || self.current.is_some()
    }

    /// Whether to start one now, since there is none, or one that is to be replaced.
    fn wants_one(&self) -> bool {
        let is_fresh = self.current.as_ref().is_some_and(|zygote| !zygote.is_old());
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        !is_fresh && !self.is_starting && !rests
    }
}

/// Where a zygote is.
#[derive(Debug)]
enum Home {
    Shared(Weak<Jail>),
    /// In a jail for it and for the sandboxes that it is forked into.
    Own(Arc<Jail>),
}

/// Where one is to be started.
#[derive(Debug)]
enum Ground {
    Shared(Arc<Jail>),
    Own(Box<Given>),
}

#[derive(Debug)]
pub(super) struct Zygote {
    /// One request at a time.
    socket: tokio::sync::Mutex<AsyncFd<OwnedFd>>,
    process: OwnedFd,
    home: Home,
    born: Instant,
    /// How long after its birth it was last asked; 0 if never.
    used_after_ms: AtomicU64,
    alive: AtomicBool,
}

impl Zygotes {
    /// The zygote of an interpreter, if there is one now; sees to it that there will be. `env` is what each kernel's
    /// environment begins with.
    pub(super) fn of_jail(
        self: &Arc<Self>,
        jail: &Arc<Jail>,
        interpreter: &str,
        env: impl FnOnce() -> Vec<(String, String)>,
    ) -> Option<Arc<Zygote>> {
        let key = Key { interpreter: interpreter.to_owned(), layer: None, owner: None };
        let mut slots = self.slots();
        let slot = tidied(&mut slots, &key);
        slot.current.take_if(|zygote| !zygote.is_of(jail));
        if slot.wants_one() {
            self.start_behind(slot, key, Ground::Shared(Arc::clone(jail)), env());
        }
        slot.current.clone()
    }

    /// The same with a layer's packages, in a jail of its own: the sandbox has to be opened in that one. `given` is what
    /// that is started with, if there can be one.
    pub(super) fn of_layer(
        self: &Arc<Self>,
        layer: &Layer,
        owner: Option<&str>,
        interpreter: &str,
        env: impl FnOnce() -> Vec<(String, String)>,
        given: impl FnOnce() -> Option<Given>,
    ) -> Option<Arc<Zygote>> {
        let key =
            Key { interpreter: interpreter.to_owned(), layer: Some(layer.clone()), owner: owner.map(str::to_owned) };
        let mut slots = self.slots();
        let slot = tidied(&mut slots, &key);
        slot.uses = slot.uses.saturating_add(1);
        slot.current.take_if(|zygote| !zygote.is_there());
        let is_wanted = slot.uses >= LAYERED_USES && slot.wants_one();
        if is_wanted
            && has_room(&mut slots, &key)
            && let Some(given) = given()
        {
            let slot = slots.entry(key.clone()).or_default();
            self.start_behind(slot, key.clone(), Ground::Own(Box::new(given)), env());
        }
        slots.get(&key).and_then(|slot| slot.current.clone())
    }

    fn start_behind(self: &Arc<Self>, slot: &mut Slot, key: Key, ground: Ground, env: Vec<(String, String)>) {
        slot.is_starting = true;
        self.starting.send_modify(|count| *count += 1);
        let zygotes = Arc::clone(self);
        tokio::spawn(async move { zygotes.start(key, ground, env).await });
    }

    async fn start(&self, key: Key, ground: Ground, env: Vec<(String, String)>) {
        let interpreter = key.interpreter.clone();
        let started = Zygote::start(ground, &key, env).await;
        let mut slots = self.slots();
        let slot = slots.entry(key).or_default();
        slot.is_starting = false;
        self.starting.send_modify(|count| *count -= 1);
        match started {
            Ok(zygote) => slot.current = Some(Arc::new(zygote)),
            Err(error) => {
                slot.rests_until = Some(Instant::now() + REST);
                tracing::warn!(interpreter, %error, "there is no zygote; kernels start by themselves, which takes longer");
            }
        }
    }

    /// Returns when none is on its way.
    pub(super) async fn settled(&self) {
        // It fails only when the sender is gone, which is ours.
        let _ = self.starting.subscribe().wait_for(|count| *count == 0).await;
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of one, when those that nobody uses are gone.
fn tidied<'a>(slots: &'a mut HashMap<Key, Slot>, key: &Key) -> &'a mut Slot {
    slots.retain(|other, slot| other == key || slot.is_starting || !slot.is_idle());
    if slots.len() >= SLOTS_MAX {
        slots.retain(|other, slot| other == key || slot.is_there());
    }
    slots.entry(key.clone()).or_default()
}

/// Whether there may be one more with a layer; lets go of the one that was not used for longest if that helps.
fn has_room(slots: &mut HashMap<Key, Slot>, key: &Key) -> bool {
    let mut others: Vec<(Duration, Key)> = Vec::new();
    for (other, slot) in slots.iter().filter(|(other, slot)| other.layer.is_some() && *other != key && slot.is_there())
    {
        let unused_for = slot.current.as_ref().filter(|_| !slot.is_starting).map(|zygote| zygote.unused_for());
        others.push((unused_for.unwrap_or_default(), other.clone()));
    }
    if others.len() < LAYERED_MAX {
        return true;
    }
    match others.into_iter().max_by_key(|(unused_for, _)| *unused_for) {
        Some((unused_for, oldest)) if unused_for >= LAYERED_IDLE_MIN => slots.remove(&oldest).is_some(),
        _ => false,
    }
}

impl Zygote {
    async fn start(ground: Ground, key: &Key, env: Vec<(String, String)>) -> Result<Zygote, BackendError> {
        let began = Instant::now();
        let (jail, home) = match ground {
            Ground::Shared(jail) => (Arc::clone(&jail), Home::Shared(Arc::downgrade(&jail))),
            Ground::Own(given) => {
                // It stands still for some milliseconds.
                let started = tokio::task::spawn_blocking(move || Jail::start(*given)).await;
                let jail = started.map_err(|error| setup("starting a jail", &error))?;
                let jail = Arc::new(jail.map_err(|refusal| probe::explain(&refusal))?);
                (Arc::clone(&jail), Home::Own(jail))
            }
        };
        let interpreter = key.interpreter.clone();
        let wanted = Wanted {
            interpreter: interpreter.clone(),
            env,
            layers: key.layer.iter().cloned().collect(),
            cgroups: jail.group().map_or(CgroupEntry::JoinTasks, Group::entry),
        };
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| setup("making a zygote's socket", &error))?;
        let fds: Vec<_> =
            std::iter::once(theirs.as_fd()).chain(jail.group().into_iter().flat_map(Group::entrances)).collect();
        let process = jail.ask(&JailRequest::Zygote(wanted), &fds).await?;
        drop(fds);
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| setup("making a zygote's socket", &error))?;
        let socket = sys::watch(ours).map_err(|error| setup("watching a zygote", &error))?;
        // From here on dropping it ends the process.
        let zygote = Zygote {
            socket: tokio::sync::Mutex::new(socket),
            process,
            home,
            born: Instant::now(),
            used_after_ms: AtomicU64::new(0),
            alive: AtomicBool::new(true),
        };
        let word = zygote.hear(START_MAX, WORD_MAX).await?;
        let word = String::from_utf8_lossy(&word);
        if !word.starts_with(READY) {
            return Err(setup("starting a zygote", &word));
        }
        tracing::debug!(interpreter, took = ?began.elapsed(), loaded = %word, "a zygote is ready");
        Ok(zygote)
    }

    fn is_of(&self, jail: &Arc<Jail>) -> bool {
        let is_home = matches!(&self.home, Home::Shared(home) if std::ptr::eq(home.as_ptr(), Arc::as_ptr(jail)));
        is_home && self.alive.load(Ordering::Acquire)
    }

    fn is_there(&self) -> bool {
        self.alive.load(Ordering::Acquire) && self.own_jail().is_some_and(|jail| jail.is_alive())
    }

    /// The jail that its sandboxes have to be opened in, if it is not the one of all others.
    pub(super) fn own_jail(&self) -> Option<&Arc<Jail>> {
        match &self.home {
            Home::Own(jail) => Some(jail),
            Home::Shared(_) => None,
        }
    }

    fn is_old(&self) -> bool {
        self.born.elapsed() > AGE_MAX && self.used_after_ms.load(Ordering::Relaxed) > 0
    }

    fn unused_for(&self) -> Duration {
        let used = self.born + Duration::from_millis(self.used_after_ms.load(Ordering::Relaxed));
        used.elapsed()
    }

    /// Forks a kernel into the sandbox whose first process is given. Must not be dropped half-way: the answer would be
    /// taken for the next one's.
    pub(super) async fn fork(
        &self,
        fork: &Fork,
        first_process: &OwnedFd,
        ends: &Ends,
        cgroups: &[OwnedFd],
    ) -> Result<(), BackendError> {
        let body = wire::encode_body(fork).map_err(|error| setup("asking a zygote", &error))?;
        let fds = std::iter::once(first_process).chain(ends.all()).chain(cgroups);
        let fds: Vec<_> = fds.map(AsFd::as_fd).collect();
        let socket = self.socket.lock().await;
        self.used_after_ms.store(self.born.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
        sys::send(socket.get_ref().as_fd(), &body, &fds).map_err(|error| self.lost(&error))?;
        let reply = hear(&socket, FORK_MAX, 4096).await.map_err(|error| self.lost(&error))?;
        match wire::decode_body(&reply) {
            Ok(JailReply::Opened) => Ok(()),
            Ok(JailReply::Failed { step, errno }) => Err(setup(&step, &std::io::Error::from_raw_os_error(errno))),
            _ => Err(self.lost(&"it spoke out of turn")),
        }
    }

    async fn hear(&self, most: Duration, bytes_max: usize) -> Result<Vec<u8>, BackendError> {
        hear(&*self.socket.lock().await, most, bytes_max).await.map_err(|error| self.lost(&error))
    }

    /// One that does not answer, or not in order, is not asked again.
    fn lost(&self, why: &dyn std::fmt::Display) -> BackendError {
        self.alive.store(false, Ordering::Release);
        setup("asking a zygote", why)
    }
}

async fn hear(socket: &AsyncFd<OwnedFd>, most: Duration, bytes_max: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes_max];
    let received = socket.async_io(Interest::READABLE, |socket| sys::receive(socket.as_fd(), &mut buffer));
    let (length, _) = timeout(most, received).await.map_err(|_| std::io::ErrorKind::TimedOut)??;
    if length == 0 {
        return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "it ended"));
    }
    buffer.truncate(length);
    Ok(buffer)
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
    }
}
