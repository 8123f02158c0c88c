//! What a zygote is asked to do.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use belljar_core::wire::{self, Fork, JailReply};
use belljar_seal::{Failure, Outcome};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send};

/// An environment of some hundred variables; the backend forks nothing with more.
const DATAGRAM_MAX: usize = 256 * 1024;
const FDS_MAX: usize = 16;

/// Where datagrams come in. One for all: what is written to in the zygote has to be copied as long as a fork has it too.
pub(crate) struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(vec![0; DATAGRAM_MAX])
    }
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) fork: Fork,
    /// The sandbox's first process.
    pub(crate) sandbox: OwnedFd,
    /// Standard streams and control socket.
    pub(crate) streams: [OwnedFd; 4],
    /// For the word that process 1 waits for.
    pub(crate) word: OwnedFd,
    pub(crate) cgroups: Vec<OwnedFd>,
}

impl Request {
    /// The next one; `None` when nobody will ask any more. One that does not make sense is answered here.
    pub(crate) fn receive(socket: BorrowedFd<'_>, Buffer(buffer): &mut Buffer) -> Option<Request> {
        loop {
            let (length, fds) = datagram(socket, buffer)?;
            match Request::new(&buffer[..length], fds) {
                Some(request) => return Some(request),
                None => answer(socket, Err(Failure { step: "reading a request".to_owned(), errno: libc::EPROTO })),
            }
        }
    }

    fn new(body: &[u8], fds: Vec<OwnedFd>) -> Option<Request> {
        let fork = wire::decode_body(body).ok()?;
        let mut fds = fds.into_iter();
        let sandbox = fds.next()?;
        let streams = [fds.next()?, fds.next()?, fds.next()?, fds.next()?];
        Some(Request { fork, sandbox, streams, word: fds.next()?, cgroups: fds.collect() })
    }

    /// The kernel's environment, as the driver wants it: each `NAME=VALUE` ends in a NUL.
    pub(crate) fn environment(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (name, value) in &self.fork.env {
            for part in [name, "=", value, "\0"] {
                all.extend_from_slice(part.as_bytes());
            }
        }
        all
    }
}

pub(crate) fn answer(socket: BorrowedFd<'_>, outcome: Outcome<()>) {
    let reply = match outcome {
        Ok(()) => JailReply::Opened,
        Err(Failure { step, errno }) => JailReply::Failed { step, errno },
    };
    // Whoever hears nothing sees the socket's end, when the next receive fails.
    let _ = wire::encode_body(&reply).map(|body| send(socket, &body, SendFlags::NOSIGNAL));
}

fn datagram(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.ok()?,
        }
    };
    if got.bytes == 0 {
        return None;
    }
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    // A sandbox that misses a cgroup would be a weaker one.
    if got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        fds.clear();
    }
    Some((got.bytes, fds))
}
