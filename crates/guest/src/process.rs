//! One program from its start to its last frame.
//!
//! ```text
//! Running ──runner reaped──▶ Sweeping ──nothing of it is alive──▶ Draining ──pipes empty──▶ last frame sent
//!    └─ condemned by the host: killed with its runner, and goes the same way
//! ```

use std::os::fd::OwnedFd;

use belljar_core::wire::{CHUNK_MAX, FromGuest, INPUT_WINDOW};
use belljar_core::{Exit, FileError, Finish, Stream as Output, Usage};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::files::{kind_of, refusal};
use crate::launch::{About, Launch};
use crate::runner::{self, Ends, Failure, NOT_STARTED, Step};
use crate::stream::{Gone, Stream};
use crate::sys;

/// How much input has to be taken before the host is told: no frame for the little that most programs get. What is never
/// told stays below a quarter of the window, so a host that sends chunk by chunk never waits for it.
const TELL_TAKEN: usize = INPUT_WINDOW / 4;

#[derive(Debug)]
pub(crate) struct Process {
    id: u32,
    phase: Phase,
    stdin: Input,
    stdout: OutputPipe,
    stderr: OutputPipe,
    failure: OwnedFd,
    about: About,
    usage: Usage,
    /// The host wants it ended. How it ended is still what the kernel says: it may have ended by itself just before.
    condemned: bool,
    /// While it ran, something in the sandbox was killed for memory. If it ended by a kill, that was why.
    memory_ran_out: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running { runner: Pid },
    Sweeping { exit: Exit },
    Draining { exit: Exit },
}

/// One of a process's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdin,
    Output(Output),
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

#[derive(Debug)]
struct OutputPipe {
    name: Output,
    /// `None` after its end.
    pipe: Option<OwnedFd>,
    /// What was in it when the last writer of the run was gone. A stranger that holds the other end must not keep the
    /// run open, so no more than that is waited for.
    left: u64,
}

