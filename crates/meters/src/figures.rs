//! The figures, and who keeps them: the engine tells of runs and sandboxes, the server of requests.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use belljar_engine::{Engine, Event, Observer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::labels::{
    self, BackendLabel, BuildLabel, LanguageLabel, Method, MethodLabel, OutcomeLabel, Refused, RequestLabels,
    RunLabels, StateLabel, WhyLabel,
};
use crate::process::Process;

/// Those that the MCP conventions give for `mcp.server.operation.duration`.
const OPERATION_SECONDS: [f64; 14] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const RUN_SECONDS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0, 600.0];
const OPEN_SECONDS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// What is not counted but looked at, when somebody wants to know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Levels {
    pub queue: usize,
    pub prepared_ready: usize,
    pub prepared_wanted: usize,
}

impl Levels {
    pub fn of(engine: &Engine) -> Levels {
        let pools = engine.prepared();
        Levels {
            queue: engine.waiting(),
            prepared_ready: pools.iter().map(|pool| pool.ready).sum(),
            prepared_wanted: pools.iter().map(|pool| pool.wanted).sum(),
        }
    }
}

pub struct Meters {
    registry: Registry,
    runs: Family<RunLabels, Counter>,
    run_seconds: Histograms<LanguageLabel>,
    open_seconds: Histograms<BackendLabel>,
    sandboxes: Gauge,
    runs_now: Gauge,
    queue: Gauge,
    prepared: Family<StateLabel, Gauge>,
    refused: Family<WhyLabel, Counter>,
    egress_refused: Counter,
    egress_bytes: Counter,
    tool_calls: Family<OutcomeLabel, Counter>,
    requests: Family<RequestLabels, Counter>,
    operation_seconds: Histograms<MethodLabel>,
    spans_dropped: Counter,
    resident_bytes: Gauge,
    open_files: Gauge,
    threads: Gauge,
    cpu_seconds: Counter<f64, AtomicU64>,
    /// What was added to `cpu_seconds` so far.
    cpu_told: Mutex<f64>,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

impl Default for Meters {
    fn default() -> Meters {
        Meters::new()
    }
}

impl Meters {
    pub fn new() -> Meters {
        let mut meters = Meters {
            registry: Registry::default(),
            runs: Family::default(),
            run_seconds: Family::new_with_constructor(|| Histogram::new(RUN_SECONDS)),
            open_seconds: Family::new_with_constructor(|| Histogram::new(OPEN_SECONDS)),
            sandboxes: Gauge::default(),
            runs_now: Gauge::default(),
            queue: Gauge::default(),
            prepared: Family::default(),
            refused: Family::default(),
            egress_refused: Counter::default(),
            egress_bytes: Counter::default(),
            tool_calls: Family::default(),
            requests: Family::default(),
            operation_seconds: Family::new_with_constructor(|| Histogram::new(OPERATION_SECONDS)),
            spans_dropped: Counter::default(),
            resident_bytes: Gauge::default(),
            open_files: Gauge::default(),
            threads: Gauge::default(),
            cpu_seconds: Counter::default(),
            cpu_told: Mutex::new(0.0),
        };
        let mut registry = Registry::default();
        meters.register(&mut registry);
        meters.registry = registry;
        meters
    }

