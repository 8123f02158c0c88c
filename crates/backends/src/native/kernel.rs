//! What connects a kernel that is forked into a sandbox with the guest in it. Made here, since neither can hand a
//! descriptor to the other.

use std::os::fd::OwnedFd;

use belljar_core::BackendError;
use belljar_core::wire::KERNEL_ENDS;
use rustix::fs::{MemfdFlags, Mode, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::setup;

/// One side: standard input, output, error output, control socket, the runner's word.
#[derive(Debug)]
pub(super) struct Ends([OwnedFd; KERNEL_ENDS]);

impl Ends {
    pub(super) fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.0.iter()
    }

    pub(super) fn into_all(self) -> [OwnedFd; KERNEL_ENDS] {
        self.0
    }
}

/// The guest's side and the kernel's.
pub(super) fn pair() -> Result<(Ends, Ends), BackendError> {
    let make = || -> std::io::Result<(Ends, Ends)> {
        let stdin = memfd_create("stdin", MemfdFlags::CLOEXEC)?;
        let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (control, control_end) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (word, word_end) = pipe_with(PipeFlags::CLOEXEC)?;
        // By /dev/stdout a program could open the other end too: it would wait there for its own output, and take it from us.
        for end in [&stdout_end, &stderr_end] {
            rustix::fs::fchmod(end, Mode::WUSR)?;
        }
        // The same open file on both sides: the guest sets it back to its beginning.
        let stdin_end = stdin.try_clone()?;
        Ok((
            Ends([stdin, stdout, stderr, control, word]),
            Ends([stdin_end, stdout_end, stderr_end, control_end, word_end]),
        ))
    };
    make().map_err(|error| setup("connecting a kernel", &error))
}
