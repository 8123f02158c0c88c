//! A backend without walls, for tests that are not about isolation: programs are scripts that it acts out in memory
//! (see [`script`]), and it counts what is alive, so that a test can say that nothing was left.
//!
//! It confines nothing and is in no registry: the test that wants it names it.

mod place;
mod questions;
pub mod script;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_core::{
    Backend, BackendError, Capabilities, Language, Later, Layer, Probe, Sandbox, Spec, Wall, WallState,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How the fake behaves; [`Fake::new`] takes one.
#[derive(Debug, Clone)]
pub struct Manners {
    pub open_takes: Duration,
    pub start_takes: Duration,
    pub close_takes: Duration,
    pub languages: Vec<Language>,
    /// What `open` fails with; [`Fake::fail_opens`] changes it.
    pub open_fails: Option<&'static str>,
    /// What it says that it has.
    pub interpreters: Vec<(Language, String)>,
    /// Whether it says that places can have a network, of which there is nothing, and layers, which are only noted.
    pub network: bool,
    pub layers: bool,
    /// Whether places can tell the processor time that was used in them, which is what `burn` says.
    pub measures_cpu: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Manners {
            open_takes: Duration::ZERO,
            start_takes: Duration::ZERO,
            close_takes: Duration::ZERO,
            languages: Language::ALL.to_vec(),
            open_fails: None,
            interpreters: Vec::new(),
            network: false,
            layers: false,
            measures_cpu: false,
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
    dropped: AtomicUsize,
    /// The spec of each place that was opened, by its number.
    opened: watch::Sender<Vec<Spec>>,
    /// How often `open` was asked, whatever came of it.
    asked: AtomicUsize,
    open_fails: Mutex<Option<&'static str>>,
    started: AtomicUsize,
    most_programs: AtomicUsize,
    fell: Mutex<Vec<CancellationToken>>,
    /// Layers that were added to places, with their numbers.
    added: Mutex<Vec<(usize, Layer)>>,
}

impl Fake {
    pub fn new(manners: Manners) -> Arc<Fake> {
        let ground = Ground { open_fails: Mutex::new(manners.open_fails), ..Ground::default() };
        Arc::new(Fake { manners, ground: Arc::new(ground) })
    }

    /// Sandboxes that stand now, half-open and half-closed ones included.
    pub fn sandboxes(&self) -> usize {
        self.ground.sandboxes.load(Ordering::SeqCst)
    }

    /// Sandboxes that were dropped and not closed, half-open ones included.
    pub fn dropped(&self) -> usize {
        self.ground.dropped.load(Ordering::SeqCst)
    }

    /// Programs that run now.
    pub fn programs(&self) -> usize {
        self.ground.programs.load(Ordering::SeqCst)
    }

    /// Sandboxes that were opened in all.
    pub fn opened(&self) -> usize {
        self.ground.opened.borrow().len()
    }

    /// Returns when so many were opened in all.
    pub async fn until_opened(&self, count: usize) {
        // It fails only when the sender is gone, which `self` holds.
        let _ = self.ground.opened.subscribe().wait_for(|opened| opened.len() >= count).await;
    }

    /// What was asked of the place with this number; a program is told its place's by `place`.
    pub fn spec_of(&self, number: usize) -> Option<Spec> {
        self.ground.opened.borrow().get(number).cloned()
    }

    /// How often `open` was asked, whatever came of it.
    pub fn asked(&self) -> usize {
        self.ground.asked.load(Ordering::SeqCst)
    }

    /// The layers that were added to places that stood, with the places' numbers.
    pub fn added(&self) -> Vec<(usize, Layer)> {
        self.ground.added.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on `open` fails with this, or no longer.
    pub fn fail_opens(&self, why: Option<&'static str>) {
        *self.ground.open_fails.lock().unwrap_or_else(PoisonError::into_inner) = why;
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
        Capabilities {
            languages: self.manners.languages.clone(),
            interpreters: self.manners.interpreters.clone(),
            missing: Vec::new(),
            network: self.manners.network,
            layers: self.manners.layers,
            processes: true,
            images: false,
        }
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        Box::pin(async move {
            self.ground.asked.fetch_add(1, Ordering::SeqCst);
            let fails = *self.ground.open_fails.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = fails {
                return Err(BackendError::Setup { step: "open".into(), why: why.into() });
            }
            // Counted before it is ready: a half-open place that is left behind must show.
            let mut place = place::Place::new(self.ground.clone(), &self.manners, spec);
            tokio::time::sleep(self.manners.open_takes).await;
            self.ground.opened.send_modify(|opened| {
                place.number = opened.len();
                opened.push(spec.clone());
            });
            Ok(Box::new(place) as Box<dyn Sandbox>)
        })
    }
}
