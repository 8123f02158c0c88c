//! A connection to a server on behalf of one client of ours: requests go through it as they are, with the client's own
//! capabilities, and whatever the server says or asks meanwhile comes back to whoever has the request open.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientNotification,
    ClientRequest, ClientResult, ErrorData, Implementation, ProgressToken, ProtocolVersion, RequestId,
    RequestMetaObject, ServerNotification, ServerRequest, ServerResult, SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, Peer, PeerRequestOptions, RequestContext, RequestHandle, ServiceError, Subscription,
};
use rmcp::{RoleClient, Service};
use tokio::sync::broadcast;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connect::{Connection, Side, connect};
use super::failure::{of_call, upstream};
use super::server::Server;
use super::tap::{Heard, Switchboard, is_progress_of};
use crate::error::CallError;

pub use super::tap::Word;

const SUBSCRIBE_MAX: Duration = Duration::from_secs(5);

/// What the server sees of the client.
#[derive(Debug, Clone)]
pub struct Face {
    /// The revision that the client speaks.
    pub version: ProtocolVersion,
    /// What it can do. Of a newer client each request says it, and this is for nothing.
    pub capabilities: ClientCapabilities,
}

/// The service behind a connection: passes everything on.
#[derive(Debug, Clone)]
struct Through {
    face: Face,
    board: Arc<Switchboard>,
}

impl Service<RoleClient> for Through {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            request => self.board.ask(request).await,
        }
    }

    /// They were heard at the tap.
    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("belljar", env!("CARGO_PKG_VERSION"));
        let version = match self.face.version.has_initialize() {
            true => self.face.version.clone(),
            false => ProtocolVersion::V_2025_11_25,
        };
        ClientConfig::new(self.face.capabilities.clone(), own).with_protocol_version(version)
    }
}

/// Ends with its last clone.
#[derive(Debug, Clone)]
pub struct Bridge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<Server>,
    peer: Peer<RoleClient>,
    board: Arc<Switchboard>,
    _stop: DropGuard,
}

pub(super) async fn open(server: &Arc<Server>, face: Face) -> Result<Bridge, CallError> {
    let name = &server.config.name;
    let limit = server.settings.start_limit;
    let board = Arc::<Switchboard>::default();
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let through = Through { face: face.clone(), board: board.clone() };
    let older = face.version.has_initialize();
    let begin = async |older: bool| {
        let side = Side { service: &through, board: Some(&board), older, main: false, stop: &stop };
        match tokio::time::timeout(limit, connect(server, &side)).await {
            Ok(connected) => connected,
            Err(_) => {
                let message = format!("`{name}` was not ready within {} s of its start", limit.as_secs_f64());
                Err(upstream(name, message))
            }
        }
    };
    let begun = async {
        match begin(older).await {
            // One that has only the newer revision is spoken to in that.
            Err(_) if older => begin(false).await,
            begun => begun,
        }
    };
    let Connection { client, .. } = tokio::select! {
        begun = begun => begun?,
        () = server.ended.cancelled() => return Err(upstream(name, format!("`{name}` is not started: the program is ending"))),
    };
    let peer = client.peer().clone();
    let ended = server.ended.clone();
    server.tasks.spawn(async move {
        let waiting = client.waiting();
        tokio::pin!(waiting);
        tokio::select! {
            _ = &mut waiting => return,
            () = ended.cancelled() => stop.cancel(),
        }
        let _ = waiting.await;
    });
    Ok(Bridge(Arc::new(Inner { server: server.clone(), peer, board, _stop: guard })))
}

impl Bridge {
    pub fn is_up(&self) -> bool {
        !self.0.peer.is_transport_closed()
    }

    /// Whether the server asks in the middle of a request, and not by ending it.
    pub fn is_older(&self) -> bool {
        self.0.peer.peer_info().is_some_and(|info| info.protocol_version.has_initialize())
    }