impl Process {
    pub(crate) fn start(id: u32, launch: Launch) -> Result<Process, FileError> {
        let name = launch.about.interpreter;
        let failed = |errno| refusal(kind_of(errno), name);
        let (stdin_end, stdin) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (stdout, stdout_end) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (stderr, stderr_end) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (failure, failure_end) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        for ours in [&stdin, &stdout, &stderr] {
            // Not a flag of `pipe_with`: that would make the program's end non-blocking too, which none expects.
            rustix::io::ioctl_fionbio(ours, true).map_err(failed)?;
        }
        let ends = Ends { stdin: stdin_end, stdout: stdout_end, stderr: stderr_end, failure: failure_end };
        let Some(runner) = sys::fork().map_err(failed)? else { runner::run(&launch, &ends) };
        Ok(Process {
            id,
            phase: Phase::Running { runner },
            stdin: Input { pipe: Some(stdin), waiting: Vec::new(), written: 0, taken: 0, ended: false },
            stdout: OutputPipe { name: Output::Stdout, pipe: Some(stdout), left: 0 },
            stderr: OutputPipe { name: Output::Stderr, pipe: Some(stderr), left: 0 },
            failure,
            about: launch.about,
            usage: Usage::default(),
            condemned: false,
            memory_ran_out: false,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The runner, while it lives.
    pub(crate) fn runner(&self) -> Option<Pid> {
        match self.phase {
            Phase::Running { runner } => Some(runner),
            _ => None,
        }
    }

    /// The runner, while it lives and is to live.
    pub(crate) fn standing_runner(&self) -> Option<Pid> {
        self.runner().filter(|_| !self.condemned)
    }

    pub(crate) fn is_sweeping(&self) -> bool {
        matches!(self.phase, Phase::Sweeping { .. })
    }

    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
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

    /// From here on its runner answers for nothing. Whoever says so also kills it, with all that is below it.
    pub(crate) fn condemn(&mut self) {
        self.condemned = true;
    }

    pub(crate) fn memory_ran_out(&mut self) {
        self.memory_ran_out = true;
    }

    /// The runner was reaped.
    pub(crate) fn runner_ended(&mut self, exit: Exit, usage: Usage) {
        let exit = match exit {
            // The second is how a shell tells of a child that was killed.
            Exit::Signal(9) | Exit::Code(137) if self.memory_ran_out && !self.condemned => Exit::OutOfMemory,
            exit => exit,
        };
        self.phase = Phase::Sweeping { exit };
        self.add_usage(usage);
    }

    pub(crate) fn add_usage(&mut self, more: Usage) {
        self.usage.cpu_ms += more.cpu_ms;
        self.usage.memory_peak_bytes = self.usage.memory_peak_bytes.max(more.memory_peak_bytes);
    }

    /// Nothing of it is alive: what is in its pipes now is all that there will be.
    pub(crate) fn swept(&mut self) {
        if let Phase::Sweeping { exit } = self.phase {
            self.phase = Phase::Draining { exit };
            self.stdin.pipe = None;
            self.stdout.writers_gone();
            self.stderr.writers_gone();
        }
    }

    /// Names the descriptors that it waits for, each in `polled` with its channel in `channels`. While there is no room
    /// for output the pipes are left alone: they fill, and hold the program up.
    pub(crate) fn interests<'a>(&'a self, room: bool, mut add: impl FnMut(PollFd<'a>, Channel)) {
        if self.is_draining() {
            return;
        }
        if let Some(pipe) = self.stdin.pipe.as_ref().filter(|_| self.stdin.is_waiting()) {
            add(PollFd::new(pipe, PollFlags::OUT), Channel::Stdin);
        }
        for output in [&self.stdout, &self.stderr] {
            if let Some(pipe) = output.pipe.as_ref().filter(|_| room) {
                add(PollFd::new(pipe, PollFlags::IN), Channel::Output(output.name));
            }
        }
    }

    /// Moves what a ready channel has or takes, one chunk at most.
    pub(crate) fn advance(&mut self, channel: Channel, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<(), Gone> {
        match channel {
            Channel::Stdin => {
                self.stdin.write();
                self.tell_taken(stream)
            }
            Channel::Output(Output::Stdout) => self.stdout.pass_on(self.id, stream, chunk),
            Channel::Output(Output::Stderr) => self.stderr.pass_on(self.id, stream, chunk),
        }
    }

    /// Sends what is left of a swept process, as far as there is room, and at the end its last frame. Returns whether
    /// that was sent.
    pub(crate) fn drain(&mut self, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<bool, Gone> {
        let Phase::Draining { exit } = self.phase else { return Ok(false) };
        for output in [&mut self.stdout, &mut self.stderr] {
            while output.pipe.is_some() {
                if !stream.has_room() {
                    return Ok(false);
                }
                let before = output.left;
                output.pass_on(self.id, stream, chunk)?;
                // Less than there was: a stranger with the same pipe has read it. Waiting for the rest would be for ever.
                if output.left == 0 || output.left == before {
                    output.pipe = None;
                }
            }
        }
        stream.send(&self.last_frame(exit))?;
        Ok(true)
    }

    fn last_frame(&self, exit: Exit) -> FromGuest {
        let mut bytes = [0; 8];
        let failure = match exit {
            // Nobody holds the other end any more, so this cannot block.
            NOT_STARTED => rustix::io::read(&self.failure, &mut bytes).ok(),
            _ => None,
        };
        match failure.and_then(|count| Failure::from_bytes(&bytes[..count])) {
            Some(Failure { step, kind }) => {
                let path = if step == Step::Directory { &self.about.cwd } else { self.about.interpreter };
                FromGuest::Refused { id: self.id, error: refusal(kind, path) }
            }
            None => FromGuest::Finished { id: self.id, finish: Finish { exit, usage: self.usage } },
        }
    }
}

impl OutputPipe {
    fn writers_gone(&mut self) {
        self.left = self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0);
        if self.left == 0 {
            self.pipe = None;
        }
    }

    /// Sends one chunk on; at the end of the stream, closes the pipe. `chunk` is empty before and after.
    fn pass_on(&mut self, id: u32, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<(), Gone> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        chunk.reserve_exact(CHUNK_MAX);
        match rustix::io::read(pipe, spare_capacity(chunk)) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.left = self.left.saturating_sub(count as u64);
                let frame = FromGuest::Output { id, stream: self.name, bytes: std::mem::take(chunk) };
                stream.send(&frame)?;
                if let FromGuest::Output { bytes, .. } = frame {
                    *chunk = bytes;
                    chunk.clear();
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.pipe = None,
        }
        Ok(())
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
