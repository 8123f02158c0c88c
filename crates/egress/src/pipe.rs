//! Bytes from one socket to another that the kernel moves, without a copy of ours.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What is at least so much is worth a pipe.
pub(crate) const BULK: u64 = 1024 * 1024;
const ROOM: usize = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Pipe {
    out: OwnedFd,
    into: OwnedFd,
}

impl Pipe {
    /// `None` where no file is left for one: whoever wants it goes on by hand.
    pub(crate) fn new() -> Option<Pipe> {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A smaller one does too.
        let _ = fcntl_setpipe_size(&into, ROOM);
        Some(Pipe { out, into })
    }

    /// Takes in what there is, up to `most`; 0 at the end. The pipe must be empty: then only the socket can be what has to
    /// be waited for.
    pub(crate) async fn fill(&self, from: &TcpStream, most: u64) -> io::Result<usize> {
        let most = usize::try_from(most).unwrap_or(ROOM).min(ROOM);
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        from.async_io(Interest::READABLE, || Ok(splice(from, None, &self.into, None, most, flags)?)).await
    }

    /// Gives out some of the `held` bytes that are in it.
    pub(crate) async fn drain(&self, to: &TcpStream, held: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        to.async_io(Interest::WRITABLE, || Ok(splice(&self.out, None, to, None, held, flags)?)).await
    }
}
