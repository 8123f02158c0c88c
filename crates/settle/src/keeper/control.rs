//! The host's requests, and what it is answered.

use std::os::fd::OwnedFd;

use belljar_core::wire::{self, FromKeeper, ToKeeper};
use belljar_seal::{At, Failure, Outcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

pub(super) struct Control {
    stream: OwnedFd,
    incoming: Vec<u8>,
}

impl Control {
    /// `stream` is non-blocking.
    pub(super) fn new(stream: OwnedFd) -> Control {
        Control { stream, incoming: Vec::new() }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.stream
    }

    pub(super) fn send(&mut self, message: &FromKeeper) -> Outcome<()> {
        let mut frame = Vec::new();
        wire::encode(message, &mut frame).map_err(|_| broken("writing a frame"))?;
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(&self.stream, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&self.stream, PollFlags::OUT)], None).at("waiting for the host")?;
                }
                Err(errno) => return Err(errno).at("telling the host"),
            }
        }
        Ok(())
    }

    /// The next request, if one is there. That the host has hung up is an error: there is nothing left to do.
    pub(super) fn next(&mut self) -> Outcome<Option<ToKeeper>> {
        loop {
            let decoded = wire::decode::<ToKeeper>(&self.incoming).map_err(|_| broken("reading a frame"))?;
            if let Some((request, used)) = decoded {
                self.incoming.drain(..used);
                return Ok(Some(request));
            }
            let mut buffer = [0; 16 * 1024];
            match rustix::io::read(&self.stream, &mut buffer) {
                Ok(0) => return Err(broken("listening to the host, which is gone")),
                Ok(count) => self.incoming.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(errno).at("listening to the host"),
            }
        }
    }
}

fn broken(step: &str) -> Failure {
    Failure { step: step.to_owned(), errno: libc::EPROTO }
}
