//! The process that a machine is on this host: a monitor, in cgroups, as a user of its own where we can give it one. It
//! ends with us: Linux kills it with the thread that started it, so that thread is one that stays.

use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::{BackendError, Limits};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::cgroup::{Cgroups, Group};
use crate::ids::{Ids, Lease};
use crate::setup;
use crate::sys::{self, Held};

/// Descriptors of a monitor: its streams, drives, threads' own.
const OPEN_FILES: u64 = 512;

/// Threads of a monitor besides those that are processors.
const THREADS: u32 = 64;

/// What a monitor needs for itself, beyond the memory of its machine. An emulator keeps what it has translated.
const OVERHEAD_BYTES: u64 = 640 << 20;

/// What machines are held by.
#[derive(Debug)]
pub(super) struct Walls {
    pub(super) cgroups: Arc<Cgroups>,
    pub(super) ids: Option<Arc<Ids>>,
    starter: Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Walls {
    pub(super) fn new() -> Result<Walls, BackendError> {
        let (starter, jobs) = channel::<Job>();
        std::thread::Builder::new()
            .name("machines".to_owned())
            .spawn(move || jobs.into_iter().for_each(|job| job()))
            .map_err(|error| setup("starting a thread", &error))?;
        let ids = sys::is_admin().then(|| Arc::new(Ids::default()));
        Ok(Walls { cgroups: Arc::new(Cgroups::find()), ids, starter })
    }
}

/// What is started.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) command: Command,
    /// Each with the number that it is to have.
    pub(super) descriptors: Vec<(OwnedFd, i32)>,
    /// Of the machine, all together.
    pub(super) memory_bytes: u64,
    pub(super) cpu_milli: u32,
    /// Bytes of the largest file that it may write.
    pub(super) file_bytes: u64,
    pub(super) user: User,
}

/// Who a process is to be.
#[derive(Debug)]
pub(super) enum User {
    /// A user of its own, where we can give it one.
    Own,
    /// The program becomes this one itself, and needs our rights until then.
    Becomes(Lease),
}

/// A process that runs. Dropping it kills it, and clears up behind it in the background.
#[derive(Debug)]
pub(super) struct Process {
    remains: Mutex<Option<Remains>>,
    group: Option<String>,
    own_user: bool,
}

#[derive(Debug)]
struct Remains {
    child: Child,
    handle: OwnedFd,
    group: Option<Group>,
    id: Option<Lease>,
    /// The thread that it would end with.
    _walls: Arc<Walls>,
}

impl Process {
    /// To its end in a task of its own: what was started for a caller that went away is then a process that nobody holds, and
    /// ends like any other.
    pub(super) async fn start(walls: &Arc<Walls>, wanted: Wanted) -> Result<Process, BackendError> {
        let starting = tokio::spawn(Process::begin(Arc::clone(walls), wanted));
        starting.await.unwrap_or_else(|error| Err(setup("starting a machine", &error)))
    }

    async fn begin(walls: Arc<Walls>, wanted: Wanted) -> Result<Process, BackendError> {
        let limits = Limits {
            memory_bytes: wanted.memory_bytes + OVERHEAD_BYTES,
            processes: THREADS + wanted.cpu_milli.div_ceil(1000),
            cpu_milli: wanted.cpu_milli,
            ..Limits::default()
        };
        let group = walls.cgroups.create(&limits).map_err(|error| setup("making a cgroup", &error))?;
        let (id, taken) = match wanted.user {
            User::Own => {
                let id = walls.ids.as_ref().map(Ids::lease);
                let taken = id.as_ref().map(Lease::number);
                (id, taken)
            }
            User::Becomes(id) => (Some(id), None),
        };
        let held = Held { id: taken, open_files: OPEN_FILES, file_bytes: wanted.file_bytes };
        let doors = group.as_ref().map_or(Ok(Vec::new()), Group::doors);
        let doors = doors.map_err(|error| setup("making a cgroup", &error))?;
        let (answer, answered) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(move || {
            let given: Vec<_> = wanted.descriptors.iter().map(|(fd, number)| (fd, *number)).collect();
            // Where nobody waits any more, the server is ending.
            if let Err(Ok(mut child)) = answer.send(sys::start_machine(wanted.command, &given, &doors, held)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        });
        walls.starter.send(job).map_err(|_| setup("starting a machine", &"nothing starts them any more"))?;
        let started = answered.await.map_err(|error| setup("starting a machine", &error))?;
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                if let Some(group) = group {
                    group.remove().await;
                }
                return Err(setup("starting a machine", &error));
            }
        };
        let described = group.as_ref().map(Group::describe);
        let handle = Pid::from_raw(child.id() as i32)
            .ok_or_else(|| setup("starting a machine", &"it has no number"))
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(|error| setup("watching a machine", &error)));
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                if let Some(group) = group {
                    group.remove().await;
                }
                return Err(error);
            }
        };
        let own_user = id.is_some();
        let group = group.map(Group::entered);
        let remains = Remains { child, handle, group, id, _walls: walls };
        Ok(Process { remains: Mutex::new(Some(remains)), group: described, own_user })
    }

    /// What its cgroups are, if it is in any.
    pub(super) fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    pub(super) fn has_own_user(&self) -> bool {
        self.own_user
    }

    /// How it ended, if it has.
    pub(super) fn how_ended(&self) -> Option<String> {
        let mut remains = self.remains.lock().unwrap_or_else(PoisonError::into_inner);
        let status = remains.as_mut()?.child.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Kills it, and returns when nothing of it is left.
    pub(super) async fn destroy(&self) {
        let remains = self.remains.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(remains) = remains {
            remains.clear().await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut remains) = self.remains.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let _ = pidfd_send_signal(&remains.handle, Signal::KILL);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(remains.clear())),
            // Without a runtime the server is ending; the next one tidies the cgroups.
            Err(_) => drop(remains.child.wait()),
        }
    }
}

impl Remains {
    async fn clear(self) {
        let Remains { mut child, handle, group, id, _walls } = self;
        let _ = pidfd_send_signal(&handle, Signal::KILL);
        if let Ok(exit) = sys::watch(handle) {
            let _ = exit.readable().await;
        }
        let _ = child.wait();
        if let Some(group) = group {
            group.remove().await;
        }
        drop(id);
    }
}
