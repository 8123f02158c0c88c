//! The one request that a browser makes to us at the end of a login.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use url::Url;

const REQUEST_BYTES_MAX: u64 = 16 * 1024;
const REQUEST_MAX: Duration = Duration::from_secs(5);
const HEADERS_MAX: Duration = Duration::from_secs(1);
const CONNECTIONS_MAX: usize = 16;

/// What the other side gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: String,
    pub(super) issuer: Option<String>,
}

/// The state that an address carries.
pub(super) fn state(address: &str) -> Option<String> {
    let address = Url::parse(address).ok()?;
    address.query_pairs().find(|(key, _)| key == "state").map(|(_, value)| value.into_owned())
}

/// Waits for the request that carries this state. Others are turned away and do not end the waiting: any page of any
/// browser can make them.
pub(super) async fn wait(listener: &TcpListener, state: &str) -> Result<Answer, String> {
    let mut open = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < CONNECTIONS_MAX => {
                let (stream, _) = accepted.map_err(|error| error.to_string())?;
                open.push(tokio::time::timeout(REQUEST_MAX, answer(stream, state)));
            }
            Some(done) = open.next(), if !open.is_empty() => {
                if let Ok(Some(answer)) = done {
                    return answer;
                }
            }
        }
    }
}

async fn answer(stream: TcpStream, state: &str) -> Option<Result<Answer, String>> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    (&mut stream).take(REQUEST_BYTES_MAX).read_line(&mut line).await.ok()?;
    let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let answer = parse(target, state);
    let (status, text) = match &answer {
        None => ("404 Not Found", "This is not the end of a login."),
        Some(Ok(_)) => ("200 OK", "The login is done. You can close this page."),
        Some(Err(_)) => ("200 OK", "The login was refused. You can close this page."),
    };
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
         connection: close\r\n\r\n{text}",
        text.len()
    );
    // What is not read would make the end of the connection an abrupt one, before the browser has read this.
    let rest = async {
        while !line.trim().is_empty() {
            line.clear();
            (&mut stream).take(REQUEST_BYTES_MAX).read_line(&mut line).await.ok()?;
        }
        Some(())
    };
    let _ = tokio::time::timeout(HEADERS_MAX, rest).await;
    let _ = stream.get_mut().write_all(response.as_bytes()).await;
    let _ = stream.get_mut().shutdown().await;
    answer
}

/// Nothing if it is not ours.
fn parse(target: &str, expected: &str) -> Option<Result<Answer, String>> {
    let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
    if url.path() != "/callback" {
        return None;
    }
    let get = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if get("state")? != expected {
        return None;
    }
    if let Some(error) = get("error") {
        return Some(Err(get("error_description").map_or(error.clone(), |more| format!("{error}: {more}"))));
    }
    Some(Ok(Answer { code: get("code")?, issuer: get("iss") }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_request_with_the_right_state_counts() {
        let answer = Answer { code: "c o".into(), issuer: Some("https://as".into()) };
        assert_eq!(parse("/callback?code=c+o&state=s&iss=https%3A%2F%2Fas", "s"), Some(Ok(answer)));
        assert_eq!(parse("/callback?code=c&state=other", "s"), None);
        assert_eq!(parse("/callback?code=c", "s"), None);
        assert_eq!(parse("/favicon.ico?state=s&code=c", "s"), None);
        assert_eq!(parse("/callback?state=s", "s"), None);
        assert_eq!(parse("/callback?state=s&error=access_denied", "s"), Some(Err("access_denied".into())));
    }
}
