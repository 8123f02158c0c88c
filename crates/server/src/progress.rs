//! Signs of life for a caller that asked for them.

use std::pin::pin;
use std::time::Duration;

use belljar_engine::Phase;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext, RoleServer};
use tokio::time::Instant;

use crate::hide::Hider;

/// Well within the five seconds that we promise.
const TICK: Duration = Duration::from_secs(2);
/// How soon a new phase is told.
const PHASE_TICK: Duration = Duration::from_millis(100);
/// How long an answer waits for a notification that is on its way. None may come after it.
const LAST_TICK_WAIT: Duration = Duration::from_secs(1);

/// Where to tell how far a request is, if its caller wants to know.
#[derive(Debug)]
pub(crate) struct Progress {
    told: Option<(Peer<RoleServer>, ProgressToken)>,
    hider: Option<Hider>,
}

impl Progress {
    pub(crate) fn of(context: &RequestContext<RoleServer>, hider: Option<Hider>) -> Progress {
        Progress { told: context.meta.get_progress_token().map(|token| (context.peer.clone(), token)), hider }
    }

    #[cfg(test)]
    pub(crate) fn unwanted() -> Progress {
        Progress { told: None, hider: None }
    }

    /// Awaits `work`, which takes at most about `wall`, and tells the elapsed seconds meanwhile, and what it is at.
    pub(crate) async fn during<W: Future>(&self, wall: Duration, phase: &Phase, work: W) -> W::Output {
        let Some((peer, token)) = &self.told else { return work.await };
        let started = Instant::now();
        let mut phase = phase.listen();
        let mut work = pin!(work);
        loop {
            let elapsed = started.elapsed().as_secs_f64();
            let mut words = Some(phase.now()).filter(|words| !words.is_empty()).unwrap_or_else(|| "running".into());
            if let Some(hider) = &self.hider {
                hider.text(&mut words);
            }
            let tick = ProgressNotificationParam::new(token.clone(), (elapsed * 10.0).round() / 10.0)
                .with_total(wall.as_secs_f64().max(elapsed))
                .with_message(words);
            let mut told = pin!(peer.notify_progress(tick));
            tokio::select! {
                output = &mut work => {
                    // A notification that nobody takes holds up no answer for longer than this.
                    let _ = tokio::time::timeout(LAST_TICK_WAIT, told).await;
                    return output;
                }
                _ = &mut told => {}
            }
            tokio::select! {
                output = &mut work => return output,
                () = tokio::time::sleep(TICK) => {}
                // Not each word of a busy installer.
                () = async { phase.changed().await; tokio::time::sleep(PHASE_TICK).await } => {}
            }
        }
    }
}
