//! The worker's loop: one thread that waits for the host and for the interpreters, which have threads of their own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use belljar_core::Exit;
use belljar_core::wire::{FromGuest, Init, ToGuest, VERSION};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::files::Files;
use crate::kernels::Kernels;
use crate::line::Message;
use crate::runs::Runs;
use crate::stream::{Gone, Stream};
use crate::sys;

/// Where whoever started us put the stream.
const STREAM_FD: i32 = 3;

/// What interpreters have said and nobody has passed on; past that they wait.
const SAID_MAX: usize = 32;

struct Worker {
    stream: Stream,
    wake: Arc<OwnedFd>,
    said: Receiver<Message>,
    init: Option<Init>,
    kernels: Kernels,
    runs: Runs,
    files: Files,
}

/// The worker's life; the value is the exit code of the process.
pub fn main() -> i32 {
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return 1;
    }
    rustix::process::umask(Mode::from_raw_mode(0o022));
    match Worker::new().and_then(Worker::run) {
        Ok(never) => match never {},
        Err(Gone) => 0,
    }
}

impl Worker {
    fn new() -> Result<Worker, Gone> {
        let fd = sys::inherited(STREAM_FD);
        rustix::io::ioctl_fioclex(&fd).map_err(|_| Gone)?;
        rustix::io::ioctl_fionbio(&fd, true).map_err(|_| Gone)?;
        let mut stream = Stream::new(fd, None);
        stream.send(&FromGuest::Hello { version: VERSION })?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|_| Gone)?;
        let wake = Arc::new(wake);
        let (says, said) = sync_channel(SAID_MAX);
        let kernels = Kernels::new(says, Arc::clone(&wake));
        Ok(Worker { stream, wake, said, init: None, kernels, runs: Runs::default(), files: Files::default() })
    }

    fn run(mut self) -> Result<std::convert::Infallible, Gone> {
        loop {
            self.stream.flush()?;
            let has_frames = self.wait()?;
            self.stream.flush()?;
            if has_frames {
                self.stream.receive()?;
                while let Some(frame) = self.stream.next()? {
                    self.obey(frame)?;
                }
            }
            while self.stream.has_room()
                && let Ok(message) = self.said.try_recv()
            {
                self.runs.hear(message, &self.kernels, &mut self.stream)?;
            }
            self.runs.insist(&self.kernels);
            self.runs.finish(&mut self.stream)?;
            self.files.advance(&mut self.stream)?;
        }
    }

    /// Sleeps until there is something to do. Returns whether the host has said something.
    fn wait(&mut self) -> Result<bool, Gone> {
        let mut flags = PollFlags::empty();
        if self.stream.listens() {
            flags |= PollFlags::IN;
        }
        if self.stream.has_outgoing() {
            flags |= PollFlags::OUT;
        }
        // What was said and found no room is passed on when there is some.
        let hears = if self.stream.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let timeout = self.patience();
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let mut polled = [PollFd::new(&self.stream, flags), PollFd::new(&self.wake, hears)];
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(_) => return Err(Gone),
        }
        let (stream, woken) = (polled[0].revents(), !polled[1].revents().is_empty());
        if stream.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(Gone);
        }
        if woken {
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        Ok(stream.contains(PollFlags::IN))
    }

    fn patience(&self) -> Option<Duration> {
        if self.files.are_busy() && self.stream.has_room() {
            return Some(Duration::ZERO);
        }
        self.runs.patience().filter(|time| !time.is_zero() || self.stream.has_room())
    }

    fn obey(&mut self, frame: ToGuest) -> Result<(), Gone> {
        let Some(init) = &self.init else {
            let ToGuest::Init(init) = frame else { return Err(Gone) };
            self.kernels.settle(&init);
            self.runs.start_ahead(&init, &mut self.kernels);
            self.init = Some(init);
            return Ok(());
        };
        let (stream, kernels) = (&mut self.stream, &mut self.kernels);
        match frame {
            ToGuest::Init(_) => Err(Gone),
            ToGuest::Start { id, .. } | ToGuest::Write { id, .. } if self.runs.owns(id) || self.files.owns(id) => {
                Err(Gone)
            }
            ToGuest::Start { id, start } => self.runs.start(init, id, start, kernels, stream),
            ToGuest::Input { id, bytes } if self.runs.owns(id) => self.runs.feed(id, &bytes, stream),
            ToGuest::Input { id, bytes } => self.files.feed(id, &bytes, stream),
            ToGuest::InputEnd { id } if self.runs.owns(id) => {
                self.runs.end_input(id);
                Ok(())
            }
            ToGuest::InputEnd { id } => self.files.end_input(id, self.runs.known(), stream),
            ToGuest::Stop { id } => {
                self.runs.stop(id, Exit::Signal(9), kernels);
                self.files.give_up(id);
                Ok(())
            }
            ToGuest::Signal { id, signal } => {
                self.runs.signal(id, signal, kernels);
                Ok(())
            }
            // Nobody comes to a door here.
            ToGuest::Taken { .. } => Ok(()),
            ToGuest::Answer { id, bytes, part } => self.runs.answer(id, &bytes, part, stream),
            ToGuest::Write { id, path } => self.files.write(id, path, stream),
            ToGuest::Read { id, path, range } => self.files.read(id, path, range, stream),
            ToGuest::List { id, path, depth, entries_max } => self.files.list(id, &path, depth, entries_max, stream),
        }
    }
}
