//! Zygotes, from the host's side: interpreters that were started once, have loaded what they could, and fork into sandboxes.
//!
//! One for each interpreter that sandboxes ask for. Where there is none yet, or none any more, the guest starts the kernel
//! itself: slower, and the same in all else.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use belljar_core::BackendError;
use belljar_core::wire::{self, Fork, JailReply, JailRequest, Zygote as Wanted};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::timeout;

use super::jail::Jail;
use super::{kernel::Ends, setup};
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

/// After a failure, since the next try would fail too.
const REST: Duration = Duration::from_secs(60);

/// The largest first word: a list of modules.
const WORD_MAX: usize = 64 * 1024;

/// How the first word of one begins that is ready; any other says why it is not.
const READY: &str = "{\"preloaded\"";

#[derive(Debug, Default)]
pub(super) struct Zygotes {
    by_interpreter: Mutex<HashMap<String, Slot>>,
    /// How many are on their way.
    starting: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    current: Option<Arc<Zygote>>,
    is_starting: bool,
    rests_until: Option<Instant>,
}

impl Slot {
    fn is_idle(&self) -> bool {
        self.current.as_ref().is_some_and(|zygote| zygote.is_idle())
    }
}

#[derive(Debug)]
pub(super) struct Zygote {
    /// One request at a time.
    socket: tokio::sync::Mutex<AsyncFd<OwnedFd>>,
    process: OwnedFd,
    jail: Weak<Jail>,
    born: Instant,
    /// How long after its birth it was last asked; 0 if never.
    used_after_ms: AtomicU64,
    alive: AtomicBool,
}

impl Zygotes {
    /// The zygote of an interpreter, if there is one now; sees to it that there will be. `env` is what each kernel's
    /// environment begins with.
    pub(super) fn get(
        self: &Arc<Self>,
        jail: &Arc<Jail>,
        interpreter: &str,
        env: impl FnOnce() -> Vec<(String, String)>,
    ) -> Option<Arc<Zygote>> {
        let mut slots = self.slots();
        slots.retain(|other, slot| other == interpreter || slot.is_starting || !slot.is_idle());
        let slot = slots.entry(interpreter.to_owned()).or_default();
        slot.current.take_if(|zygote| !zygote.is_of(jail));
        let is_fresh = slot.current.as_ref().is_some_and(|zygote| !zygote.is_old());
        let rests = slot.rests_until.is_some_and(|until| Instant::now() < until);
        if !is_fresh && !slot.is_starting && !rests {
            slot.is_starting = true;
            self.starting.send_modify(|count| *count += 1);
            let (zygotes, jail) = (Arc::clone(self), Arc::clone(jail));
            let wanted = Wanted { interpreter: interpreter.to_owned(), env: env() };
            tokio::spawn(async move { zygotes.start(&jail, wanted).await });
        }
        slot.current.clone()
    }

    async fn start(&self, jail: &Arc<Jail>, wanted: Wanted) {
        let interpreter = wanted.interpreter.clone();
        let started = Zygote::start(jail, wanted).await;
        let mut slots = self.slots();
        let slot = slots.entry(interpreter.clone()).or_default();
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

    fn slots(&self) -> MutexGuard<'_, HashMap<String, Slot>> {
        self.by_interpreter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Zygote {
    async fn start(jail: &Arc<Jail>, wanted: Wanted) -> Result<Zygote, BackendError> {
        let began = Instant::now();
        let interpreter = wanted.interpreter.clone();
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| setup("making a zygote's socket", &error))?;
        let process = jail.ask(&JailRequest::Zygote(wanted), &[theirs.as_fd()]).await?;
        drop(theirs);
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| setup("making a zygote's socket", &error))?;
        let socket = sys::watch(ours).map_err(|error| setup("watching a zygote", &error))?;
        // From here on dropping it ends the process.
        let zygote = Zygote {
            socket: tokio::sync::Mutex::new(socket),
            process,
            jail: Arc::downgrade(jail),
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
        self.alive.load(Ordering::Acquire) && std::ptr::eq(self.jail.as_ptr(), Arc::as_ptr(jail))
    }

    fn is_old(&self) -> bool {
        self.born.elapsed() > AGE_MAX && self.used_after_ms.load(Ordering::Relaxed) > 0
    }

    fn is_idle(&self) -> bool {
        let used = self.born + Duration::from_millis(self.used_after_ms.load(Ordering::Relaxed));
        used.elapsed() > IDLE_MAX
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
