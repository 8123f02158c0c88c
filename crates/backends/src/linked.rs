//! A place with a guest at the other end of a link, as its caller holds it: what is the same for every wall. What each wall
//! does in its own way is its [`Place`].

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use belljar_core::wire::Part;
use belljar_core::{
    Asked, BackendError, Content, Doors, Event, Exit, Finish, Isolation, Language, Later, Layer, Listing, Program,
    Range, Running, Sandbox, Source, State, StdinWriter, Usage,
};

use crate::link::{self, Link, Started};
use crate::{setup, store};

/// Each may be a mount over the one before, which stays.
const ADDED_MAX: u32 = 64;

/// What the host holds of a confined place. Dropping it ends everything inside, in the background.
pub(crate) trait Place: fmt::Debug + Send + Sync + 'static {
    /// How often something in it was killed for memory, as far as the wall knows. A guest tells what it killed itself.
    fn memory_kills(&self) -> MemoryKills;

    /// Puts a layer into it, over the one of its kind that it has.
    fn add_layer(&self, layer: Layer) -> Later<'_, ()>;

    /// Ends everything inside and returns when nothing of it is left.
    fn destroy(self) -> impl Future<Output = Result<(), BackendError>> + Send + 'static;

    /// As [`Sandbox::cpu_used`].
    fn cpu_used(&self) -> Option<Duration> {
        None
    }

    /// As [`Sandbox::slowness`].
    fn slowness(&self) -> u32 {
        1
    }

    /// Tells why it fell, where the wall knows more than that its guest is gone. What it tells may come a moment later than that.
    fn why_lost(&self) -> Option<WhyLost> {
        None
    }
}

/// `None` while it is not known to have fallen.
pub(crate) type WhyLost = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// How long, and how often, a wall is asked why a place fell.
const WHY_LOOKS: u32 = 25;
const WHY_LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The same error, with the wall's own word for it.
async fn explained(error: BackendError, why_lost: Option<&WhyLost>) -> BackendError {
    let (BackendError::Lost { .. }, Some(why_lost)) = (&error, why_lost) else { return error };
    for _ in 0..WHY_LOOKS {
        if let Some(why) = why_lost() {
            return BackendError::Lost { why };
        }
        tokio::time::sleep(WHY_LOOK_AGAIN).await;
    }
    error
}

/// A count that goes on while a program runs.
pub(crate) type MemoryKills = Box<dyn Fn() -> u64 + Send + Sync>;

/// For a place whose wall does not count.
pub(crate) fn no_kills() -> MemoryKills {
    Box::new(|| 0)
}

#[derive(Debug)]
pub(crate) struct Linked<P> {
    // Before `place`: the guest sees the end of its stream before it is killed.
    pub(crate) link: Link,
    pub(crate) place: P,
    pub(crate) isolation: Isolation,
    /// CPUs that a program may use at once.
    pub(crate) cpus: u32,
    /// What its image, or the host, has interpreters for.
    pub(crate) languages: Vec<Language>,
    pub(crate) doors: Mutex<Option<Doors>>,
    /// How many layers were added since it was opened.
    pub(crate) added: AtomicU32,
}

impl<P> Linked<P> {
    fn check_language(&self, source: &Source) -> Result<(), BackendError> {
        let language = match source {
            Source::Code { language, .. } | Source::Cell { language, .. } => *language,
            Source::Command(_) => Language::Shell,
        };
        if self.languages.contains(&language) {
            return Ok(());
        }
        let names: Vec<&str> = self.languages.iter().map(|language| language.name()).collect();
        let has = if names.is_empty() { "nothing that runs programs".to_owned() } else { names.join(", ") };
        Err(BackendError::Lacks {
            what: format!("this sandbox has no {language}"),
            instead: format!("it has {has}; use one of these, or a template that has it"),
        })
    }
}

impl<P: Place> Sandbox for Linked<P> {
    fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>> {
        Box::pin(async move {
            self.check_language(&program.source)?;
            // A backstop only: the engine ends the program at its wall limit, by then it cannot have used more.
            let cpu_seconds = (program.wall.as_secs() + 2) * u64::from(self.cpus);
            let kills = self.place.memory_kills();
            let kills_before = kills();
            let is_cell = matches!(program.source, Source::Cell { .. });
            let why_lost = self.place.why_lost();
            match self.link.start(program, cpu_seconds).await {
                Ok(started) => Ok(Box::new(LinkedRunning {
                    started,
                    kills: Kills(kills),
                    kills_before,
                    is_cell,
                    why_lost: Why(why_lost),
                }) as Box<dyn Running>),
                Err(error) => Err(explained(error, why_lost.as_ref()).await),
            }
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

    fn cpu_used(&self) -> Option<Duration> {
        self.place.cpu_used()
    }

    fn slowness(&self) -> u32 {
        self.place.slowness()
    }

    fn is_alive(&self) -> bool {
        self.link.is_alive()
    }

    fn close(self: Box<Self>) -> Later<'static, ()> {
        Box::pin(async move {
            let Linked { link, place, .. } = *self;
            drop(link);
            place.destroy().await
        })
    }
}

struct Kills(MemoryKills);

impl fmt::Debug for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kills").field(&(self.0)()).finish()
    }
}

struct Why(Option<WhyLost>);

impl fmt::Debug for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Why").field(&self.0.as_ref().and_then(|why| why())).finish()
    }
}

#[derive(Debug)]
struct LinkedRunning {
    started: Started,
    kills: Kills,
    kills_before: u64,
    is_cell: bool,
    why_lost: Why,
}

impl LinkedRunning {
    fn met_the_memory_limit(&self) -> bool {
        (self.kills.0)() > self.kills_before
    }

    /// What is left to tell of a program whose place fell.
    async fn last_word(&self, error: BackendError) -> Result<Event, BackendError> {
        let error = explained(error, self.why_lost.0.as_ref()).await;
        // The wall itself was what had grown too large: it is how this program ended, and nothing of it is alive.
        if matches!(error, BackendError::Lost { .. }) && self.met_the_memory_limit() {
            let kernel = self.is_cell.then_some(State::Lost);
            return Ok(Event::Finished(Finish { exit: Exit::OutOfMemory, usage: Usage::default(), kernel }));
        }
        Err(error)
    }
}

impl Running for LinkedRunning {
    fn number(&self) -> u32 {
        self.started.number()
    }

    fn next(&mut self) -> Later<'_, Event> {
        Box::pin(async move {
            let mut event = match self.started.next().await {
                Ok(event) => event,
                Err(error) => return self.last_word(error).await,
            };
            if let Event::Finished(finish) = &mut event
                && link::was_killed(finish)
                && self.met_the_memory_limit()
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
