//! Servers that are reached over HTTP: streamable in both eras, and the older HTTP+SSE.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use belljar_gateway::error::{CallError, ErrorKind};
use belljar_gateway::upstream::{Upstreams, parse};
use futures::StreamExt as _;
use rmcp::model::CallToolResult;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::mock::{LIMIT, names, settings, text, until};

/// What the server has seen, and where its events go.
#[derive(Default)]
pub(super) struct Seen {
    requests: Mutex<Vec<(String, HeaderMap)>>,
    events: Mutex<Option<mpsc::Sender<String>>>,
    dropped: AtomicUsize,
}

impl Seen {
    fn methods(&self) -> Vec<String> {
        self.requests.lock().unwrap().iter().map(|(method, _)| method.clone()).collect()
    }
}

/// The answer to a message of either era.
pub(super) fn answer(message: &Value, legacy: bool) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str()? {
        "server/discover" if !legacy => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
            "ttlMs": 0, "cacheScope": "private",
        }),
        "initialize" => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "web", "version": "1" },
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }],
        }),
        "tools/call" => {
            let given = &message["params"]["arguments"];
            let text = match given["mb"].as_u64() {
                Some(mb) => "x".repeat((mb * 1024 * 1024) as usize),
                None => given["text"].as_str().unwrap_or_default().to_owned(),
            };
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": text }] })
        }
        _ => {
            return Some(
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "Method not found" } }),
            );
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

/// Counts when the client hangs up before the end.
struct Open(Arc<Seen>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

async fn streamable(State((seen, legacy)): State<(Arc<Seen>, bool)>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let method = message["method"].as_str().unwrap_or_default().to_owned();
    seen.requests.lock().unwrap().push((method.clone(), headers));
    if legacy && method == "server/discover" {
        return (StatusCode::BAD_REQUEST, "missing session").into_response();
    }
    let Some(answer) = answer(&message, legacy) else { return StatusCode::ACCEPTED.into_response() };
    match message["params"]["arguments"]["how"].as_str() {
        Some("429") => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "12")]).into_response(),
        Some("503") => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Some("401") => StatusCode::UNAUTHORIZED.into_response(),
        Some("away") => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "http://localhost:9/steal")]).into_response()
        }
        Some("html") => ([(header::CONTENT_TYPE, "text/html")], "<h1>Hello</h1>").into_response(),
        Some("hang") => {
            let open = Open(seen);
            let stream = futures::stream::once(async { Ok::<_, std::io::Error>(Bytes::from_static(b": hello\n\n")) });
            let stream = stream.chain(futures::stream::once(async move {
                std::future::pending::<()>().await;
                drop(open);
                Ok(Bytes::new())
            }));
            ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
        }
        Some("events") => {
            ([(header::CONTENT_TYPE, "text/event-stream")], format!("event: message\ndata: {answer}\n\n"))
                .into_response()
        }
        _ => json_answer(&answer),
    }
}

