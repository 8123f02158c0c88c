//! The protocol over HTTP: `/mcp`, `/sse` and `/messages` for older clients, and what whoever watches the server asks for.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belljar_access::{Access, Pass, Scope};
use belljar_engine::{Engine, Principal};
use http_body::{Body as _, Frame, SizeHint};
use rmcp::model::ErrorCode;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connections::{self, Activity, Busy, Room};
use super::gate::{self, Names, Refusal};
use super::messages::{Refused, STILL_OPEN};
use super::older::Clash;
use super::patience::Waits;
use super::sessions::Sessions;
use super::{has_too_many_values, is_json, sse, watch};
use crate::error::ServeError;
use crate::handler::{Handler, Hangup, Surface};
use crate::profiles::{self, Profile};
use crate::scopes;
use crate::shares::{Full, Shares, Taken};

/// How much of a body that is too long is still read, and for how long.
const DISCARDED_BYTES_MAX: usize = 256 * 1024 * 1024;
const DISCARD_WAIT: Duration = Duration::from_secs(5);
/// A body above this takes of the room for large ones as much as it is long, until its request is answered.
const BODY_BYTES_SMALL: usize = 256 * 1024;
/// For so many of the longest.
const LARGE_BODIES_MAX: usize = 8;
/// What stays open for as long as its caller likes: event streams, and requests that listen.
const STREAMS_MAX: usize = 256;
/// Until tokens may be checked again.
const UNAVAILABLE_SECONDS: u64 = 5;
/// A session outlasts the longest run by this much.
const SESSION_IDLE_SPARE: Duration = Duration::from_secs(30 * 60);

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// From this revision on there are no sessions, and the header that names one means nothing.
const FIRST_WITHOUT_SESSIONS: &[u8] = b"2026-07-28";

#[derive(Debug, Clone)]
pub struct HttpSettings {
    pub address: SocketAddr,
    /// Who may speak. Without it, only loopback may be listened on, and everyone there is the local principal.
    pub access: Option<Arc<Access>>,
    pub body_bytes_max: usize,
    pub connections_max: usize,
    /// Of those, from one address (of IPv6, one network); `None` for half of them, but from loopback, where a proxy may speak
    /// for many.
    pub connections_per_address_max: Option<usize>,
    pub waits: Waits,
    /// Names besides loopback by which callers may reach us: `host` or `host:port`.
    pub allowed_hosts: Vec<String>,
    pub surface: Surface,
}

impl HttpSettings {
    pub fn new(address: SocketAddr) -> HttpSettings {
        HttpSettings {
            address,
            access: None,
            // A file of 8 MiB in base64 is 11 MiB.
            body_bytes_max: 16 * 1024 * 1024,
            connections_max: 256,
            connections_per_address_max: None,
            waits: Waits::default(),
            allowed_hosts: Vec::new(),
            surface: Surface::default(),
        }
    }
}

/// Serves until `stop`, or until the engine was drained and stopped. `on_ready` is told the address once connections are accepted.
pub async fn serve_http(
    engine: Engine,
    settings: HttpSettings,
    on_ready: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let address = settings.address;
    if settings.access.is_none() && !address.ip().is_loopback() {
        return Err(ServeError::NeedsToken(address));
    }
    let listen = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let bound = listener.local_addr().map_err(listen)?;
    let room = Room { all: settings.connections_max.max(1), of_one: settings.connections_per_address_max };
    let waits = settings.waits;
    let router = router(&engine, settings, bound, stop.child_token());
    on_ready(bound);
    let closing = engine.draining();
    let closed = closing.clone();
    let answer = move |stream, activity| connections::answer(stream, router.clone(), waits, activity, closed.clone());
    connections::serve(listener, room, closing, stop.clone(), answer).await;
    connections::end(&engine, &stop).await;
    Ok(())
}

/// For a socket at whose other end is nobody but our own user.
pub(super) fn router_for_local(
    engine: &Engine,
    surface: Surface,
    connections_max: usize,
    waits: Waits,
    stop: CancellationToken,
) -> Router {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let settings = HttpSettings { connections_max, waits, surface, ..HttpSettings::new(address) };
    router(engine, settings, address, stop)
}

