//! A place as its caller holds it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use belljar_core::wire::Part;
use belljar_core::{
    Asked, Content, Doors, Event, Exit, Isolation, Later, Layer, Listing, Program, Range, Running, Sandbox, StdinWriter,
};

use super::place::{Place, Watcher};
use super::{setup, store};
use crate::link::{self, Link, Started};

/// Each is a mount over the one before, which stays.
const ADDED_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct NativeSandbox {
    // Before `place`: the guest sees the end of its stream before it is killed.
    pub(super) link: Link,
    pub(super) place: Place,
    pub(super) isolation: Isolation,
    pub(super) cpus: u32,
    pub(super) doors: Mutex<Option<Doors>>,
    /// How many layers were added since it was opened.
    pub(super) added: AtomicU32,
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

    fn add_layer<'a>(&'a self, layer: &'a Layer) -> Later<'a, ()> {
        Box::pin(async move {
            store::check_layer(layer)?;
            if self.added.fetch_add(1, Ordering::Relaxed) >= ADDED_MAX {
                return Err(setup("adding packages", &"they were added too often here; make a new sandbox"));
            }
            self.place.add_layer(layer.clone()).await
        })
    }

    fn asked(&self) -> Later<'_, Asked> {
        Box::pin(self.link.asked())
    }

    fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        self.link.answer(id, bytes, part);
    }

    fn doors(&self) -> Option<Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).take()
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
    watcher: Watcher,
}

impl Running for NativeRunning {
    fn number(&self) -> u32 {
        self.started.number()
    }

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
