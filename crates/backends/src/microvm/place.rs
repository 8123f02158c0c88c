//! A sandbox's machine as the host holds it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use belljar_core::wire::{DRIVES_FOR_LAYERS, DRIVES_OWN, ToKeeper};
use belljar_core::{BackendError, Later, Layer};

use super::base::Base;
use super::built::Built;
use super::control::Control;
use super::disk::{self, Disks};
use super::vmm::Vm;
use crate::fittings::slot_of;
use crate::linked::{self, MemoryKills, WhyLost};
use crate::setup;

/// How many times as long an emulated machine may take.
const EMULATED: u32 = 10;

/// Dropping it ends the machine.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) vm: Arc<dyn Vm>,
    pub(super) control: Arc<Control>,
    drives: Drives,
    /// Where what is built in it goes when it is closed.
    built: Option<Built>,
    slowness: u32,
}

/// What it takes to put something into a machine's drives.
#[derive(Debug, Clone)]
struct Drives {
    vm: Arc<dyn Vm>,
    control: Arc<Control>,
    disks: Arc<Disks>,
    /// The store of layers.
    store: Option<PathBuf>,
    /// The first drive that nothing was put into yet.
    next: Arc<AtomicU8>,
}

impl Drives {
    /// The directory of the store that has this name.
    fn directory(&self, name: &str) -> Result<PathBuf, BackendError> {
        in_store(self.store.as_deref(), name)
    }

    /// Makes an image of a directory, if there is none, and puts it into the next drive.
    async fn fill(&self, name: String, from: PathBuf) -> Result<(u8, PathBuf), BackendError> {
        let end = DRIVES_OWN + DRIVES_FOR_LAYERS;
        let next = |drive: u8| (drive < end).then_some(drive + 1);
        let drive = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .map_err(|_| setup("adding packages", &"they were added too often here; make a new sandbox"))?;
        let disks = Arc::clone(&self.disks);
        let image = tokio::task::spawn_blocking(move || disks.image(&name, &from));
        let image = image.await.map_err(|error| setup("making an image", &error))??;
        self.vm.attach(drive, &image).await?;
        Ok((drive, image))
    }

    async fn show(&self, layer: &Layer) -> Result<(), BackendError> {
        let (drive, _) = self.fill(image_name(layer), self.directory(&layer.id)?).await?;
        self.control.ask(&ToKeeper::Layer { drive, at: slot_of(layer.kind).to_owned() }).await
    }
}

pub(super) fn in_store(store: Option<&Path>, name: &str) -> Result<PathBuf, BackendError> {
    let none = || setup("adding packages", &"this server has no store of packages");
    Ok(store.ok_or_else(none)?.join(name))
}

/// Under what name there is an image of a layer.
pub(super) fn image_name(layer: &Layer) -> String {
    format!("layer-{}", layer.id)
}

impl Place {
    /// `filled` is how many of its drives have layers in them already.
    pub(super) fn new(vm: Arc<dyn Vm>, control: Control, base: &Base, store: Option<PathBuf>, filled: u8) -> Place {
        let control = Arc::new(control);
        let drives = Drives {
            vm: Arc::clone(&vm),
            control: Arc::clone(&control),
            disks: Arc::clone(&base.disks),
            store,
            next: Arc::new(AtomicU8::new(DRIVES_OWN + filled)),
        };
        let slowness = if base.emulated.is_some() { EMULATED } else { 1 };
        Place { vm, control, drives, built: None, slowness }
    }

    /// Has a layer shown at its place.
    pub(super) async fn show(&self, layer: &Layer) -> Result<(), BackendError> {
        let (drives, layer) = (self.drives.clone(), layer.clone());
        // In a task of its own: a caller that goes away must not leave an answer to the next one.
        let showing = tokio::spawn(async move { drives.show(&layer).await });
        showing.await.unwrap_or_else(|error| Err(setup("adding packages", &error)))
    }

    /// Gives it a directory to build in, with what is in the store's of that name.
    pub(super) async fn build(&mut self, name: &str, bytes: u64) -> Result<(), BackendError> {
        let directory = self.drives.directory(name)?;
        let content = disk::look(&directory)?;
        let mut drive = None;
        if content.entries > 0 {
            let (number, image) = self.drives.fill(format!("building-{}", content.stamp), directory.clone()).await?;
            // The machine has it open; nobody else needs it.
            let _ = std::fs::remove_file(&image);
            drive = Some(number);
        }
        self.control.ask(&ToKeeper::Build { bytes, drive }).await?;
        self.built = Some(Built::new(directory, bytes));
        Ok(())
    }

    /// With what the machine said last, if it did not come as far as it should have.
    pub(super) fn explained(&self, error: BackendError) -> BackendError {
        match (error, self.vm.console()) {
            (BackendError::Setup { step, why }, last) if !last.is_empty() => {
                BackendError::Setup { step, why: format!("{why}; the last it said: {last}") }
            }
            (error, _) => error,
        }
    }
}

impl linked::Place for Place {
    fn slowness(&self) -> u32 {
        self.slowness
    }

    fn memory_kills(&self) -> MemoryKills {
        let killed = self.control.killed();
        Box::new(move || killed.load(Ordering::Acquire))
    }

    fn add_layer(&self, layer: Layer) -> Later<'_, ()> {
        Box::pin(async move { self.show(&layer).await })
    }

    async fn destroy(mut self) -> Result<(), BackendError> {
        let collected = match self.built.take() {
            Some(mut built) => self.control.collect(|piece| built.take(piece)).await,
            None => Ok(()),
        };
        self.vm.process().destroy().await;
        collected
    }

    fn why_lost(&self) -> Option<WhyLost> {
        let vm = Arc::downgrade(&self.vm);
        Some(Box::new(move || {
            let vm = vm.upgrade()?;
            let how = vm.process().how_ended()?;
            let last = vm.console();
            let last = if last.is_empty() { last } else { format!("; the last it said: {last}") };
            Some(format!("its machine's monitor ended ({how}){last}"))
        }))
    }
}
