//! How a sandbox is opened: as a copy of a machine that is up. Where there is no snapshot yet, one is made first.

use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use belljar_core::wire::{Bounds, Init, Plan, ToKeeper};
use belljar_core::{BackendError, Doors, Isolation, Language, Limits, Network, Spec};

use super::Microvm;
use super::base::Base;
use super::control::Control;
use super::place::Place;
use super::roots::Root;
use super::snapshot::name_of;
use super::vmm::{Beginning, Machine, Started};
use super::warm;
use crate::layout::Trust;
use crate::link::{Link, NotThere};
use crate::linked::Linked;
use crate::{network, setup};

/// How long a machine may take to come up. Real hardware needs a second; an emulator on a busy host much more.
const BOOT_MAX: Duration = Duration::from_secs(20);
const EMULATED_BOOT_MAX: Duration = Duration::from_secs(90);

/// A guest that has not said a word by then never will.
const GUEST_MAX: Duration = Duration::from_secs(60);

/// What a layer may have while it is built. It is in the machine's memory.
const BUILD_BYTES: u64 = 2 << 30;

/// Everything that a sandbox of some kind is opened with.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) machine: Machine,
    pub(super) plan: Plan,
    pub(super) init: Init,
    /// What the kernel inside holds a sandbox to, should the guest's own watch be too slow.
    pub(super) memory_bytes: u64,
    pub(super) trust: Option<String>,
    /// What is to be there for a guest that has a kernel waiting.
    pub(super) layers: Vec<belljar_core::Layer>,
    /// The directory of the store that is built in, and how large it may get.
    pub(super) build: Option<(String, u64)>,
}

pub(super) async fn open(
    microvm: &Microvm,
    base: Arc<Base>,
    root: Root,
    spec: &Spec,
) -> Result<Linked<Place>, BackendError> {
    let wanted = wanted(microvm, &base, &root, spec).await?;
    let is_warm = base.vmm.keeps_streams() && is_warm(&wanted, spec);
    let copied = if is_warm { warm::copy(microvm, &base, &wanted).await? } else { None };
    let (place, link) = match copied {
        Some(copied) => copied,
        None => from_bare(&base, microvm, &wanted).await?,
    };
    if is_warm {
        warm::make_behind(microvm, &base, &wanted).await;
    }
    let relay = spec.network != Network::None;
    let doors = Mutex::new(relay.then(|| link.relay()).flatten().map(Doors::Relayed));
    let isolation = isolation(&base, &place, &spec.network);
    let cpus = wanted.machine.cpus();
    Ok(Linked { link, place, isolation, cpus, languages: root.inside().languages(), doors, added: AtomicU32::new(0) })
}

async fn wanted(microvm: &Microvm, base: &Arc<Base>, root: &Root, spec: &Spec) -> Result<Wanted, BackendError> {
    let limits = spec.limits;
    let chosen = root.inside().choose(&spec.ground.interpreters)?;
    let machine = tokio::task::spawn_blocking({
        let (base, root) = (Arc::clone(base), root.clone());
        let mut limits = limits;
        limits.disk_bytes += if spec.build.is_some() { BUILD_BYTES } else { 0 };
        move || base.machine(&root, &limits)
    });
    let machine = machine.await.map_err(|error| setup("making images", &error))??;
    let trust = microvm.host.trust.clone().filter(|_| spec.network != Network::None);
    let trusts = if trust.is_some() { Trust::Ours } else { Trust::Hosts };
    Ok(Wanted {
        machine,
        plan: Plan {
            disk_bytes: Some(limits.disk_bytes),
            bounds: bounds(&limits),
            ports: network::ports(&spec.network)?,
            builds: spec.build.is_some(),
        },
        init: Init {
            env: root.inside().environment(&chosen, &spec.network, trusts, &spec.env),
            interpreters: chosen.programs,
            watch_memory_bytes: Some(limits.memory_bytes),
            waiting: spec.waiting,
            copied: false,
            forked: None,
        },
        // The watch should meet the limit first, and tell it as what it is; files are held by the disk's size.
        memory_bytes: limits.memory_bytes
            + limits.memory_bytes / 4
            + limits.disk_bytes
            + if spec.build.is_some() { BUILD_BYTES } else { 0 }
            + (32 << 20),
        trust,
        layers: spec.layers.clone(),
        build: spec.build.clone().map(|name| (name, BUILD_BYTES)),
    })
}

fn bounds(limits: &Limits) -> Bounds {
    // The guest agent and the runner beside each program are not the caller's.
    Bounds { processes: limits.processes + 2, open_files: limits.open_files, data_bytes: None }
}

/// Whether a guest can stand in the snapshot already: nothing of its start may be this caller's alone.
fn is_warm(wanted: &Wanted, spec: &Spec) -> bool {
    spec.waiting == Some(Language::Python)
        && wanted.init.interpreters.iter().any(|(language, _)| *language == Language::Python)
        && spec.network == Network::None
        && spec.env.is_empty()
        && spec.build.is_none()
}

fn bare_name(base: &Base, machine: &Machine) -> String {
    name_of(&("bare", base.vmm.name(), base.vmm.version(), machine))
}

