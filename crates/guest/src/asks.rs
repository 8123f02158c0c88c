//! What programs ask of those outside: one connection to a socket of ours is one question.
//!
//! ```text
//! program ── a line ──▶ Asked ──▶ host ──▶ Answer, in parts ──▶ program, until we hang up
//!         ── hangs up ─▶ Withdrawn
//! ```
//!
//! What the line and the answer mean is for the two ends to know. A program that asks and does not read, or does not finish
//! its line, holds up nobody: each connection has a bound, and the host sends only what was taken.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use belljar_core::wire::{
    ASK_SOCKET, ASKED_FIRST, CHUNK_MAX, FromGuest, INPUT_WINDOW, Part, QUESTION_MAX, QUESTIONS_MAX,
};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send, socket_with,
};

use crate::stream::{Gone, Stream};

/// From the connection to the end of its line.
const LINE_TIME: Duration = Duration::from_secs(10);

/// Those that wait to be let in; whoever comes then waits as well.
const BACKLOG: i32 = 16;

/// After a connection could not be taken, as when too many files are open.
const REST: Duration = Duration::from_millis(100);

/// One read's worth.
const READ: usize = 16 * 1024;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

#[derive(Debug)]
pub(crate) struct Asks {
    /// `None` where there is no place for it.
    listener: Option<OwnedFd>,
    rests_until: Option<Instant>,
    connections: Vec<Connection>,
    next_id: u32,
}

#[derive(Debug)]
struct Connection {
    id: u32,
    socket: OwnedFd,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The line comes in.
    Reading { line: Vec<u8> },
    /// It goes out to the host.
    Passing { line: Vec<u8>, passed: usize },
    /// The answer comes, and goes to the program.
    Answering { waiting: Vec<u8>, is_whole: bool },
}

/// What has become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stands,
    /// Nobody is left, or nobody who keeps to the rules.
    Over,
}

/// What a poll had to say of the connections.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    knocked: bool,
    events: Vec<(u32, PollFlags)>,
}

impl Asks {
    pub(crate) fn listen() -> Asks {
        let listener = SocketAddrUnix::new(ASK_SOCKET).and_then(|name| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
            bind(&socket, &name)?;
            listen(&socket, BACKLOG)?;
            Ok(socket)
        });
        Asks { listener: listener.ok(), rests_until: None, connections: Vec::new(), next_id: ASKED_FIRST }
    }

    /// What to poll for: the listener, if it is to be listened to, and then each connection.
    pub(crate) fn interests<'a>(&'a self, polled: &mut Vec<PollFd<'a>>) -> Interests {
        let listener = self.open_listener();
        polled.extend(listener.map(|fd| PollFd::new(fd, PollFlags::IN)));
        for connection in &self.connections {
            // That the other end is gone is always told.
            let flags = match &connection.stage {
                Stage::Reading { .. } => PollFlags::IN,
                Stage::Answering { waiting, .. } if !waiting.is_empty() => PollFlags::OUT,
                Stage::Passing { .. } | Stage::Answering { .. } => PollFlags::empty(),
            };
            polled.push(PollFd::new(&connection.socket, flags));
        }
        let connections = self.connections.iter().map(|connection| connection.id).collect();
        Interests { has_listener: listener.is_some(), connections }
    }

    fn open_listener(&self) -> Option<&OwnedFd> {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        self.listener.as_ref().filter(|_| self.connections.len() < QUESTIONS_MAX && !rests)
    }

    /// How long nothing has to be done here if nobody comes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let reading = self.connections.iter().filter(|connection| matches!(connection.stage, Stage::Reading { .. }));
        let lines = reading.map(|connection| connection.since + LINE_TIME);
        lines.chain(self.rests_until).map(|until| until.saturating_duration_since(now)).min()
    }

    pub(crate) fn advance(&mut self, calls: &Calls, stream: &mut Stream) -> Result<(), Gone> {
        self.rests_until.take_if(|until| Instant::now() >= *until);
        let mut failed = None;
        self.connections.retain_mut(|connection| {
            // Some may have gone since the poll.
            let events = calls.events.iter().find(|(id, _)| *id == connection.id);
            let events = events.map_or(PollFlags::empty(), |(_, events)| *events);
            match connection.advance(events, stream) {
                Ok(Fate::Stands) => true,
                Ok(Fate::Over) => {
                    failed = failed.or(connection.withdraw(stream).err());
                    false
                }
                Err(gone) => {
                    failed = Some(gone);
                    false
                }
            }
        });
        if let Some(gone) = failed {
            return Err(gone);
        }
        if calls.knocked {
            self.let_in();
        }
        self.pass_on(stream)
    }

    fn let_in(&mut self) {
        let Some(listener) = &self.listener else { return };
        match accept_with(listener, FLAGS) {
            Ok(socket) => {
                let stage = Stage::Reading { line: Vec::new() };
                self.connections.push(Connection { id: self.next_id, socket, since: Instant::now(), stage });
                self.next_id = self.next_id.wrapping_add(1) | ASKED_FIRST;
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => self.rests_until = Some(Instant::now() + REST),
        }
    }

    /// Lines go one after the other, as far as there is room: one that has begun first.
    fn pass_on(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let begun = |connection: &Connection| matches!(connection.stage, Stage::Passing { passed: 1.., .. });
        let waits = |connection: &Connection| matches!(connection.stage, Stage::Passing { .. });
        while stream.has_room()
            && let Some(index) =
                self.connections.iter().position(begun).or_else(|| self.connections.iter().position(waits))
        {
            let connection = &mut self.connections[index];
            if let Stage::Passing { line, passed } = &mut connection.stage {
                let end = line.len().min(*passed + CHUNK_MAX);
                let part = if end == line.len() { Part::Last } else { Part::MoreComes };
                stream.send(&FromGuest::Asked { id: connection.id, bytes: line[*passed..end].to_vec(), part })?;
                *passed = end;
                if part == Part::Last {
                    connection.stage = Stage::Answering { waiting: Vec::new(), is_whole: false };
                }
            }
        }
        Ok(())
    }

    /// A piece of an answer. One to a question that was withdrawn is nobody's.
    pub(crate) fn answer(&mut self, id: u32, bytes: &[u8], part: Part, stream: &mut Stream) -> Result<(), Gone> {
        let Some(index) = self.connections.iter().position(|connection| connection.id == id) else { return Ok(()) };
        let connection = &mut self.connections[index];
        let Stage::Answering { waiting, is_whole: is_whole @ false } = &mut connection.stage else {
            return Err(Gone);
        };
        if waiting.len() + bytes.len() > INPUT_WINDOW {
            return Err(Gone);
        }
        waiting.extend_from_slice(bytes);
        *is_whole = part == Part::Last;
        if connection.hand_over(stream)? == Fate::Over {
            let connection = self.connections.remove(index);
            connection.withdraw(stream)?;
        }
        Ok(())
    }

    /// Whether there is room for a line that waits: it is then passed on without anybody calling.
    pub(crate) fn are_passing(&self) -> bool {
        self.connections.iter().any(|connection| matches!(connection.stage, Stage::Passing { .. }))
    }
}

