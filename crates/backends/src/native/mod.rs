//! Namespaces, seccomp, landlock, cgroups and limits on the host's own kernel: the default on Linux.
//!
//! ```text
//! Native ──▶ jail (one process, single thread) ──▶ sandbox: guest agent as pid 1 ──▶ programs
//!    │          mounts, namespaces, sealing
//!    └──▶ cgroups, host ids, the stream to each guest
//! ```

mod images;
mod jail;
mod kernel;
mod place;
mod probe;
mod zygote;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::wire::{Bounds, CgroupEntry, Fork, Init, Open};
use belljar_core::{
    Backend, BackendError, Capabilities, Isolation, Language, Later, LayerKind, Limits, Network, PackageKind, Probe,
    Sandbox, Spec,
};
use belljar_images::Root;
use tokio::net::UnixStream;

use self::images::ImageJails;
#[cfg(feature = "wasm")]
pub(crate) use self::jail::Refusal;
pub(crate) use self::jail::{Given, Jail};
pub(crate) use self::place::Place;
#[cfg(feature = "wasm")]
pub(crate) use self::probe::{cgroup as cgroup_state, explain};
use self::zygote::{Zygote, Zygotes};
use crate::cgroup::{Cgroups, Controller, Group};
use crate::host::Host;
use crate::ids::Ids;
use crate::images::{self as image, Images};
use crate::interpreters::{Chosen, Interpreters, OfImage};
use crate::layout::Trust;
use crate::link::{Link, NotThere};
use crate::linked::Linked;
use crate::network::Handover;
use crate::store::Store;
use crate::{layout, network, setup, store, sys, warm};

/// What a process may have in data before the guest's watch can have seen it.
const WATCH_SLACK_BYTES: u64 = 64 * 1024 * 1024;

/// Fewer than these, and a fork would fail where a start does not.
const FORKED_PROCESSES_MIN: u32 = 4;

