//! A backend without walls, for tests that are not about isolation: programs are scripts that it acts out in memory
//! (see [`script`]), and it counts what is alive, so that a test can say that nothing was left.
//!
//! It confines nothing and is in no registry: the test that wants it names it.

mod place;
pub mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::{Backend, BackendError, Capabilities, Language, Later, Probe, Sandbox, Spec, Wall, WallState};
use tokio_util::sync::CancellationToken;

/// How the fake behaves; [`Fake::new`] takes one.
#[derive(Debug, Clone)]
pub struct Manners {
    pub open_takes: Duration,
    pub start_takes: Duration,
    pub close_takes: Duration,
    pub languages: Vec<Language>,
    /// What `open` fails with.
    pub open_fails: Option<&'static str>,
}

impl Default for Manners {
    fn default() -> Self {
        Manners {
            open_takes: Duration::ZERO,
            start_takes: Duration::ZERO,
            close_takes: Duration::ZERO,
            languages: Language::ALL.to_vec(),
            open_fails: None,
        }
    }
}

#[derive(Debug)]
pub struct Fake {
    manners: Manners,
    ground: Arc<Ground>,
}

/// What all places of one fake share.
#[derive(Debug, Default)]
struct Ground {
    sandboxes: AtomicUsize,
    programs: AtomicUsize,
    opened: AtomicUsize,
    started: AtomicUsize,
    most_programs: AtomicUsize,
    fell: Mutex<Vec<CancellationToken>>,
}

impl Fake {
    pub fn new(manners: Manners) -> Arc<Fake> {
        Arc::new(Fake { manners, ground: Arc::default() })
    }

    /// Sandboxes that stand now, half-open and half-closed ones included.
    pub fn sandboxes(&self) -> usize {
        self.ground.sandboxes.load(Ordering::SeqCst)
    }

    /// Programs that run now.
    pub fn programs(&self) -> usize {
        self.ground.programs.load(Ordering::SeqCst)
    }

    /// Sandboxes that were opened in all.
    pub fn opened(&self) -> usize {
        self.ground.opened.load(Ordering::SeqCst)
    }

    /// Programs that were started in all.
    pub fn started(&self) -> usize {
        self.ground.started.load(Ordering::SeqCst)
    }

    /// The most programs that ever ran at once.
    pub fn most_programs(&self) -> usize {
        self.ground.most_programs.load(Ordering::SeqCst)
    }

    /// Makes every sandbox fall, as if the host had killed it.
    pub fn topple(&self) {
        for place in self.ground.fell.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            place.cancel();
        }
    }
}

impl Backend for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn probe(&self) -> Probe {
        let stands = |name| Wall { name, state: WallState::Stands { detail: "acted".into() } };
        Probe {
            walls: vec![stands("none")],
            languages: self.manners.languages.iter().map(|language| stands(language.name())).collect(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { languages: self.manners.languages.clone(), interpreters: Vec::new(), missing: Vec::new() }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            if let Some(why) = self.manners.open_fails {
                return Err(BackendError::Setup { step: "open".into(), why: why.into() });
            }
            // Counted before it is ready: a half-open place that is left behind must show.
            let place = place::Place::new(self.ground.clone(), &self.manners, spec);
            tokio::time::sleep(self.manners.open_takes).await;
            self.ground.opened.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(place) as Box<dyn Sandbox>)
        })
    }
}
