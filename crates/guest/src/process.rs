//! The process that a program or a kernel is, from its start until nothing of it is alive.
//!
//! ```text
//! Running ──runner reaped──▶ Sweeping ──nothing of it is alive──▶ Ended
//!    └─ condemned: killed with its runner, and goes the same way
//! ```

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use belljar_core::wire::{CHUNK_MAX, FromGuest, INPUT_WINDOW};
use belljar_core::{Exit, FileError, Stream as Output, Usage};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open, unlink};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use crate::changes::Known;
use crate::files::{kind_of, refusal};
use crate::launch::{About, Launch};
use crate::runner::{self, Ends, Failure, NOT_STARTED, Step, Word};
use crate::stream::{Gone, Stream};
use crate::sys;

/// How much input has to be taken before the host is told: no frame for the little that most programs get. What is never
/// told stays below a quarter of the window, so a host that sends chunk by chunk never waits for it.
pub(crate) const TELL_TAKEN: usize = INPUT_WINDOW / 4;

/// What all processes share.
#[derive(Debug, Default)]
pub(crate) struct Means {
    /// Empty between uses: the memory of one chunk of output.
    pub(crate) chunk: Vec<u8>,
    pub(crate) known: Known,
}

#[derive(Debug)]
pub(crate) struct Process {
    phase: Phase,
    pub(crate) stdout: OutputPipe,
    pub(crate) stderr: OutputPipe,
    word: RunnersWord,
    about: About,
    usage: Usage,
    /// It is to be ended. How it ended is still what the kernel says: it may have ended by itself just before.
    condemned: bool,
    /// While it ran, something in the sandbox was killed for memory. If it ended by a kill, that was why.
    memory_ran_out: bool,
    /// It was killed for memory itself, and will be seen to be dead soon.
    is_felled: bool,
    /// Signals to be sent when its number is known: the lowest bit is signal 1.
    signals: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running { runner: Pid },
    Sweeping { exit: Exit },
    Ended { exit: Exit },
}

/// One of the descriptors that the loop waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Stdin,
    Output(Output),
    Control,
    Word,
}

#[derive(Debug)]
pub(crate) struct OutputPipe {
    name: Output,
    /// `None` after its end.
    pipe: Option<OwnedFd>,
    /// Of what was in it at its last [`OutputPipe::mark`], so much is left.
    left: u64,
}

#[derive(Debug)]
struct RunnersWord {
    /// `None` when there is no more to hear.
    pipe: Option<OwnedFd>,
    /// Of one that we have not forked ourselves.
    runner: Option<Pid>,
    program: Option<Pid>,
    failure: Option<Failure>,
}

/// For what a program writes: our end, and its own, which it can only write to. By /dev/stdout it could open the other end
/// as well; it would wait there for its own output, and take it from us.
fn output_pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    match rustix::fs::fchmod(&theirs, Mode::WUSR) {
        Ok(()) => Ok((ours, theirs)),
        // In gVisor's kernel pipes are nobody's. Those with a name are somebody's; where none can be made, its program
        // harms itself alone.
        Err(Errno::PERM) => Ok(named_pipe().unwrap_or((ours, theirs))),
        Err(other) => Err(other),
    }
}

/// One that had a name for a moment.
fn named_pipe() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let path = format!("/tmp/.belljar-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = open(&path, flags | OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
        .and_then(|ours| Ok((ours, open(&path, flags | OFlags::WRONLY, Mode::empty())?)));
    let _ = unlink(&path);
    let (ours, theirs) = opened?;
    rustix::fs::fchmod(&theirs, Mode::WUSR)?;
    Ok((ours, theirs))
}

impl Process {
    /// Starts it, with `stdin` as its standard input.
    pub(crate) fn start(launch: Launch, stdin: OwnedFd) -> Result<Process, FileError> {
        let name = launch.about.interpreter;
        let failed = |errno| refusal(kind_of(errno), name);
        let (stdout, stdout_end) = output_pipe().map_err(failed)?;
        let (stderr, stderr_end) = output_pipe().map_err(failed)?;
        let (word, word_end) = pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        for ours in [&stdout, &stderr] {
            // Not a flag of `pipe_with`: that would make the program's end non-blocking too, which none expects.
            rustix::io::ioctl_fionbio(ours, true).map_err(failed)?;
        }
        let ends = Ends { stdin, stdout: stdout_end, stderr: stderr_end, word: word_end };
        let Some(runner) = sys::fork().map_err(failed)? else { runner::run(&launch, &ends) };
        Ok(Process {
            phase: Phase::Running { runner },
            stdout: OutputPipe { name: Output::Stdout, pipe: Some(stdout), left: 0 },
            stderr: OutputPipe { name: Output::Stderr, pipe: Some(stderr), left: 0 },
            word: RunnersWord { pipe: Some(word), runner: None, program: None, failure: None },
            about: launch.about,
            usage: Usage::default(),
            condemned: false,
            memory_ran_out: false,
            is_felled: false,
            signals: 0,
        })
    }

