//! One sandbox as the host holds it: the processes of runsc, what they say, the cgroups around them, its slots and its directory.
//!
//! ```text
//! runsc run ── the one we started; its end is the end of all
//! ├── gofer     opens files of the host for it
//! └── sandbox   gVisor's kernel, in which everything of the sandbox runs
//! ```

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::{BackendError, Later, Layer};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::root::Root;
use super::said::Said;
use super::start::Starter;
use crate::cgroup::Group;
use crate::linked::{self, MemoryKills, WhyLost, no_kills};
use crate::run_directory::RunDirectory;
use crate::slots::Slots;
use crate::{setup, sys};

/// What killed processes take at most to be gone. They have no say in it; a busy machine has.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// From the end of the stream to that of runsc's last words.
const WORD_PATIENCE: Duration = Duration::from_secs(2);

/// Dropping it ends every process and removes what the host holds of it, in the background.
#[derive(Debug)]
pub(super) struct Place {
    remains: Option<Remains>,
    slots: Option<Arc<Slots>>,
}

#[derive(Debug)]
struct Remains {
    runsc: Arc<Running>,
    group: Option<Arc<Group>>,
    holding: Holding,
}

/// What has to be there as long as it is.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) directory: PathBuf,
    pub(super) root: Arc<Root>,
    /// Its end removes every sandbox's directory.
    pub(super) run: Arc<RunDirectory>,
    /// Its end is the end of every sandbox that it started.
    pub(super) starter: Arc<Starter>,
}

/// The one process that we started.
#[derive(Debug)]
struct Running {
    child: Mutex<Child>,
    pid: Pid,
    said: Said,
}

impl Place {
    pub(super) fn new(mut child: Child, group: Option<Group>, slots: Option<Slots>, holding: Holding) -> Place {
        let said = Said::default();
        if let Some(stderr) = child.stderr.take() {
            said.listen_to(stderr.into());
        }
        let pid = Pid::from_child(&child);
        let group = group.map(|group| Arc::new(group.entered()));
        let runsc = Arc::new(Running { child: Mutex::new(child), pid, said });
        Place { remains: Some(Remains { runsc, group, holding }), slots: slots.map(Arc::new) }
    }

    pub(super) fn group(&self) -> Option<&Group> {
        self.remains.as_ref()?.group.as_deref()
    }

    /// Returns when runsc has ended and what it said is all there, or after a while.
    pub(super) async fn ended_soon(&self) {
        let Some(remains) = &self.remains else { return };
        // Not reaped yet, so that its number is its own.
        if let Ok(exit) =
            pidfd_open(remains.runsc.pid, PidfdFlags::NONBLOCK).map_err(io::Error::from).and_then(sys::watch)
        {
            let _ = tokio::time::timeout(WORD_PATIENCE, exit.readable()).await;
        }
        remains.runsc.said.whole(WORD_PATIENCE).await;
    }

    /// What runsc has said so far, in one line.
    pub(super) fn said(&self) -> String {
        self.remains.as_ref().map(|remains| remains.runsc.said.line()).unwrap_or_default()
    }
}

impl linked::Place for Place {
    fn memory_kills(&self) -> MemoryKills {
        match self.remains.as_ref().and_then(|remains| remains.group.clone()) {
            Some(group) => Box::new(move || group.memory_kills()),
            None => no_kills(),
        }
    }

    fn add_layer(&self, layer: Layer) -> Later<'_, ()> {
        Box::pin(async move {
            let slots = self.slots.clone().ok_or_else(|| setup("adding packages", &"there is no store of them"))?;
            // One link for each of its files.
            let adding = tokio::task::spawn_blocking(move || slots.add(&layer)).await;
            adding.map_err(io::Error::other).flatten().map_err(|error| setup("adding packages", &error))
        })
    }

    async fn destroy(mut self) -> Result<(), BackendError> {
        if let Some(remains) = self.remains.take() {
            let processes = remains.runsc.kill();
            remains.clear(processes).await;
        }
        Ok(())
    }

    fn why_lost(&self) -> Option<WhyLost> {
        let Remains { runsc, group, .. } = self.remains.as_ref()?;
        let (runsc, group) = (Arc::clone(runsc), group.clone());
        let kills_before = group.as_ref().map_or(0, |group| group.memory_kills());
        Some(Box::new(move || {
            let status = runsc.ended()?;
            let kills = group.as_ref().map_or(0, |group| group.memory_kills());
            Some(if kills > kills_before {
                "the host's kernel ended gVisor's for memory".to_owned()
            } else {
                runsc.why(status)
            })
        }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(remains) = self.remains.take() else { return };
        let processes = remains.runsc.kill();
        // Without a runtime the server is ending; its directory goes with it, or with the next one's start.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(remains.clear(processes));
        }
    }
}

impl Running {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    fn why(&self, status: ExitStatus) -> String {
        let said = self.said.line();
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        match (status.signal(), status.code()) {
            (Some(signal), _) => format!("runsc was killed by signal {signal}{said}"),
            // So it tells of a kernel of its own that was killed.
            (None, Some(128 | 137)) => format!("gVisor's kernel was killed{said}"),
            (None, code) => format!("gVisor's kernel ended with code {}{said}", code.unwrap_or(0)),
        }
    }

    /// Kills runsc and its children, which would follow it anyway, and returns handles of all to wait for.
    fn kill(&self) -> Vec<OwnedFd> {
        // Reaped already: its number may be another's.
        if self.ended().is_some() {
            return Vec::new();
        }
        let own = pidfd_open(self.pid, PidfdFlags::NONBLOCK);
        let handles: Vec<OwnedFd> = children_of(self.pid)
            .into_iter()
            .filter_map(|child| pidfd_open(child, PidfdFlags::NONBLOCK).ok())
            .chain(own)
            .collect();
        for handle in &handles {
            let _ = pidfd_send_signal(handle.as_fd(), Signal::KILL);
        }
        handles
    }
}

impl Remains {
    async fn clear(self, processes: Vec<OwnedFd>) {
        let Remains { runsc, group, holding } = self;
        for process in processes {
            if let Ok(exit) = sys::watch(process) {
                let _ = tokio::time::timeout(END_PATIENCE, exit.readable()).await;
            }
        }
        runsc.ended();
        if let Some(group) = group {
            group.remove().await;
        }
        let removed = tokio::task::spawn_blocking(move || {
            let Holding { directory, root, run, starter } = holding;
            let removed = fs::remove_dir_all(&directory);
            drop((root, run, starter));
            removed.map_err(|error| (directory, error))
        });
        if let Ok(Err((directory, error))) = removed.await {
            tracing::warn!(directory = %directory.display(), %error, "a sandbox's directory stays until the server ends");
        }
    }
}

/// The children of all threads of a process.
fn children_of(pid: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let mut children = Vec::new();
    for task in tasks.into_iter().flatten().flatten() {
        let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().filter_map(|pid| pid.parse().ok().and_then(Pid::from_raw)));
    }
    children
}
