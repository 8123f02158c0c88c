//! Spans: of each request, and below it of the runs, sandboxes and calls that came of it.
//!
//! ```text
//! tools/call run_code           the server begins it, and is within it while it works
//!   └ run                       the engine tells that a run was asked for on that very task, and later of its end
//!       ├ wait                  for its turn and its place
//!       └ call SERVER.TOOL      the gateway tells the run's id
//! ```
//!
//! Nothing waits here: a span that the queue has no room for is dropped, and counted. Where nobody collects spans there are none:
//! a caller's own is then what all work for it is told to belong to.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use belljar_engine::{Event, Observer};
use tokio::sync::mpsc;

use crate::figures::Meters;
use crate::labels;
use crate::trace::{SpanContext, SpanId, plain};

/// Spans that wait to be taken.
const QUEUE: usize = 4096;
/// Runs under way that are known here.
const RUNS_MAX: usize = 8192;

tokio::task_local! {
    /// What this task works for.
    static CURRENT: SpanContext;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub context: SpanContext,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: Kind,
    pub begun: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal,
    Server,
    Client,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Unset,
    Error,
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Attribute {
        Attribute::Text(plain(text))
    }
}

/// The finished ones, for whoever sends them on.
pub type Spans = mpsc::Receiver<Span>;

