//! Server-sent events, none of which can take more memory than it may.

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use rmcp::model::RequestId;
use sse_stream::{Error, Sse, SseStream};

use super::lines::too_large;

/// The events of a response. One that is too large becomes the answer that says so to `request`, and is the last.
pub(super) fn events(
    body: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    bytes_max: usize,
    request: Option<RequestId>,
) -> BoxStream<'static, Result<Sse, Error>> {
    let mut size = Size::default();
    let bounded = body.map(move |piece| {
        let piece = piece.map_err(|error| std::io::Error::other(error.without_url().to_string()))?;
        match size.add(&piece) > bytes_max {
            true => Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, "an event is too large")),
            false => Ok(piece),
        }
    });
    SseStream::from_bytes_stream(bounded)
        .scan(false, move |ended, event| {
            let event = match event {
                _ if *ended => None,
                Err(Error::Body(error)) if is_too_large(error.as_ref()) => {
                    *ended = true;
                    let answer = request.clone().map(|id| too_large(bytes_max as u64 + 1, bytes_max, Some(id)));
                    match answer.and_then(|answer| serde_json::to_string(&answer).ok()) {
                        Some(answer) => Some(Ok(Sse::default().data(answer))),
                        None => Some(Err(Error::Body(error))),
                    }
                }
                event => Some(event),
            };
            std::future::ready(event)
        })
        .boxed()
}

pub(super) fn is_too_large(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut error = Some(error);
    while let Some(current) = error {
        if current
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::FileTooLarge)
        {
            return true;
        }
        error = current.source();
    }
    false
}

/// The bytes of the event that is being read. An empty line ends one.
#[derive(Debug, Default)]
struct Size {
    event: usize,
    line: usize,
}

impl Size {
    /// The largest that an event was while these bytes came.
    fn add(&mut self, piece: &[u8]) -> usize {
        let mut most = self.event;
        for byte in piece {
            self.event += 1;
            most = most.max(self.event);
            match byte {
                b'\n' if self.line == 0 => self.event = 0,
                b'\n' => self.line = 0,
                b'\r' => {}
                _ => self.line += 1,
            }
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(
        pieces: Vec<&'static str>,
        bytes_max: usize,
        request: Option<RequestId>,
    ) -> Vec<Result<String, String>> {
        let body = futures::stream::iter(pieces.into_iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))));
        let events = events(body, bytes_max, request);
        events
            .map(|event| event.map(|event| event.data.unwrap_or_default()).map_err(|error| error.to_string()))
            .collect()
            .await
    }

    #[tokio::test]
    async fn small_events_pass_however_many() {
        let pieces = vec!["data: one\r\n\r\ndata: tw", "o\n\ndata: three\n\n"];
        assert_eq!(read(pieces, 20, None).await, ["one", "two", "three"].map(|text| Ok(text.to_owned())));
    }

    #[tokio::test]
    async fn a_large_event_is_told_to_who_waits_for_it() {
        let seen =
            read(vec!["data: 1\n\n", "data: 1234567890", "1234567890\n\n"], 16, Some(RequestId::Number(3))).await;
        assert_eq!(seen.len(), 2);
        assert!(seen[1].as_ref().unwrap().contains("\"limit\":16"), "{seen:?}");
        let seen = read(vec!["data: 1234567890", "1234567890\n\n"], 16, None).await;
        assert!(seen[0].is_err(), "{seen:?}");
    }
}