/// A machine from a snapshot, made its own, and the stream to its guest. `filled` of its drives have layers in them.
pub(super) async fn begun(
    base: &Arc<Base>,
    store: Option<PathBuf>,
    machine: &Machine,
    filled: u8,
    from: Beginning<'_>,
) -> Result<(Place, tokio::net::UnixStream), BackendError> {
    let Started { vm, streams } = base.vmm.start(&base.walls, machine, from).await?;
    let place = Place::new(vm, Control::new(streams.keeper), base, store, filled);
    if let Err(error) = place.control.ask(&refresh()?).await {
        return Err(place.explained(error));
    }
    Ok((place, streams.guest))
}

fn refresh() -> Result<ToKeeper, BackendError> {
    let (mut entropy, mut identity) = (vec![0; 64], [0; 16]);
    let failed = |error: getrandom::Error| setup("drawing entropy", &error);
    getrandom::fill(&mut entropy).map_err(failed)?;
    getrandom::fill(&mut identity).map_err(failed)?;
    let now =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| setup("reading the clock", &error))?;
    Ok(ToKeeper::Refresh { clock_ns: now.as_nanos() as u64, entropy, identity })
}

/// A machine from the bare snapshot, with a guest started in it.
async fn from_bare(base: &Arc<Base>, microvm: &Microvm, wanted: &Wanted) -> Result<(Place, Link), BackendError> {
    let restored = async || {
        let found = bare(base, &wanted.machine).await?;
        let from = Beginning { from: Some(&found), to: None };
        begun(base, microvm.store_path(), &wanted.machine, 0, from).await
    };
    let (mut place, guest) = match restored().await {
        Ok(restored) => restored,
        Err(error) => {
            tracing::warn!(%error, "a snapshot could not be used, and is made anew");
            base.snapshots.forget(&bare_name(base, &wanted.machine));
            restored().await?
        }
    };
    for layer in &wanted.layers {
        place.show(layer).await?;
    }
    if let Some((name, bytes)) = &wanted.build {
        place.build(name, *bytes).await?;
    }
    let link = entered(&place, guest, wanted).await?;
    Ok((place, link))
}

/// Starts the guest in a machine, and greets it.
pub(super) async fn entered(
    place: &Place,
    guest: tokio::net::UnixStream,
    wanted: &Wanted,
) -> Result<Link, BackendError> {
    let (plan, memory_bytes, trust) = (wanted.plan.clone(), wanted.memory_bytes, wanted.trust.clone());
    place.control.ask(&ToKeeper::Enter { plan, memory_bytes, trust }).await.map_err(|error| place.explained(error))?;
    let (read, write) = guest.into_split();
    let greeted = tokio::time::timeout(GUEST_MAX, Link::establish(read, write, wanted.init.clone())).await;
    let failed = match greeted {
        Ok(Ok(link)) => return Ok(link),
        Ok(Err(NotThere::Failed(error))) => error,
        Ok(Err(NotThere::Broken { step, errno })) => setup(&step, &std::io::Error::from_raw_os_error(errno)),
        Err(_) => setup("waiting for the guest", &format!("it did not answer within {} s", GUEST_MAX.as_secs())),
    };
    Err(place.explained(failed))
}

/// The bare snapshot of a machine; made, by a boot, if it is not there.
pub(super) async fn bare(base: &Arc<Base>, machine: &Machine) -> Result<PathBuf, BackendError> {
    let name = bare_name(base, machine);
    let turn = base.snapshots.turn(&name);
    let _mine = turn.lock().await;
    if let Some(found) = base.snapshots.find(&name) {
        return Ok(found);
    }
    let unfinished = base.snapshots.begin(&name)?;
    let from = Beginning { from: None, to: Some(&unfinished.path) };
    let Started { vm, streams } = base.vmm.start(&base.walls, machine, from).await?;
    let place = Place::new(vm, Control::new(streams.keeper), base, None, 0);
    let patience = if base.emulated.is_some() { EMULATED_BOOT_MAX } else { BOOT_MAX };
    place.control.ready(patience).await.map_err(|error| place.explained(error))?;
    place.vm.snapshot().await?;
    place.vm.process().destroy().await;
    base.snapshots.finish(unfinished)?;
    base.snapshots.find(&name).ok_or_else(|| setup("keeping a snapshot", &"it is gone"))
}

fn isolation(base: &Base, place: &Place, granted: &Network) -> Isolation {
    let process = place.vm.process();
    let kernel = base.kernel.release();
    Isolation {
        backend: "microvm".to_owned(),
        namespaces: match &base.emulated {
            None => format!("a machine of its own ({} {}), kernel {kernel}", base.vmm.name(), base.vmm.version()),
            Some(_) => {
                format!("emulated, no security boundary ({} {}), kernel {kernel}", base.vmm.name(), base.vmm.version())
            }
        },
        seccomp: "allow-list in the machine, and the monitor's own around it".to_owned(),
        landlock: "in the machine, where its kernel has it".to_owned(),
        cgroup: process.group().map_or_else(
            || format!("none around the machine: {}", base.walls.cgroups.why_none()),
            |group| format!("around the machine: {group}"),
        ),
        network: network::describe(granted),
        user: if process.has_own_user() { "own host uid" } else { "the server's uid" }.to_owned(),
    }
}
