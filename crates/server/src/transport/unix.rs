//! The protocol on a unix socket, for programs of the same user on this machine.
//!
//! A connection speaks HTTP if it begins as that does, with a method's capital letter; everything else is one message a
//! line. No token is asked for: the kernel says whose process is at the other end, and it must be ours.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use belljar_engine::Engine;
use belljar_meters::Meters;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::connections::{self, Activity, Room};
use super::conversation::Bounds;
use super::http;
use super::patience::{Patient, Waits};
use super::talk::{Return, Talk};
use crate::handler::{Handler, Surface};

const BOUNDS: Bounds = Bounds { requests: 512, bytes: 64 * 1024 * 1024 };
/// For the first byte. Whoever connects has something to say.
const FIRST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct UnixSettings {
    /// Whose processes may speak.
    pub uid: u32,
    pub connections_max: usize,
    pub waits: Waits,
    pub surface: Surface,
}

impl UnixSettings {
    pub fn new(uid: u32, surface: Surface) -> UnixSettings {
        UnixSettings { uid, connections_max: 256, waits: Waits::default(), surface }
    }
}

/// Serves until `stop`, or until the engine was drained and stopped. The socket's file is its maker's, to make and to remove.
pub async fn serve_unix(engine: Engine, listener: UnixListener, settings: UnixSettings, stop: CancellationToken) {
    let room = Room { all: settings.connections_max.max(1), of_one: None };
    let UnixSettings { uid, waits, surface, .. } = settings;
    let host = Host {
        uid,
        waits,
        meters: surface.watch.meters.clone(),
        handler: Handler::local(engine.clone(), surface.clone()),
        router: http::router_for_local(&engine, surface, room.all, waits, stop.child_token()),
        closing: engine.draining(),
        stopping: engine.stopping(),
        stop: stop.clone(),
    };
    let closing = host.closing.clone();
    let answer = move |stream, activity| host.clone().receive(stream, activity);
    connections::serve(listener, room, closing, stop.clone(), answer).await;
    connections::end(&engine, &stop).await;
}

#[derive(Debug, Clone)]
struct Host {
    uid: u32,
    waits: Waits,
    meters: Arc<Meters>,
    handler: Handler,
    router: Router,
    closing: CancellationToken,
    stopping: CancellationToken,
    stop: CancellationToken,
}

impl Host {
    async fn receive(self, mut stream: UnixStream, activity: Activity) {
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == self.uid => {}
            Ok(peer) => return tracing::warn!(uid = peer.uid(), "another user's process was sent away"),
            Err(error) => return tracing::warn!(%error, "whose process it is that connects is not known"),
        }
        let mut first = [0];
        match tokio::time::timeout(FIRST_WAIT, stream.read_exact(&mut first)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
        let is_http = first[0].is_ascii_uppercase();
        let stream = Begun { first: Some(first[0]), stream };
        if is_http {
            return connections::answer(stream, self.router, self.waits, activity, self.closing).await;
        }
        let _busy = activity.begin();
        let stream = Patient::new(stream, self.waits.write);
        let (reader, writer) = tokio::io::split(stream);
        let talk = Talk::begin(reader, writer, BOUNDS, Return::Possible, self.stop.child_token(), self.meters);
        talk.hold(self.handler.another(), &self.stopping).await;
        talk.end().await;
    }
}

/// A stream of which the first byte was looked at.
#[derive(Debug)]
struct Begun {
    first: Option<u8>,
    stream: UnixStream,
}

impl AsyncRead for Begun {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
