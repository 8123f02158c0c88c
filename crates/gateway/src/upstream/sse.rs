//! HTTP+SSE, the older way: one stream of events to us, and an address that they name for what we say.

use std::collections::VecDeque;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::StatusCode;
use http::header::ACCEPT;
use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError};
use rmcp::transport::{AuthClient, Transport};
use sse_stream::Sse;
use url::Url;

use super::events::{events, is_too_large};
use super::http::{Web, WebError, is};
use super::lines::{message, too_large};

const POST_MAX: Duration = Duration::from_secs(30);
const ASKED_MAX: usize = 1024;

/// An open stream, and where to answer.
pub(super) struct Stream {
    server: String,
    web: Web,
    auth: Option<AuthClient<Web>>,
    endpoint: Url,
    /// None after an event that was too large, or when it was closed.
    events: Option<BoxStream<'static, Result<Sse, sse_stream::Error>>>,
    /// What is awaited, oldest first: an event that is too large carries no number that we could read.
    asked: VecDeque<RequestId>,
}

/// Why it could not be opened or written to.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error("{0}")]
    Web(#[from] WebError),
    #[error("it asks for a login")]
    Auth(#[source] AuthRequiredError),
    #[error(transparent)]
    Status(#[from] HttpStatusError),
    #[error("{0}")]
    Protocol(&'static str),
}

impl From<reqwest::Error> for StreamError {
    fn from(error: reqwest::Error) -> StreamError {
        StreamError::Web(error.into())
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("server", &self.server).finish_non_exhaustive()
    }
}

async fn authorised(
    request: reqwest::RequestBuilder,
    auth: Option<&AuthClient<Web>>,
) -> Result<reqwest::Response, StreamError> {
    let token = match auth {
        Some(auth) => auth.get_access_token().await.ok(),
        None => None,
    };
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let response = request.send().await?;
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let challenge =
                response.headers().get(http::header::WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
            Err(StreamError::Auth(AuthRequiredError::new(challenge.unwrap_or_default().to_owned())))
        }
        status if !status.is_success() => {
            let retry_after = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok());
            Err(HttpStatusError::new(status.as_u16(), retry_after.map(str::to_owned)).into())
        }
        _ => Ok(response),
    }
}

impl Stream {
    /// Opens the stream and waits for the address. Whoever calls bounds the time.
    pub(super) async fn open(
        server: &str,
        url: &str,
        web: Web,
        auth: Option<AuthClient<Web>>,
    ) -> Result<Stream, StreamError> {
        let base = Url::parse(url).map_err(|_| StreamError::Protocol("its url is no address"))?;
        let request = web.client.get(base.clone()).header(ACCEPT, "text/event-stream");
        let response = authorised(request, auth.as_ref()).await?;
        if !is(&response, "text/event-stream") {
            return Err(StreamError::Protocol("it answers with something other than a stream of events"));
        }
        let mut events = events(response.bytes_stream(), web.bytes_max, None);
        while let Some(event) = events.next().await {
            let event = event.map_err(|_| StreamError::Protocol("its stream of events broke off"))?;
            if event.event.as_deref() != Some("endpoint") {
                continue;
            }
            let endpoint = base.join(event.data.unwrap_or_default().trim());
            let endpoint = endpoint.map_err(|_| StreamError::Protocol("the address that it names is none"))?;
            if endpoint.origin() != base.origin() {
                return Err(StreamError::Protocol("it wants messages sent to another host, which is refused"));
            }
            let (server, events, asked) = (server.to_owned(), Some(events), VecDeque::new());
            return Ok(Stream { server, web, auth, endpoint, events, asked });
        }
        Err(StreamError::Protocol("its stream of events ended at once"))
    }
}

impl Transport<RoleClient> for Stream {
    type Error = StreamError;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), StreamError>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &item {
            self.asked.push_back(request.id.clone());
            if self.asked.len() > ASKED_MAX {
                self.asked.pop_front();
            }
        }
        let request = self.web.client.post(self.endpoint.clone()).json(&item).timeout(POST_MAX);
        let auth = self.auth.clone();
        async move { authorised(request, auth.as_ref()).await.map(drop) }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            // After an event that was too large the stream is at its end, and every call in it is told why.
            let Some(events) = &mut self.events else {
                let id = self.asked.pop_front()?;
                return Some(too_large(self.web.bytes_max as u64 + 1, self.web.bytes_max, Some(id)));
            };
            let event = match events.next().await? {
                Ok(event) => event,
                Err(sse_stream::Error::Body(error)) if is_too_large(error.as_ref()) => {
                    tracing::warn!(server = self.server, "a message was too large; the connection is begun anew");
                    self.events = None;
                    continue;
                }
                Err(error) => {
                    tracing::debug!(server = self.server, %error, "the stream of events broke off");
                    return None;
                }
            };
            if !matches!(event.event.as_deref(), None | Some("message")) {
                continue;
            }
            let message = event.data.and_then(|data| message(data.as_bytes()));
            let Some(message) = message else { continue };
            let answered = match &message {
                JsonRpcMessage::Response(answer) => Some(&answer.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                _ => None,
            };
            if let Some(answered) = answered {
                self.asked.retain(|asked| asked != answered);
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), StreamError> {
        self.events = None;
        self.asked.clear();
        Ok(())
    }
}
