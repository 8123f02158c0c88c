//! A conversation that goes on for as long as its caller is there: what comes in is admitted and goes to the service; what
//! the service says waits, within bounds, for whoever carries it out.
//!
//! rmcp has transports for this. Ours stands in their place because those drop what they cannot parse, so that a caller
//! waits for ever; end when the first message is not a request; and let requests and unread answers pile up.
//!
//! ```text
//! lines, or bodies of requests ─ Door ─▶ Pipe ─▶ rmcp ─▶ Pipe ─▶ Said ─ a writer of lines, or a stream of events
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ErrorCode, RequestId, ServerJsonRpcMessage};
use rmcp::service::ServerInitializeError;
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServiceExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::messages::{Refused, STILL_OPEN, TOO_MANY, answer_bytes, parse};
use crate::handler::Handler;

const QUEUE: usize = 16;
const UNREAD: &str = "this was carried out, but its answer was not kept: too many wait to be read; read those first";

/// Requests that are being worked on, or whose answers wait to be read: how many, and the memory they may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) requests: usize,
    pub(super) bytes: usize,
}

/// The requests that are not answered yet, and the answers that wait to be read.
#[derive(Debug, Clone)]
pub(super) struct Open {
    bounds: Bounds,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    requests: HashMap<RequestId, State>,
    /// Of all answers that wait. They are counted apart from their requests, since a caller may cancel those at any time, and
    /// what rmcp has begun to send it sends.
    waiting_bytes: usize,
}

#[derive(Debug)]
enum State {
    /// With what it and its answer may take.
    WorkedOn { bytes: usize },
    /// The answer waits to be read.
    Answered,
}

impl Held {
    fn bytes(&self) -> usize {
        let expected = self.requests.values().map(|state| match state {
            State::WorkedOn { bytes } => *bytes,
            State::Answered => 0,
        });
        self.waiting_bytes + expected.sum::<usize>()
    }
}

/// The memory of an answer that waits; it counts until this is dropped.
#[derive(Debug)]
pub(super) struct Weight {
    held: Arc<Mutex<Held>>,
    bytes: usize,
}

impl Drop for Weight {
    fn drop(&mut self) {
        locked(&self.held).waiting_bytes -= self.bytes;
    }
}

fn locked(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Open {
    pub(super) fn new(bounds: Bounds) -> Open {
        Open { bounds, held: Arc::default() }
    }

    pub(super) fn begin(&self, id: &RequestId, bytes: usize) -> Result<(), (ErrorCode, &'static str)> {
        let mut held = locked(&self.held);
        if held.requests.contains_key(id) {
            return Err((ErrorCode::INVALID_REQUEST, STILL_OPEN));
        }
        let open_bytes = held.bytes();
        if held.requests.len() >= self.bounds.requests || (open_bytes > 0 && open_bytes + bytes > self.bounds.bytes) {
            return Err((TOO_MANY, "too many requests at once; wait for answers before sending more"));
        }
        held.requests.insert(id.clone(), State::WorkedOn { bytes });
        Ok(())
    }

    /// There will be no answer, unless it waits already.
    fn cancel(&self, id: &RequestId) {
        let mut held = locked(&self.held);
        if let Some(State::WorkedOn { .. }) = held.requests.get(id) {
            held.requests.remove(id);
        }
    }

    /// Whether an answer of this length may wait besides those that do. One alone always may.
    fn has_room_for(&self, bytes: usize) -> bool {
        let waiting = locked(&self.held).waiting_bytes;
        waiting == 0 || waiting + bytes <= self.bounds.bytes
    }

    fn answer(&self, id: &RequestId, bytes: usize) -> Weight {
        let mut held = locked(&self.held);
        held.requests.insert(id.clone(), State::Answered);
        held.waiting_bytes += bytes;
        Weight { held: self.held.clone(), bytes }
    }

    pub(super) fn end(&self, id: &RequestId) {
        locked(&self.held).requests.remove(id);
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.held).requests.is_empty()
    }
}

/// The other side of a channel is gone.
#[derive(Debug)]
pub(super) struct Gone;

