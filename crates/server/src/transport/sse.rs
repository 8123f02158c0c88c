//! The protocol's first form over HTTP, for clients that know no other: `GET /sse` opens a stream of events, of which the
//! first says where to send; each `POST /messages` is a message, and its answer comes on the stream.
//!
//! Both requests pass the gate. A session is its opener's: its id alone opens nothing. It ends with its stream, and what
//! was under way counts as left by a caller that hung up.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use belljar_access::Pass;
use belljar_engine::Principal;
use http_body::Frame;
use rmcp::model::ClientJsonRpcMessage;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::conversation::{self, Bounds, Door, Outgoing, Said, Weight};
use super::is_json;
use super::messages::MESSAGE_BYTES_MAX;
use crate::handler::{Handler, Hangup};

/// Besides what the gate says of all streams, since each of these may have answers that wait.
const PER_PRINCIPAL_MAX: usize = 32;
const BOUNDS: Bounds = Bounds { requests: 128, bytes: 32 * 1024 * 1024 };
/// What is between us and a caller closes connections on which nothing moves.
const BEAT: Duration = Duration::from_secs(15);
/// For a service that has as much to do as its queue holds.
const ADMISSION_WAIT: Duration = Duration::from_secs(10);
const ID_BYTES: usize = 32;

const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// `/sse` and `/messages`, before the gate is put around them.
pub(super) fn routes(handler: Handler, stop: CancellationToken) -> Router {
    let sessions = Arc::new(Sessions { handler, stop, living: Mutex::default() });
    Router::new().route("/sse", get(open)).route("/messages", post(message)).with_state(sessions)
}

#[derive(Debug)]
struct Sessions {
    handler: Handler,
    stop: CancellationToken,
    living: Mutex<HashMap<String, Session>>,
}

#[derive(Debug, Clone)]
struct Session {
    who: Principal,
    door: Door,
    hangup: CancellationToken,
}

async fn open(State(sessions): State<Arc<Sessions>>, request: Request) -> Response {
    if request.method() != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let Some(Pass { principal: who, .. }) = request.extensions().get() else { return nobody() };
    let codemode = request.uri().query().and_then(|query| query.split('&').find(|pair| *pair == "codemode=false"));
    let events = match sessions.begin(who, codemode) {
        Ok(events) => events,
        Err(sentence) => return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], sentence).into_response(),
    };
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store"), (BUFFERING, "no")];
    (headers, Body::new(events)).into_response()
}

async fn message(State(sessions): State<Arc<Sessions>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(Pass { principal: who, .. }) = parts.extensions.get() else { return nobody() };
    let Some(session) = sessions.find(who, parts.uri.query().unwrap_or_default()) else {
        return (StatusCode::NOT_FOUND, "no such session; open one with GET /sse\n").into_response();
    };
    // A form of another site's page cannot send this kind.
    if !is_json(&parts.headers) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json\n").into_response();
    }
    // The gate has it in memory already, and had its own limit.
    let Ok(bytes) = to_bytes(body, MESSAGE_BYTES_MAX).await else {
        return (StatusCode::PAYLOAD_TOO_LARGE, "the message is too long; send less at once\n").into_response();
    };
    let mut message = match session.door.admit(&bytes) {
        Ok(Some(message)) => message,
        Ok(None) => return accepted(),
        Err(refused) => {
            let headers = [(CONTENT_TYPE, "application/json")];
            return (StatusCode::BAD_REQUEST, headers, refused.message().to_string()).into_response();
        }
    };
    let id = match &message {
        ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
        _ => None,
    };
    // Not the end of this request, which is answered at once, but of the stream that the answer comes on.
    parts.extensions.insert(Hangup(session.hangup.clone()));
    message.insert_extension(parts);
    match tokio::time::timeout(ADMISSION_WAIT, session.door.pass_on(message)).await {
        Ok(Ok(())) => accepted(),
        Ok(Err(conversation::Gone)) => {
            (StatusCode::NOT_FOUND, "no such session; open one with GET /sse\n").into_response()
        }
        Err(_) => {
            if let Some(id) = &id {
                session.door.give_up(id);
            }
            let sentence = "too much is under way in this session; wait for answers before sending more\n";
            (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], sentence).into_response()
        }
    }
}

