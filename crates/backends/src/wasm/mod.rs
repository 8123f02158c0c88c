//! Interpreters in WebAssembly, in a process of their own for each sandbox: two walls of different kinds, one behind the
//! other.
//!
//! ```text
//! Wasm ──▶ jail ──▶ place, as native has it, and nothing of the host's in it ──▶ worker ──▶ wasmtime ──▶ code
//! ```
//!
//! The place is made by the same jail as those of `native`; its first process is the worker of `belljar-wasm`, which speaks
//! the guest's side of the wire. There are no processes in it, and no network: WASI has neither.

mod guests;
mod layout;
mod probe;
mod warm;

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::wire::{Bounds, CgroupEntry, Init, Open};
use belljar_core::{
    Backend, BackendError, Capabilities, Isolation, Language, Later, Limits, Network, Probe, Sandbox, Spec,
};
use tokio::net::UnixStream;

use self::guests::{Guest, Missing};
use crate::cgroup::{Cgroups, Controller, Group};
use crate::host::Host;
use crate::ids::Ids;
use crate::link::{Link, NotThere};
use crate::linked::Linked;
use crate::native::{Given, Jail, Place, Refusal, explain};
use crate::store::{self, Store};
use crate::{setup, sys};

pub use self::warm::{Fetched, NotCompiled, compile, fetched};

/// What the worker has besides the code's memory: itself, wasmtime's tables, what is being compiled of nothing.
const WORKER_BYTES: u64 = 96 * 1024 * 1024;

/// Threads of the worker, and the program that takes types out of TypeScript. Code has none.
const WORKER_PROCESSES: u32 = 48;

/// Of the worker's own.
const WORKER_FILES: u32 = 64;

#[derive(Debug)]
pub(crate) struct Wasm {
    guests: Vec<Guest>,
    missing: Vec<Missing>,
    worker: PathBuf,
    ids: Option<Arc<Ids>>,
    store: Option<Store>,
    // Before `cgroups`, in which what it made may still be.
    jail: Mutex<Result<Arc<Jail>, Refusal>>,
    cgroups: Arc<Cgroups>,
}

impl Wasm {
    pub(crate) fn start(host: &Host) -> Wasm {
        let (mut guests, mut missing) = (Vec::new(), Vec::new());
        for found in guests::find(host) {
            match found {
                Ok(guest) => guests.push(guest),
                Err(lacks) => missing.push(lacks),
            }
        }
        Wasm {
            guests,
            missing,
            worker: host.walls.wasm.worker.clone().unwrap_or_else(|| PathBuf::from("/proc/self/exe")),
            ids: sys::is_admin().then(|| Arc::new(Ids::default())),
            store: host.layers.as_deref().and_then(Store::find),
            jail: Mutex::new(Err(Refusal { step: String::new(), errno: 0 })),
            cgroups: Arc::new(Cgroups::find()),
        }
    }

    fn languages(&self) -> Vec<Language> {
        let has = |language: &Language| self.guests.iter().any(|guest| Some(guest.language) == language.kernel());
        Language::ALL.into_iter().filter(has).collect()
    }

