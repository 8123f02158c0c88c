//! The agent's loop: one thread that waits for the host, for children and for the pipes of programs.
//!
//! Nothing in it blocks but the one `poll`, so that a `Stop` gets through whatever else is going on.

use std::os::fd::OwnedFd;
use std::time::Duration;

use belljar_core::wire::{FromGuest, Init, ToGuest, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::DumpableBehavior;

use crate::asks::{Asks, Calls};
use crate::cells::Ends;
use crate::doors::{Doors, Knocks};
use crate::files::Files;
use crate::memory::Watch;
use crate::process::Channel;
use crate::processes::{Arrival, Owner, Processes};
use crate::stream::{Gone, Stream};
use crate::sys;

/// Where whoever started us put the stream; where it is two, the one to write to, and then the doors.
const STREAM_FD: i32 = 3;
const OUT_FD: i32 = 4;
const DOORS_FD: i32 = 5;

/// How soon to look again for processes that were killed and are not gone. Their ends wake us too; this is for those
/// whose end nobody tells us, since a killed parent was to hear of it.
const SWEEP_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Agent {
    stream: Stream,
    children: OwnedFd,
    init: Option<Init>,
    processes: Processes,
    files: Files,
    asks: Asks,
    doors: Doors,
    watch: Option<Watch>,
}

/// What whoever started us has left open for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// One stream.
    Stream,
    /// One to read and one to write, and so many sockets at which programs come to go out.
    Settled { doors: usize },
}

/// What woke the loop.
#[derive(Debug)]
struct Wake {
    frames: bool,
    children: bool,
    ready: Vec<(Owner, Channel)>,
    calls: Calls,
    knocks: Knocks,
}

/// The agent's life; the value is the exit code of the process.
pub(crate) fn main(given: Given) -> i32 {
    // Before anything of the host is in our memory: programs of the same user shall not look into it.
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return 1;
    }
    // Elsewhere "kill everyone" would mean everyone of this user on the machine.
    if !rustix::process::getpid().is_init() {
        return 2;
    }
    sys::seal_signals();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    match Agent::new(given).and_then(Agent::run) {
        Ok(never) => match never {},
        Err(Gone) => 0,
    }
}

impl Agent {
    fn new(given: Given) -> Result<Agent, Gone> {
        let take = |number: i32| -> Result<OwnedFd, Gone> {
            let fd = sys::inherited(number);
            rustix::io::ioctl_fioclex(&fd).map_err(|_| Gone)?;
            rustix::io::ioctl_fionbio(&fd, true).map_err(|_| Gone)?;
            Ok(fd)
        };
        let (out, doors) = match given {
            Given::Stream => (None, Vec::new()),
            Given::Settled { doors } => {
                let doors = (0..doors as i32).map(|number| take(DOORS_FD + number)).collect::<Result<_, _>>()?;
                (Some(take(OUT_FD)?), doors)
            }
        };
        let mut stream = Stream::new(take(STREAM_FD)?, out);
        // Before there is anybody who could take its name.
        let asks = Asks::listen();
        stream.send(&FromGuest::Hello { version: VERSION })?;
        let children = sys::child_signals().map_err(|_| Gone)?;
        let (processes, files) = (Processes::default(), Files::default());
        let doors = Doors::new(doors);
        Ok(Agent { stream, children, init: None, processes, files, asks, doors, watch: None })
    }