    /// Sends a request as it is. `meta` goes on top of what the connection says of itself.
    pub async fn request(&self, request: ClientRequest, meta: RequestMetaObject) -> Result<Exchange, CallError> {
        let Inner { server, peer, board, .. } = &*self.0;
        let name = &server.config.name;
        let heard = board.open();
        let heard = heard.ok_or_else(|| upstream(name, format!("too much is asked of `{name}` at once; try again")))?;
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = peer.send_request_with_option(request, options).await;
        let handle =
            handle.map_err(|error| server.words.redact_error(of_call(name, &error, &server.words.clause())))?;
        let waited = Waited { peer: peer.clone(), id: Some(handle.id.clone()) };
        Ok(Exchange { server: server.clone(), token: handle.progress_token.clone(), handle, heard, waited })
    }

    /// What the server says outside of all requests.
    pub fn news(&self) -> broadcast::Receiver<ServerNotification> {
        self.0.board.news.subscribe()
    }

    /// Asks a server of the newer revision to be told of changes; `None` if that is not to be had.
    pub async fn listen(&self, filter: SubscriptionFilter) -> Option<Subscription> {
        let info = self.0.peer.peer_info()?;
        if info.protocol_version.has_initialize() {
            return None;
        }
        tokio::time::timeout(SUBSCRIBE_MAX, self.0.peer.listen(filter)).await.ok()?.ok()
    }
}

/// A request under way. Dropping it cancels the request.
#[derive(Debug)]
pub struct Exchange {
    server: Arc<Server>,
    token: ProgressToken,
    handle: RequestHandle<RoleClient>,
    heard: Heard,
    waited: Waited,
}

/// What happens next with a request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, which is looked at where it arrives")]
pub enum Step {
    Word(Word),
    /// The end of it: an answer, the server's own error, or why there is neither.
    Answer(Box<Result<Result<ServerResult, ErrorData>, CallError>>),
}

impl Exchange {
    /// Words come before the answer if they were said before it.
    pub async fn next(&mut self) -> Step {
        loop {
            let word = tokio::select! {
                biased;
                Some(word) = self.heard.words.recv() => word,
                answer = &mut self.handle.rx => {
                    self.waited.id = None;
                    return Step::Answer(Box::new(self.answered(answer.unwrap_or(Err(ServiceError::TransportClosed)))));
                }
            };
            match word {
                Word::Notice(notice) if is_progress_of(&notice, &self.token) == Some(false) => {}
                word => {
                    if let Some(word) = self.told(word) {
                        return Step::Word(word);
                    }
                }
            }
        }
    }

    /// A word without the server's own secrets. A question that is none without them is answered by nobody.
    fn told(&self, word: Word) -> Option<Word> {
        let words = &self.server.words;
        match word {
            Word::Notice(notice) => words.redact_said(notice).map(Word::Notice),
            Word::Question(question, reply) => {
                words.redact_said(question).map(|question| Word::Question(question, reply))
            }
        }
    }

    fn answered(
        &self,
        answer: Result<ServerResult, ServiceError>,
    ) -> Result<Result<ServerResult, ErrorData>, CallError> {
        let words = &self.server.words;
        match answer {
            Ok(result) => {
                let name = &self.server.config.name;
                let kind = discriminant(&result);
                // Of which kind an answer is, is guessed from what it has in it.
                let result = words.redact_said(result).filter(|result| discriminant(result) == kind);
                result.map(Ok).ok_or_else(|| upstream(name, format!("`{name}` answered with a secret of its own")))
            }
            Err(ServiceError::McpError(mut error)) => {
                error.message = words.redact(&error.message).into();
                if let Some(data) = &mut error.data {
                    words.redact_value(data);
                }
                Ok(Err(error))
            }
            Err(error) => Err(words.redact_error(of_call(&self.server.config.name, &error, &words.clause()))),
        }
    }
}

/// Tells the server when nobody waits any more.
#[derive(Debug)]
struct Waited {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let cancelled = CancelledNotificationParam::new(Some(id), Some("the client is gone".to_owned()));
                let cancelled = ClientNotification::from(CancelledNotification::new(cancelled));
                let _ = peer.send_notification(cancelled).await;
            });
        }
    }
}