fn router(engine: &Engine, settings: HttpSettings, bound: SocketAddr, stop: CancellationToken) -> Router {
    let sessions = Sessions::new(engine.settings().wall_max.saturating_add(SESSION_IDLE_SPARE));
    let config = StreamableHttpServerConfig::default()
        // Both are checked at our gate, before the token and the body.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_max_request_body_bytes(settings.body_bytes_max)
        .with_cancellation_token(stop.clone());
    let watch = settings.surface.watch.clone();
    // Where all are one principal, there is nobody to leave anything to.
    let share = |all: usize| if settings.access.is_some() { (all / 2).max(1) } else { all };
    let room = |all: usize| Shares::new(all, share(all));
    // Streams must not take all the places of those who only ask and go.
    let streams = Arc::new(room(STREAMS_MAX.min((settings.connections_max / 2).max(1))));
    let large_bodies = room(LARGE_BODIES_MAX * kibibytes(settings.body_bytes_max));
    let handler = Handler::http(engine.clone(), settings.surface.clone(), streams.clone());
    let events = sse::routes(handler.clone(), stop);
    let another = move || Ok(handler.another().watched());
    let service = StreamableHttpService::new(another, sessions.manager.clone(), config);

    let own = (!bound.ip().is_unspecified()).then(|| bound.to_string());
    let gate = Gate {
        names: Names::new(settings.allowed_hosts.iter().map(String::as_str).chain(own.as_deref())),
        access: settings.access,
        profile: settings.surface.profile.as_deref().and_then(profiles::find),
        sessions,
        body_bytes_max: settings.body_bytes_max,
        body_wait: settings.waits.body,
        large_bodies,
        streams,
        draining: engine.draining(),
    };
    let metadata = metadata(gate.access.as_deref());
    Router::new()
        .route_service("/mcp", service)
        .merge(events)
        .merge(watch::figures(engine, &watch))
        .route_layer(middleware::from_fn_with_state(Arc::new(gate), enter))
        .layer(middleware::from_fn_with_state(watch.clone(), watch::count_refusals))
        .merge(watch::health(&watch))
        .merge(metadata)
}

/// Where clients learn which authorization server has tokens for us (RFC 9728): everybody may ask.
fn metadata(access: Option<&Access>) -> Router {
    const ROOT: &str = "/.well-known/oauth-protected-resource";
    let Some((own, document)) = access.and_then(Access::metadata) else { return Router::new() };
    let document: Arc<str> = document.to_string().into();
    // What the router would take for more than a name is left to whoever stands before us.
    let is_plain = own.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte));
    let own = own.as_str();
    let places = std::collections::BTreeSet::from([ROOT, "/.well-known/oauth-protected-resource/mcp", own]);
    places.into_iter().filter(|place| is_plain || *place != own).fold(Router::new(), |router, place| {
        let document = document.clone();
        router.route(place, get(async move || ([(CONTENT_TYPE, "application/json")], document.to_string())))
    })
}

#[derive(Debug)]
struct Gate {
    names: Names,
    access: Option<Arc<Access>>,
    profile: Option<&'static Profile>,
    sessions: Sessions,
    body_bytes_max: usize,
    body_wait: Duration,
    /// In KiB.
    large_bodies: Shares,
    streams: Arc<Shares>,
    draining: CancellationToken,
}

/// The way of each request through the gate, and of its answer out.
async fn enter(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    if gate.draining.is_cancelled() {
        return shutting_down();
    }
    let pass = match gate.admit(request.uri(), request.headers()).await {
        Ok(pass) => pass,
        Err(refusal) => return refuse(refusal, gate.access.as_deref()),
    };
    let who = pass.principal.clone();
    if !gate.check_session(&who, request.headers_mut()) {
        return (StatusCode::NOT_FOUND, "no such session; initialize a new one\n").into_response();
    }
    let stream = match gate.stream(&who, &request) {
        Ok(stream) => stream,
        Err(full) => {
            return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], format!("{full}\n")).into_response();
        }
    };
    let is_json = is_json(request.headers());
    let (request, place) = match gate.with_whole_body(request, is_json, &pass).await {
        Ok(whole) => whole,
        Err(refused) => return refused,
    };

    let hangup = CancellationToken::new();
    let (mut parts, body) = request.into_parts();
    let ends_session = parts.method == Method::DELETE;
    let busy = parts.extensions.get::<Activity>().map(Activity::begin);
    let stay = Stay { _hangup: hangup.clone().drop_guard(), _busy: busy, _place: place, _stream: stream };
    let clash = Clash::default();
    parts.extensions.insert(pass);
    parts.extensions.insert(Hangup(hangup));
    parts.extensions.insert(clash.clone());
    let response = tokio::select! {
        response = next.run(Request::from_parts(parts, body)) => response,
        id = clash.id() => {
            let refused = Refused::new(id.into_json_value(), ErrorCode::INVALID_REQUEST, STILL_OPEN);
            return bad_request(&refused.message());
        }
    };

    if let Some(id) = response.headers().get(&SESSION_ID).and_then(|id| id.to_str().ok()) {
        gate.sessions.bind(&who, id).await;
    }
    if ends_session && response.status() == StatusCode::ACCEPTED {
        // It has ended by now, and some clients take any other word for a failure.
        return StatusCode::NO_CONTENT.into_response();
    }
    if is_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        // What rmcp says of JSON that is no message.
        return jsonrpc_error(-32600, "not a JSON-RPC 2.0 message; send jsonrpc, id, method and params");
    }
    response.map(|body| Body::new(Leaving { body, _stay: stay }))
}

