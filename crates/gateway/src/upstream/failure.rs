//! What went wrong with a server, as a program is told.

use std::error::Error;

use rmcp::model::{ErrorCode, ErrorData, InputRequest, InputRequiredResult};
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::AuthError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};
use serde_json::Value;

use super::http::WebError;
use super::lines::{GARBLED, TOO_LARGE};
use super::words::clean;
use crate::error::{CallError, ErrorKind};

const DATA_BYTES_MAX: usize = 4096;
const MESSAGE_CHARACTERS_MAX: usize = 2000;
/// A person has to open an address first.
const URL_REQUIRED: ErrorCode = ErrorCode(-32042);

/// An error of this server's, which another try may overcome.
pub(super) fn upstream(server: &str, message: impl Into<String>) -> CallError {
    CallError { server: server.to_owned(), ..CallError::new(ErrorKind::Upstream, message) }
}

/// Why a call has no result. `words` is what the server's process said last.
pub(super) fn of_call(server: &str, error: &ServiceError, words: &str) -> CallError {
    let final_word = |message: String| CallError { retryable: false, ..upstream(server, message) };
    match error {
        ServiceError::McpError(error) => of_answer(server, error),
        ServiceError::TransportSend(error) => of_transport(server, error.error.as_ref()),
        ServiceError::TransportClosed | ServiceError::Cancelled { .. } => final_word(format!(
            "`{server}` ended in the middle of the call; it may or may not have taken effect{words}"
        )),
        ServiceError::UnexpectedResponse => {
            final_word(format!("`{server}` answered with something that is not the result of a tool"))
        }
        other => upstream(server, format!("`{server}`: {}", clean(&other.to_string(), 300))),
    }
}

