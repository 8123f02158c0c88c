//! OpenTelemetry by the protocol itself: spans and figures as JSON over HTTP, to a collector that the usual variables name.
//!
//! By hand, and not by the SDK: what is sent is a few plain objects, and the SDK is dozens of crates on the way of every
//! request (docs/decisions/0021). A collector that is slow or gone costs spans, which are counted, and never a request.

mod json;
mod settings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_meters::{Meters, Span, Spans, exposition};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use self::settings::Settings;

const BATCH_EVERY: Duration = Duration::from_secs(2);
const BATCH_MAX: usize = 512;
const FIGURES_EVERY: Duration = Duration::from_secs(60);
/// For one message. Meanwhile spans wait in their queue, which is bounded.
const SEND_MAX: Duration = Duration::from_secs(5);
/// What is left at the end may still be sent, for this long.
const LAST_SEND: Duration = Duration::from_secs(2);

/// All figures as text, as they are now.
pub(crate) type Figures = Arc<dyn Fn() -> String + Send + Sync>;

/// Sends until it is ended.
#[derive(Debug)]
pub(crate) struct Exporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Inside a runtime. `None` where there is no way to send anything, which the log says.
    pub(crate) fn begin(settings: Settings, spans: Spans, meters: Arc<Meters>, figures: Figures) -> Option<Exporter> {
        // Another may have installed one before; which of the same kind does not matter.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .default_headers(settings.headers.clone())
            .redirect(reqwest::redirect::Policy::none())
            .timeout(SEND_MAX)
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = match client {
            Ok(client) => client,
            Err(error) => {
                tracing::error!(%error, "nothing is sent to the collector");
                return None;
            }
        };
        let stop = CancellationToken::new();
        let sender = Sender { client, settings, meters, figures, begun: SystemTime::now(), is_failing: false };
        let task = tokio::spawn(sender.until(stop.clone(), spans));
        Some(Exporter { stop, task })
    }

    /// Sends what is left, within its time.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the exporter met a bug");
        }
    }
}

struct Sender {
    client: reqwest::Client,
    settings: Settings,
    meters: Arc<Meters>,
    figures: Figures,
    begun: SystemTime,
    /// The collector did not take the last one; it is not told of every one.
    is_failing: bool,
}

impl Sender {
    async fn until(mut self, stop: CancellationToken, mut spans: Spans) {
        let (mut batches, mut figures) = (interval(BATCH_EVERY), interval(FIGURES_EVERY));
        batches.set_missed_tick_behavior(MissedTickBehavior::Delay);
        figures.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Both tick at once, when there is nothing yet.
        figures.reset();
        // What is being sent when the server ends is not waited for longer than what is sent last.
        let late = || async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_SEND).await;
        };
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = batches.tick() => tokio::select! {
                    () = self.send_spans(&mut spans) => {}
                    () = late() => {}
                },
                _ = figures.tick() => tokio::select! {
                    () = self.send_figures() => {}
                    () = late() => {}
                },
            }
        }
        let last = async {
            self.send_spans(&mut spans).await;
            self.send_figures().await;
        };
        if timeout(LAST_SEND, last).await.is_err() {
            tracing::debug!("the collector did not take the last spans in time");
        }
    }

    /// All that wait, in messages of a bounded size.
    async fn send_spans(&mut self, spans: &mut Spans) {
        loop {
            let batch: Vec<Span> = std::iter::from_fn(|| spans.try_recv().ok()).take(BATCH_MAX).collect();
            let is_last = batch.len() < BATCH_MAX;
            if let Some(url) = self.settings.traces.clone().filter(|_| !batch.is_empty()) {
                let message = json::traces(&self.settings.resource, &batch);
                if !self.send(url, message).await {
                    self.meters.spans_dropped(batch.len());
                }
            }
            if is_last {
                return;
            }
        }
    }

    async fn send_figures(&mut self) {
        let Some(url) = self.settings.metrics.clone() else { return };
        match exposition::parse(&(self.figures)()) {
            Ok(figures) => {
                let message = json::metrics(&self.settings.resource, &figures, self.begun, SystemTime::now());
                self.send(url, message).await;
            }
            Err(line) => tracing::error!(line, "our own figures cannot be read"),
        }
    }

    /// Whether it was taken.
    async fn send(&mut self, url: Url, message: Value) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, reqwest::header::HeaderValue::from_static("application/json"));
        let sent = self.client.post(url).headers(headers).body(message.to_string()).send().await;
        let failed = match sent.map(|response| response.status()) {
            Ok(status) if status.is_success() => None,
            Ok(status) => Some(status.to_string()),
            // Without the address, which may have a password in it.
            Err(error) => Some(error.without_url().to_string()),
        };
        match (&failed, self.is_failing) {
            (Some(why), false) => tracing::warn!(why, "the collector does not take what is sent; it is dropped"),
            (None, true) => tracing::info!("the collector takes what is sent again"),
            _ => {}
        }
        self.is_failing = failed.is_some();
        !self.is_failing
    }
}
