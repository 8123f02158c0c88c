//! Namespaces, seccomp, landlock, cgroups and limits on the host's own kernel: the default on Linux.
//!
//! ```text
//! Native ──▶ jail (one process, single thread) ──▶ sandbox: guest agent as pid 1 ──▶ programs
//!    │          mounts, namespaces, sealing
//!    └──▶ cgroups, host ids, the stream to each guest
//! ```

mod cgroup;
mod ids;
mod interpreters;
mod jail;
mod kernel;
mod layout;
mod place;
mod probe;
mod warm;
mod zygote;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::wire::{Bounds, CgroupEntry, Fork, Init, Open};
use belljar_core::{
    Backend, BackendError, Capabilities, Content, Event, Exit, Isolation, Language, Later, Listing, Probe, Program,
    Range, Running, Sandbox, Spec, StdinWriter,
};
use tokio::net::UnixStream;

use self::cgroup::{Cgroups, Controller, Group};
use self::ids::Ids;
use self::interpreters::{Chosen, Interpreters};
use self::jail::Jail;
use self::place::Place;
use self::zygote::{Zygote, Zygotes};
use crate::host::Host;
use crate::link::{self, Link, NotThere, Started};
use crate::sys;

pub use self::warm::NotWarm;
pub(crate) use self::warm::fill as warm_up;

/// What a process may have in data before the guest's watch can have seen it.
const WATCH_SLACK_BYTES: u64 = 64 * 1024 * 1024;

/// Fewer than these, and a fork would fail where a start does not.
const FORKED_PROCESSES_MIN: u32 = 4;

/// Whether interpreters are started and loaded ahead, to be forked into sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preload {
    Yes,
    No,
}

#[derive(Debug)]
pub(crate) struct Native {
    interpreters: Interpreters,
    /// Shown to every sandbox, if it was filled before we started.
    go_cache: Option<PathBuf>,
    ids: Option<Arc<Ids>>,
    /// The host user of zygotes, where each sandbox has its own.
    zygote_id: Option<ids::Lease>,
    /// `None` if the operator wants none.
    zygotes: Option<Arc<Zygotes>>,
    // Before `cgroups`: it may be in one that goes with them.
    jail: Mutex<Result<Arc<Jail>, jail::Refusal>>,
    cgroups: Arc<Cgroups>,
}

impl Native {
    pub(crate) fn start(host: &Host, preload: Preload) -> Native {
        let interpreters = Interpreters::find(host);
        let go_cache = interpreters.default_of(Language::Go).and_then(|go| warm::cache_of(go, host));
        // Before the jail: the server may have to step into another cgroup, alone, and a child that it already has
        // would stay behind and be in the way.
        let cgroups = Arc::new(Cgroups::find());
        // Root gives each sandbox a host user of its own; anybody else has only the one.
        let ids = sys::is_admin().then(|| Arc::new(Ids::default()));
        let zygote_id = ids.as_ref().map(Ids::lease);
        let jail = jail::Refusal { step: String::new(), errno: 0 };
        let native = Native {
            cgroups,
            ids,
            zygote_id,
            jail: Mutex::new(Err(jail)),
            zygotes: (preload == Preload::Yes).then(Arc::default),
            interpreters,
            go_cache,
        };
        // Its zygote has until the first call to be there.
        if let (Ok(jail), Ok(chosen)) = (native.jail(), native.interpreters.choose(&[])) {
            native.zygote(&jail, Some(Language::Python), &chosen);
        }
        native
    }