/// What a zygote that loads a layer may have, with all that it starts. Some scientific packages are 300 MB when loaded.
fn layered_limits() -> Limits {
    Limits { memory_bytes: 1024 * 1024 * 1024, processes: 32, cpu_milli: 1000, ..Limits::default() }
}

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
    store: Option<Store>,
    trust: Option<Arc<str>>,
    /// `None` if the operator wants none. Before `cgroups`, as the jail: both may be in some that go with them.
    zygotes: Option<Arc<Zygotes>>,
    jail: Mutex<Result<Arc<Jail>, jail::Refusal>>,
    images: Images,
    image_jails: ImageJails,
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
        let jail = jail::Refusal { step: String::new(), errno: 0 };
        let native = Native {
            cgroups,
            ids,
            store: host.layers.as_deref().and_then(Store::find),
            trust: host.trust.as_deref().map(Arc::from),
            jail: Mutex::new(Err(jail)),
            images: Images::find(host.images.as_deref()),
            image_jails: ImageJails::default(),
            zygotes: (preload == Preload::Yes).then(Arc::default),
            interpreters,
            go_cache,
        };
        // Its zygote has until the first call to be there.
        if let (Ok(jail), Ok(chosen)) = (native.jail(), native.interpreters.choose(&[])) {
            native.zygote(&jail, &Spec { waiting: Some(Language::Python), ..Spec::default() }, &chosen);
        }
        native
    }

    /// The jail, started anew if it was killed.
    fn jail(&self) -> Result<Arc<Jail>, BackendError> {
        let mut jail = self.jail.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(&*jail, Ok(jail) if jail.is_alive()) {
            *jail = Jail::start(self.given()).map(Arc::new);
        }
        jail.as_ref().map(Arc::clone).map_err(probe::explain)
    }

    fn given(&self) -> Given {
        Given {
            setup: layout::plan(&self.interpreters, self.go_cache.as_deref(), self.store.as_ref()),
            trust: self.trust.clone(),
            zygote_id: self.ids.as_ref().map(Ids::lease),
            group: None,
            image: None,
            guest: None,
        }
    }

    /// The jail that a sandbox is to be opened in, and the image that its root is of.
    fn jail_for(&self, spec: &Spec) -> Result<(Arc<Jail>, Option<Root>), BackendError> {
        let Some(name) = &spec.ground.image else { return Ok((self.jail()?, None)) };
        let root = self.images.root(name)?;
        let given = || {
            let setup = image::plan(&root, self.store.as_ref())?;
            let (trust, image) = (self.trust.clone(), Some(root.clone()));
            // Nothing is loaded ahead in it: what an image has for an interpreter is not ours to start outside of a sandbox.
            Ok(Given { setup, trust, image, ..Given::default() })
        };
        let jail = self.image_jails.of_root(&root.path, given)?;
        Ok((jail, Some(root)))
    }

    /// For a jail whose zygote loads a layer: what that does is not ours to trust, so it is held as a sandbox is. Where
    /// nothing can hold it there is none.
    fn given_for_layer(&self) -> Option<Given> {
        let group = self.cgroups.create(&layered_limits()).ok().flatten()?;
        if [Controller::Memory, Controller::Pids].into_iter().all(|controller| group.holds(controller)) {
            return Some(Given { group: Some(group), ..self.given() });
        }
        group.remove_now();
        None
    }

    /// What a kernel that is to wait in a sandbox can be forked from, if anything.
    fn zygote(&self, jail: &Arc<Jail>, spec: &Spec, chosen: &Chosen) -> Option<Arc<Zygote>> {
        // On its way in it is four processes at once for a moment.
        let is_wanted = spec.waiting == Some(Language::Python)
            && spec.limits.processes >= FORKED_PROCESSES_MIN
            && spec.build.is_none()
            && spec.ground.image.is_none();
        let zygotes = self.zygotes.as_ref().filter(|_| is_wanted)?;
        let (_, interpreter) = chosen.programs.iter().find(|(language, _)| *language == Language::Python)?;
        let env = || layout::environment(chosen, &Network::None, Trust::Hosts, &[]);
        match spec.layers.iter().find(|layer| layer.kind == LayerKind::Packages(PackageKind::Python)) {
            None => zygotes.of_jail(jail, interpreter, env),
            // Its packages run in it, and could carry what they see in one sandbox to the next, and out by that one's network.
            Some(_) if spec.network != Network::None => None,
            // Not the plain one: what it has loaded may be another version of what the layer has.
            Some(layer) => zygotes.of_layer(layer, spec.owner.as_deref(), interpreter, env, || self.given_for_layer()),
        }
    }

    /// Opens a place in the jail of its zygote, if that has one of its own, or in the one given.
    async fn open_place(
        &self,
        jail: &Arc<Jail>,
        root: Option<&Root>,
        spec: &Spec,
    ) -> Result<Linked<Place>, BackendError> {
        let limits = &spec.limits;
        store::check(self.store.as_ref(), spec)?;
        let ports = network::ports(&spec.network)?;
        let chosen = match root {
            Some(root) => OfImage::from(root).choose(&spec.ground.interpreters)?,
            None => self.interpreters.choose(&spec.ground.interpreters)?,
        };
        let zygote = self.zygote(jail, spec, &chosen);
        let own_jail = zygote.as_ref().and_then(|zygote| zygote.own_jail()).cloned();
        let jail = own_jail.as_ref().unwrap_or(jail);
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
        if let (Some(store), Some(name), Some(id)) = (&self.store, &spec.build, &id) {
            store.give(name, id.number())?;
        }
        let forked = zygote.map(|zygote| kernel::pair().map(|ends| (zygote, ends))).transpose()?;
        let open = Open {
            host_id: id.as_ref().map(|id| id.number()),
            cgroups: group.as_ref().map_or(CgroupEntry::JoinTasks, Group::entry),
            disk_bytes: limits.disk_bytes,
            with_kernel: forked.is_some(),
            bounds,
            layers: spec.layers.clone(),
            build: spec.build.clone(),
            ports,
        };
        let (ours, guests) =
            std::os::unix::net::UnixStream::pair().map_err(|error| setup("making a stream", &error))?;
        let mut guests = vec![guests.into()];
        let forked = forked.map(|(zygote, (guests_ends, kernels_ends))| {
            guests.extend(guests_ends.into_all());
            (zygote, kernels_ends)
        });
        let handover = match open.ports.as_deref().map(Handover::new).transpose()? {
            Some((handover, theirs)) => {
                guests.push(theirs);
                Some(handover)
            }
            None => None,
        };
        let isolation = self.isolation(jail, group.as_ref(), id.is_some(), &spec.network);
        let place = Place::open(jail, open, guests, group, id).await?;
        ours.set_nonblocking(true).map_err(|error| setup("making a stream", &error))?;
        let ours = UnixStream::from_std(ours).map_err(|error| setup("making a stream", &error))?;
        let trust = if self.trust.is_some() { Trust::Ours } else { Trust::Hosts };
        let env = match root {
            Some(root) => OfImage::from(root).environment(&chosen, &spec.network, trust, &spec.env),
            None => layout::environment(&chosen, &spec.network, trust, &spec.env),
        };
        let fork = forked.is_some().then(|| Fork { landlock: jail.landlock_abi() > 0, bounds, env: env.clone() });
        let init = Init {
            env,
            interpreters: chosen.programs,
            watch_memory_bytes: (!holds_memory).then_some(limits.memory_bytes),
            waiting: spec.waiting.filter(|_| forked.is_none()),
            copied: false,
            forked: spec.waiting.filter(|_| forked.is_some()),
        };
        let (read, write) = ours.into_split();
        let link = Link::establish(read, write, init).await.map_err(|not_there| match not_there {
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
        let doors = Mutex::new(handover.map(Handover::take).transpose()?);
        let languages = root.map_or_else(|| self.interpreters.languages(), |root| OfImage::from(root).languages());
        Ok(Linked { link, place, isolation, cpus, languages, doors, added: AtomicU32::new(0) })
    }

    fn isolation(&self, jail: &Jail, group: Option<&Group>, own_id: bool, network: &Network) -> Isolation {
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
            network: network::describe(network),
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
            network: true,
            layers: self.store.is_some(),
            processes: true,
            images: self.images.are_there(),
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            let (jail, root) = self.jail_for(spec)?;
            let opened = match self.open_place(&jail, root.as_ref(), spec).await {
                // The jail was killed since it was last asked. A new one can do what it could not.
                Err(_) if !jail.is_alive() => {
                    let (jail, root) = self.jail_for(spec)?;
                    self.open_place(&jail, root.as_ref(), spec).await
                }
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
