//! The framed stream to the host, with a bound on what waits in either direction.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_core::wire::{self, FRAME_MAX, FromGuest, ToGuest};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// Output and content are taken from their sources only while less than this waits to be sent.
const ROOM: usize = 256 * 1024;

/// Past this the host asks without reading the answers; it is not listened to until it reads.
const PATIENCE: usize = 4 * 1024 * 1024;

/// One read's worth: a program's start with a page of code fits.
const READ: usize = 16 * 1024;

/// The host has hung up or does not keep to the protocol. There is nobody left to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    /// Where it is not written to what it is read from.
    out: Option<OwnedFd>,
    incoming: Vec<u8>,
    parsed: usize,
    outgoing: Vec<u8>,
    sent: usize,
}

impl Stream {
    /// Both must be non-blocking.
    pub(crate) fn new(fd: OwnedFd, out: Option<OwnedFd>) -> Stream {
        Stream { fd, out, incoming: Vec::new(), parsed: 0, outgoing: Vec::new(), sent: 0 }
    }

    /// Queues a frame. `flush` sends it.
    pub(crate) fn send(&mut self, frame: &FromGuest) -> Result<(), Gone> {
        wire::encode(frame, &mut self.outgoing).map_err(|_| Gone)
    }

    /// Whether output and content may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() < ROOM
    }

    pub(crate) fn listens(&self) -> bool {
        self.waiting() < PATIENCE
    }

    pub(crate) fn has_outgoing(&self) -> bool {
        self.waiting() > 0
    }

    /// What to poll for, besides the stream itself.
    pub(crate) fn out(&self) -> Option<&OwnedFd> {
        self.out.as_ref()
    }

    fn waiting(&self) -> usize {
        self.outgoing.len() - self.sent
    }

    /// Sends what the host takes now.
    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        while self.has_outgoing() {
            match rustix::io::write(self.out.as_ref().unwrap_or(&self.fd), &self.outgoing[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Err(Gone),
            }
        }
        // What is sent moves out only when it is the larger part, so that each byte is moved once at most.
        if self.sent * 2 >= self.outgoing.len() {
            self.outgoing.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Takes in what has come, at most one read. [`Stream::next`] gives the frames.
    pub(crate) fn receive(&mut self) -> Result<(), Gone> {
        self.incoming.drain(..self.parsed);
        self.parsed = 0;
        let missing = match self.incoming.first_chunk::<4>() {
            // A length over the limit never gets here: `next` has refused it.
            Some(header) => {
                (4 + u32::from_le_bytes(*header) as usize).min(4 + FRAME_MAX).saturating_sub(self.incoming.len())
            }
            None => 0,
        };
        self.incoming.reserve_exact(missing.max(READ));
        match rustix::io::read(&self.fd, spare_capacity(&mut self.incoming)) {
            Ok(0) => Err(Gone),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Gone),
        }
    }

    /// The next frame that is here as a whole.
    pub(crate) fn next(&mut self) -> Result<Option<ToGuest>, Gone> {
        match wire::decode(&self.incoming[self.parsed..]) {
            Ok(Some((frame, length))) => {
                self.parsed += length;
                Ok(Some(frame))
            }
            Ok(None) => Ok(None),
            Err(_) => Err(Gone),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use belljar_core::Stream as Output;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (Stream, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (Stream::new(ours, None), theirs)
    }

    #[test]
    fn a_frame_that_comes_byte_by_byte_is_put_together() {
        let (mut stream, host) = pair();
        let frame = ToGuest::Input { id: 3, bytes: vec![7; 300] };
        let mut bytes = Vec::new();
        wire::encode(&frame, &mut bytes).unwrap();
        wire::encode(&ToGuest::InputEnd { id: 3 }, &mut bytes).unwrap();
        let mut frames = Vec::new();
        for byte in bytes {
            rustix::io::write(&host, &[byte]).unwrap();
            stream.receive().unwrap();
            while let Some(frame) = stream.next().unwrap() {
                frames.push(frame);
            }
        }
        assert_eq!(frames, [frame, ToGuest::InputEnd { id: 3 }]);
    }

    #[test]
    fn what_the_host_does_not_take_waits_in_order() {
        let (mut stream, host) = pair();
        let frame = |id| FromGuest::Output { id, stream: Output::Stdout, bytes: vec![id as u8; 60_000] };
        for id in 0..8 {
            stream.send(&frame(id)).unwrap();
        }
        assert!(!stream.has_room());
        let (mut got, mut seen) = (Vec::new(), 0);
        while seen < 8 {
            stream.flush().unwrap();
            got.reserve(100_000);
            rustix::io::read(&host, spare_capacity(&mut got)).unwrap();
            while let Some((next, length)) = wire::decode::<FromGuest>(&got).unwrap() {
                assert_eq!(next, frame(seen));
                got.drain(..length);
                seen += 1;
            }
        }
        assert!(!stream.has_outgoing() && stream.has_room());
    }

    #[test]
    fn a_hang_up_and_a_bad_length_are_the_end() {
        let (mut stream, host) = pair();
        rustix::io::write(&host, &[0xff; 8]).unwrap();
        stream.receive().unwrap();
        assert_eq!(stream.next(), Err(Gone));
        let (mut stream, host) = pair();
        drop(host);
        assert_eq!(stream.receive(), Err(Gone));
    }
}