#[derive(Debug, Clone)]
pub struct Tracer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` where nobody collects them.
    finished: Option<mpsc::Sender<Span>>,
    meters: Arc<Meters>,
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    known: HashMap<String, Asked>,
    /// Oldest first; some may be gone from `known`.
    order: VecDeque<String>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    context: SpanContext,
    parent: SpanId,
    at: SystemTime,
}

impl Tracer {
    pub fn new(meters: Arc<Meters>) -> (Tracer, Spans) {
        let (finished, spans) = mpsc::channel(QUEUE);
        let inner = Inner { finished: Some(finished), meters, runs: Mutex::default() };
        (Tracer { inner: Arc::new(inner) }, spans)
    }

    /// One that nobody collects from: it makes no spans, and only knows what belongs to a caller's.
    pub fn quiet(meters: Arc<Meters>) -> Tracer {
        Tracer { inner: Arc::new(Inner { finished: None, meters, runs: Mutex::default() }) }
    }

    /// A new span below a caller's, or below nothing.
    pub fn begin(&self, parent: Option<&SpanContext>) -> Option<SpanContext> {
        match &self.inner.finished {
            Some(_) => SpanContext::below(parent),
            None => parent.copied(),
        }
    }

    /// The span of a call of another server's tool that is about to be made, which that server is told of.
    pub fn calling(&self, run: &str) -> Option<SpanContext> {
        self.begin(Some(&self.caller(run)?))
    }

    /// What a call belongs to: its run, or, where there is none, the request that this task works for.
    fn caller(&self, run: &str) -> Option<SpanContext> {
        let known = self.runs().known.get(run).map(|asked| asked.context);
        known.or_else(current)
    }

    /// Does `work` for the sake of a span.
    pub async fn within<T>(&self, context: SpanContext, work: impl Future<Output = T>) -> T {
        CURRENT.scope(context, work).await
    }

    /// Hands a finished span on. One that nobody wants kept is none.
    pub fn finish(&self, span: Span) {
        let Some(finished) = &self.inner.finished else { return };
        if span.context.is_sampled && finished.try_send(span).is_err() {
            self.inner.meters.spans_dropped(1);
        }
    }

    /// A call of another server's tool has come to its end just now. One that was refused here was never told to anybody, and
    /// has no `context` yet.
    pub fn called(
        &self,
        run: &str,
        context: Option<SpanContext>,
        (server, tool): (&str, &str),
        outcome: &'static str,
        took: Duration,
    ) {
        let Some(parent) = self.caller(run) else { return };
        let Some(context) = context.or_else(|| self.begin(Some(&parent))) else { return };
        let ended = SystemTime::now();
        let status = if outcome == "ok" { Status::Unset } else { Status::Error };
        let mut attributes = vec![
            ("mcp.method.name", "tools/call".into()),
            ("gen_ai.tool.name", tool.into()),
            ("gen_ai.operation.name", "execute_tool".into()),
            ("belljar.upstream", server.into()),
        ];
        if status == Status::Error {
            attributes.push(("error.type", outcome.into()));
        }
        self.finish(Span {
            context,
            parent: Some(parent.span),
            name: plain(&format!("tools/call {server}.{tool}")),
            kind: Kind::Client,
            begun: ended.checked_sub(took).unwrap_or(ended),
            ended,
            attributes,
            status,
        });
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.inner.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something below a span that took a while, up to now.
    fn lasted(&self, parent: &SpanContext, name: &str, took: Duration, attributes: Vec<(&'static str, Attribute)>) {
        let Some(context) = self.begin(Some(parent)) else { return };
        let ended = SystemTime::now();
        let begun = ended.checked_sub(took).unwrap_or(ended);
        let (parent, name, status) = (Some(parent.span), name.to_owned(), Status::Unset);
        self.finish(Span { context, parent, name, kind: Kind::Internal, begun, ended, attributes, status });
    }
}

/// What this task works for.
pub fn current() -> Option<SpanContext> {
    CURRENT.try_with(|context| *context).ok()
}

/// The same work in a task of its own, for the sake of whatever this task works for.
pub fn carried<T>(work: impl Future<Output = T>) -> impl Future<Output = T> {
    let context = current();
    async move {
        match context {
            Some(context) => CURRENT.scope(context, work).await,
            None => work.await,
        }
    }
}

impl Runs {
    fn add(&mut self, run: &str, asked: Asked) {
        while self.order.len() >= RUNS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
        self.order.push_back(run.to_owned());
        self.known.insert(run.to_owned(), asked);
    }
}

impl Observer for Tracer {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::RunAsked { run, .. } => {
                let Some(parent) = current() else { return };
                let Some(context) = self.begin(Some(&parent)) else { return };
                let asked = Asked { context, parent: parent.span, at: SystemTime::now() };
                self.runs().add(run.as_str(), asked);
            }
            Event::RunRefused { run, .. } => {
                self.runs().known.remove(run.as_str());
            }
            Event::RunBegan { run, waited, .. } => {
                let asked = self.runs().known.get(run.as_str()).copied();
                if let Some(asked) = asked {
                    self.lasted(&asked.context, "wait", *waited, Vec::new());
                }
            }
            Event::RunEnded { run, program, outcome, .. } => {
                let Some(asked) = self.runs().known.remove(run.as_str()) else { return };
                let ending = match outcome {
                    Ok(run) => run.report.ending.name(),
                    Err(error) => labels::failure(error),
                };
                let mut attributes = vec![
                    ("belljar.language", labels::language(&program.source).into()),
                    ("belljar.ending", ending.into()),
                ];
                if let Ok(run) = outcome {
                    attributes.push(("belljar.exit_code", Attribute::Number(run.report.ending.exit_code().into())));
                    attributes.push(("belljar.backend", labels::backend(&run.report.isolation.backend).into()));
                }
                // What a program did is a result; only what we failed to do is an error.
                let status = if outcome.is_ok() { Status::Unset } else { Status::Error };
                if status == Status::Error {
                    attributes.push(("error.type", ending.into()));
                }
                self.finish(Span {
                    context: asked.context,
                    parent: Some(asked.parent),
                    name: "run".to_owned(),
                    kind: Kind::Internal,
                    begun: asked.at,
                    ended: SystemTime::now(),
                    attributes,
                    status,
                });
            }
            Event::SandboxOpened { isolation, took, .. } => {
                if let Some(parent) = current() {
                    let backend = labels::backend(&isolation.backend);
                    self.lasted(&parent, "open sandbox", *took, vec![("belljar.backend", backend.into())]);
                }
            }
            Event::SandboxClosed { .. } | Event::SandboxRefused { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
