//! Warm snapshots: a guest that stands, with a Python kernel that waits and has loaded what its environment has, from the
//! image and from the layers of packages. Made behind the callers' backs, when they have asked for such a sandbox.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::wire::DRIVES_OWN;
use belljar_core::{BackendError, Event, Exit, Layer, Program, Source, Stdin};
use tokio::task::JoinSet;

use super::Microvm;
use super::base::Base;
use super::open::{Wanted, bare, begun, entered};
use super::place::{Place, image_name, in_store};
use super::snapshot::name_of;
use super::vmm::{Beginning, Machine};
use crate::link::Link;
use crate::setup;

/// Makers at work at once. Each is a machine.
const MAKERS_MAX: usize = 2;

/// The use of a set of layers that one is made at: most are used once.
const LAYERED_USES: u32 = 2;

/// How many sets are remembered by their uses.
const USES_MAX: usize = 256;

/// Reads what is most often started beside the kernel, so that copies find it in memory; then waits until that one has
/// nothing more to do for a second, which is when it waits for a cell.
const REHEARSAL: &str = "for p in python3 node; do command -v $p >/dev/null && { case $p in \
    python3) python3 -c 'import json, re, subprocess, pathlib' ;; \
    node) node -e 0 ;; esac; }; done >/dev/null 2>&1
    used() { cat /proc/[0-9]*/stat 2>/dev/null | while read -r line; do case $line in *'(python'*) set -- ${line##*) }; \
    echo $((${12} + ${13})) ;; esac; done; }
    last=; same=0; n=0; while [ $n -lt 500 ]; do now=$(used); if [ -n \"$now\" ] && [ \"$now\" = \"$last\" ]; then \
    same=$((same + 1)); else same=0; fi; [ $same -lt 5 ] || exit 0; last=$now; n=$((n + 1)); sleep 0.2; done; exit 1";

/// The whole of it, on a slow host.
const REHEARSAL_MAX: Duration = Duration::from_secs(120);

/// Those that make one, which end with the server, and what was asked for how often.
#[derive(Debug, Default)]
pub(super) struct Makers {
    tasks: JoinSet<()>,
    uses: HashMap<String, u32>,
}

/// What a snapshot with these layers in it is known by.
fn name(base: &Base, wanted: &Wanted, layers: &[Layer]) -> String {
    let start = format!("{:?} {:?} {} {layers:?}", wanted.plan, wanted.init, wanted.memory_bytes);
    name_of(&("warm", base.vmm.name(), base.vmm.version(), &wanted.machine, start))
}

/// A copy of the snapshot that has most of it: all layers or none. `None` where there is no snapshot yet.
pub(super) async fn copy(
    microvm: &Microvm,
    base: &Arc<Base>,
    wanted: &Wanted,
) -> Result<Option<(Place, Link)>, BackendError> {
    let all = wanted.layers.as_slice();
    for inside in if all.is_empty() { vec![all] } else { vec![all, &[]] } {
        let name = name(base, wanted, inside);
        let Some(found) = base.snapshots.find(&name) else { continue };
        let copied = async {
            let machine = with_layers(base, microvm.store_path(), &wanted.machine, inside).await?;
            let from = Beginning { from: Some(&found), to: None };
            begun(base, microvm.store_path(), &machine, inside.len() as u8, from).await
        };
        match copied.await {
            Ok((place, guest)) => {
                for layer in all.iter().filter(|_| inside.is_empty()) {
                    place.show(layer).await?;
                }
                let (read, write) = guest.into_split();
                return Ok(Some((place, Link::resume(read, write))));
            }
            Err(error) => {
                // Another version of something, or a file that is damaged: what it was made of is all still there.
                tracing::warn!(%error, "a snapshot could not be used, and is made anew");
                base.snapshots.forget(&name);
            }
        }
    }
    Ok(None)
}

/// The machine with layers in its first drives, as it was when it was left.
async fn with_layers(
    base: &Arc<Base>,
    store: Option<PathBuf>,
    machine: &Machine,
    layers: &[Layer],
) -> Result<Machine, BackendError> {
    let mut machine = machine.clone();
    for (drive, layer) in machine.drives.iter_mut().skip(usize::from(DRIVES_OWN)).zip(layers) {
        let directory = in_store(store.as_deref(), &layer.id)?;
        let (disks, name) = (Arc::clone(&base.disks), image_name(layer));
        let image = tokio::task::spawn_blocking(move || disks.image(&name, &directory));
        *drive = image.await.map_err(|error| setup("making an image", &error))??;
    }
    Ok(machine)
}

/// Begins to make what this sandbox would have been a copy of, if it is not there or old, unless enough are being made.
pub(super) async fn make_behind(microvm: &Microvm, base: &Arc<Base>, wanted: &Wanted) {
    let name = name(base, wanted, &wanted.layers);
    if base.snapshots.is_young(&name) {
        return;
    }
    let mut makers = microvm.makers.lock().await;
    while makers.tasks.try_join_next().is_some() {}
    if makers.tasks.len() >= MAKERS_MAX {
        return;
    }
    if !wanted.layers.is_empty() {
        if makers.uses.len() >= USES_MAX {
            makers.uses.clear();
        }
        let uses = makers.uses.entry(name.clone()).or_default();
        *uses += 1;
        if *uses < LAYERED_USES {
            return;
        }
    }
    let (base, store, mut wanted) = (Arc::clone(base), microvm.store_path(), wanted.clone());
    wanted.init.copied = true;
    makers.tasks.spawn(async move {
        if let Err(error) = make(&base, store, &wanted, &name).await {
            tracing::warn!(%error, "no machine could be kept with a kernel that waits; each is started anew");
        }
    });
}

async fn make(base: &Arc<Base>, store: Option<PathBuf>, wanted: &Wanted, name: &str) -> Result<(), BackendError> {
    let turn = base.snapshots.turn(name);
    let Ok(_mine) = turn.try_lock() else { return Ok(()) };
    if base.snapshots.is_young(name) {
        return Ok(());
    }
    let found = bare(base, &wanted.machine).await?;
    let unfinished = base.snapshots.begin(name)?;
    let from = Beginning { from: Some(&found), to: Some(&unfinished.path) };
    let (place, guest) = begun(base, store, &wanted.machine, 0, from).await?;
    for layer in &wanted.layers {
        place.show(layer).await?;
    }
    let link = entered(&place, guest, wanted).await?;
    let rehearsed = tokio::time::timeout(REHEARSAL_MAX, rehearse(&link)).await;
    rehearsed.map_err(|_| setup("rehearsing", &"it took too long"))??;
    place.vm.snapshot().await?;
    drop(link);
    place.vm.process().destroy().await;
    base.snapshots.finish(unfinished)
}

async fn rehearse(link: &Link) -> Result<(), BackendError> {
    let program = Program {
        source: Source::Command(REHEARSAL.to_owned()),
        env: Vec::new(),
        cwd: None,
        stdin: Stdin::empty(),
        wall: REHEARSAL_MAX,
        changed_max: 0,
    };
    let mut running = link.start(program, REHEARSAL_MAX.as_secs()).await?;
    loop {
        match running.next().await? {
            Event::Finished(finish) if finish.exit == Exit::Code(0) => return Ok(()),
            Event::Finished(finish) => return Err(setup("rehearsing", &format!("it ended with {:?}", finish.exit))),
            _ => {}
        }
    }
}