/// Where messages come in.
#[derive(Debug, Clone)]
pub(super) struct Door {
    to_service: mpsc::Sender<ClientJsonRpcMessage>,
    open: Open,
}

impl Door {
    /// The message that may go on; `None` if there is nothing to be done.
    pub(super) fn admit(&self, bytes: &[u8]) -> Result<Option<ClientJsonRpcMessage>, Refused> {
        let Some(message) = parse(bytes)? else { return Ok(None) };
        match &*message {
            ClientJsonRpcMessage::Request(request) => {
                let bytes = bytes.len() + answer_bytes(&request.request);
                self.open
                    .begin(&request.id, bytes)
                    .map_err(|(code, sentence)| Refused::new(request.id.clone().into_json_value(), code, sentence))?;
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.open.cancel(id);
                }
            }
            ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {}
        }
        Ok(Some(*message))
    }

    /// Waits until the service takes it.
    pub(super) async fn pass_on(&self, message: ClientJsonRpcMessage) -> Result<(), Gone> {
        self.to_service.send(message).await.map_err(|_| Gone)
    }

    /// A request that was admitted and does not get any further.
    pub(super) fn give_up(&self, id: &RequestId) {
        self.open.end(id);
    }
}

/// What is to be carried to the caller; then the request, if it answers one, is no longer open.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) json: Vec<u8>,
    pub(super) answers: Option<RequestId>,
    /// Of an answer, to be dropped when it is carried out.
    pub(super) weight: Option<Weight>,
}

/// What the service says.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) queue: mpsc::Receiver<Outgoing>,
    pub(super) open: Open,
}

/// The service's end of the two queues. There can be several one after the other, until a conversation begins.
#[derive(Debug, Clone)]
pub(super) struct Pipe {
    incoming: Arc<tokio::sync::Mutex<mpsc::Receiver<ClientJsonRpcMessage>>>,
    pub(super) outgoing: mpsc::Sender<Outgoing>,
    open: Open,
    /// Nobody is there to be told anything.
    gone: CancellationToken,
}

/// The parts of a conversation. What is said is given up when `gone` is cancelled.
pub(super) fn begin(bounds: Bounds, gone: CancellationToken) -> (Door, Pipe, Said) {
    let open = Open::new(bounds);
    let (to_service, incoming) = mpsc::channel(QUEUE);
    let (outgoing, queue) = mpsc::channel(QUEUE);
    let incoming = Arc::new(tokio::sync::Mutex::new(incoming));
    let pipe = Pipe { incoming, outgoing, open: open.clone(), gone };
    (Door { to_service, open: open.clone() }, pipe, Said { queue, open })
}

/// Answers until the conversation ends, or is told to by `stop`.
pub(super) async fn hold(handler: Handler, pipe: Pipe, stop: &CancellationToken) {
    let handler = handler.watched();
    loop {
        match handler.clone().serve_with_ct(pipe.clone(), stop.clone()).await {
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
}

impl Pipe {
    /// A message as it goes out. What is longer than there is room for is not kept: its caller is told that instead.
    fn said(&self, message: &ServerJsonRpcMessage) -> io::Result<Outgoing> {
        let answers = match message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        let mut json = serde_json::to_vec(message)?;
        let weight = answers.as_ref().map(|id| {
            if !self.open.has_room_for(json.len()) {
                json = Refused::new(id.clone().into_json_value(), TOO_MANY, UNREAD).message().to_string().into_bytes();
            }
            self.open.answer(id, json.len())
        });
        Ok(Outgoing { json, answers, weight })
    }
}

impl Transport<RoleServer> for Pipe {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, gone) = (self.outgoing.clone(), self.gone.clone());
        // Not in the future, of which rmcp has as many as there are answers: a cancellation that comes meanwhile must find this
        // one counted.
        let said = self.said(&message);
        drop(message);
        async move {
            let said = said?;
            tokio::select! {
                sent = outgoing.send(said) => sent.map_err(|_| io::ErrorKind::BrokenPipe.into()),
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