    /// The jail, started anew if it was killed.
    fn jail(&self) -> Result<Arc<Jail>, BackendError> {
        let mut jail = self.jail.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*jail, Ok(jail) if jail.is_alive()) {
            let mut plan = layout::plan(&self.interpreters, self.go_cache.as_deref());
            plan.zygote_id = self.zygote_id.as_ref().map(|id| id.number());
            *jail = Jail::start(&plan).map(Arc::new);
        }
        jail.as_ref().map(Arc::clone).map_err(probe::explain)
    }

    /// What a kernel that is to wait in a sandbox can be forked from, if anything.
    fn zygote(&self, jail: &Arc<Jail>, waiting: Option<Language>, chosen: &Chosen) -> Option<Arc<Zygote>> {
        let zygotes = self.zygotes.as_ref().filter(|_| waiting == Some(Language::Python))?;
        let (_, interpreter) = chosen.programs.iter().find(|(language, _)| *language == Language::Python)?;
        zygotes.get(jail, interpreter, || layout::environment(chosen, &[]))
    }

    async fn open_place(&self, jail: &Arc<Jail>, spec: &Spec) -> Result<NativeSandbox, BackendError> {
        let limits = &spec.limits;
        let chosen = self.interpreters.choose(&spec.interpreters)?;
        let group = self.cgroups.create(limits).map_err(|error| setup("making a cgroup", &error))?;
        let id = self.ids.as_ref().map(Ids::lease);
        let holds_memory = group.as_ref().is_some_and(|group| group.holds(Controller::Memory));
        let holds_cpu = group.as_ref().is_some_and(|group| group.holds(Controller::Cpu));
        let bounds = Bounds {
            // The guest agent and the runner beside each program are not the caller's.
            processes: limits.processes + 2,
            open_files: limits.open_files,
            // Above the limit: the guest's watch should meet it first, and tell it as what it is. This is for what
            // grows faster than the watch looks.
            data_bytes: (!holds_memory).then_some(limits.memory_bytes + limits.memory_bytes / 4 + WATCH_SLACK_BYTES),
        };
        // On its way in it is four processes at once for a moment.
        let waiting = spec.waiting.filter(|_| limits.processes >= FORKED_PROCESSES_MIN);
        let zygote = self.zygote(jail, waiting, &chosen);
        let forked = zygote.map(|zygote| kernel::pair().map(|ends| (zygote, ends))).transpose()?;
        let open = Open {
            host_id: id.as_ref().map(|id| id.number()),
            cgroups: group.as_ref().map_or(CgroupEntry::JoinTasks, Group::entry),
            disk_bytes: limits.disk_bytes,
            with_kernel: forked.is_some(),
            bounds,
        };
        let (ours, guests) =
            std::os::unix::net::UnixStream::pair().map_err(|error| setup("making a stream", &error))?;
        let mut guests = vec![guests.into()];
        let forked = forked.map(|(zygote, (guests_ends, kernels_ends))| {
            guests.extend(guests_ends.into_all());
            (zygote, kernels_ends)
        });
        let isolation = self.isolation(jail, group.as_ref(), id.is_some());
        let place = Place::open(jail, open, guests, group, id).await?;
        ours.set_nonblocking(true).map_err(|error| setup("making a stream", &error))?;
        let ours = UnixStream::from_std(ours).map_err(|error| setup("making a stream", &error))?;
        let env = layout::environment(&chosen, &spec.env);
        let fork = forked.is_some().then(|| Fork { landlock: jail.landlock_abi() > 0, bounds, env: env.clone() });
        let init = Init {
            env,
            interpreters: chosen.programs,
            watch_memory_bytes: (!holds_memory).then_some(limits.memory_bytes),
            waiting: spec.waiting.filter(|_| forked.is_none()),
            forked: spec.waiting.filter(|_| forked.is_some()),
        };
        let link = Link::establish(ours, init).await.map_err(|not_there| match not_there {
            NotThere::Failed(error) => error,
            NotThere::Broken { step, errno } => probe::explain(&jail::Refusal { step, errno }),
        })?;
        if let (Some((zygote, ends)), Some(fork)) = (forked, fork) {
            place.fork(zygote, fork, ends)?;
        }
        let cpus = if holds_cpu {
            limits.cpu_milli.div_ceil(1000)
        } else {
            std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
        };
        Ok(NativeSandbox { link, place, isolation, cpus })
    }

    fn isolation(&self, jail: &Jail, group: Option<&Group>, own_id: bool) -> Isolation {
        Isolation {
            backend: self.name().to_owned(),
            namespaces: "user pid mount net ipc uts cgroup time".to_owned(),
            seccomp: "allow-list".to_owned(),
            landlock: match jail.landlock_abi() {
                0 => "none: this kernel has none, or only its first version".to_owned(),
                abi => format!("abi {abi}"),
            },
            cgroup: group
                .map_or_else(|| format!("none: {}; rlimits instead", self.cgroups.why_none()), Group::describe),
            network: "none".to_owned(),
            user: if own_id { "own host uid" } else { "the server's uid" }.to_owned(),
        }
    }
}

