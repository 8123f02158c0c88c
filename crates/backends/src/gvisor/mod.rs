//! gVisor: a kernel of its own for each sandbox, as a program of the host. `runsc` by itself, without an engine.
//!
//! ```text
//! Gvisor ──▶ runsc run (one for each sandbox) ──▶ gVisor's kernel: settle, then the guest as pid 1 ──▶ programs
//!    │          gofer: the host's files, read-only
//!    └──▶ cgroups around all of it, slots for layers, the stream to each guest
//! ```

mod base;
mod bundle;
mod place;
mod probe;
mod root;
mod runsc;
mod said;
mod start;
mod trial;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_core::wire::{Bind, Bounds, Init, Plan, SETTLE};
use belljar_core::{
    BUILD, Backend, BackendError, Capabilities, Doors, Isolation, Later, Limits, Network, Probe, Sandbox, Spec,
};
use tokio::net::UnixStream;

use self::base::Base;
use self::bundle::Bundle;
use self::place::{Holding, Place};
use self::root::Root;
use self::runsc::{NoRunsc, Runsc};
use crate::cgroup::{Cgroups, Controller, Group};
use crate::host::Host;
use crate::images::Images;
use crate::interpreters::{Chosen, Interpreters, OfImage};
use crate::layout::Trust;
use crate::link::{Link, NotThere};
use crate::linked::{Linked, Place as _};
use crate::slots::Slots;
use crate::store::Store;
use crate::{layout, network, setup, store, sys};

/// From the start of runsc to the guest's first word. A third of a second is usual; a machine with much else to do takes longer.
const HELLO_PATIENCE: Duration = Duration::from_secs(30);

/// What gVisor's processes have besides the sandbox's own memory, and what it may be too large for a moment before the guest,
/// which watches it from inside, has seen that. Past this the host's kernel ends all of it.
const AROUND_BYTES: u64 = 192 * 1024 * 1024;

/// Threads of the host's: so many for gVisor's own work, and so many for each process inside.
const AROUND_THREADS: u32 = 192;
const THREADS_EACH: u32 = 4;

/// The user that programs are inside, whom what is built belongs to.
const INSIDE_ID: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Gvisor {
    interpreters: Interpreters,
    runsc: Result<Runsc, NoRunsc>,
    store: Option<Store>,
    images: Images,
    trust: Trust,
    cgroups: Arc<Cgroups>,
    hello_patience: Duration,
    /// Why there is none, in words.
    base: Result<Base, String>,
}

/// What a sandbox has on the host before it is started.
#[derive(Debug)]
struct Prepared {
    directory: PathBuf,
    slots: Option<Slots>,
    root: Arc<Root>,
}

impl Gvisor {
    pub(crate) fn start(host: &Host) -> Gvisor {
        let interpreters = Interpreters::find(host);
        let runsc = Runsc::find(host, !sys::is_admin());
        // Before any child: see `Native::start`.
        let cgroups = Arc::new(Cgroups::find());
        let store = host.layers.as_deref().and_then(Store::find);
        let base = Base::prepare(host, &interpreters).map_err(|error| error.to_string());
        let trust = if host.trust.is_some() { Trust::Ours } else { Trust::Hosts };
        let images = Images::find(host.images.as_deref());
        Gvisor { interpreters, runsc, store, images, trust, cgroups, hello_patience: HELLO_PATIENCE, base }
    }

