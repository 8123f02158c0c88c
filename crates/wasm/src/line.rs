//! What an interpreter's thread and the worker's own share: what it is to read, and whether it is to go on.

use std::os::fd::OwnedFd;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::{Exit, Stream};

/// What an interpreter's thread says to the worker, with its own number.
#[derive(Debug)]
pub(crate) enum Said {
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The driver stands.
    Ready,
    Record(Vec<u8>),
    /// The cell is over.
    Done {
        code: i32,
    },
    /// A whole line.
    Asked(Vec<u8>),
    /// Whoever asked does not wait any more.
    Withdrawn,
    /// So many bytes of its standard input were read.
    Taken(u32),
    /// The last word.
    Ended(Exit),
}

/// One thing said, and what its thread had used by then.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) instance: u64,
    pub(crate) said: Said,
    pub(crate) cpu: Duration,
    pub(crate) memory_peak_bytes: u64,
}

/// Why a wait ended without what was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The thread is to end.
    Stopped,
    /// The code is to be interrupted.
    Interrupted,
    /// The time is over.
    Late,
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    stop: Option<Exit>,
    interrupted: bool,
    pub(crate) control: Vec<u8>,
    pub(crate) stdin: Input,
    pub(crate) answer: Vec<u8>,
    pub(crate) is_answered: bool,
}

/// Standard input, read from its beginning. What was read of one that comes live is not kept.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    at: usize,
    is_whole: bool,
}

impl Input {
    pub(crate) fn whole(bytes: Vec<u8>) -> Input {
        Input { bytes, at: 0, is_whole: true }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn end(&mut self) {
        self.is_whole = true;
    }

    /// At most `most` bytes; `None` while there may be more to come.
    pub(crate) fn take(&mut self, most: usize) -> Option<&[u8]> {
        let rest = self.bytes.len() - self.at;
        if rest == 0 && !self.is_whole {
            return None;
        }
        let from = self.at;
        self.at += rest.min(most);
        Some(&self.bytes[from..self.at])
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Where to go on: only within what is there.
    pub(crate) fn seek(&mut self, to: i64) -> Option<usize> {
        self.at = usize::try_from(to).ok().filter(|to| *to <= self.bytes.len())?;
        Some(self.at)
    }

    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    instance: u64,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    says: SyncSender<Message>,
    wake: Arc<OwnedFd>,
}

impl Line {
    pub(crate) fn new(instance: u64, says: SyncSender<Message>, wake: Arc<OwnedFd>) -> Line {
        let inner = Inner { instance, inbox: Mutex::default(), changed: Condvar::new(), says, wake };
        Line { inner: Arc::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inner.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what the thread sees, and wakes it.
    pub(crate) fn put<T>(&self, change: impl FnOnce(&mut Inbox) -> T) -> T {
        let outcome = change(&mut self.lock());
        self.inner.changed.notify_all();
        outcome
    }

    /// Has the thread end, with this as its exit. The first word counts.
    pub(crate) fn stop(&self, exit: Exit) {
        self.put(|inbox| inbox.stop.get_or_insert(exit).to_owned());
    }

    pub(crate) fn stopped(&self) -> Option<Exit> {
        self.lock().stop
    }

    pub(crate) fn interrupt(&self) {
        self.put(|inbox| inbox.interrupted = true);
    }

    /// Whether the code is to be interrupted; said once.
    pub(crate) fn take_interrupt(&self) -> bool {
        std::mem::take(&mut self.lock().interrupted)
    }

    /// Whether it was interrupted, and has not heard of it yet.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.lock().interrupted
    }

    /// Waits until `ready` has something. An interrupt ends it too, unless the wait is not the code's own.
    pub(crate) fn wait<T>(
        &self,
        until: Option<Instant>,
        heeds_interrupt: bool,
        mut ready: impl FnMut(&mut Inbox) -> Option<T>,
    ) -> Result<T, Woken> {
        let mut inbox = self.lock();
        loop {
            if inbox.stop.is_some() {
                return Err(Woken::Stopped);
            }
            if let Some(found) = ready(&mut inbox) {
                return Ok(found);
            }
            if heeds_interrupt && std::mem::take(&mut inbox.interrupted) {
                return Err(Woken::Interrupted);
            }
            inbox = match until {
                None => self.inner.changed.wait(inbox).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Woken::Late);
                    }
                    self.inner.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Says something to the worker, and waits while that has much unsent.
    pub(crate) fn say(&self, said: Said, memory_peak_bytes: u64) {
        let message = Message { instance: self.inner.instance, said, cpu: crate::sys::thread_cpu(), memory_peak_bytes };
        // Without a worker there is nobody to tell.
        if self.inner.says.send(message).is_ok() {
            let _ = rustix::io::write(&self.inner.wake, &1u64.to_ne_bytes());
        }
    }
}
