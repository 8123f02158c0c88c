//! All who watch a server that serves: figures, spans, the walls' self-test; put together, begun, and ended in order.

mod audits;

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::Backend;
use belljar_engine::{Engine, Observer, Template};
use belljar_meters::{Meters, Spans, Tracer};
use belljar_server::{ServeError, Watch, serve_figures};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::audits::Counted;
use crate::complaint::Complaint;
use crate::otel::{Exporter, Settings};
use crate::selftest::{Gates, Held, SelfTest};

/// Before the engine is there.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) watch: Watch,
    collector: Option<(Settings, Spans)>,
    /// The walls as they are, for the self-test alone.
    walls: Mutex<Option<(Arc<dyn Backend>, Gates)>>,
    tests: Tests,
    figures_at: Option<SocketAddr>,
}

/// Whether the walls are tested before anything is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tests {
    Yes,
    /// The operator's wish, in words.
    No,
}

impl Watching {
    /// `variable` looks up the environment; `figures_at` is an address for figures alone.
    pub(crate) fn new(
        variable: impl Fn(&str) -> Option<String>,
        tests: Tests,
        figures_at: Option<SocketAddr>,
    ) -> Result<Watching, Complaint> {
        let collector = Settings::read(variable).map_err(|sentence| match sentence.split_once("; ") {
            Some((what, hint)) => Complaint::new(what, hint),
            None => Complaint::new(sentence, "OTEL_SDK_DISABLED=true turns this off"),
        })?;
        let meters = Arc::new(Meters::new());
        let (tracer, collector) = match collector {
            Some(settings) => {
                let (tracer, spans) = Tracer::new(meters.clone());
                (tracer, Some((settings, spans)))
            }
            // What callers say of their own traces goes on to other servers all the same.
            None => (Tracer::quiet(meters.clone()), None),
        };
        let watch = Watch { meters, tracer: Some(tracer), ..Watch::default() };
        Ok(Watching { watch, collector, walls: Mutex::new(None), tests, figures_at })
    }

    pub(crate) fn observers(&self) -> Vec<Arc<dyn Observer>> {
        let mut observers: Vec<Arc<dyn Observer>> = vec![self.watch.meters.clone()];
        if let Some(tracer) = &self.watch.tracer {
            observers.push(Arc::new(tracer.clone()));
        }
        observers
    }

    /// The walls for everyone but the self-test: nothing is opened behind one before its own has passed.
    pub(crate) fn hold(&self, walls: Arc<dyn Backend>, templates: &[Template]) -> Arc<dyn Backend> {
        let gates = Gates::new(walls.name(), templates);
        *self.walls.lock().unwrap_or_else(PoisonError::into_inner) = Some((walls.clone(), gates.clone()));
        Held::around(walls, gates)
    }

    /// Inside a runtime.
    pub(crate) fn begin(self, engine: &Engine) -> Begun {
        let Watching { watch, collector, walls, tests, figures_at } = self;
        let selftest = match (walls.into_inner().unwrap_or_else(PoisonError::into_inner), tests) {
            (Some((walls, gates)), Tests::Yes) => Some(SelfTest::begin(walls, gates, watch.readiness.clone())),
            (held, _) => {
                tracing::warn!("the walls are not tested before programs are run: [self_test] enabled is false");
                if let Some((_, gates)) = held {
                    gates.open();
                }
                None
            }
        };
        let exporter = collector.and_then(|(settings, spans)| {
            let (watch, engine) = (watch.clone(), engine.clone());
            let meters = watch.meters.clone();
            Exporter::begin(settings, spans, meters, Arc::new(move || watch.text(&engine)))
        });
        let stop = CancellationToken::new();
        let figures = figures_at.map(|address| {
            let serving = serve_figures(engine.clone(), watch.clone(), address, announce, stop.clone());
            tokio::spawn(serving)
        });
        Begun { watch, selftest, exporter, figures, stop }
    }
}

fn announce(address: SocketAddr) {
    let _ = writeln!(std::io::stderr(), "belljar: figures at http://{address}/metrics");
}

/// While the server serves. [`Begun::end`] must be awaited.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) watch: Watch,
    selftest: Option<SelfTest>,
    exporter: Option<Exporter>,
    figures: Option<JoinHandle<Result<(), ServeError>>>,
    stop: CancellationToken,
}

impl Begun {
    /// Serves, unless the walls turn out not to hold, or figures cannot be served.
    pub(crate) async fn over(
        &mut self,
        serving: impl Future<Output = Result<(), ServeError>>,
    ) -> Result<(), ServeError> {
        let Begun { selftest, figures, .. } = self;
        let fired = async {
            match selftest {
                Some(selftest) => selftest.fired().await,
                None => std::future::pending().await,
            }
        };
        let without_figures = async {
            match figures {
                Some(task) => match task.await {
                    Ok(Err(error)) => error,
                    _ => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = serving => served,
            what = fired => Err(ServeError::WallsDoNotHold(what)),
            error = without_figures => Err(error),
        }
    }

    /// Leaves nothing behind: no sandbox of the test's, and no span that could still be sent.
    pub(crate) async fn end(self) {
        let Begun { selftest, exporter, figures, stop, .. } = self;
        stop.cancel();
        if let Some(selftest) = selftest {
            selftest.end().await;
        }
        if let Some(exporter) = exporter {
            exporter.end().await;
        }
        if let Some(figures) = figures.filter(|task| !task.is_finished()) {
            // A connection that is still open must not hold the exit.
            figures.abort();
        }
    }
}
