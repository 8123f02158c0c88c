//! The contract between those who want a program run and those who confine it.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::wire::Part;
use crate::{
    BackendError, Content, Doors, Event, Isolation, Language, Layer, Limits, Listing, Network, Program, Range,
};

/// A boxed future of a backend's answer.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, BackendError>> + Send + 'a>>;

/// A way of confining code. Adding one: docs/adding-a-backend.md.
pub trait Backend: Debug + Send + Sync {
    /// The name used in configuration and logs. Never changes once released.
    fn name(&self) -> &'static str;
    /// Whether this host can run it; if not, what is missing and how to get it. May run programs of the host: not
    /// for the path of a request.
    fn probe(&self) -> Probe;
    /// Facts that hold for the life of the process, so callers choose instead of trying.
    fn capabilities(&self) -> Capabilities;
    /// Opens an empty, confined place. Dropping it, or this future before it is there, must leave nothing behind.
    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>>;
    /// Returns when what it does ahead, to open places quickly, is done or has failed. Places can be opened before that too.
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

/// A confined place. Operations may overlap; each is bounded by the sandbox's limits. Dropping a file operation gives it
/// up, and the place stands.
pub trait Sandbox: Debug + Send + Sync {
    /// The walls as they really stand around this place.
    fn isolation(&self) -> &Isolation;
    /// Starts a program. `Lost` when the place is gone.
    fn start(&self, program: Program) -> Later<'_, Box<dyn Running>>;
    fn read<'a>(&'a self, path: &'a str, range: Range) -> Later<'a, Content>;
    /// Replaces the file at `path` as a whole, making its parent directories. A reader sees the old content or the new.
    fn write<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> Later<'a, ()>;
    /// Lists a directory, `depth` levels deep, at most `entries_max` entries.
    fn list<'a>(&'a self, path: &'a str, depth: u32, entries_max: u32) -> Later<'a, Listing>;
    /// Puts an environment of packages there, over the one of its kind that was there before. Programs and kernels go on.
    /// For those whose capabilities have layers.
    fn add_layer<'a>(&'a self, layer: &'a Layer) -> Later<'a, ()> {
        let error = BackendError::Setup { step: "adding packages".into(), why: format!("no place for {layer:?}") };
        Box::pin(std::future::ready(Err(error)))
    }
    /// The next thing that a program in it asks of us. For one listener; `Lost` when the place is gone.
    fn asked(&self) -> Later<'_, Asked> {
        Box::pin(std::future::pending())
    }
    /// A piece of the answer to a question. One that was withdrawn takes everything.
    fn answer(&self, _id: u32, _bytes: Vec<u8>, _part: Part) {}
    /// Its ways out, if it was opened with a network; given once, to whoever serves them.
    fn doors(&self) -> Option<Doors> {
        None
    }
    /// The hosts that its programs were refused since this was last asked, as `host:port`; few, and each once.
    fn refused(&self) -> Vec<String> {
        Vec::new()
    }
    /// The hosts that its programs reached since this was last asked, each once, and at most a bounded number by name.
    fn reached(&self) -> Vec<Reached> {
        Vec::new()
    }
    /// Bytes that went through its doors since it was opened, both ways.
    fn moved_bytes(&self) -> u64 {
        0
    }
    /// The processor time that all in it have used since it was opened, where its wall can tell.
    fn cpu_used(&self) -> Option<Duration> {
        None
    }
    /// How many times as long as on the host's own processor its answers may take; what an emulator runs is slow.
    fn slowness(&self) -> u32 {
        1
    }
    /// Whether the place still stands. A place that fell stays fallen.
    fn is_alive(&self) -> bool;
    /// Ends everything in it and waits until nothing of it is left.
    fn close(self: Box<Self>) -> Later<'static, ()>;
}

/// What went from a place to one host, and back.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Reached {
    /// As `host:port`.
    pub host: String,
    pub connections: u64,
    pub bytes_out: u64,
    pub bytes_in: u64,
}

impl Reached {
    pub fn is_nothing(&self) -> bool {
        (self.connections, self.bytes_out, self.bytes_in) == (0, 0, 0)
    }
}

/// What a program in a place asks of those outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    Question {
        id: u32,
        /// The program that it comes from, as [`Running::number`] has it. None is left of it, or it is a kernel without a cell.
        by: Option<u32>,
        body: Vec<u8>,
    },
    /// Whoever asked is gone, and nobody waits for the answer.
    Withdrawn { id: u32 },
}

