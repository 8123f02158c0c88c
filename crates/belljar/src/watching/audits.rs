//! What the network and the gateway write down, counted on its way there.

use std::sync::Arc;
use std::time::Duration;

use belljar_egress::{Attempt, Decision, Ended};
use belljar_gateway::audit::{Decided, Line};
use belljar_meters::SpanContext;
use belljar_server::Watch;

/// Counts, and passes on.
#[derive(Debug)]
pub(crate) struct Counted<A: ?Sized> {
    watch: Watch,
    next: Arc<A>,
}

impl<A: ?Sized> Counted<A> {
    pub(crate) fn new(watch: &Watch, next: Arc<A>) -> Counted<A> {
        Counted { watch: watch.clone(), next }
    }
}

impl<A: belljar_egress::Audit + ?Sized> belljar_egress::Audit for Counted<A> {
    fn attempt(&self, attempt: &Attempt) {
        if matches!(attempt.decision, Decision::Refused { .. }) {
            self.watch.meters.egress_refused();
        }
        self.next.attempt(attempt);
    }

    fn ended(&self, ended: &Ended) {
        self.watch.meters.egress_moved(ended.bytes_out.saturating_add(ended.bytes_in));
        self.next.ended(ended);
    }
}

impl<A: belljar_gateway::audit::Audit + ?Sized> belljar_gateway::audit::Audit for Counted<A> {
    fn called(&self, line: &Line) {
        self.watch.meters.called(line.outcome);
        if let Some(tracer) = &self.watch.tracer {
            let took = Duration::from_millis(line.milliseconds);
            let context = line.traceparent.as_deref().and_then(SpanContext::parse);
            tracer.called(&line.run, context, (&line.server, &line.tool), line.outcome, took);
        }
        self.next.called(line);
    }

    fn calling(&self, run: &str) -> Option<String> {
        Some(self.watch.tracer.as_ref()?.calling(run)?.traceparent())
    }

    fn decided(&self, decided: &Decided) {
        self.next.decided(decided);
    }
}
