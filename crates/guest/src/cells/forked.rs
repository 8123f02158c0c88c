//! A kernel that is forked into the sandbox from outside, by a zygote. Once it is taken on, it is as any other.

use std::os::fd::{OwnedFd, RawFd};

use belljar_core::{Language, State, WORKSPACE};

use rustix::event::{PollFd, PollFlags};

use super::Kernel;
use crate::launch::About;
use crate::process::Process;
use crate::sys;

/// The guest's ends of a kernel that is forked into the sandbox.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The same open file as the kernel's own.
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    control: OwnedFd,
    word: OwnedFd,
}

impl Ends {
    /// Takes over what whoever made the sandbox left there.
    pub(crate) fn inherited(first: RawFd) -> rustix::io::Result<Ends> {
        let take = |number| {
            let fd = sys::inherited(first + number);
            rustix::io::ioctl_fioclex(&fd)?;
            Ok(fd)
        };
        Ok(Ends { stdin: take(0)?, stdout: take(1)?, stderr: take(2)?, control: take(3)?, word: take(4)? })
    }

    /// Ready when its runner has said that it is there, or cannot say so any more.
    pub(crate) fn interest(&self) -> PollFd<'_> {
        PollFd::new(&self.word, PollFlags::IN)
    }
}

impl Kernel {
    /// One that was forked into the sandbox, and has not been asked anything yet. `None` if there is none.
    pub(crate) fn adopt(language: Language, ends: Ends) -> Option<Kernel> {
        let Ends { stdin, stdout, stderr, control, word } = ends;
        rustix::io::ioctl_fionbio(&control, true).ok()?;
        let about = About { interpreter: language.name(), cwd: WORKSPACE.to_owned() };
        let process = Process::adopt(stdout, stderr, word, about)?;
        let kernel = Kernel::new(language, process, control, stdin, State::Fresh);
        Some(Kernel { waits: true, ..kernel })
    }
}
