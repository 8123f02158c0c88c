//! A body from one side to the other.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::chunks::{self, Chunks};
use super::head::{Bad, Framing};
use crate::io::{ReadSide, Reader, WriteSide, within};
use crate::pipe::{BULK, Pipe};
use crate::secret::Blanker;

/// Who broke off.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The sender, or what it sent.
    Sender,
    Receiver,
    /// The sandbox has had its share.
    Spent,
}

impl From<Bad> for Broken {
    fn from(_: Bad) -> Broken {
        Broken::Sender
    }
}

/// What is done with the bytes on the way.
pub(crate) struct Way<'a, C> {
    pub(crate) blanker: Option<Blanker<'a>>,
    pub(crate) idle: Duration,
    pub(crate) count: C,
}

impl<C: Fn(usize) -> io::Result<()>> Way<'_, C> {
    /// Passes a body on that comes as `from` says, and goes as `to` says.
    pub(crate) async fn pass(
        &mut self,
        reader: &mut Reader<ReadSide>,
        from: Framing,
        writer: &mut WriteSide,
        to: Framing,
    ) -> Result<(), Broken> {
        match from {
            Framing::None => return Ok(()),
            Framing::Length(mut left) => {
                while left > 0 {
                    if reader.bytes().is_empty() && self.fill(reader).await? == 0 {
                        return Err(Broken::Sender);
                    }
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(reader.bytes().len());
                    self.send(&reader.bytes()[..count], writer, to).await?;
                    reader.consume(count);
                    left -= count as u64;
                    let is_bulk = left >= BULK && reader.bytes().is_empty() && self.blanker.is_none();
                    if let (true, Some(from), Some(to)) = (is_bulk, reader.source().socket(), writer.socket()) {
                        left = self.by_pipe(from, to, left).await?;
                    }
                }
            }
            Framing::Chunked => {
                let mut chunks = Chunks::default();
                let mut body = Vec::new();
                while !chunks.is_done() {
                    if reader.bytes().is_empty() && self.fill(reader).await? == 0 {
                        return Err(Broken::Sender);
                    }
                    body.clear();
                    let used = chunks.push(reader.bytes(), &mut body)?;
                    reader.consume(used);
                    self.send(&body, writer, to).await?;
                }
            }
            Framing::UntilClose => loop {
                let bytes = reader.bytes();
                self.send(bytes, writer, to).await?;
                reader.consume(reader.bytes().len());
                if self.fill(reader).await? == 0 {
                    break;
                }
            },
        }
        if let Some(mut blanker) = self.blanker.take() {
            self.write(blanker.end(), writer, to).await?;
        }
        if to == Framing::Chunked {
            self.put(chunks::LAST, writer).await?;
        }
        Ok(())
    }

    /// As much as can be of a long body; says what is left of it.
    async fn by_pipe(&self, from: &TcpStream, to: &TcpStream, mut left: u64) -> Result<u64, Broken> {
        let Some(pipe) = Pipe::new() else { return Ok(left) };
        while left > 0 {
            let mut held = within(self.idle, pipe.fill(from, left)).await.map_err(|_| Broken::Sender)?;
            if held == 0 {
                return Err(Broken::Sender);
            }
            (self.count)(held).map_err(|_| Broken::Spent)?;
            left -= held as u64;
            while held > 0 {
                held -= within(self.idle, pipe.drain(to, held)).await.map_err(|_| Broken::Receiver)?;
            }
        }
        Ok(left)
    }

    async fn fill<R: AsyncRead + Unpin>(&self, reader: &mut Reader<R>) -> Result<usize, Broken> {
        within(self.idle, reader.fill()).await.map_err(|_| Broken::Sender)
    }

    async fn send<W: AsyncWrite + Unpin>(&mut self, bytes: &[u8], writer: &mut W, to: Framing) -> Result<(), Broken> {
        match &mut self.blanker {
            Some(blanker) => {
                let clean = blanker.push(bytes);
                self.write(clean, writer, to).await
            }
            None if to == Framing::Chunked => self.write(bytes.to_vec(), writer, to).await,
            None => self.put(bytes, writer).await,
        }
    }

    async fn write<W: AsyncWrite + Unpin>(&self, bytes: Vec<u8>, writer: &mut W, to: Framing) -> Result<(), Broken> {
        if to != Framing::Chunked {
            return self.put(&bytes, writer).await;
        }
        let mut chunk = Vec::with_capacity(bytes.len() + 16);
        chunks::write(&bytes, &mut chunk);
        self.put(&chunk, writer).await
    }

    /// Onto the wire.
    pub(crate) async fn put<W: AsyncWrite + Unpin>(&self, bytes: &[u8], writer: &mut W) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Ok(());
        }
        (self.count)(bytes.len()).map_err(|_| Broken::Spent)?;
        let written = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        within(self.idle, written).await.map_err(|_| Broken::Receiver)
    }
}