impl Gate {
    async fn admit(&self, uri: &axum::http::Uri, headers: &HeaderMap) -> Result<Pass, Refusal> {
        self.names.check_host(uri, headers)?;
        self.names.check_origin(headers)?;
        gate::check_query(uri)?;
        gate::pass(self.access.as_deref(), headers).await
    }

    /// A pass that does not reach as far as its request.
    fn forbid(&self, need: Scope) -> Response {
        let challenge = self.access.as_ref().map_or("Bearer".into(), |access| access.insufficient(need));
        let sentence = format!("{}\n", scopes::missing(need));
        (StatusCode::FORBIDDEN, [(WWW_AUTHENTICATE, challenge)], sentence).into_response()
    }

    /// Whether the request may go on: it names no session, or one of its own. No other name goes any further.
    fn check_session(&self, who: &Principal, headers: &mut HeaderMap) -> bool {
        let version = headers.get(&PROTOCOL_VERSION).map(|version| version.as_bytes());
        if version.is_some_and(|version| version >= FIRST_WITHOUT_SESSIONS) {
            headers.remove(&SESSION_ID);
            return true;
        }
        headers.get_all(&SESSION_ID).iter().all(|id| id.to_str().is_ok_and(|id| self.sessions.is_of(who, id)))
    }

    /// The request with its body in memory, and the place that a large one takes.
    async fn with_whole_body(
        &self,
        request: Request,
        is_json: bool,
        pass: &Pass,
    ) -> Result<(Request, Option<Taken>), Response> {
        if request.method() != Method::POST {
            return if pass.scopes.is_empty() { Err(self.forbid(Scope::Read)) } else { Ok((request, None)) };
        }
        let declared = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        // Of which nothing is said it may be as long as any.
        let length = declared.unwrap_or(self.body_bytes_max as u64);
        if length > self.body_bytes_max as u64 {
            discard(request.into_body()).await;
            return Err(self.too_large());
        }
        let (parts, body) = request.into_parts();
        let (bytes, place) =
            match tokio::time::timeout(self.body_wait, self.read_body(body, length as usize, &pass.principal)).await {
                Ok(read) => read?,
                Err(_) => return Err((StatusCode::REQUEST_TIMEOUT, "the body took too long\n").into_response()),
            };
        if is_json && let Err(sentence) = check_json(&bytes) {
            return Err(jsonrpc_error(-32700, &sentence));
        }
        if has_too_many_values(&bytes) {
            return Err(jsonrpc_error(-32600, "the message has too many values; send less at once"));
        }
        if let Some(need) = gate::lacking(pass, self.profile, &bytes) {
            return Err(self.forbid(need));
        }
        Ok((Request::from_parts(parts, Body::from(bytes)), place))
    }

