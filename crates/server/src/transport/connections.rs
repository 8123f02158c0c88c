//! The connections of a server: how many, from where, how long, and which one goes when there is no more room.
//!
//! A connection is *busy* from the moment its request is complete and let in until its answer is out. Whoever only keeps
//! a line open (slow headers, slow bodies, idle keep-alive) makes room for whoever comes with a request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use belljar_engine::Engine;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::patience::{Patient, Waits};

const HEAD_BYTES_MAX: usize = 64 * 1024;
/// From the word to stop until connections are cut.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// When the host has no descriptor or memory for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n";

/// How many connections there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) all: usize,
    /// From one address; `None` for half of all, but from loopback, where a proxy speaks for many.
    pub(super) of_one: Option<usize>,
}

impl Room {
    fn for_address(&self, from: IpAddr) -> usize {
        match self.of_one {
            Some(max) => max.max(1),
            None if from.is_loopback() => self.all,
            None => (self.all / 2).max(1),
        }
    }
}

/// What counts as one address. Whoever has one of IPv6 has all of its network.
fn place(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

/// Where connections come from.
pub(super) trait Listener {
    type Stream: AsyncWrite + Unpin + Send + 'static;

    /// The address is one's that many could share.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<IpAddr>)>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, from) = TcpListener::accept(self).await?;
        // Answers are small and final; waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        Ok((stream, Some(from.ip())))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<IpAddr>)> {
        UnixListener::accept(self).await.map(|(stream, _)| (stream, None))
    }
}

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

#[derive(Debug)]
struct Living {
    task: AbortHandle,
    activity: Activity,
    from: Option<IpAddr>,
}

#[derive(Debug)]
struct Connections {
    room: Room,
    tasks: JoinSet<u64>,
    /// By age.
    living: BTreeMap<u64, Living>,
    next: u64,
}

impl Connections {
    fn new(room: Room) -> Connections {
        Connections { room, tasks: JoinSet::new(), living: BTreeMap::new(), next: 0 }
    }

    /// Whether there is room for one more, at the cost of an idle one if need be: of the same address, where that has too
    /// many, so that nobody is pushed out by another's flood.
    fn make_room(&mut self, from: Option<IpAddr>) -> bool {
        if let Some(from) = from {
            let of_one = |living: &Living| living.from == Some(from);
            let count = self.living.values().filter(|living| of_one(living)).count();
            if count >= self.room.for_address(from) {
                return self.push_out(of_one);
            }
        }
        self.living.len() < self.room.all || self.push_out(|_| true)
    }

    fn push_out(&mut self, which: impl Fn(&Living) -> bool) -> bool {
        let idle = self.living.iter().find(|(_, living)| which(living) && !living.activity.is_busy());
        let Some(id) = idle.map(|(id, _)| *id) else { return false };
        if let Some(living) = self.living.remove(&id) {
            living.task.abort();
        }
        true
    }

    fn add(&mut self, from: Option<IpAddr>, activity: Activity, connection: impl Future<Output = ()> + Send + 'static) {
        let id = self.next;
        self.next += 1;
        let task = self.tasks.spawn(async move {
            connection.await;
            id
        });
        self.living.insert(id, Living { task, activity, from });
    }
}

/// Accepts until `closing`, then lets what is being answered finish; after `stop` only for a moment.
pub(super) async fn serve<L: Listener, A: Future<Output = ()> + Send + 'static>(
    listener: L,
    room: Room,
    closing: CancellationToken,
    stop: CancellationToken,
    answer: impl Fn(L::Stream, Activity) -> A,
) {
    let mut connections = Connections::new(room);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            () = closing.cancelled() => break,
            Some(ended) = connections.tasks.join_next() => {
                if let Ok(id) = ended {
                    connections.living.remove(&id);
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((mut stream, from)) => {
                    let from = from.map(place);
                    if connections.make_room(from) {
                        let activity = Activity::default();
                        let answering = answer(stream, activity.clone());
                        connections.add(from, activity, answering);
                    } else {
                        tracing::warn!(max = room.all, "no room for another connection");
                        // It fits the socket's buffer, or is not worth waiting for.
                        let _ = tokio::time::timeout(ACCEPT_PAUSE, stream.write_all(FULL)).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    // Those that are busy see it, too.
    closing.cancel();
    let all_ended = async { while connections.tasks.join_next().await.is_some() {} };
    let cut = async {
        stop.cancelled().await;
        tokio::time::sleep(STOP_WAIT).await;
    };
    let is_cut = tokio::select! {
        () = all_ended => false,
        () = cut => true,
    };
    if is_cut {
        connections.tasks.shutdown().await;
    }
}

/// After the last connection. An engine that drains may have work that nobody waits for; whoever drains it says when that is over.
pub(super) async fn end(engine: &Engine, stop: &CancellationToken) {
    let stopping = engine.stopping();
    tokio::select! {
        () = stop.cancelled() => {}
        () = stopping.cancelled() => {}
    }
    engine.shutdown().await;
}

/// HTTP on one connection.
pub(super) async fn answer<S>(stream: S, router: Router, waits: Waits, activity: Activity, closing: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(activity.clone());
        // Of a length beside it we are told nothing. What one in front of us took for the rest of this request must not be the
        // next one to us.
        let is_last = request.headers().contains_key(TRANSFER_ENCODING);
        let answering = router.clone().oneshot(request);
        async move {
            let mut response = answering.await?;
            if is_last {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(waits.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream, waits.write)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        place(text.parse().unwrap())
    }

    #[tokio::test]
    async fn one_address_pushes_out_only_its_own() {
        let (ann, bob) = (Some(address("192.0.2.1")), Some(address("192.0.2.2")));
        let mut connections = Connections::new(Room { all: 8, of_one: None });
        for from in [bob, ann, ann, ann, ann] {
            assert!(connections.make_room(from));
            connections.add(from, Activity::default(), std::future::pending());
        }
        assert!(connections.make_room(ann));
        let left: Vec<_> = connections.living.values().map(|living| living.from).collect();
        assert_eq!(left, [bob, ann, ann, ann], "its oldest went");
        let working = Activity::default();
        let _busy = working.begin();
        connections.living.values_mut().for_each(|living| living.activity = working.clone());
        connections.add(ann, working.clone(), std::future::pending());
        assert!(!connections.make_room(ann), "what it is busy with stays, and there is no room beyond that");
        assert!(connections.make_room(bob));
    }

    #[test]
    fn loopback_may_have_all_and_an_ipv6_network_is_one_address() {
        let room = Room { all: 10, of_one: None };
        assert_eq!(room.for_address(address("127.0.0.1")), 10);
        assert_eq!(room.for_address(address("::1")), 10);
        assert_eq!(room.for_address(address("::ffff:127.0.0.1")), 10);
        assert_eq!(room.for_address(address("192.0.2.1")), 5);
        assert_eq!(Room { all: 10, of_one: Some(3) }.for_address(address("127.0.0.1")), 3);
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }
}