/// What was asked of a poll.
#[derive(Debug)]
pub(crate) struct Interests {
    has_listener: bool,
    connections: Vec<u32>,
}

impl Interests {
    /// What it said of the listener and the connections.
    pub(crate) fn calls(self, mut events: impl Iterator<Item = PollFlags>) -> Calls {
        let knocked = self.has_listener && events.next().is_some_and(|events| !events.is_empty());
        Calls { knocked, events: self.connections.into_iter().zip(events).collect() }
    }
}

impl Connection {
    fn advance(&mut self, events: PollFlags, stream: &mut Stream) -> Result<Fate, Gone> {
        if let Stage::Reading { .. } = &self.stage {
            return Ok(if events.is_empty() { self.fate_of_line() } else { self.read() });
        }
        if events.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(Fate::Over);
        }
        if events.contains(PollFlags::OUT) { self.hand_over(stream) } else { Ok(Fate::Stands) }
    }

    fn fate_of_line(&self) -> Fate {
        if self.since.elapsed() < LINE_TIME { Fate::Stands } else { Fate::Over }
    }

    fn read(&mut self) -> Fate {
        let Stage::Reading { line } = &mut self.stage else { return Fate::Stands };
        let before = line.len();
        line.reserve(READ);
        match rustix::io::read(&self.socket, spare_capacity(line)) {
            Ok(0) => return Fate::Over,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return self.fate_of_line(),
            Err(_) => return Fate::Over,
        }
        if let Some(end) = line[before..].iter().position(|byte| *byte == b'\n') {
            line.truncate(before + end + 1);
            if line.len() > QUESTION_MAX {
                return Fate::Over;
            }
            let line = std::mem::take(line);
            self.stage = Stage::Passing { line, passed: 0 };
            return Fate::Stands;
        }
        if line.len() > QUESTION_MAX { Fate::Over } else { self.fate_of_line() }
    }

    /// Gives the program what it takes of its answer.
    fn hand_over(&mut self, stream: &mut Stream) -> Result<Fate, Gone> {
        let Stage::Answering { waiting, is_whole } = &mut self.stage else { return Ok(Fate::Stands) };
        let mut taken = 0;
        let mut fate = Fate::Stands;
        while taken < waiting.len() {
            match send(&self.socket, &waiting[taken..], SendFlags::NOSIGNAL) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    fate = Fate::Over;
                    break;
                }
            }
        }
        waiting.drain(..taken);
        if *is_whole && waiting.is_empty() {
            fate = Fate::Over;
        }
        if taken > 0 && fate == Fate::Stands && !*is_whole {
            stream.send(&FromGuest::Taken { id: self.id, bytes: taken as u32 })?;
        }
        Ok(fate)
    }

    /// Tells the host, if it knows of the question and is not done with it.
    fn withdraw(&self, stream: &mut Stream) -> Result<(), Gone> {
        match self.stage {
            Stage::Passing { passed: 1.., .. } | Stage::Answering { is_whole: false, .. } => {
                stream.send(&FromGuest::Withdrawn { id: self.id })
            }
            Stage::Reading { .. } | Stage::Passing { .. } | Stage::Answering { .. } => Ok(()),
        }
    }
}