/// A program that runs. Dropping it stops the program with everything that it started.
pub trait Running: Debug + Send {
    /// Its number within its sandbox, by which [`Asked`] names it.
    fn number(&self) -> u32;
    /// The next thing it does. After [`Event::Finished`] there is no more. Dropping the future loses no event.
    fn next(&mut self) -> Later<'_, Event>;
    /// Kills it with everything it started; the events go on until `Finished`. A cell's kernel goes with it.
    fn stop(&mut self);
    /// Sends a signal to the program and its process group. A cell takes 2 (SIGINT) as the wish to stop, and its kernel
    /// stays; whoever wants to be sure gives it a while and then stops it.
    fn signal(&mut self, signal: i32);
    /// The way to its standard input, if that was to come live; given once.
    fn stdin(&mut self) -> Option<Box<dyn StdinWriter>>;
}

/// Standard input of a running program. Dropping it is the end of the input.
pub trait StdinWriter: Debug + Send {
    /// Passes a piece on. Waits while the program has much unread; a program that has ended takes everything.
    fn write(&mut self, bytes: Vec<u8>) -> Later<'_, ()>;
}

/// What a place stands on, and what its packages have to fit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ground {
    /// The wall that it is to have, by the backend's name, where a server has several; `None` for the server's own.
    pub wall: Option<String>,
    /// The root file system that it begins with: an image by whatever name the backend knows images by. `None` for the
    /// backend's own, which may be the host's programs.
    pub image: Option<String>,
    /// Interpreters to use in place of the first, by their names in [`Capabilities::interpreters`].
    pub interpreters: Vec<String>,
}

impl Ground {
    /// The server's own wall with these interpreters.
    pub fn of(interpreters: &[String]) -> Ground {
        Ground { interpreters: interpreters.to_vec(), ..Ground::default() }
    }

    /// Whether what [`Backend::capabilities`] tells holds for it.
    pub fn is_own(&self) -> bool {
        self.wall.is_none() && self.image.is_none()
    }
}

/// What a caller asks of a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Spec {
    pub limits: Limits,
    pub network: Network,
    /// Environment of every program in the sandbox.
    pub env: Vec<(String, String)>,
    pub ground: Ground,
    /// Environments of packages, one of a kind.
    pub layers: Vec<Layer>,
    /// Whose it is, where that makes a difference: nothing that runs what is in its layers is shared with other owners'
    /// places. `None` for layers that everybody trusts.
    pub owner: Option<String>,
    /// A directory of the layers' store that it may write, at [`crate::BUILD`]; there to make a layer, and for nothing else.
    pub build: Option<String>,
    /// A language whose kernel is to be started with the place, ahead of its first cell. Nobody waits for it, and where it
    /// cannot be started that cell is told why. A language without kernels is as none.
    pub waiting: Option<Language>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    pub languages: Vec<Language>,
    /// Every interpreter and compiler by language and version, such as `python-3.12`, `node-20`, `go-1.22`; of each
    /// language the one that is used by default comes first.
    pub interpreters: Vec<(Language, String)>,
    /// Each other language, with how the operator gets it.
    pub missing: Vec<(Language, String)>,
    /// Whether a place can have a network, by [`Sandbox::doors`].
    pub network: bool,
    /// Whether a place can have layers, and build them.
    pub layers: bool,
    /// Whether programs in a place can start others: a shell, jobs, `subprocess`. Where not, `missing` says so for the shell.
    pub processes: bool,
    /// Whether a place can begin with an image: [`Spec::image`].
    pub images: bool,
}

/// What a look at the host found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    pub walls: Vec<Wall>,
    pub languages: Vec<Wall>,
}

impl Probe {
    /// Whether a sandbox can be opened at all.
    pub fn usable(&self) -> bool {
        self.why_unusable().is_none()
    }

    /// What is missing for that, if anything.
    pub fn why_unusable(&self) -> Option<String> {
        self.walls.iter().find_map(|wall| match &wall.state {
            WallState::Missing { why, .. } => Some(why.clone()),
            WallState::Stands { .. } | WallState::Weaker { .. } => None,
        })
    }
}

/// One wall, or one language, and how it stands on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wall {
    pub name: &'static str,
    pub state: WallState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WallState {
    Stands {
        detail: String,
    },
    /// It works, with less than it could have; `fix` says how to get the rest.
    Weaker {
        why: String,
        fix: String,
    },
    /// Without it nothing is run (a wall), or this one thing is not offered (a language).
    Missing {
        why: String,
        fix: String,
    },
}
