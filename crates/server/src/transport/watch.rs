//! Where those who watch the server ask: `/healthz` (it is alive), `/readyz` (programs can be run), `/metrics` (figures).

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belljar_engine::Engine;
use belljar_meters::Refused;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::connections::{self, Room};
use super::gate::Names;
use super::patience::Waits;
use crate::error::ServeError;
use crate::watch::Watch;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// For a listener that has nothing but figures.
const CONNECTIONS_MAX: usize = 16;

#[derive(Debug, Clone)]
struct Asked {
    engine: Engine,
    watch: Watch,
}

/// For everyone: neither says anything but yes, or why not in our own words.
pub(super) fn health(watch: &Watch) -> Router {
    Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(ready).with_state(watch.clone()))
}

/// For those who may come in.
pub(super) fn figures(engine: &Engine, watch: &Watch) -> Router {
    let asked = Asked { engine: engine.clone(), watch: watch.clone() };
    Router::new().route("/metrics", get(metrics)).with_state(asked)
}

/// Counts what is refused on its way in.
pub(super) async fn count_refusals(State(watch): State<Watch>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if let Some(why) = Refused::by_status(response.status().as_u16()) {
        watch.meters.refused(why);
    }
    response
}

async fn ready(State(watch): State<Watch>) -> Response {
    match watch.readiness.check() {
        Ok(()) => "ready\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(asked): State<Asked>) -> Response {
    ([(CONTENT_TYPE, OPEN_METRICS)], asked.watch.text(&asked.engine)).into_response()
}

/// Against a page of another site that has made its own name point here.
async fn check_host(State(names): State<Arc<Names>>, request: Request, next: Next) -> Response {
    match names.check_host(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// Serves figures, and nothing else, on an address of loopback until `stop`; beside whichever transport.
pub async fn serve_figures(
    engine: Engine,
    watch: Watch,
    address: SocketAddr,
    on_ready: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), ServeError> {
    if !address.ip().is_loopback() {
        return Err(ServeError::FiguresOffLoopback(address));
    }
    let listen = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    on_ready(listener.local_addr().map_err(listen)?);
    let names = Arc::new(Names::default());
    let router =
        health(&watch).merge(figures(&engine, &watch)).layer(middleware::from_fn_with_state(names, check_host));
    let room = Room { all: CONNECTIONS_MAX, of_one: None };
    let stopped = stop.clone();
    let answer = move |stream, activity| {
        connections::answer(stream, router.clone(), Waits::default(), activity, stopped.clone())
    };
    connections::serve(listener, room, CancellationToken::new(), stop, answer).await;
    Ok(())
}