fn accepted() -> Response {
    (StatusCode::ACCEPTED, "Accepted").into_response()
}

/// A request without a pass is a hole in the gate, and is served to nobody.
fn nobody() -> Response {
    tracing::error!("a request reached the event streams without a pass");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// As unguessable as a token. Never logged.
fn new_id() -> Result<String, &'static str> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| "the host has no randomness; try again later\n")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl Sessions {
    fn living(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.living.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new session of `who`, whose end is that of the events.
    fn begin(self: &Arc<Sessions>, who: &Principal, codemode: Option<&str>) -> Result<Events, &'static str> {
        let id = new_id()?;
        let (hangup, stop) = (CancellationToken::new(), self.stop.child_token());
        let (door, pipe, said) = conversation::begin(BOUNDS, hangup.clone());
        {
            let mut living = self.living();
            if living.values().filter(|session| session.who == *who).count() >= PER_PRINCIPAL_MAX {
                return Err("you have too many event streams; close some, or use /mcp\n");
            }
            living.insert(id.clone(), Session { who: who.clone(), door, hangup: hangup.clone() });
        }
        let handler = self.handler.another();
        let stopped = stop.clone();
        tokio::spawn(async move { conversation::hold(handler, pipe, &stopped).await });
        let codemode = codemode.map(|codemode| format!("&{codemode}")).unwrap_or_default();
        let first = format!("event: endpoint\ndata: /messages?sessionId={id}{codemode}\n\n");
        let mut beat = interval_at(Instant::now() + BEAT, BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stay = Stay { sessions: self.clone(), id, hangup, stop };
        Ok(Events { first: Some(first.into()), said, carried: None, beat, _stay: stay })
    }

    /// The session that a query names, if it is this principal's. Unknown and foreign are the same.
    fn find(&self, who: &Principal, query: &str) -> Option<Session> {
        let mut named = query.split('&').filter_map(|pair| pair.strip_prefix("sessionId="));
        let (Some(id), None) = (named.next(), named.next()) else { return None };
        self.living().get(id).filter(|session| session.who == *who).cloned()
    }
}

/// A session is there for as long as this.
#[derive(Debug)]
struct Stay {
    sessions: Arc<Sessions>,
    id: String,
    hangup: CancellationToken,
    stop: CancellationToken,
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.sessions.living().remove(&self.id);
        // First, since what is stopped without it is not kept for a caller that comes back.
        self.hangup.cancel();
        self.stop.cancel();
    }
}

/// The stream of a session. A caller that does not read is not written to, and its answers wait within the session's bounds
/// until its connection is given up.
#[derive(Debug)]
struct Events {
    first: Option<Bytes>,
    said: Said,
    /// Of the answer that was handed on last. The next is asked for when it is out, but for the end that fits a buffer.
    carried: Option<Weight>,
    beat: Interval,
    _stay: Stay,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        self.carried = None;
        if let Poll::Ready(said) = self.said.queue.poll_recv(context) {
            return Poll::Ready(said.map(|Outgoing { json, answers, weight }| {
                self.carried = weight;
                if let Some(id) = answers {
                    self.said.open.end(&id);
                }
                self.beat.reset();
                Ok(Frame::data(event(&json)))
            }));
        }
        ready!(self.beat.poll_tick(context));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": still here\n\n")))))
    }
}

/// JSON as we write it has no line ends.
fn event(json: &[u8]) -> Bytes {
    [b"event: message\ndata: ", json, b"\n\n"].concat().into()
}

#[cfg(test)]
mod tests;