async fn open_events(State((seen, _)): State<(Arc<Seen>, bool)>) -> Response {
    let (sender, receiver) = mpsc::channel(16);
    sender.send("event: endpoint\ndata: /messages?session=1\n\n".to_owned()).await.unwrap();
    *seen.events.lock().unwrap() = Some(sender);
    let stream = futures::stream::unfold(receiver, async |mut receiver| {
        let event = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(Bytes::from(event)), receiver))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

async fn messages(State((seen, _)): State<(Arc<Seen>, bool)>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    seen.requests.lock().unwrap().push((message["method"].as_str().unwrap_or_default().to_owned(), headers));
    let sender = seen.events.lock().unwrap().clone().unwrap();
    if message["params"]["arguments"]["how"] == "end" {
        seen.events.lock().unwrap().take();
    } else if let Some(answer) = answer(&message, true) {
        sender.send(format!("event: message\ndata: {answer}\n\n")).await.unwrap();
    }
    StatusCode::ACCEPTED.into_response()
}

pub(super) async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

async fn begin(legacy: bool) -> (String, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let router = Router::new()
        .route("/mcp", post(streamable))
        .route("/sse", get(open_events))
        .route("/messages", post(messages))
        .with_state((seen.clone(), legacy));
    (serve(router).await, seen)
}

fn upstreams(entry: Value) -> Upstreams {
    let text = json!({ "mcpServers": { "web": entry } }).to_string();
    Upstreams::new(parse(&text, &|_| None).unwrap(), settings())
}

async fn call(upstreams: &Upstreams, arguments: Value) -> Result<CallToolResult, CallError> {
    let arguments = arguments.as_object().unwrap().clone();
    upstreams.call("web", "echo", arguments, LIMIT, &CancellationToken::new()).await
}

#[tokio::test]
async fn streamable_http_works_in_both_eras_and_carries_its_headers() {
    for legacy in [false, true] {
        let (url, seen) = begin(legacy).await;
        let upstreams = upstreams(json!({ "url": format!("{url}/mcp"), "headers": { "X-Key": "open-sesame" } }));
        assert_eq!(names(&upstreams.list("web").await.unwrap().tools), ["echo"]);
        for how in ["json", "events"] {
            assert_eq!(text(&call(&upstreams, json!({ "text": how, "how": how })).await.unwrap()), how);
        }
        assert_eq!(seen.methods().contains(&"initialize".to_owned()), legacy);
        assert!(seen.requests.lock().unwrap().iter().all(|(_, headers)| headers["x-key"] == "open-sesame"));
        upstreams.end().await;
    }
}

#[tokio::test]
async fn statuses_become_errors_of_their_kind() {
    let (url, seen) = begin(false).await;
    let upstreams =
        upstreams(json!({ "url": format!("{url}/mcp?key=open-sesame"), "headers": { "X-Key": "open-sesame" } }));
    let limited = call(&upstreams, json!({ "how": "429" })).await.unwrap_err();
    assert_eq!((limited.kind, limited.retry_after, limited.retryable), (ErrorKind::RateLimited, Some(12.0), true));
    let down = call(&upstreams, json!({ "how": "503" })).await.unwrap_err();
    assert_eq!((down.kind, down.code), (ErrorKind::Upstream, Some(503)));
    let login = call(&upstreams, json!({ "how": "401" })).await.unwrap_err();
    assert_eq!(login.kind, ErrorKind::AuthRequired);
    assert!(login.message.contains("run `belljar tools login web`"), "{login}");
    let away = call(&upstreams, json!({ "how": "away" })).await.unwrap_err();
    assert!(away.kind == ErrorKind::Upstream && away.message.contains("another host"), "{away}");
    let html = call(&upstreams, json!({ "how": "html" })).await.unwrap_err();
    assert!(html.kind == ErrorKind::Upstream && html.message.contains("no message of the protocol"), "{html}");
    for error in [limited, down, login, away, html] {
        assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
    }
    // None of these cost the connection.
    assert_eq!(text(&call(&upstreams, json!({ "text": "still" })).await.unwrap()), "still");
    assert_eq!(seen.methods().iter().filter(|method| *method == "server/discover").count(), 1);
    upstreams.end().await;
}

#[tokio::test]
async fn large_answers_are_refused_in_every_form() {
    let (url, _seen) = begin(false).await;
    let more = json!({ "url": format!("{url}/mcp"), "max_result_mb": 1 });
    let upstreams = upstreams(more);
    for how in ["json", "events"] {
        let error = call(&upstreams, json!({ "mb": 3, "how": how })).await.unwrap_err();
        assert!(error.kind == ErrorKind::Upstream && error.message.contains("\"max_result_mb\""), "{how}: {error}");
        assert_eq!(text(&call(&upstreams, json!({ "text": "after" })).await.unwrap()), "after");
    }
    upstreams.end().await;
}

#[tokio::test]
async fn giving_up_closes_the_request() {
    let (url, seen) = begin(false).await;
    let upstreams = upstreams(json!({ "url": format!("{url}/mcp") }));
    let arguments = json!({ "how": "hang" }).as_object().unwrap().clone();
    let limit = Duration::from_millis(500);
    let error = upstreams.call("web", "echo", arguments, limit, &CancellationToken::new()).await.unwrap_err();
    assert_eq!((error.kind, error.limit), (ErrorKind::ToolTimeout, Some(0.5)));
    until(|| seen.dropped.load(Ordering::SeqCst) == 1).await;
    upstreams.end().await;
}

#[tokio::test]
async fn the_older_way_works_whether_it_is_named_or_found() {
    let (url, seen) = begin(true).await;
    for entry in [
        json!({ "type": "sse", "url": format!("{url}/sse"), "max_result_mb": 1 }),
        json!({ "url": format!("{url}/sse") }),
    ] {
        let upstreams = upstreams(entry.clone());
        assert_eq!(names(&upstreams.list("web").await.unwrap().tools), ["echo"], "{entry}");
        assert_eq!(text(&call(&upstreams, json!({ "text": "hello" })).await.unwrap()), "hello");
        if entry.get("type").is_some() {
            let error = call(&upstreams, json!({ "mb": 3 })).await.unwrap_err();
            assert!(error.message.contains("\"max_result_mb\""), "{error}");
            assert_eq!(text(&call(&upstreams, json!({ "text": "after" })).await.unwrap()), "after");
        }
        let error = call(&upstreams, json!({ "how": "end" })).await.unwrap_err();
        assert!(error.message.contains("ended in the middle of the call"), "{error}");
        assert_eq!(text(&call(&upstreams, json!({ "text": "again" })).await.unwrap()), "again");
        upstreams.end().await;
    }
    assert!(seen.methods().contains(&"initialize".to_owned()));
}

#[tokio::test]
async fn an_endpoint_on_another_host_is_refused() {
    let router = Router::new().route(
        "/sse",
        get(async || {
            let events = "event: endpoint\ndata: http://localhost:9/messages\n\n";
            ([(header::CONTENT_TYPE, "text/event-stream")], events)
        }),
    );
    let url = serve(router).await;
    let upstreams =
        upstreams(json!({ "type": "sse", "url": format!("{url}/sse"), "headers": { "Authorization": "Bearer x" } }));
    let error = upstreams.list("web").await.unwrap_err();
    assert!(error.message.contains("another host"), "{error}");
}

#[tokio::test]
async fn one_that_is_not_there_is_told_without_its_address() {
    let upstreams = upstreams(json!({ "url": "http://127.0.0.1:1/mcp?key=open-sesame" }));
    let error = upstreams.list("web").await.unwrap_err();
    assert!(error.kind == ErrorKind::Upstream && error.message.contains("`web` could not be reached"), "{error}");
    assert!(!format!("{error:?}").contains("sesame"), "{error:?}");
}

#[tokio::test]
async fn a_wrong_url_is_told_from_a_server_that_is_down() {
    let url = serve(Router::new().route("/page", get(async || "<h1>Hello</h1>"))).await;
    for path in ["nowhere", "page"] {
        let error = upstreams(json!({ "url": format!("{url}/{path}") })).list("web").await.unwrap_err();
        assert!(error.message.contains("HTTP 40") && error.message.contains("is its \"url\" right?"), "{error}");
    }
}
