//! How a server ends: when its transport does, or at a signal, with nothing left behind.
//!
//! ```text
//! signal ──▶ draining: nothing new is taken ──▶ all has ended, the time is over, or a second signal ──▶ stopped
//! ```

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use anyhow::Context;
use belljar_engine::Engine;
use belljar_gateway::Gateway;
use belljar_server::{Readiness, ServeError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::complaint::Complaint;
use crate::control::Control;
use crate::wiring;

/// How long the last answers may take to be out, and then connections that have no end of their own to be closed.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves until the transport ends or a signal comes, and then leaves nothing behind. After a signal, what is under way
/// has `at_most` to come to its end.
pub(super) async fn until_told(
    engine: Engine,
    gateway: Option<Gateway>,
    serving: impl Future<Output = Result<(), ServeError>>,
    stop: CancellationToken,
    at_most: Duration,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    // The operator can look and act to the last.
    let control = Control::begin(&engine, wiring::usual_runtime());
    let mut signals = Signals::listen()?;
    let mut serving = pin!(serving);
    let ended = tokio::select! {
        served = &mut serving => Some(served),
        () = signals.next() => None,
    };
    readiness.end();
    let served = match ended {
        Some(served) => served,
        None => in_order(&engine, serving, &mut signals, &stop, at_most).await,
    };
    stop.cancel();
    engine.shutdown().await;
    drop(control);
    if let Some(gateway) = gateway {
        gateway.end().await;
    }
    served.map_err(complain)
}

/// The transport goes on to the last: it has answers to give.
async fn in_order(
    engine: &Engine,
    mut serving: Pin<&mut impl Future<Output = Result<(), ServeError>>>,
    signals: &mut Signals,
    stop: &CancellationToken,
    at_most: Duration,
) -> Result<(), ServeError> {
    tracing::info!(?at_most, "told to end: nothing new is taken, and what is under way may finish");
    let drained = tokio::select! {
        served = &mut serving => return served,
        drained = engine.drain(at_most) => drained,
        () = signals.next() => false,
    };
    if !drained {
        tracing::warn!("what still runs is stopped");
    }
    let shut_down = async {
        engine.shutdown().await;
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = &mut serving => return served,
        () = shut_down => {}
    }
    // Streams that would never end.
    stop.cancel();
    timeout(LAST_ANSWERS, serving).await.unwrap_or(Ok(()))
}

/// Those that ask a server to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        let terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        Ok(Signals { terminate, interrupt })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn complain(error: ServeError) -> anyhow::Error {
    let hint = error.next_step();
    let what = match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    Complaint::new(what, hint).into()
}
