//! The protocol over standard input and output, for whoever started us.

use belljar_engine::Engine;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::conversation::Bounds;
use super::talk::{Return, Talk};
use crate::error::ServeError;
use crate::handler::{Handler, Surface};

const BOUNDS: Bounds = Bounds { requests: 2048, bytes: 256 * 1024 * 1024 };

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
    let meters = surface.watch.meters.clone();
    let talk = Talk::begin(reader, writer, BOUNDS, Return::Never, CancellationToken::new(), meters);
    talk.hold(Handler::local(engine.clone(), surface), &engine.stopping()).await;
    engine.shutdown().await;
    talk.end().await;
}

#[cfg(test)]
mod tests;