    async fn open_place(&self, spec: &Spec) -> Result<Linked<Place>, BackendError> {
        let runsc = self.runsc.as_ref().map_err(BackendError::from)?;
        let base = self.base.as_ref().map_err(|why| BackendError::Unavailable {
            why: format!("there is no root for gVisor's sandboxes: {why}"),
            fix: "start the server with a home directory of its own, on a disk with some room".to_owned(),
        })?;
        let image = spec.ground.image.as_deref().map(|name| self.images.root(name)).transpose()?;
        store::check(self.store.as_ref(), spec)?;
        let ports = network::ports(&spec.network)?;
        let (root, chosen) = match &image {
            Some(image) => (base.root_of(image)?, OfImage::from(image).choose(&spec.ground.interpreters)?),
            None => (Arc::clone(&base.root), self.interpreters.choose(&spec.ground.interpreters)?),
        };
        let env = match &image {
            Some(image) => OfImage::from(image).environment(&chosen, &spec.network, self.trust, &spec.env),
            None => layout::environment(&chosen, &spec.network, self.trust, &spec.env),
        };
        let languages =
            image.as_ref().map_or_else(|| self.interpreters.languages(), |image| OfImage::from(image).languages());
        let limits = &spec.limits;
        let plan = Plan {
            disk_bytes: Some(limits.disk_bytes),
            // The guest agent and the runner beside each program are not the caller's. Memory is watched: gVisor's kernel does
            // not heed the limit of a process's data.
            bounds: Bounds { processes: limits.processes + 2, open_files: limits.open_files, data_bytes: None },
            ports,
            builds: spec.build.is_some(),
        };
        let prepared = self.prepare(base, root, spec, &plan)?;
        let place = start(base, runsc, &self.cgroups, limits, prepared);
        let (place, ours) = place.await?;
        let (holds_cpu, cgroup) = self.cgroup_words(&place);
        let isolation = self.isolation(runsc, cgroup, &spec.network);
        let link = self.establish(&place, ours, spec, chosen, env).await;
        let link = match link {
            Ok(link) => link,
            Err(error) => {
                // What it said comes before its end.
                let said = place.said();
                let error = match error {
                    BackendError::Setup { step, why } => probe::explain(&format!("{step}: {why}"), &said),
                    other => other,
                };
                place.destroy().await?;
                return Err(error);
            }
        };
        let cpus = if holds_cpu {
            limits.cpu_milli.div_ceil(1000)
        } else {
            std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
        };
        let doors = Mutex::new((spec.network != Network::None).then(|| link.relay()).flatten().map(Doors::Relayed));
        Ok(Linked { link, place, isolation, cpus, languages, doors, added: AtomicU32::new(0) })
    }