/// Why it could not be started.
pub(super) fn of_start(server: &str, error: &ClientInitializeError, words: &str) -> CallError {
    match error {
        ClientInitializeError::TransportError { error, .. } => of_transport(server, error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => of_start(server, fallback, words),
        ClientInitializeError::ConnectionClosed(_) => {
            upstream(server, format!("`{server}` ended before it was ready{words}"))
        }
        ClientInitializeError::JsonRpcError(error) => {
            upstream(server, format!("`{server}` refused the connection: {}{words}", clean(&error.message, 300)))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            upstream(server, format!("`{server}` speaks no version of the protocol that is known here"))
        }
        _ => upstream(server, format!("`{server}` did not answer as a server of MCP does{words}")),
    }
}

/// Why a request did not get through.
fn of_transport(server: &str, error: &(dyn Error + Send + Sync + 'static)) -> CallError {
    let mut current: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = current {
        if let Some(error) = error.downcast_ref::<HttpStatusError>() {
            return of_status(server, error);
        }
        match error.downcast_ref::<StreamableHttpError<WebError>>() {
            Some(StreamableHttpError::HttpStatus(error)) => return of_status(server, error),
            Some(StreamableHttpError::AuthRequired(_)) => return login(server, "asks for a login"),
            Some(StreamableHttpError::InsufficientScope(_)) => {
                return login(server, "does not allow this to the account in use");
            }
            Some(StreamableHttpError::Auth(error)) => return of_auth(server, error),
            _ => {}
        }
        if error.is::<AuthRequiredError>() || error.is::<InsufficientScopeError>() {
            return login(server, "asks for a login");
        }
        if let Some(error) = error.downcast_ref::<AuthError>() {
            return of_auth(server, error);
        }
        current = error.source();
    }
    upstream(server, format!("`{server}` could not be reached: {}", clean(&error.to_string(), 400)))
}

/// What a server said when it refused a request for want of a login.
pub(super) fn challenge_of(error: &ServiceError) -> Option<&str> {
    match error {
        ServiceError::TransportSend(error) => challenge_in(error.error.as_ref()),
        _ => None,
    }
}

/// The same of a connection that was not begun.
pub(super) fn challenge_of_start(error: &ClientInitializeError) -> Option<&str> {
    match error {
        ClientInitializeError::TransportError { error, .. } => challenge_in(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => challenge_of_start(fallback),
        _ => None,
    }
}

fn challenge_in<'a>(error: &'a (dyn Error + Send + Sync + 'static)) -> Option<&'a str> {
    let mut current: Option<&'a (dyn Error + 'static)> = Some(error);
    while let Some(error) = current {
        match error.downcast_ref::<StreamableHttpError<WebError>>() {
            Some(StreamableHttpError::AuthRequired(error)) => return Some(&error.www_authenticate_header),
            Some(StreamableHttpError::InsufficientScope(error)) => return Some(&error.www_authenticate_header),
            _ => {}
        }
        if let Some(error) = error.downcast_ref::<AuthRequiredError>() {
            return Some(&error.www_authenticate_header);
        }
        if let Some(error) = error.downcast_ref::<InsufficientScopeError>() {
            return Some(&error.www_authenticate_header);
        }
        current = error.source();
    }
    None
}

fn of_auth(server: &str, error: &AuthError) -> CallError {
    match error {
        AuthError::AuthorizationRequired | AuthError::TokenExpired | AuthError::TokenRefreshRejected(_) => {
            login(server, "asks for a new login")
        }
        _ => upstream(
            server,
            format!("the login at `{server}` could not be renewed: {}", clean(&error.to_string(), 300)),
        ),
    }
}

fn login(server: &str, what: &str) -> CallError {
    let plain = server.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.'));
    let word = if plain { server.to_owned() } else { format!("'{}'", server.replace('\'', "'\\''")) };
    let message = format!("`{server}` {what}; run `belljar tools login {word}`");
    CallError { server: server.to_owned(), ..CallError::new(ErrorKind::AuthRequired, message) }
}

fn of_status(server: &str, error: &HttpStatusError) -> CallError {
    if error.status != 429 {
        return CallError {
            code: Some(error.status.into()),
            ..upstream(server, format!("`{server}` answered with HTTP {}; try again later", error.status))
        };
    }
    let retry_after = error.retry_after.as_deref().and_then(|text| text.trim().parse().ok());
    let retry_after = retry_after.filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0);
    let wait = retry_after.map_or("wait a while".to_owned(), |seconds| format!("wait {seconds} s"));
    CallError {
        server: server.to_owned(),
        code: Some(429),
        retry_after,
        ..CallError::new(
            ErrorKind::RateLimited,
            format!("`{server}` has had too many requests; {wait}, then try again"),
        )
    }
}

/// An error that the server itself gave.
fn of_answer(server: &str, error: &ErrorData) -> CallError {
    let said = clean(&error.message, MESSAGE_CHARACTERS_MAX);
    let plain = said.to_lowercase();
    let unknown = plain.contains("unknown tool") || (plain.contains("tool") && plain.contains("not found"));
    let number = |key: &str| error.data.as_ref().and_then(|data| data.get(key)?.as_f64());
    let kind = match error.code {
        TOO_LARGE => {
            let bytes = number("bytes").unwrap_or_default();
            let limit = number("limit").unwrap_or_default() / (1024.0 * 1024.0);
            let message = format!(
                "the result is too large: at least {bytes} bytes, and `{server}` may send {limit} MB at once; ask for less, \
                 or raise \"max_result_mb\" in its configuration"
            );
            return CallError { retryable: false, ..upstream(server, message) };
        }
        GARBLED => {
            let message = format!("`{server}` gave an answer that breaks the protocol");
            return CallError { retryable: false, data: error.data.clone(), ..upstream(server, message) };
        }
        URL_REQUIRED => ErrorKind::AuthRequired,
        ErrorCode::INVALID_PARAMS if unknown => ErrorKind::UnknownTool,
        ErrorCode::INVALID_PARAMS => ErrorKind::InvalidArguments,
        ErrorCode::METHOD_NOT_FOUND | ErrorCode::RESOURCE_NOT_FOUND => ErrorKind::UnknownTool,
        ErrorCode(401 | 403) => ErrorKind::AuthRequired,
        ErrorCode(429) => ErrorKind::RateLimited,
        _ if unknown => ErrorKind::UnknownTool,
        _ => ErrorKind::Upstream,
    };
    let message = match said.is_empty() {
        true => format!("`{server}` answered with error {}", error.code.0),
        false => said,
    };
    CallError {
        server: server.to_owned(),
        code: Some(error.code.0.into()),
        data: error.data.as_ref().map(bounded),
        retryable: kind == ErrorKind::RateLimited,
        url: (kind == ErrorKind::AuthRequired).then(|| address(error.data.as_ref()?)).flatten(),
        retry_after: number("retry_after").or_else(|| number("retryAfter")),
        ..CallError::new(kind, message)
    }
}

/// A server that wants something of a person first, which nobody here can be asked for.
pub(super) fn of_input(server: &str, result: &InputRequiredResult) -> CallError {
    let requests = result.input_requests.iter().flat_map(|requests| requests.values());
    let asked: Vec<Value> = requests
        .filter(|request| matches!(request, InputRequest::Elicitation(_)))
        .filter_map(|request| serde_json::to_value(request).ok())
        .collect();
    match asked.iter().find_map(address) {
        Some(url) => {
            let message = format!("`{server}` wants a person to open an address first; open it, then call again");
            CallError { server: server.to_owned(), url: Some(url), ..CallError::new(ErrorKind::AuthRequired, message) }
        }
        None => {
            let message = format!(
                "`{server}` wants more input before it goes on, which cannot be given from here; pass everything as \
                 arguments, or call another tool"
            );
            let data = (!asked.is_empty()).then(|| bounded(&Value::Array(asked)));
            CallError { retryable: false, data, ..upstream(server, message) }
        }
    }
}

/// The first web address under a key `url`.
fn address(value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => {
            let own = map.get("url").and_then(Value::as_str).filter(|url| url.len() <= 2048);
            let own =
                own.and_then(|url| url::Url::parse(url).ok()).filter(|url| matches!(url.scheme(), "http" | "https"));
            own.map(String::from).or_else(|| map.values().find_map(address))
        }
        Value::Array(items) => items.iter().find_map(address),
        _ => None,
    }
}

fn bounded(data: &Value) -> Value {
    let text = data.to_string();
    if text.len() <= DATA_BYTES_MAX {
        return data.clone();
    }
    let end = (0..=DATA_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Value::String(format!("{}…", &text[..end]))
}
