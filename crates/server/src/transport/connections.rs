//! The connections of the HTTP server: how many, how long, and which one goes when there is no more room.
//!
//! A connection is *busy* from the moment its request is complete and let in until its answer is out. Whoever only keeps
//! a line open (slow headers, slow bodies, idle keep-alive) makes room for whoever comes with a request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// For the whole head of a request, and between two requests.
const HEAD_WAIT: Duration = Duration::from_secs(10);
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// From the word to stop until connections are cut.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// When the host has no descriptor or memory for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// How many requests of one connection are being answered. In the extensions of each request.
#[derive(Debug, Clone, Default)]
pub(super) struct Activity(Arc<AtomicUsize>);

/// While this lives, the connection is busy.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn begin(&self) -> Busy {
        self.0.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Connections {
    tasks: JoinSet<u64>,
    /// By age.
    living: BTreeMap<u64, (AbortHandle, Activity)>,
    next: u64,
}

impl Connections {
    fn make_room(&mut self, max: usize) -> bool {
        if self.living.len() < max {
            return true;
        }
        let Some(id) = self.living.iter().find(|(_, (_, activity))| !activity.is_busy()).map(|(id, _)| *id) else {
            return false;
        };
        if let Some((task, _)) = self.living.remove(&id) {
            task.abort();
        }
        true
    }

    fn add(&mut self, stream: TcpStream, router: Router, stop: CancellationToken) {
        let (id, activity) = (self.next, Activity::default());
        self.next += 1;
        let connection = answer(stream, router, activity.clone(), stop);
        let task = self.tasks.spawn(async move {
            connection.await;
            id
        });
        self.living.insert(id, (task, activity));
    }
}

/// Accepts until `stop`, then lets what is being answered finish for a moment.
pub(super) async fn serve(listener: TcpListener, router: Router, max: usize, stop: CancellationToken) {
    let mut connections = Connections::default();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.tasks.join_next() => {
                if let Ok(id) = ended {
                    connections.living.remove(&id);
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if connections.make_room(max) => connections.add(stream, router.clone(), stop.clone()),
                Ok((mut stream, _)) => {
                    tracing::warn!(max, "no room for another connection");
                    // It fits the socket's buffer, or is not worth waiting for.
                    let _ = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(FULL)).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let all = async { while connections.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_WAIT, all).await.is_err() {
        connections.tasks.shutdown().await;
    }
}

async fn answer(stream: TcpStream, router: Router, activity: Activity, stop: CancellationToken) {
    // Answers are small and final; waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(activity.clone());
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
