//! The readers of what callers send, for those who fuzz them (`fuzz/`). Nothing else uses this.

use std::cmp::min;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcRequest};
use tokio::io::{AsyncRead, ReadBuf};

use crate::address;
use crate::resources::uri::{self, Target};
use crate::tools;
use crate::transport::lines::{Line, Lines};
use crate::transport::messages;

pub use crate::transport::values;

/// What came of a line of standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// A message, as it is written by us.
    Message(Vec<u8>),
    /// The id that the refusal goes to, as JSON, and its sentence.
    Refused {
        id: String,
        sentence: String,
    },
    Nothing,
}

/// Reads one message as the server does.
pub fn message(line: &[u8]) -> Said {
    match messages::parse(line) {
        Ok(Some(message)) => Said::Message(serde_json::to_vec(&message).unwrap_or_default()),
        Ok(None) => Said::Nothing,
        Err(refused) => Said::Refused { id: refused.id.to_string(), sentence: refused.sentence },
    }
}

/// What is said of the arguments of a call of a tool, each read as everything that one can be.
pub fn complaints(line: &[u8]) -> Vec<String> {
    match messages::parse(line).ok().flatten().map(|message| *message) {
        Some(ClientJsonRpcMessage::Request(JsonRpcRequest {
            request: ClientRequest::CallToolRequest(call), ..
        })) => tools::complaints(&call.params.arguments.unwrap_or_default()),
        _ => Vec::new(),
    }
}

/// The lines of a stream that comes in pieces of this size: what each is, or `None` for one that is longer than it may be.
pub fn lines(stream: &[u8], piece: usize, bytes_max: usize) -> Vec<Option<Vec<u8>>> {
    let mut lines = Lines::new(Pieces { rest: stream, piece: piece.max(1) }, bytes_max);
    let mut all = Vec::new();
    loop {
        // What is in memory is always ready.
        match pin!(lines.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(Some(Line::Whole(line)))) => all.push(Some(line)),
            Poll::Ready(Ok(Some(Line::TooLong(_)))) => all.push(None),
            Poll::Ready(Ok(None) | Err(_)) | Poll::Pending => return all,
        }
    }
}

/// The path in a resource's name, if it is a name.
pub fn path_in_uri(text: &str) -> Option<String> {
    match uri::parse(text).ok()?.0 {
        Target::File { path, .. } | Target::Directory { path, .. } | Target::LeftFile { path, .. } => Some(path),
        Target::Run { run } => Some(run),
        Target::Output { name, .. } => Some(name),
    }
}

/// The resource's name of a file.
pub fn uri_of(path: &str) -> String {
    format!("{}sandbox/{}", address::SCHEME, address::percent_encode(path))
}

/// The files of an archive that a caller sent, by where each would be written, and their sizes.
pub fn unpacked(archive: &[u8], directory: &str) -> Option<Vec<(String, usize)>> {
    tools::unpacked(archive, directory)
}

struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let size = min(self.piece, min(self.rest.len(), buffer.remaining()));
        let (now, later) = self.rest.split_at(size);
        buffer.put_slice(now);
        self.rest = later;
        Poll::Ready(Ok(()))
    }
}