    /// The jail, started anew if it was killed.
    fn jail(&self) -> Result<Arc<Jail>, BackendError> {
        let mut jail = self.jail.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*jail, Ok(jail) if jail.is_alive()) {
            *jail = self.start_jail().map(Arc::new);
        }
        jail.as_ref().map(Arc::clone).map_err(explain)
    }

    fn start_jail(&self) -> Result<Jail, Refusal> {
        let refused = |error: std::io::Error| Refusal {
            step: "keeping the worker in memory".to_owned(),
            errno: error.raw_os_error().unwrap_or(0),
        };
        // In memory, as the guest of others: landlock lets nothing be run that is neither there nor in the place.
        let worker = fs::read(&self.worker).map_err(refused)?;
        let worker = sys::memory_file("belljar-wasm", &worker).map_err(refused)?;
        Jail::start(Given {
            setup: layout::plan(&self.guests, self.store.as_ref()),
            guest: Some(worker),
            zygote_id: self.ids.as_ref().map(Ids::lease),
            ..Given::default()
        })
    }

    fn check(&self, spec: &Spec) -> Result<(), BackendError> {
        if self.guests.is_empty() {
            let why = self.missing.first().map_or("there is no interpreter", |missing| missing.why.as_str());
            let fix = self.missing.first().map_or("run `belljar doctor`", |missing| missing.fix.as_str());
            let why = format!("the wasm wall has nothing to run: {why}");
            return Err(BackendError::Unavailable { why, fix: fix.to_owned() });
        }
        // In words for the caller, who can do without it.
        let refuse =
            |what: &str, instead: &str| Err(BackendError::Lacks { what: what.to_owned(), instead: instead.to_owned() });
        if spec.network != Network::None {
            return refuse(
                "the wasm wall has no network: its interpreters have no sockets",
                "ask without a network, or use another wall; code can call tools, which the host does for it",
            );
        }
        if spec.ground.image.is_some() || spec.build.is_some() {
            return refuse("the wasm wall has no images, and builds no packages", "use another wall for this template");
        }
        if let Some(name) =
            spec.ground.interpreters.iter().find(|name| !self.guests.iter().any(|guest| guest.name == **name))
        {
            let names: Vec<&str> = self.guests.iter().map(|guest| guest.name.as_str()).collect();
            return refuse(
                &format!("the wasm wall has no interpreter {name:?}"),
                &format!("use one of: {}", names.join(", ")),
            );
        }
        store::check(self.store.as_ref(), spec)
    }

    async fn open_place(&self, jail: &Arc<Jail>, spec: &Spec) -> Result<Linked<Place>, BackendError> {
        let limits = &spec.limits;
        // The limits are the code's. What holds the worker holds it as a whole.
        let around = Limits {
            memory_bytes: limits.memory_bytes.saturating_add(WORKER_BYTES),
            processes: WORKER_PROCESSES,
            ..*limits
        };
        let group = self.cgroups.create(&around).map_err(|error| setup("making a cgroup", &error))?;
        let id = self.ids.as_ref().map(Ids::lease);
        let holds = |controller| group.as_ref().is_some_and(|group| group.holds(controller));
        let (holds_memory, holds_cpu) = (holds(Controller::Memory), holds(Controller::Cpu));
        let open = Open {
            host_id: id.as_ref().map(|id| id.number()),
            cgroups: group.as_ref().map_or(CgroupEntry::JoinTasks, Group::entry),
            disk_bytes: limits.disk_bytes,
            with_kernel: false,
            bounds: Bounds {
                processes: WORKER_PROCESSES,
                open_files: limits.open_files.saturating_add(WORKER_FILES),
                // The stacks of its threads are data too.
                data_bytes: (!holds_memory).then_some(around.memory_bytes.saturating_add(around.memory_bytes / 4)),
            },
            layers: spec.layers.clone(),
            build: None,
            ports: None,
        };
        let (ours, theirs) =
            std::os::unix::net::UnixStream::pair().map_err(|error| setup("making a stream", &error))?;
        let isolation = self.isolation(jail, group.as_ref());
        let place = Place::open(jail, open, vec![theirs.into()], group, id).await?;
        ours.set_nonblocking(true).map_err(|error| setup("making a stream", &error))?;
        let ours = UnixStream::from_std(ours).map_err(|error| setup("making a stream", &error))?;
        let init = Init {
            interpreters: self.guests.iter().map(|guest| (guest.language, layout::inside(guest))).collect(),
            env: layout::environment(&spec.env),
            watch_memory_bytes: Some(limits.memory_bytes),
            waiting: spec.waiting,
            copied: false,
            forked: None,
        };
        let (read, write) = ours.into_split();
        let link = Link::establish(read, write, init).await.map_err(|not_there| match not_there {
            NotThere::Failed(error) => error,
            NotThere::Broken { step, errno } => explain(&Refusal { step, errno }),
        })?;
        let cpus = if holds_cpu {
            limits.cpu_milli.div_ceil(1000)
        } else {
            std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
        };
        Ok(Linked {
            link,
            place,
            isolation,
            cpus,
            // The worker says in its own words what it cannot run.
            languages: Language::ALL.into(),
            doors: Mutex::new(None),
            added: AtomicU32::new(0),
        })
    }

    fn isolation(&self, jail: &Jail, group: Option<&Group>) -> Isolation {
        Isolation {
            backend: self.name().to_owned(),
            namespaces: "WebAssembly (wasmtime); around it user pid mount net ipc uts cgroup time".to_owned(),
            seccomp: "allow-list around the worker; code makes no system calls".to_owned(),
            landlock: match jail.landlock_abi() {
                0 => "none: this kernel has none, or only its first version".to_owned(),
                abi => format!("abi {abi}"),
            },
            cgroup: group
                .map_or_else(|| format!("none: {}; rlimits instead", self.cgroups.why_none()), Group::describe),
            network: "none: WASI has no sockets here, and the worker no route".to_owned(),
            user: if self.ids.is_some() { "own host uid" } else { "the server's uid" }.to_owned(),
        }
    }
}

impl Backend for Wasm {
    fn name(&self) -> &'static str {
        "wasm"
    }

    fn probe(&self) -> Probe {
        probe::probe(self.jail(), &self.cgroups, &self.guests, &self.missing)
    }

    fn capabilities(&self) -> Capabilities {
        let languages = self.languages();
        let without = |language: &Language| !languages.contains(language);
        let missing =
            Language::ALL.into_iter().filter(without).map(|language| (language, probe::fix(language, &self.missing)));
        Capabilities {
            interpreters: self.guests.iter().map(|guest| (guest.language, guest.name.clone())).collect(),
            missing: missing.collect(),
            languages,
            network: false,
            layers: false,
            processes: false,
            images: false,
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            self.check(spec)?;
            let jail = self.jail()?;
            let opened = match self.open_place(&jail, spec).await {
                // The jail was killed since it was last asked. A new one can do what it could not.
                Err(_) if !jail.is_alive() => self.open_place(&self.jail()?, spec).await,
                other => other,
            };
            Ok(Box::new(opened?) as Box<dyn Sandbox>)
        })
    }
}

/// The compiled CPython, for comparison.
pub(crate) fn compiled_python(host: &Host) -> Result<std::path::PathBuf, String> {
    let of_python = |found: Result<guests::Guest, guests::Missing>| match found {
        Ok(guest) if guest.language == Language::Python => Some(Ok(guest.compiled)),
        Err(missing) if missing.language == Language::Python => Some(Err(missing.why)),
        Ok(_) | Err(_) => None,
    };
    guests::find(host).into_iter().find_map(of_python).unwrap_or_else(|| Err("there is no Python for it".to_owned()))
}