    /// One that was forked into the sandbox from outside. Its runner has said so before anything is asked of the guest;
    /// one that has not is none, or is gone.
    pub(crate) fn adopt(stdout: OwnedFd, stderr: OwnedFd, word: OwnedFd, about: About) -> Option<Process> {
        for ours in [&stdout, &stderr] {
            rustix::io::ioctl_fionbio(ours, true).ok()?;
        }
        let mut word = RunnersWord { pipe: Some(word), runner: None, program: None, failure: None };
        word.hear();
        // If it has ended, it was reaped as a stranger, and its end would be waited for in vain.
        let runner = word.runner.filter(|runner| rustix::process::test_kill_process(*runner).is_ok())?;
        Some(Process {
            phase: Phase::Running { runner },
            stdout: OutputPipe { name: Output::Stdout, pipe: Some(stdout), left: 0 },
            stderr: OutputPipe { name: Output::Stderr, pipe: Some(stderr), left: 0 },
            word,
            about,
            usage: Usage::default(),
            condemned: false,
            memory_ran_out: false,
            is_felled: false,
            signals: 0,
        })
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

    /// How it ended, once nothing of it is alive.
    pub(crate) fn ended(&self) -> Option<Exit> {
        match self.phase {
            Phase::Ended { exit } => Some(exit),
            _ => None,
        }
    }

    /// Its own number, that of its process group too, while its runner lives.
    pub(crate) fn program(&mut self) -> Option<Pid> {
        if self.word.program.is_none() {
            self.word.hear();
        }
        self.word.program.filter(|_| self.runner().is_some())
    }

    /// From here on its runner answers for nothing. Whoever says so also kills it, with all that is below it.
    pub(crate) fn condemn(&mut self) {
        self.condemned = true;
    }

    pub(crate) fn is_condemned(&self) -> bool {
        self.condemned
    }

    /// Something was killed for memory: these, or everybody.
    pub(crate) fn memory_ran_out(&mut self, killed: Option<&[i32]>) {
        let program = self.program().map(|pid| pid.as_raw_nonzero().get());
        self.memory_ran_out = true;
        self.is_felled |= killed.is_none_or(|killed| program.is_some_and(|program| killed.contains(&program)));
    }

    pub(crate) fn is_felled(&self) -> bool {
        self.is_felled
    }

    /// What was killed for memory before now is not what will end it, unless that was itself.
    pub(crate) fn memory_suffices(&mut self) {
        self.memory_ran_out = self.is_felled;
    }

    /// What an end by `exit` was.
    pub(crate) fn judge(&self, exit: Exit) -> Exit {
        match exit {
            // The second is how a shell tells of a child that was killed.
            Exit::Signal(9) | Exit::Code(137) if self.memory_ran_out && !self.condemned => Exit::OutOfMemory,
            exit => exit,
        }
    }

    /// The runner was reaped.
    pub(crate) fn runner_ended(&mut self, exit: Exit, usage: Usage) {
        self.phase = Phase::Sweeping { exit: self.judge(exit) };
        self.add_usage(usage);
    }

    pub(crate) fn add_usage(&mut self, more: Usage) {
        self.usage.cpu_ms += more.cpu_ms;
        self.usage.memory_peak_bytes = self.usage.memory_peak_bytes.max(more.memory_peak_bytes);
    }

    /// Of all that was reaped: nothing of a living one.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Nothing of it is alive: what is in its pipes now is all that there will be.
    pub(crate) fn swept(&mut self) {
        if let Phase::Sweeping { exit } = self.phase {
            self.phase = Phase::Ended { exit };
            self.mark_output();
        }
    }

    /// Why it did not start, if that is how it ended.
    pub(crate) fn refusal(&mut self) -> Option<FileError> {
        if !matches!(self.phase, Phase::Sweeping { exit: NOT_STARTED } | Phase::Ended { exit: NOT_STARTED }) {
            return None;
        }
        self.word.hear();
        let Failure { step, kind } = self.word.failure?;
        let path = if step == Step::Directory { &self.about.cwd } else { self.about.interpreter };
        Some(refusal(kind, path))
    }

    /// A signal for its process group, now or as soon as there is one.
    pub(crate) fn signal(&mut self, signal: i32) {
        if (1..=64).contains(&signal) {
            self.signals |= 1 << (signal - 1);
            self.send_signals();
        }
    }

    fn send_signals(&mut self) {
        if self.signals == 0 {
            return;
        }
        let Some(group) = self.program() else { return };
        let signals = std::mem::take(&mut self.signals);
        (1..=64)
            .filter(|signal| signals & (1 << (signal - 1)) != 0)
            .for_each(|signal| sys::signal_group(group, signal));
    }

    /// Names the pipes that it waits for. While there is no room for output they are left alone: they fill, and hold the
    /// program up.
    pub(crate) fn interests<'a>(&'a self, room: bool, add: &mut impl FnMut(PollFd<'a>, Channel)) {
        for output in [&self.stdout, &self.stderr] {
            if let Some(pipe) = output.pipe.as_ref().filter(|_| room) {
                add(PollFd::new(pipe, PollFlags::IN), Channel::Output(output.name));
            }
        }
        if let Some(pipe) = self.word.pipe.as_ref().filter(|_| self.signals != 0 && self.word.program.is_none()) {
            add(PollFd::new(pipe, PollFlags::IN), Channel::Word);
        }
    }

    /// The runner has said something, or never will.
    pub(crate) fn hear_runner(&mut self) {
        self.send_signals();
        if self.word.program.is_none() {
            self.word.pipe = None;
        }
    }

    pub(crate) fn output(&mut self, name: Output) -> &mut OutputPipe {
        match name {
            Output::Stdout => &mut self.stdout,
            Output::Stderr => &mut self.stderr,
        }
    }

    pub(crate) fn mark_output(&mut self) {
        self.stdout.mark();
        self.stderr.mark();
    }

    /// Sends what was in both pipes when they were marked, as far as there is room; returns whether all of it is sent.
    pub(crate) fn drain(&mut self, id: u32, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<bool, Gone> {
        Ok(self.stdout.drain(id, stream, chunk)? && self.stderr.drain(id, stream, chunk)?)
    }
}

impl RunnersWord {
    /// Takes in what the runner has written, without waiting for it.
    fn hear(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let mut bytes = [0; Word::BYTES];
        // The runner writes a word at once, so that there are whole ones.
        while rustix::io::ioctl_fionread(pipe).is_ok_and(|count| count >= Word::BYTES as u64)
            && rustix::io::read(pipe, &mut bytes) == Ok(Word::BYTES)
        {
            match Word::from_bytes(&bytes) {
                Some(Word::Program(program)) => self.program = Some(program),
                Some(Word::Runner(runner)) => self.runner = Some(runner),
                Some(Word::Failed(failure)) => self.failure = Some(failure),
                None => {}
            }
        }
    }
}

impl OutputPipe {
    /// From here on what is in it now is waited for, and no more: a stranger that holds the other end must not keep a run
    /// open.
    fn mark(&mut self) {
        self.left = self.pipe.as_ref().and_then(|pipe| rustix::io::ioctl_fionread(pipe).ok()).unwrap_or(0);
    }

    fn drain(&mut self, id: u32, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<bool, Gone> {
        while self.left > 0 && self.pipe.is_some() {
            if !stream.has_room() {
                return Ok(false);
            }
            let before = self.left;
            self.pass_on(id, stream, chunk)?;
            // Less than there was: a stranger with the same pipe has read it. Waiting for the rest would be for ever.
            if self.left == before {
                self.left = 0;
            }
        }
        Ok(true)
    }

    /// Sends one chunk on; at the end of the stream, closes the pipe. `chunk` is empty before and after.
    pub(crate) fn pass_on(&mut self, id: u32, stream: &mut Stream, chunk: &mut Vec<u8>) -> Result<(), Gone> {
        if self.read(chunk) {
            let frame = FromGuest::Output { id, stream: self.name, bytes: std::mem::take(chunk) };
            stream.send(&frame)?;
            if let FromGuest::Output { bytes, .. } = frame {
                *chunk = bytes;
                chunk.clear();
            }
        }
        Ok(())
    }

    /// Reads one chunk into `chunk`, which is empty before. Returns whether anything came.
    pub(crate) fn read(&mut self, chunk: &mut Vec<u8>) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        chunk.reserve_exact(CHUNK_MAX);
        match rustix::io::read(pipe, spare_capacity(chunk)) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                self.left = self.left.saturating_sub(count as u64);
                return true;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.pipe = None,
        }
        false
    }
}
