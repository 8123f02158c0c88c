//! The protocol over standard input and output: one message a line.
//!
//! rmcp has a transport for this. Ours stands in its place because that one drops what it cannot parse, so that a caller
//! waits for ever; ends when the first message is not a request; and lets requests and unread answers pile up.
//!
//! ```text
//! stdin ─ reader task ─ parse ─▶ incoming ─▶ rmcp ─▶ outgoing ─ writer task ─▶ stdout
//!                          └── an error for what is no message ──▶┘
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_engine::Engine;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::ServerInitializeError;
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::has_too_many_values;
use super::lines::{Line, Lines, Trace};
use crate::error::ServeError;
use crate::handler::{Handler, Surface};

/// Room for a file of 8 MiB in base64, with everything escaped that can be.
const MESSAGE_BYTES_MAX: usize = 24 * 1024 * 1024;
/// Requests that are being worked on, or whose answers wait to be read: how many, and the memory they may take.
const REQUESTS_MAX: usize = 2048;
const REQUESTS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// An answer of the usual size.
const ANSWER_BYTES: usize = 64 * 1024;
/// An answer with a file in it: base64, as text and as structured content.
const FILE_ANSWER_BYTES: usize = 3 * 1024 * 1024;
/// What has been asked for when the input ends may still be answered, for this long. Then it is killed.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long an error of ours waits for a caller that sends and does not read.
const REPLY_WAIT: Duration = Duration::from_secs(10);
const LAST_WRITE: Duration = Duration::from_secs(2);

const QUEUE: usize = 16;

/// Serves whoever started us, until standard input ends.
pub async fn serve_stdio(engine: Engine, surface: Surface) -> Result<(), ServeError> {
    let (reader, writer) = rmcp::transport::stdio_pipes();
    serve(engine, surface, reader, writer).await;
    Ok(())
}

pub(crate) async fn serve<R, W>(engine: Engine, surface: Surface, reader: R, writer: W)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let ends = Ends::default();
    let open = Open::default();
    let (to_service, incoming) = mpsc::channel(QUEUE);
    let (outgoing, to_writer) = mpsc::channel(QUEUE);
    // Dropped with this future: nobody reads or writes on after it.
    let (mut reading, mut writing) = (JoinSet::new(), JoinSet::new());
    writing.spawn(write(writer, to_writer, open.clone(), ends.clone()));
    reading.spawn(read(
        Lines::new(reader, MESSAGE_BYTES_MAX),
        Door { to_service, outgoing: outgoing.clone(), open, stalled: AtomicBool::new(false) },
        ends.clone(),
    ));
    let incoming = Arc::new(tokio::sync::Mutex::new(incoming));
    let handler = Handler::local(engine.clone(), surface);
    loop {
        let stdio = Stdio { incoming: incoming.clone(), outgoing: outgoing.clone(), gone: ends.gone.clone() };
        match handler.clone().serve_with_ct(stdio, ends.stop.clone()).await {
            Ok(service) => {
                if let Err(error) = service.waiting().await {
                    tracing::error!(%error, "the service ended badly");
                }
                break;
            }
            Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => break,
            Err(ServerInitializeError::TransportError { .. }) => break,
            // Each turn takes at least one message, so this ends with the input.
            Err(error) => {
                tracing::debug!(%error, "the first message does not begin a conversation; waiting for another")
            }
        }
    }
    ends.stop.cancel();
    engine.shutdown().await;
    drop(outgoing);
    let written = async { while writing.join_next().await.is_some() {} };
    tokio::select! {
        () = written => {}
        () = ends.gone.cancelled() => tracing::debug!("nobody reads the last answers"),
        () = tokio::time::sleep(LAST_WRITE) => tracing::debug!("nobody reads the last answers"),
    }
}

/// The two steps in which a conversation ends.
#[derive(Debug, Clone, Default)]
struct Ends {
    /// What is being worked on is given up.
    stop: CancellationToken,
    /// What is not written yet is given up, too.
    gone: CancellationToken,
}