    /// The body, of which `length` is the most that is to be expected.
    async fn read_body(&self, body: Body, length: usize, who: &Principal) -> Result<(Bytes, Option<Taken>), Response> {
        let mut body = pin!(body);
        let mut bytes = Vec::new();
        let mut place = None;
        while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
            let bad = |_| (StatusCode::BAD_REQUEST, "the body could not be read\n").into_response();
            let Ok(data) = frame.map_err(bad)?.into_data() else { continue };
            if bytes.len() + data.len() > self.body_bytes_max {
                drop(bytes);
                discard(body).await;
                return Err(self.too_large());
            }
            if place.is_none() && bytes.len() + data.len() > BODY_BYTES_SMALL {
                place = self.large_bodies.take(who, kibibytes(length)).await;
            }
            bytes.extend_from_slice(&data);
        }
        if let Some(place) = &mut place {
            place.keep(kibibytes(bytes.len()));
        }
        Ok((bytes.into(), place))
    }

    /// The place of a request that opens a stream of events. Those that listen take theirs when they are understood.
    fn stream(&self, who: &Principal, request: &Request) -> Result<Option<Taken>, Full> {
        let opens = request.method() == Method::GET && ["/mcp", "/sse"].contains(&request.uri().path());
        opens.then(|| self.streams.try_take(who)).transpose()
    }

    fn too_large(&self) -> Response {
        let sentence = format!("the body is longer than {} bytes; send less at once\n", self.body_bytes_max);
        (StatusCode::PAYLOAD_TOO_LARGE, sentence).into_response()
    }
}

/// Reads what will not be used, for a while: a caller that still sends when the connection closes does not see the answer.
async fn discard(body: impl http_body::Body<Data = Bytes>) {
    let mut body = pin!(body);
    let mut left = DISCARDED_BYTES_MAX;
    let all = async {
        while let Some(Ok(frame)) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DISCARD_WAIT, all).await;
}

fn refuse(refusal: Refusal, access: Option<&Access>) -> Response {
    use belljar_access::Refusal as No;
    let (status, sentence) = match refusal {
        Refusal::BadHost => (StatusCode::BAD_REQUEST, "one valid Host header is needed"),
        Refusal::ForeignHost => (StatusCode::FORBIDDEN, "this Host is not served; start with --allow-host to add it"),
        Refusal::ForeignOrigin => (StatusCode::FORBIDDEN, "this Origin may not call"),
        Refusal::TokenInQuery => {
            let sentence = "a token does not belong into an address, which others read; send it in a header: \
                            Authorization: Bearer TOKEN";
            (StatusCode::BAD_REQUEST, sentence)
        }
        Refusal::NotAdmitted(no @ (No::NoToken | No::Unknown | No::Expired | No::Jwt(_))) => {
            let challenge = access.map_or("Bearer".into(), |access| access.challenge(no, None));
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)], format!("{no}\n")).into_response();
        }
        Refusal::NotAdmitted(no @ (No::TooMany { .. } | No::Unavailable)) => {
            let (status, seconds) = match no {
                No::TooMany { retry_after } => (StatusCode::TOO_MANY_REQUESTS, retry_after.as_secs()),
                _ => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE_SECONDS),
            };
            return (status, [(RETRY_AFTER, seconds.to_string())], format!("{no}\n")).into_response();
        }
    };
    (status, format!("{sentence}\n")).into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refuse(self, None)
    }
}

/// For whoever comes on a connection that was there before.
fn shutting_down() -> Response {
    let headers = [(RETRY_AFTER, "5"), (CONNECTION, "close")];
    let sentence = "the server is shutting down; try again when it is back\n";
    (StatusCode::SERVICE_UNAVAILABLE, headers, sentence).into_response()
}

/// What is skipped is not looked at closely: that it is text has to be seen by itself.
fn check_json(bytes: &[u8]) -> Result<(), String> {
    let text = str::from_utf8(bytes).map_err(|error| format!("not valid UTF-8, and so not valid JSON: {error}"))?;
    let read = serde_json::from_str::<IgnoredAny>(text).map(|IgnoredAny| ());
    read.map_err(|error| format!("not valid JSON: {error}"))
}

fn jsonrpc_error(code: i32, sentence: &str) -> Response {
    bad_request(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": sentence}}))
}

fn bad_request(message: &Value) -> Response {
    (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "application/json")], message.to_string()).into_response()
}

fn kibibytes(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

/// What a request holds until its answer is out, or its connection is gone; then its work is given up.
#[derive(Debug)]
struct Stay {
    _hangup: DropGuard,
    _busy: Option<Busy>,
    _place: Option<Taken>,
    _stream: Option<Taken>,
}

/// The body of an answer on its way out.
#[derive(Debug)]
struct Leaving {
    body: Body,
    _stay: Stay,
}

impl http_body::Body for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
