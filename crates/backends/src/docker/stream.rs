//! The stream to a guest: a container's standard input and output, as the engine passes them on.

use std::io;
use std::pin::Pin;

use belljar_core::BackendError;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::query_parameters::AttachContainerOptionsBuilder;
use futures_util::{StreamExt, stream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::StreamReader;

use super::engine::{ANSWER, Engine, cut, within};

pub(super) struct Ends {
    pub(super) read: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) write: Pin<Box<dyn AsyncWrite + Send>>,
}

/// Attaches to a container, which best is not started yet: then nothing that it says is missed.
pub(super) async fn attach(engine: &Engine, name: &str) -> Result<Ends, BackendError> {
    let options = AttachContainerOptionsBuilder::default().stdin(true).stdout(true).stderr(true).stream(true).build();
    let attaching = engine.client.attach_container(name, Some(options));
    let AttachContainerResults { output, input } = within(ANSWER, "attaching to a container", attaching).await?;
    let bytes = output.filter_map(async |piece| match piece {
        Ok(LogOutput::StdOut { message } | LogOutput::Console { message }) => Some(Ok(message)),
        Ok(LogOutput::StdErr { message }) => {
            // The guest says nothing there; what does is a runtime that could not start it.
            tracing::debug!(words = cut(&String::from_utf8_lossy(&message)), "a container's standard error");
            None
        }
        Ok(LogOutput::StdIn { .. }) => None,
        Err(error) => Some(Err(io::Error::other(error))),
    });
    // Its end is told as what it is, and not as a guest that ended of itself.
    let end = stream::once(async {
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its container ended, was removed, or its engine went away"))
    });
    Ok(Ends { read: Box::pin(StreamReader::new(Box::pin(bytes.chain(end)))), write: input })
}
