//! What programs ask of those outside: one connection to a socket of ours is one question, or one after the other where a
//! line begins with a space.
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
    ASK_SOCKET, ASKED_FIRST, CHUNK_MAX, FromGuest, INPUT_WINDOW, KNOCKS_FIRST, Part, QUESTION_MAX, QUESTIONS_MAX,
};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, send, socket_with,
};
use rustix::process::Pid;

use crate::processes::Processes;
use crate::stream::{Gone, Stream};
use crate::sys;

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
    /// The process at the other end, as far as it is known yet.
    peer: Option<Pid>,
    /// When its line, or the wait for it, began.
    since: Instant,
    stage: Stage,
    /// Whether it is kept for another question.
    stays: bool,
    /// Whether anything of the answer was sent: hanging up is the only way to tell of an empty one.
    is_heard: bool,
}

#[derive(Debug)]
enum Stage {
    /// The line comes in.
    Reading { line: Vec<u8> },
    /// It goes out to the host, with the program or cell that it is of.
    Passing { line: Vec<u8>, passed: usize, by: Option<u32> },
    /// The answer comes, and goes to the program.
    Answering { waiting: Vec<u8>, is_whole: bool },
}

/// What has become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Stands,
    /// It was answered, and waits for its next line.
    Again,
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
            // For `sys::sender`; those who come have it from the listener. Elsewhere nobody asks for it.
            set_socket_passcred(&socket, true)?;
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
        let has_room = self.connections.len() < QUESTIONS_MAX || self.connections.iter().any(Connection::is_idle);
        self.listener.as_ref().filter(|_| has_room && !rests)
    }

    /// How long nothing has to be done here if nobody comes.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let now = Instant::now();
        let reading = self.connections.iter().filter(|connection| matches!(connection.stage, Stage::Reading { .. }));
        let lines = reading.map(|connection| connection.since + LINE_TIME);
        lines.chain(self.rests_until).map(|until| until.saturating_duration_since(now)).min()
    }

    /// `processes` tell whose a question is.
    pub(crate) fn advance(
        &mut self,
        calls: &Calls,
        processes: &mut Processes,
        stream: &mut Stream,
    ) -> Result<(), Gone> {
        self.rests_until.take_if(|until| Instant::now() >= *until);
        let mut failed = None;
        let next_id = &mut self.next_id;
        self.connections.retain_mut(|connection| {
            // Some may have gone since the poll.
            let events = calls.events.iter().find(|(id, _)| *id == connection.id);
            let events = events.map_or(PollFlags::empty(), |(_, events)| *events);
            match connection.advance(events, stream) {
                Ok(Fate::Stands) => true,
                Ok(Fate::Again) => {
                    connection.begin_again(next_id);
                    true
                }
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
        self.pass_on(processes, stream)
    }

    fn let_in(&mut self) {
        let Some(listener) = &self.listener else { return };
        // Whoever has an idle one comes again. One that was idle at the poll may have its next line by now: then who knocks waits.
        let is_full = self.connections.len() >= QUESTIONS_MAX;
        let idle = self.connections.iter().position(Connection::is_idle).filter(|_| is_full);
        if is_full && idle.is_none() {
            return;
        }
        match accept_with(listener, FLAGS) {
            Ok(socket) => {
                if let Some(idle) = idle {
                    self.connections.remove(idle);
                }
                let stage = Stage::Reading { line: Vec::new() };
                let id = number(&mut self.next_id);
                let (peer, since) = (sys::peer(&socket), Instant::now());
                let mut connection = Connection { id, socket, peer, since, stage, stays: false, is_heard: false };
                // Most have sent their line by then, which saves a turn of the loop.
                if connection.read() == Fate::Stands {
                    self.connections.push(connection);
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => self.rests_until = Some(Instant::now() + REST),
        }
    }

    /// Lines go one after the other, as far as there is room: one that has begun first.
    fn pass_on(&mut self, processes: &mut Processes, stream: &mut Stream) -> Result<(), Gone> {
        let begun = |connection: &Connection| matches!(connection.stage, Stage::Passing { passed: 1.., .. });
        let waits = |connection: &Connection| matches!(connection.stage, Stage::Passing { .. });
        while stream.has_room()
            && let Some(index) =
                self.connections.iter().position(begun).or_else(|| self.connections.iter().position(waits))
        {
            let connection = &mut self.connections[index];
            if let Stage::Passing { line, passed, by } = &mut connection.stage {
                if *passed == 0 {
                    *by = connection.peer.and_then(|pid| processes.owner_of(pid));
                }
                let end = line.len().min(*passed + CHUNK_MAX);
                let part = if end == line.len() { Part::Last } else { Part::MoreComes };
                let bytes = line[*passed..end].to_vec();
                stream.send(&FromGuest::Asked { id: connection.id, by: *by, bytes, part })?;
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
        match connection.hand_over(stream)? {
            Fate::Stands => Ok(()),
            Fate::Again => {
                connection.begin_again(&mut self.next_id);
                Ok(())
            }
            Fate::Over => self.connections.remove(index).withdraw(stream),
        }
    }

    /// Whether there is room for a line that waits: it is then passed on without anybody calling.
    pub(crate) fn are_passing(&self) -> bool {
        self.connections.iter().any(|connection| matches!(connection.stage, Stage::Passing { .. }))
    }
}

/// Each question has a number of its own.
fn number(next: &mut u32) -> u32 {
    let id = *next;
    *next = if *next + 1 < KNOCKS_FIRST { *next + 1 } else { ASKED_FIRST };
    id
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
    /// Whether nobody waits for anything of it.
    fn is_idle(&self) -> bool {
        self.stays && matches!(&self.stage, Stage::Reading { line } if line.is_empty())
    }

    fn begin_again(&mut self, next_id: &mut u32) {
        self.id = number(next_id);
        self.since = Instant::now();
        self.stage = Stage::Reading { line: Vec::new() };
        self.is_heard = false;
    }

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
        // gVisor's kernel answers that question with whoever asks it, which is us; but it tells who sent something. Until then
        // nothing is read: what came between the two looks would be nobody's.
        if self.peer.is_some_and(Pid::is_init) {
            match sys::sender(&self.socket) {
                Ok(sender) => self.peer = sender.or(self.peer),
                Err(Errno::AGAIN | Errno::INTR) => return self.fate_of_line(),
                Err(_) => return Fate::Over,
            }
        }
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
            self.stays = line.first() == Some(&b' ');
            self.stage = Stage::Passing { line, passed: 0, by: None };
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
        self.is_heard |= taken > 0;
        if *is_whole && waiting.is_empty() && fate == Fate::Stands {
            fate = if self.stays && self.is_heard { Fate::Again } else { Fate::Over };
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
