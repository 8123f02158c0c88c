//! What one caller cannot take from the others.

use super::*;

fn with_tokens(settings: &mut HttpSettings) {
    settings.access = Some(Arc::new(Tokens::parse(&format!("ann:{ANN}\nbob:{BOB}")).unwrap().into()));
}

fn listen() -> Request {
    Request::new("subscriptions/listen", None, json!({"notifications": {"resourcesListChanged": true}}))
}

/// Sends it and reads until `wanted` is there.
async fn told(server: &Server, request: &Request, wanted: &str) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(&request.bytes()).await.unwrap();
    hear(&mut stream, &mut String::new(), wanted).await;
    stream
}

/// Of so many bytes, most of which say nothing.
fn padded(request: Request, length: usize) -> Request {
    let nothing = " ".repeat(length - request.body.len());
    Request { body: request.body + &nothing, ..request }
}

#[tokio::test]
async fn streams_of_one_leave_some_to_others() {
    // Half of sixteen may stay open, and half of those are one's.
    let server = Server::with(|settings| {
        settings.connections_max = 16;
        with_tokens(settings);
    })
    .await;
    let mut open = Vec::new();
    let opening = |target: &str, token: &str| {
        let request = Request { method: "GET", target: target.into(), body: String::new(), ..Request::list() };
        request.set("MCP-Protocol-Version", "2025-11-25").set("Accept", "text/event-stream").token(token)
    };
    let mut streams = Vec::new();
    for token in [ANN, BOB] {
        let session = server.send(&Request::initialize().token(token)).await.header("mcp-session-id").unwrap();
        streams.push(opening("/mcp", token).set("Mcp-Session-Id", &session));
    }
    // A listener has its place a moment after it is acknowledged.
    let mut listener = told(&server, &listen().token(ANN), "notifications/subscriptions/acknowledged").await;
    created(&server, Request::call("create_sandbox", json!({})).token(ANN)).await;
    hear(&mut listener, &mut String::new(), "notifications/resources/list_changed").await;
    open.push(listener);
    open.push(told(&server, &opening("/sse", ANN), "event: endpoint").await);
    for _ in 0..2 {
        open.push(told(&server, &streams[0], "HTTP/1.1 200").await);
    }
    for refused in [&opening("/sse", ANN), &streams[0]] {
        let reply = server.send(refused).await;
        assert_eq!((reply.status, reply.header("retry-after").as_deref()), (503, Some("1")), "{reply:?}");
    }
    open.push(told(&server, &listen().token(ANN), "you have too many streams open").await);
    open.push(told(&server, &opening("/sse", BOB), "event: endpoint").await);
    open.push(told(&server, &streams[1], "HTTP/1.1 200").await);
    assert_eq!(server.send(&Request::list().token(ANN)).await.status, 200);
    let health = server.raw(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!(health.status, 200);
}

#[tokio::test]
async fn a_large_body_takes_no_more_room_than_it_is_long() {
    let server = Server::with(|settings| settings.waits.body = Duration::from_secs(5)).await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(told(&server, &padded(listen(), 300_000), "notifications/subscriptions/acknowledged").await);
    }
    assert_eq!(server.send(&padded(Request::list(), 300_000)).await.status, 200);
}

#[tokio::test]
async fn large_bodies_of_one_leave_room_to_others() {
    const LARGEST: usize = 1024 * 1024;
    let server = Server::with(|settings| {
        settings.body_bytes_max = LARGEST;
        settings.waits.body = Duration::from_secs(3);
        with_tokens(settings);
    })
    .await;
    let mut open = Vec::new();
    for _ in 0..4 {
        let listen = padded(listen().token(ANN), LARGEST);
        open.push(told(&server, &listen, "notifications/subscriptions/acknowledged").await);
    }
    let reply = server.send(&padded(Request::list().token(ANN), LARGEST)).await;
    // It may be closed while there is still something to be sent.
    assert!([0, 408].contains(&reply.status), "{reply:?}");
    assert_eq!(server.send(&Request::list().token(ANN)).await.status, 200);
    assert_eq!(server.send(&padded(Request::list().token(BOB), LARGEST)).await.status, 200);
}