    fn run(mut self) -> Result<std::convert::Infallible, Gone> {
        loop {
            // Before the wait so that it knows what did not go out; after it so that there is room again.
            self.stream.flush()?;
            let wake = self.wait()?;
            self.stream.flush()?;
            if wake.frames {
                self.stream.receive()?;
                self.obey_all()?;
            }
            if self.processes.advance(&wake.ready, &mut self.stream)? == Arrival::Forked {
                // Frames may have come with the first.
                self.obey_all()?;
            }
            if wake.children || self.processes.are_sweeping() {
                self.processes.reap();
            }
            self.processes.drain(&mut self.stream)?;
            self.files.advance(&mut self.stream)?;
            self.asks.advance(&wake.calls, &mut self.processes, &mut self.stream)?;
            self.doors.advance(&wake.knocks, &mut self.stream)?;
            self.watch_memory();
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self) -> Result<Wake, Gone> {
        let mut stream_flags = PollFlags::empty();
        // What comes is for later while a kernel is on its way in: nothing may be started that could take it for a stray.
        if self.stream.listens() && !self.processes.expect_forked() {
            stream_flags |= PollFlags::IN;
        }
        if self.stream.has_outgoing() {
            stream_flags |= PollFlags::OUT;
        }
        let mut polled = vec![PollFd::new(&self.stream, stream_flags), PollFd::new(&self.children, PollFlags::IN)];
        if let Some(out) = self.stream.out() {
            // What is read and what is written are two.
            polled[0] = PollFd::new(&self.stream, stream_flags & PollFlags::IN);
            polled.push(PollFd::new(out, stream_flags & PollFlags::OUT));
        }
        let processes_from = polled.len();
        let mut ready = Vec::new();
        self.processes.interests(self.stream.has_room(), &mut polled, &mut ready);
        let asked_from = polled.len();
        let asked = self.asks.interests(&mut polled);
        let doors_from = polled.len();
        let knocks = self.doors.interests(self.stream.has_room(), &mut polled);
        let timeout =
            self.patience().map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => {
                return Ok(Wake {
                    frames: false,
                    children: false,
                    ready: Vec::new(),
                    calls: Calls::default(),
                    knocks: Knocks::default(),
                });
            }
            // Blind and deaf we are of no use, and would spin.
            Err(_) => return Err(Gone),
        }
        let stream = polled[0].revents();
        if stream.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(Gone);
        }
        let children = !polled[1].revents().is_empty();
        let out = polled[2..processes_from].iter().fold(PollFlags::empty(), |all, fd| all | fd.revents());
        if out.intersects(PollFlags::ERR | PollFlags::NVAL) {
            return Err(Gone);
        }
        let calls = asked.calls(polled[asked_from..doors_from].iter().map(PollFd::revents));
        let knocks = knocks.knocks(polled[doors_from..].iter().map(PollFd::revents));
        let mut woken = polled[processes_from..asked_from].iter().map(|fd| !fd.revents().is_empty());
        ready.retain(|_| woken.next() == Some(true));
        drop(polled);
        if children {
            // One signal may stand for many children, so what it says is not looked at.
            let _ = rustix::io::read(&self.children, &mut [0; 1024]);
        }
        Ok(Wake { frames: stream.contains(PollFlags::IN), children, ready, calls, knocks })
    }

    fn patience(&self) -> Option<Duration> {
        let is_busy = self.processes.are_draining() || self.files.are_busy() || self.asks.are_passing();
        if is_busy && self.stream.has_room() {
            return Some(Duration::ZERO);
        }
        if self.processes.are_sweeping() {
            return Some(SWEEP_AGAIN);
        }
        let watch = self.watch.as_ref().zip(self.processes.pace()).map(|(watch, pace)| watch.patience(pace));
        let others = self.processes.patience().into_iter().chain(self.asks.patience()).chain(self.doors.patience());
        watch.into_iter().chain(others).min()
    }

    fn watch_memory(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        let Some(pace) = self.processes.pace() else {
            watch.rest();
            return;
        };
        match watch.look(pace) {
            Ok(too_many) if too_many.is_empty() => {}
            Ok(too_many) => self.processes.kill_for_memory(&too_many),
            // A limit that cannot be watched is not held.
            Err(_) => self.processes.kill_all_for_memory(),
        }
    }

    fn obey_all(&mut self) -> Result<(), Gone> {
        while !self.processes.expect_forked()
            && let Some(frame) = self.stream.next()?
        {
            self.obey(frame)?;
        }
        Ok(())
    }

    fn obey(&mut self, frame: ToGuest) -> Result<(), Gone> {
        let Some(init) = &self.init else {
            let ToGuest::Init(init) = frame else { return Err(Gone) };
            self.watch = init.watch_memory_bytes.map(Watch::new);
            if let Some(language) = init.forked {
                self.processes.wait_for_forked(language, Ends::inherited(STREAM_FD + 1).map_err(|_| Gone)?);
            }
            self.processes.start_ahead(&init);
            self.init = Some(init);
            return Ok(());
        };
        let stream = &mut self.stream;
        match frame {
            ToGuest::Init(_) => Err(Gone),
            // Answers to both would go under one id.
            ToGuest::Start { id, .. } | ToGuest::Write { id, .. } if self.processes.owns(id) || self.files.owns(id) => {
                Err(Gone)
            }
            ToGuest::Start { id, start } => self.processes.start(init, id, start, stream),
            ToGuest::Input { id, bytes } if self.processes.owns(id) => self.processes.feed(id, &bytes, stream),
            ToGuest::Input { id, bytes } => self.files.feed(id, &bytes, stream),
            ToGuest::InputEnd { id } if self.processes.owns(id) => self.processes.end_input(id, stream),
            ToGuest::InputEnd { id } => self.files.end_input(id, self.processes.known(), stream),
            ToGuest::Stop { id } => {
                // What has just ended by itself is no longer known: its last frame is on the way.
                self.processes.stop(id);
                self.files.give_up(id);
                self.doors.hang_up(id);
                Ok(())
            }
            ToGuest::Signal { id, signal } => {
                self.processes.signal(id, signal);
                Ok(())
            }
            ToGuest::Answer { id, bytes, part } if self.doors.owns(id) => self.doors.answer(id, &bytes, part, stream),
            ToGuest::Taken { id, bytes } => {
                self.doors.taken(id, bytes);
                Ok(())
            }
            ToGuest::Answer { id, bytes, part } => self.asks.answer(id, &bytes, part, stream),
            ToGuest::Write { id, path } => self.files.write(id, path, stream),
            ToGuest::Read { id, path, range } => self.files.read(id, path, range, stream),
            ToGuest::List { id, path, depth, entries_max } => self.files.list(id, &path, depth, entries_max, stream),
        }
    }
}
