//! A stream whose other side has to read: one that takes nothing of what is written for too long is closed.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long callers are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For the whole head of a request, and between two requests.
    pub head: Duration,
    /// For the whole body of a request.
    pub body: Duration,
    /// Without a byte of an answer being taken.
    pub write: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        let seconds = Duration::from_secs;
        Waits { head: seconds(10), body: seconds(30), write: seconds(30) }
    }
}

#[derive(Debug)]
pub(super) struct Patient<S> {
    stream: S,
    wait: Duration,
    /// Set while a write does not get on.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(super) fn new(stream: S, wait: Duration) -> Patient<S> {
        Patient { stream, wait, stalled: None }
    }

    fn judge<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let wait = self.wait;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(wait)));
        ready!(stalled.as_mut().poll(context));
        // Polled again, it must not say at once that it is over.
        stalled.as_mut().reset(Instant::now() + wait);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the caller does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn whoever_takes_nothing_is_closed_and_whoever_is_only_slow_is_not() {
        let (ours, mut theirs) = duplex(1000);
        let mut patient = Patient::new(ours, WAIT);
        let slow = tokio::spawn(async move {
            let mut taken = [0; 500];
            for _ in 0..10 {
                sleep(WAIT - Duration::from_secs(1)).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
            theirs
        });
        patient.write_all(&[0; 5500]).await.expect("it gets on");
        let theirs = slow.await.unwrap();
        let begun = Instant::now();
        let error = patient.write_all(&[0; 2000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), WAIT.as_secs());
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_between_two_writes_is_no_stall() {
        let (ours, mut theirs) = duplex(10);
        let mut patient = Patient::new(ours, WAIT);
        for _ in 0..3 {
            patient.write_all(b"0123456789").await.unwrap();
            sleep(WAIT * 3).await;
            theirs.read_exact(&mut [0; 10]).await.unwrap();
        }
    }
}
