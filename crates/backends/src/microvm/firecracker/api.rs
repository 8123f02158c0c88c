//! Firecracker's API: HTTP over a Unix socket, a request for each thing that is to be so. One connection for each request:
//! there are few, and none that anybody waits for with more to do.

use std::path::Path;
use std::time::Duration;

use belljar_core::BackendError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::setup;

/// No answer of its is as long.
const ANSWER_MAX: u64 = 64 * 1024;

/// Taking a snapshot of a large machine is the longest that it does.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long its socket may take to be there, and how often it is looked for.
const START_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until it listens.
pub(super) async fn listens(socket: &Path) -> Result<(), BackendError> {
    let looking = async {
        while UnixStream::connect(socket).await.is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let late = |_| setup("starting Firecracker", &"it does not listen");
    tokio::time::timeout(START_MAX, looking).await.map_err(late)
}

pub(super) async fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> Result<(), BackendError> {
    let step = format!("{method} {path}");
    let late = |_| Err(setup(&step, &"Firecracker does not answer"));
    tokio::time::timeout(PATIENCE, exchange(socket, method, path, body, &step)).await.unwrap_or_else(late)
}

async fn exchange(socket: &Path, method: &str, path: &str, body: &Value, step: &str) -> Result<(), BackendError> {
    let failed = |error: std::io::Error| setup(step, &error);
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = UnixStream::connect(socket).await.map_err(failed)?;
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    let mut stream = stream.take(ANSWER_MAX);
    // It keeps the connection open, so the answer's own length says where it ends.
    let (status, said) = loop {
        if stream.read_buf(&mut answer).await.map_err(failed)? == 0 {
            return Err(setup(step, &"Firecracker hung up"));
        }
        if let Some(whole) = parse(&answer) {
            break whole;
        }
    };
    if (200..300).contains(&status) {
        return Ok(());
    }
    let said = serde_json::from_slice::<Value>(&said).ok();
    let why = said.as_ref().and_then(|said| said.get("fault_message")).and_then(Value::as_str);
    Err(setup(step, &format!("Firecracker answers {status}: {}", why.unwrap_or("it did not say why"))))
}

/// The status and the body, once all of it is there.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok()).flatten()
    });
    let body = &answer[end + 4..];
    let length = length.unwrap_or(0);
    (body.len() >= length).then(|| (status, body[..length].to_vec()))
}