    /// Names without `_total`, which is put behind each counter's.
    fn register(&self, to: &mut Registry) {
        to.register("belljar_runs", "Programs that ended, by how they did", self.runs.clone());
        to.register("belljar_run_seconds", "How long programs ran", self.run_seconds.clone());
        to.register("belljar_sandbox_open_seconds", "How long created sandboxes took", self.open_seconds.clone());
        to.register("belljar_sandboxes", "Created sandboxes that stand", self.sandboxes.clone());
        to.register("belljar_runs_now", "Programs that run", self.runs_now.clone());
        to.register("belljar_queue", "Programs that wait for their turn", self.queue.clone());
        to.register("belljar_prepared", "Sandboxes prepared ahead", self.prepared.clone());
        to.register("belljar_refused", "What was refused, by whichever way it came", self.refused.clone());
        to.register("belljar_egress_refused", "Connections that were refused", self.egress_refused.clone());
        to.register("belljar_egress_bytes", "Bytes that went out and came in", self.egress_bytes.clone());
        to.register("belljar_tool_calls", "Calls of other servers' tools", self.tool_calls.clone());
        to.register("belljar_requests", "Requests of the protocol", self.requests.clone());
        to.register(
            "mcp_server_operation_duration_seconds",
            "How long requests of the protocol took",
            self.operation_seconds.clone(),
        );
        to.register("belljar_spans_dropped", "Spans that nobody took", self.spans_dropped.clone());
        let build = Family::<BuildLabel, Gauge>::default();
        build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION") }).set(1);
        to.register("belljar_build_info", "The version of this server", build);
        to.register("process_resident_memory_bytes", "Memory that the server has", self.resident_bytes.clone());
        to.register("process_open_fds", "Files that the server has open", self.open_files.clone());
        to.register("process_threads", "Threads of the server", self.threads.clone());
        to.register("process_cpu_seconds", "Processor time that the server took", self.cpu_seconds.clone());
    }

    /// One request of the protocol, from its coming to its answer.
    pub fn requested(&self, method: Method, outcome: &'static str, took: Duration) {
        let method = method.name();
        self.requests.get_or_create(&RequestLabels { method, outcome }).inc();
        let seconds = self.operation_seconds.get_or_create_owned(&MethodLabel { mcp_method_name: method });
        seconds.observe(took.as_secs_f64());
    }

    pub fn refused(&self, why: Refused) {
        self.refused.get_or_create(&WhyLabel { why: why.name() }).inc();
    }

    /// A call of another server's tool. The outcome is one of the gateway's own words.
    pub fn called(&self, outcome: &'static str) {
        self.tool_calls.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub fn egress_refused(&self) {
        self.egress_refused.inc();
    }

    pub fn egress_moved(&self, bytes: u64) {
        self.egress_bytes.inc_by(bytes);
    }

    /// So many spans were not taken: by our queue, or by the collector.
    pub fn spans_dropped(&self, count: usize) {
        self.spans_dropped.inc_by(count as u64);
    }

    /// All of it, in the text format of OpenMetrics.
    pub fn text(&self, levels: &Levels) -> String {
        let amount = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.queue.set(amount(levels.queue));
        self.prepared.get_or_create(&StateLabel { state: "ready" }).set(amount(levels.prepared_ready));
        self.prepared.get_or_create(&StateLabel { state: "wanted" }).set(amount(levels.prepared_wanted));
        let process = Process::look();
        let amount = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.resident_bytes.set(amount(process.resident_bytes));
        self.open_files.set(amount(process.open_files));
        self.threads.set(amount(process.threads));
        {
            let mut told = self.cpu_told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if process.cpu_seconds > *told {
                self.cpu_seconds.inc_by(process.cpu_seconds - *told);
                *told = process.cpu_seconds;
            }
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Observer for Meters {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::SandboxOpened { isolation, took, .. } => {
                self.sandboxes.inc();
                let backend = BackendLabel { backend: labels::backend(&isolation.backend) };
                self.open_seconds.get_or_create_owned(&backend).observe(took.as_secs_f64());
            }
            Event::SandboxClosed { .. } => {
                self.sandboxes.dec();
            }
            Event::RunAsked { .. } => {}
            Event::SandboxRefused { why, .. } | Event::RunRefused { why, .. } => {
                if let Some(why) = Refused::by_kind(why.kind) {
                    self.refused(why);
                }
            }
            Event::RunBegan { .. } => {
                self.runs_now.inc();
            }
            Event::RunEnded { program, outcome, .. } => {
                self.runs_now.dec();
                let language = labels::language(&program.source);
                let ending = match outcome {
                    Ok(run) => run.report.ending.name(),
                    Err(error) => labels::failure(error),
                };
                self.runs.get_or_create(&RunLabels { language, ending }).inc();
                if let Ok(run) = outcome {
                    let seconds = self.run_seconds.get_or_create_owned(&LanguageLabel { language });
                    seconds.observe(run.report.duration.as_secs_f64());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