impl Backend for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn probe(&self) -> Probe {
        probe::probe(self.jail(), &self.cgroups, &self.interpreters, self.ids.is_some())
    }

    fn capabilities(&self) -> Capabilities {
        let missing = self.interpreters.missing().iter().map(|missing| (missing.language, missing.fix.to_owned()));
        Capabilities {
            languages: self.interpreters.languages(),
            interpreters: self.interpreters.names(),
            missing: missing.collect(),
            network: false,
            layers: false,
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            let jail = self.jail()?;
            let opened = match self.open_place(&jail, spec).await {
                // The jail was killed since it was last asked. A new one can do what it could not.
                Err(_) if !jail.is_alive() => self.open_place(&self.jail()?, spec).await,
                other => other,
            };
            Ok(Box::new(opened?) as Box<dyn Sandbox>)
        })
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(zygotes) = &self.zygotes {
                zygotes.settled().await;
            }
        })
    }
}

#[derive(Debug)]
struct NativeSandbox {
    // Before `place`: the guest sees the end of its stream before it is killed.
    link: Link,
    place: Place,
    isolation: Isolation,
    cpus: u32,
}

impl Sandbox for NativeSandbox {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>> {
        Box::pin(async move {
            // A backstop only: the engine ends the program at its wall limit, by then it cannot have used more.
            let cpu_seconds = (program.wall.as_secs() + 2) * u64::from(self.cpus);
            let watcher = self.place.watcher();
            let started = self.link.start(program, cpu_seconds).await?;
            Ok(Box::new(NativeRunning { started, watcher }) as Box<dyn Running>)
        })
    }

    fn read<'a>(&'a self, path: &'a str, range: Range) -> Later<'a, Content> {
        Box::pin(self.link.read(path, range))
    }

    fn write<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Later<'a, ()> {
        Box::pin(async move { self.link.write(path, &bytes).await })
    }

    fn list<'a>(&'a self, path: &'a str, depth: u32, entries_max: u32) -> Later<'a, Listing> {
        Box::pin(self.link.list(path, depth, entries_max))
    }

    fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    fn close(self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async move {
            let NativeSandbox { link, place, .. } = *self;
            drop(link);
            place.destroy().await;
            Ok(())
        })
    }
}

#[derive(Debug)]
struct NativeRunning {
    started: Started,
    watcher: place::Watcher,
}

impl Running for NativeRunning {
    fn next(&mut self) -> Later<'_, Event> {
        Box::pin(async move {
            let mut event = self.started.next().await?;
            if let Event::Finished(finish) = &mut event
                && link::was_killed(finish)
                && self.watcher.killed_for_memory()
            {
                finish.exit = Exit::OutOfMemory;
            }
            Ok(event)
        })
    }

    fn stop(&mut self) {
        self.started.stop();
    }

    fn signal(&mut self, signal: i32) {
        self.started.signal(signal);
    }

    fn stdin(&mut self) -> Option<Box<dyn StdinWriter>> {
        self.started.stdin()
    }
}

fn setup(step: &str, why: &dyn std::fmt::Display) -> BackendError {
    BackendError::Setup { step: step.to_owned(), why: why.to_string() }
}
