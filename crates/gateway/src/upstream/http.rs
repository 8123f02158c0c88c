//! Requests of streamable HTTP, with bodies that are bounded and redirects that stay where they began.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::events::events;
use super::hidden::Hidden;
use super::lines::{message as parse, too_large};
use super::words::clean;

const ERROR_BYTES_MAX: usize = 64 * 1024;
const REDIRECTS_MAX: usize = 5;
const SESSION: &str = "mcp-session-id";
const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// Requests to one server.
#[derive(Debug, Clone)]
pub(super) struct Web {
    pub(super) client: reqwest::Client,
    pub(super) bytes_max: usize,
    /// Of the last message that was posted.
    status: Arc<AtomicU16>,
}

/// What went wrong on the way. Holds no address, since that may hold a token.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct WebError(pub(super) String);

type Failure = StreamableHttpError<WebError>;

impl From<reqwest::Error> for WebError {
    fn from(error: reqwest::Error) -> WebError {
        let error = error.without_url();
        let mut text = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(current) = source {
            text = format!("{text}: {current}");
            source = current.source();
        }
        WebError(clean(&text, 400))
    }
}

fn failed(error: reqwest::Error) -> Failure {
    StreamableHttpError::Client(error.into())
}

impl Web {
    pub(super) fn new(headers: &[(String, Hidden)], bytes_max: usize) -> Result<Web, WebError> {
        let mut defaults = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(name).map_err(|_| WebError("a header's name is none".into()))?;
            let mut value = HeaderValue::try_from(value.reveal())
                .map_err(|_| WebError(format!("the value of header {name} is none")))?;
            value.set_sensitive(true);
            defaults.append(name, value);
        }
        let redirect = reqwest::redirect::Policy::custom(|attempt| {
            let first = attempt.previous().first().map(reqwest::Url::origin);
            if first.as_ref() != Some(&attempt.url().origin()) {
                attempt.error("it sends requests on to another host, which is not followed; write the final url")
            } else if attempt.previous().len() > REDIRECTS_MAX {
                attempt.error("it sends requests on too often")
            } else {
                attempt.follow()
            }
        });
        let client = reqwest::Client::builder()
            .default_headers(defaults)
            .redirect(redirect)
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Web { client, bytes_max, status: Arc::default() })
    }

    /// Whether the last message that was posted was turned away in the manner of a server that wants another protocol.
    pub(super) fn turned_away(&self) -> bool {
        let status = self.status.load(Ordering::Relaxed);
        (400..500).contains(&status) && !matches!(status, 401 | 403 | 429)
    }

    async fn post(
        &self,
        request: RequestBuilder,
        message: &ClientJsonRpcMessage,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let id = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let response = request.json(message).send().await.map_err(failed)?;
        let status = response.status();
        self.status.store(status.as_u16(), Ordering::Relaxed);
        check_auth(&response)?;
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let session = response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
        if !status.is_success() {
            return self.refused(response, message, session, has_session).await;
        }
        if is(&response, EVENT_STREAM) {
            return Ok(StreamableHttpPostResponse::Sse(events(response.bytes_stream(), self.bytes_max, id), session));
        }
        let body = match read(response, self.bytes_max).await? {
            Ok(body) => body,
            Err(bytes) => return Ok(StreamableHttpPostResponse::Json(too_large(bytes, self.bytes_max, id), session)),
        };
        match (parse(&body), id) {
            (Some(message), _) => Ok(StreamableHttpPostResponse::Json(message, session)),
            (None, None) => Ok(StreamableHttpPostResponse::Accepted),
            (None, Some(_)) => {
                Err(StreamableHttpError::UnexpectedServerResponse("its answer is no message of the protocol".into()))
            }
        }
    }

    /// An answer other than a success: its own error if it gave one, else what its status says.
    async fn refused(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        session: Option<String>,
        has_session: bool,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        let body = read(response, ERROR_BYTES_MAX).await?.unwrap_or_default();
        let own = match parse(&body) {
            Some(ServerJsonRpcMessage::Error(error)) => Some(error),
            _ => None,
        };
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && !has_session
            && status.is_client_error()
        {
            // Servers of the older protocol turn the first question away in their own manner, often without its number.
            let error = own.map(|own| own.error);
            let error = error.unwrap_or_else(|| ErrorData::invalid_request(format!("HTTP {status}"), None));
            return Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::error(error, Some(request.id.clone())),
                None,
            ));
        }
        if let Some(own) = own {
            return Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(own), session));
        }
        if status.is_server_error() {
            return Err(HttpStatusError::new(status.as_u16(), retry_after).into());
        }
        let said = clean(&String::from_utf8_lossy(&body), 200);
        Err(StreamableHttpError::UnexpectedServerResponse(format!("HTTP {status} {said}").trim_end().to_owned().into()))
    }

    async fn stream(
        &self,
        uri: &str,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let mut request = with(self.client.get(uri), session, token, headers).header(ACCEPT, EVENT_STREAM);
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.map_err(failed)?;
        check_auth(&response)?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => return Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => return Err(HttpStatusError::new(status.as_u16(), None).into()),
            _ if !is(&response, EVENT_STREAM) => return Err(StreamableHttpError::UnexpectedContentType(None)),
            _ => {}
        }
        Ok(events(response.bytes_stream(), self.bytes_max, None::<RequestId>))
    }
}

fn with(
    mut request: RequestBuilder,
    session: Option<Arc<str>>,
    token: Option<String>,
    headers: HashMap<HeaderName, HeaderValue>,
) -> RequestBuilder {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(session) = session {
        request = request.header(SESSION, session.as_ref());
    }
    match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    }
}

/// A body of at most so many bytes, or how many there were at least.
async fn read(response: Response, bytes_max: usize) -> Result<Result<Vec<u8>, u64>, Failure> {
    if let Some(length) = response.content_length().filter(|length| *length > bytes_max as u64) {
        return Ok(Err(length));
    }
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(failed)?;
        if body.len() + piece.len() > bytes_max {
            return Ok(Err((body.len() + piece.len()) as u64));
        }
        body.extend_from_slice(&piece);
    }
    Ok(Ok(body))
}

pub(super) fn is(response: &Response, kind: &str) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()))
}

fn check_auth(response: &Response) -> Result<(), Failure> {
    let challenge = || {
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        header.unwrap_or_default().to_owned()
    };
    match response.status() {
        StatusCode::UNAUTHORIZED => Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge()))),
        StatusCode::FORBIDDEN => {
            Err(StreamableHttpError::InsufficientScope(InsufficientScopeError::new(challenge(), None)))
        }
        _ => Ok(()),
    }
}

impl StreamableHttpClient for Web {
    type Error = WebError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let has_session = session.is_some();
        let accept = format!("{EVENT_STREAM}, {JSON}");
        let request = with(self.client.post(uri.as_ref()), session, token, headers).header(ACCEPT, accept);
        self.post(request, &message, has_session).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        with(self.client.delete(uri.as_ref()), Some(session), token, headers).send().await.map_err(failed)?;
        Ok(())
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        self.stream(&uri, session, last, token, headers).await
    }
}