/// The requests that are not answered yet, with the bytes of each.
#[derive(Debug, Clone, Default)]
struct Open(Arc<Mutex<HashMap<RequestId, usize>>>);

impl Open {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, id: &RequestId, bytes: usize) -> Result<(), (ErrorCode, &'static str)> {
        let mut open = self.lock();
        if open.contains_key(id) {
            return Err((ErrorCode::INVALID_REQUEST, "a request with this id is still open; use another id"));
        }
        let open_bytes: usize = open.values().sum();
        if open.len() >= REQUESTS_MAX || (!open.is_empty() && open_bytes + bytes > REQUESTS_BYTES_MAX) {
            return Err((ErrorCode(-32000), "too many requests at once; wait for answers before sending more"));
        }
        open.insert(id.clone(), bytes);
        Ok(())
    }

    fn end(&self, id: &RequestId) {
        self.lock().remove(id);
    }
}

/// What the answer to a request may take, roughly.
fn answer_bytes(request: &ClientRequest) -> usize {
    match request {
        ClientRequest::CallToolRequest(call) if call.params.name == "read_file" => FILE_ANSWER_BYTES,
        ClientRequest::ReadResourceRequest(_) => FILE_ANSWER_BYTES,
        _ => ANSWER_BYTES,
    }
}

/// What the writer writes; then the request, if it answers one, is no longer open.
#[derive(Debug)]
struct Outgoing {
    line: Vec<u8>,
    answers: Option<RequestId>,
}

#[derive(Debug)]
struct Door {
    to_service: mpsc::Sender<ClientJsonRpcMessage>,
    outgoing: mpsc::Sender<Outgoing>,
    open: Open,
    /// The caller did not read for so long that errors of ours no longer wait for it.
    stalled: AtomicBool,
}

async fn read<R: AsyncRead + Unpin>(mut lines: Lines<R>, door: Door, ends: Ends) {
    loop {
        let admitted = match lines.next().await {
            Ok(Some(line)) => door.admit(line).await,
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "standard input failed");
                break;
            }
        };
        if admitted.is_err() {
            break;
        }
    }
    drop(door);
    tokio::time::sleep(LAST_ANSWERS).await;
    ends.stop.cancel();
    tokio::time::sleep(LAST_WRITE).await;
    ends.gone.cancel();
}

/// The other side of a channel is gone.
struct Gone;