    /// Makes what the sandbox has on the host's disk: little files, and links.
    fn prepare(&self, base: &Base, root: Arc<Root>, spec: &Spec, plan: &Plan) -> Result<Prepared, BackendError> {
        let failed = |error: std::io::Error| setup("preparing a sandbox's directory", &error);
        let directory = base.run.add().map_err(failed)?;
        let made = || -> Result<Option<Slots>, BackendError> {
            let mut binds = root.binds.clone();
            let mut slots = None;
            if let Some(store) = self.store.as_ref().and_then(Store::path) {
                let opened = Slots::open(Path::new(store), directory.join("slots"), &root.pythons, &spec.layers);
                let (made, shown) = opened.map_err(|error| setup("showing packages", &error))?;
                binds.extend(shown);
                slots = Some(made);
            }
            let build = match (&self.store, &spec.build) {
                (Some(store), Some(name)) => {
                    if sys::is_admin() {
                        store.give(name, INSIDE_ID)?;
                    }
                    store.path().map(|store| Bind { host: format!("{store}/{name}"), inside: BUILD.to_owned() })
                }
                _ => None,
            };
            let plan = plan.to_argument().map_err(|error| setup("writing the plan", &error))?;
            let arguments = vec![SETTLE.to_owned(), plan];
            Bundle { root: &root.path, arguments, binds, build }.write(&directory).map_err(failed)?;
            Ok(slots)
        };
        match made() {
            Ok(slots) => Ok(Prepared { directory, slots, root }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    async fn establish(
        &self,
        place: &Place,
        ours: UnixStream,
        spec: &Spec,
        chosen: Chosen,
        env: Vec<(String, String)>,
    ) -> Result<Link, BackendError> {
        let init = Init {
            env,
            interpreters: chosen.programs,
            watch_memory_bytes: Some(spec.limits.memory_bytes),
            waiting: spec.waiting,
            copied: false,
            forked: None,
        };
        let (read, write) = ours.into_split();
        let established = tokio::time::timeout(self.hello_patience, Link::establish(read, write, init)).await;
        match established {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(NotThere::Failed(error))) => {
                // It ends a moment after its stream, and says why in between.
                place.ended_soon().await;
                Err(error)
            }
            Ok(Err(NotThere::Broken { step, errno })) => {
                Err(setup("finishing the place", &format!("{step}: {}", std::io::Error::from_raw_os_error(errno))))
            }
            Err(_) => {
                Err(setup("waiting for the guest", &format!("no word in {} seconds", self.hello_patience.as_secs())))
            }
        }
    }

    fn cgroup_words(&self, place: &Place) -> (bool, String) {
        match place.group() {
            Some(group) => (group.holds(Controller::Cpu), group.describe()),
            None => (false, format!("none: {}; the guest watches memory", self.cgroups.why_none())),
        }
    }

    fn isolation(&self, runsc: &Runsc, cgroup: String, network: &Network) -> Isolation {
        let user = if runsc.rootless { "the server's uid, in a user namespace" } else { "root of a user namespace" };
        Isolation {
            backend: self.name().to_owned(),
            namespaces: format!(
                "gVisor's own kernel (runsc {}, systrap), in user pid mount net ipc uts",
                runsc.version
            ),
            seccomp: "gVisor's own on the host; allow-list inside".to_owned(),
            landlock: "none: gVisor's kernel has none; read-only mounts".to_owned(),
            cgroup,
            network: network::describe(network),
            user: format!("1000 inside; gVisor is {user}"),
        }
    }
}

/// Starts runsc in a task of its own: a caller that goes away must not leave half a sandbox.
async fn start(
    base: &Base,
    runsc: &Runsc,
    cgroups: &Arc<Cgroups>,
    limits: &Limits,
    prepared: Prepared,
) -> Result<(Place, UnixStream), BackendError> {
    let around = Limits {
        memory_bytes: limits.memory_bytes + limits.memory_bytes / 4 + AROUND_BYTES,
        processes: limits.processes.saturating_mul(THREADS_EACH).saturating_add(AROUND_THREADS),
        ..*limits
    };
    let Prepared { directory, slots, root } = prepared;
    let state = directory.join("r");
    let mut command = runsc.run("s", &directory, &state);
    let (cgroups, run, starter) = (Arc::clone(cgroups), Arc::clone(&base.run), Arc::clone(&base.starter));
    let starting = tokio::spawn(async move {
        let failed = |step: &'static str| move |error: std::io::Error| setup(step, &error);
        let opened = async {
            let (ours, guests) = std::os::unix::net::UnixStream::pair().map_err(failed("making a stream"))?;
            ours.set_nonblocking(true).map_err(failed("making a stream"))?;
            let ours = UnixStream::from_std(ours).map_err(failed("making a stream"))?;
            let also_guests = guests.try_clone().map_err(failed("making a stream"))?;
            command
                .stdin(Stdio::from(std::os::fd::OwnedFd::from(guests)))
                .stdout(Stdio::from(std::os::fd::OwnedFd::from(also_guests)))
                .stderr(Stdio::piped());
            let group = cgroups.create(&around).map_err(failed("making a cgroup"))?;
            let entrances = group.as_ref().map_or(Ok(Vec::new()), Group::doors);
            let started = match entrances {
                Ok(entrances) => starter.start(command, entrances).await,
                Err(error) => Err(error),
            };
            match started {
                Ok(child) => Ok((child, group, ours)),
                Err(error) => {
                    if let Some(group) = group {
                        group.remove().await;
                    }
                    Err(setup("starting runsc", &error))
                }
            }
        };
        match opened.await {
            Ok((child, group, ours)) => {
                Ok((Place::new(child, group, slots, Holding { directory, root, run, starter }), ours))
            }
            Err(error) => {
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    });
    starting.await.unwrap_or_else(|error| Err(setup("opening a place", &error)))
}

impl Backend for Gvisor {
    fn name(&self) -> &'static str {
        "gvisor"
    }

    fn probe(&self) -> Probe {
        probe::probe(self)
    }

    fn capabilities(&self) -> Capabilities {
        let missing = self.interpreters.missing().iter().map(|missing| (missing.language, missing.fix.to_owned()));
        Capabilities {
            languages: self.interpreters.languages(),
            interpreters: self.interpreters.names(),
            missing: missing.collect(),
            network: true,
            layers: self.store.is_some(),
            processes: true,
            images: self.images.are_there(),
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move { Ok(Box::new(self.open_place(spec).await?) as Box<dyn Sandbox>) })
    }
}

#[cfg(test)]
mod tests;
