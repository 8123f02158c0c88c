//! One program from its start to its last frame.
//!
//! ```text
//! running ──nothing of it is alive──▶ draining ──pipes empty, files looked at──▶ last frame sent
//! ```

use std::os::fd::OwnedFd;

use belljar_core::wire::{FromGuest, INPUT_WINDOW};
use belljar_core::{FileError, Finish, Stream as Output};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::changes::Look;
use crate::files::{kind_of, refusal};
use crate::launch::Launch;
use crate::process::{Channel, Means, Process, TELL_TAKEN};
use crate::stream::{Gone, Stream};

#[derive(Debug)]
pub(crate) struct Program {
    id: u32,
    process: Process,
    stdin: Input,
    look: Look,
}

#[derive(Debug)]
struct Input {
    pipe: Option<OwnedFd>,
    waiting: Vec<u8>,
    written: usize,
    /// Handed on or dropped, and not yet told.
    taken: usize,
    ended: bool,
}

impl Program {
    pub(crate) fn start(id: u32, launch: Launch, look: Look) -> Result<Program, FileError> {
        let name = launch.about.interpreter;
        let failed = |errno| refusal(kind_of(errno), name);
        let (stdin_end, stdin) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        // Not a flag of `pipe_with`: that would make the program's end non-blocking too, which none expects.
        rustix::io::ioctl_fionbio(&stdin, true).map_err(failed)?;
        let process = Process::start(launch, stdin_end)?;
        let stdin = Input { pipe: Some(stdin), waiting: Vec::new(), written: 0, taken: 0, ended: false };
        Ok(Program { id, process, stdin, look })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn process_mut(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Whether it is over but for what is still to be sent of it.
    pub(crate) fn is_draining(&self) -> bool {
        self.process.ended().is_some()
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], stream: &mut Stream) -> Result<(), Gone> {
        self.stdin.feed(bytes)?;
        self.tell_taken(stream)
    }

    fn tell_taken(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        if self.stdin.taken < TELL_TAKEN {
            return Ok(());
        }
        let taken = std::mem::take(&mut self.stdin.taken);
        stream.send(&FromGuest::Taken { id: self.id, bytes: taken as u32 })
    }

    pub(crate) fn end_input(&mut self) {
        self.stdin.ended = true;
        self.stdin.write();
    }

    /// Nothing of it is alive.
    pub(crate) fn swept(&mut self) {
        if self.process.is_sweeping() {
            self.process.swept();
            self.stdin.pipe = None;
        }
    }

    /// Names the descriptors that it waits for.
    pub(crate) fn interests<'a>(&'a self, room: bool, add: &mut impl FnMut(PollFd<'a>, Channel)) {
        if self.is_draining() {
            return;
        }
        if let Some(pipe) = self.stdin.pipe.as_ref().filter(|_| self.stdin.is_waiting()) {
            add(PollFd::new(pipe, PollFlags::OUT), Channel::Stdin);
        }
        self.process.interests(room, add);
    }

    /// Moves what a ready channel has or takes, one chunk at most.
    pub(crate) fn advance(&mut self, channel: Channel, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<(), Gone> {
        match channel {
            Channel::Stdin => {
                self.stdin.write();
                self.tell_taken(stream)
            }
            Channel::Output(name @ (Output::Stdout | Output::Stderr)) if stream.has_room() => {
                self.process.output(name).pass_on(self.id, stream, chunk)
            }
            Channel::Word => {
                self.process.hear_runner();
                Ok(())
            }
            Channel::Output(_) | Channel::Control => Ok(()),
        }
    }

    /// Sends what is left of it once nothing of it is alive, as far as there is room, and at the end its last frame.
    /// Returns whether that was sent.
    pub(crate) fn drain(&mut self, stream: &mut Stream, means: &mut Means) -> Result<bool, Gone> {
        let Some(exit) = self.process.ended() else { return Ok(false) };
        if !self.process.drain(self.id, stream, &mut means.chunk)? {
            return Ok(false);
        }
        if let Some(error) = self.process.refusal() {
            stream.send(&FromGuest::Refused { id: self.id, error })?;
            return Ok(true);
        }
        if !self.look.advance(self.id, &mut means.known, stream)? {
            return Ok(false);
        }
        let finish = Finish { exit, usage: self.process.usage(), kernel: None };
        stream.send(&FromGuest::Finished { id: self.id, finish })?;
        Ok(true)
    }
}

impl Input {
    /// Takes in what came; a host that sends more than the window lets it is not one of ours.
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        if self.pipe.is_none() || self.ended {
            self.taken = self.taken.saturating_add(bytes.len()).min(INPUT_WINDOW);
            return Ok(());
        }
        self.waiting.drain(..self.written);
        self.written = 0;
        if self.waiting.len() + bytes.len() > INPUT_WINDOW {
            return Err(Gone);
        }
        self.waiting.extend_from_slice(bytes);
        self.write();
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.written < self.waiting.len()
    }

    /// Writes what the pipe takes; closes it when the input has ended, or nobody reads it.
    fn write(&mut self) {
        while let Some(pipe) = self.pipe.as_ref().filter(|_| self.is_waiting()) {
            match rustix::io::write(pipe, &self.waiting[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    self.taken += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.ended = true;
                    self.taken += self.waiting.len() - self.written;
                    self.written = self.waiting.len();
                }
            }
        }
        self.waiting = Vec::new();
        self.written = 0;
        if self.ended {
            self.pipe = None;
        }
    }
}
