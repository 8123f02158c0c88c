//! Streams with what was already read of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use crate::http::head;

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(crate) type BoxIo = Box<dyn Io>;

/// How much is read at once.
pub(crate) const PIECE: usize = 64 * 1024;

/// A stream of which the first bytes were read already.
#[derive(Debug)]
pub(crate) struct Prefixed<S> {
    prefix: Vec<u8>,
    at: usize,
    inner: S,
}

impl<S> Prefixed<S> {
    pub(crate) fn new(prefix: Vec<u8>, inner: S) -> Prefixed<S> {
        Prefixed { prefix, at: 0, inner }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let rest = &self.prefix[self.at..];
        if rest.is_empty() {
            return Pin::new(&mut self.inner).poll_read(context, buf);
        }
        let count = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..count]);
        self.at += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A stream, of which a socket can do more than others.
pub(crate) enum Stream {
    Socket(TcpStream),
    Other(BoxIo),
}

impl Stream {
    pub(crate) fn split(self) -> (ReadSide, WriteSide) {
        match self {
            Stream::Socket(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadSide::Socket(reader), WriteSide::Socket(writer))
            }
            Stream::Other(stream) => {
                let (reader, writer) = tokio::io::split(stream);
                (ReadSide::Other(reader), WriteSide::Other(writer))
            }
        }
    }
}

pub(crate) enum ReadSide {
    Socket(OwnedReadHalf),
    Other(ReadHalf<BoxIo>),
}

pub(crate) enum WriteSide {
    Socket(OwnedWriteHalf),
    Other(WriteHalf<BoxIo>),
}

impl ReadSide {
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            ReadSide::Socket(half) => Some(half.as_ref()),
            ReadSide::Other(_) => None,
        }
    }
}

impl WriteSide {
    pub(crate) fn socket(&self) -> Option<&TcpStream> {
        match self {
            WriteSide::Socket(half) => Some(half.as_ref()),
            WriteSide::Other(_) => None,
        }
    }
}

impl AsyncRead for ReadSide {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            ReadSide::Socket(half) => Pin::new(half).poll_read(context, buf),
            ReadSide::Other(half) => Pin::new(half).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for WriteSide {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            WriteSide::Socket(half) => Pin::new(half).poll_write(context, buf),
            WriteSide::Other(half) => Pin::new(half).poll_write(context, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            WriteSide::Socket(half) => Pin::new(half).poll_flush(context),
            WriteSide::Other(half) => Pin::new(half).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            WriteSide::Socket(half) => Pin::new(half).poll_shutdown(context),
            WriteSide::Other(half) => Pin::new(half).poll_shutdown(context),
        }
    }
}

/// Reads heads and bodies off a stream.
#[derive(Debug)]
pub(crate) struct Reader<R> {
    io: R,
    buffer: Vec<u8>,
    start: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(crate) fn new(io: R) -> Reader<R> {
        Reader::behind(Vec::new(), io)
    }

    /// Of which the first bytes were read already.
    pub(crate) fn behind(said: Vec<u8>, io: R) -> Reader<R> {
        Reader { io, buffer: said, start: 0 }
    }

    pub(crate) fn source(&self) -> &R {
        &self.io
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start >= self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }

    /// Reads some more; nothing is lost if this is given up.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.reserve(PIECE);
        self.io.read_buf(&mut (&mut self.buffer).limit(PIECE)).await
    }

    /// The next head, or `None` if the stream ends before it begins.
    pub(crate) async fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut looked_at: usize = 0;
        loop {
            // From where the last look could not have seen the end.
            let from = looked_at.saturating_sub(3);
            if let Some(end) = head::end(&self.bytes()[from..]) {
                let head = self.bytes()[..from + end].to_vec();
                self.consume(from + end);
                return Ok(Some(head));
            }
            looked_at = self.bytes().len();
            if looked_at >= head::BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is too long"));
            }
            if self.fill().await? == 0 {
                return if looked_at == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

/// Gives up after a while.
pub(crate) async fn within<T>(time: Duration, doing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(time, doing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