/// The id of a message of which only the ends are known: where clients write it, and nowhere else, since what looks like one
/// elsewhere may be anything.
fn id_of_long(ends: &Trace) -> Option<Value> {
    let head = str::from_utf8(&ends.head).ok().and_then(|head| {
        let rest = head.strip_prefix(r#"{"jsonrpc":"2.0","id":"#)?;
        serde_json::from_str(&rest[..rest.find(',')?]).ok()
    });
    let id: Value = head.or_else(|| {
        let tail = String::from_utf8_lossy(&ends.tail);
        let (_, rest) = tail.trim_end().rsplit_once(r#""id":"#)?;
        serde_json::from_str(rest.strip_suffix('}')?).ok()
    })?;
    (id.is_i64() || id.is_u64() || id.is_string()).then_some(id)
}

impl Door {
    async fn admit(&self, line: Line) -> Result<(), Gone> {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong(ends) => {
                let sentence = format!("the message is longer than {MESSAGE_BYTES_MAX} bytes and was skipped");
                let id = id_of_long(&ends).unwrap_or(Value::Null);
                return self.refuse(&id, ErrorCode::INVALID_REQUEST, &sentence).await;
            }
        };
        match parse(&line) {
            Parsed::Nothing => Ok(()),
            Parsed::Bad { id, code, sentence } => self.refuse(&id, code, &sentence).await,
            Parsed::Message(message) => {
                match &*message {
                    ClientJsonRpcMessage::Request(request) => {
                        let bytes = line.len() + answer_bytes(&request.request);
                        if let Err((code, sentence)) = self.open.begin(&request.id, bytes) {
                            return self.refuse(&request.id.clone().into_json_value(), code, sentence).await;
                        }
                    }
                    ClientJsonRpcMessage::Notification(notification) => {
                        // A cancelled request has no answer that would end it.
                        if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                            && let Some(id) = &cancelled.params.request_id
                        {
                            self.open.end(id);
                        }
                    }
                    ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
                }
                self.to_service.send(*message).await.map_err(|_| Gone)
            }
        }
    }

    async fn refuse(&self, id: &Value, code: ErrorCode, sentence: &str) -> Result<(), Gone> {
        let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": sentence}});
        let reply = Outgoing { line: error.to_string().into_bytes(), answers: None };
        let wait = if self.stalled.load(Ordering::Relaxed) { Duration::ZERO } else { REPLY_WAIT };
        let sent = tokio::time::timeout(wait, self.outgoing.send(reply)).await;
        self.stalled.store(sent.is_err(), Ordering::Relaxed);
        sent.unwrap_or(Ok(())).map_err(|_| Gone)
    }
}

#[derive(Debug)]
enum Parsed {
    Message(Box<ClientJsonRpcMessage>),
    Bad {
        id: Value,
        code: ErrorCode,
        sentence: String,
    },
    /// An empty line, or a notification that we do not know: neither is ever answered.
    Nothing,
}

fn parse(line: &[u8]) -> Parsed {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Parsed::Nothing;
    }
    if has_too_many_values(line) {
        let sentence = "the message has too many values; send less at once".to_owned();
        return Parsed::Bad { id: Value::Null, code: ErrorCode::INVALID_REQUEST, sentence };
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Parsed::Message(Box::new(message));
    }
    let bad = |id, code, sentence: &str| Parsed::Bad { id, code, sentence: sentence.to_owned() };
    match serde_json::from_slice(line) {
        // The position helps; what serde_json says of the content does not echo it.
        Err(error) => bad(Value::Null, ErrorCode::PARSE_ERROR, &format!("not valid JSON: {error}")),
        Ok(Value::Array(_)) => {
            bad(Value::Null, ErrorCode::INVALID_REQUEST, "batches are not supported; send one message a line")
        }
        Ok(Value::Object(mut object)) => {
            let id = object.remove("id");
            if id.is_none() && object.get("method").is_some_and(Value::is_string) {
                return Parsed::Nothing;
            }
            let id = id.filter(|id| id.is_string() || id.is_i64()).unwrap_or_default();
            bad(id, ErrorCode::INVALID_REQUEST, "not a JSON-RPC 2.0 message; send jsonrpc, id, method and params")
        }
        Ok(_) => bad(Value::Null, ErrorCode::INVALID_REQUEST, "not a JSON-RPC 2.0 message; send an object"),
    }
}

async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut queue: mpsc::Receiver<Outgoing>, open: Open, ends: Ends) {
    while let Some(Outgoing { mut line, answers }) = queue.recv().await {
        line.push(b'\n');
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            tracing::info!(%error, "standard output is closed");
            ends.stop.cancel();
            ends.gone.cancel();
            return;
        }
        if let Some(id) = answers {
            open.end(&id);
        }
    }
}

/// The service's end of the two queues. There can be several one after the other, until a conversation begins.
#[derive(Debug)]
struct Stdio {
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<ClientJsonRpcMessage>>>,
    outgoing: mpsc::Sender<Outgoing>,
    gone: CancellationToken,
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, gone) = (self.outgoing.clone(), self.gone.clone());
        async move {
            let answers = match &message {
                ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
                ServerJsonRpcMessage::Error(error) => error.id.clone(),
                ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
            };
            let line = serde_json::to_vec(&message)?;
            drop(message);
            tokio::select! {
                sent = outgoing.send(Outgoing { line, answers }) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
                () = gone.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.incoming.lock().await.recv().await
    }

    async fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
