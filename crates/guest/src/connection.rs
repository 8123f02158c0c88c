//! One connection from a door to the host, each way with a window of its own.

use std::os::fd::OwnedFd;

use belljar_core::wire::{CHUNK_MAX, FromGuest, INPUT_WINDOW, Part};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::stream::{Gone, Stream};

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u32,
    socket: OwnedFd,
    /// How much more the host takes of what the program says.
    pub(crate) room: usize,
    /// Whether the program has said its last.
    said_all: bool,
    /// What the program has not taken yet.
    waiting: Vec<u8>,
    /// Whether nothing more comes from the host.
    heard_all: bool,
    /// And the program was told so.
    is_told: bool,
}

/// What has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Stands,
    Over,
}

impl Connection {
    pub(crate) fn new(id: u32, socket: OwnedFd) -> Connection {
        let waiting = Vec::new();
        Connection { id, socket, room: INPUT_WINDOW, said_all: false, waiting, heard_all: false, is_told: false }
    }

    pub(crate) fn interest(&self, has_room: bool) -> PollFd<'_> {
        let mut flags = PollFlags::empty();
        if has_room && self.room > 0 && !self.said_all {
            flags |= PollFlags::IN;
        }
        if !self.waiting.is_empty() {
            flags |= PollFlags::OUT;
        }
        PollFd::new(&self.socket, flags)
    }

    pub(crate) fn advance(&mut self, events: PollFlags, stream: &mut Stream) -> Result<Fate, Gone> {
        if events.contains(PollFlags::OUT) && self.hand_over(stream)? == Fate::Over {
            return Ok(Fate::Over);
        }
        if events.contains(PollFlags::IN) && self.room > 0 && !self.said_all {
            return self.listen(stream);
        }
        // Told whether or not it was asked for: a connection that is gone both ways would wake us for ever.
        if events.intersects(PollFlags::ERR | PollFlags::NVAL) || events.contains(PollFlags::HUP) && self.said_all {
            return self.withdraw(stream);
        }
        Ok(Fate::Stands)
    }

    fn listen(&mut self, stream: &mut Stream) -> Result<Fate, Gone> {
        let mut bytes = Vec::with_capacity(CHUNK_MAX.min(self.room));
        match rustix::io::read(&self.socket, spare_capacity(&mut bytes)) {
            Ok(0) => {
                self.said_all = true;
                stream.send(&FromGuest::Said { id: self.id, bytes, part: Part::Last })?;
                Ok(self.fate())
            }
            Ok(count) => {
                self.room -= count;
                stream.send(&FromGuest::Said { id: self.id, bytes, part: Part::MoreComes })?;
                Ok(Fate::Stands)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Fate::Stands),
            Err(_) => self.withdraw(stream),
        }
    }

    /// A piece of what comes back.
    pub(crate) fn hear(&mut self, bytes: &[u8], part: Part, stream: &mut Stream) -> Result<Fate, Gone> {
        if self.heard_all || self.waiting.len() + bytes.len() > INPUT_WINDOW {
            return Err(Gone);
        }
        self.waiting.extend_from_slice(bytes);
        self.heard_all = part == Part::Last;
        self.hand_over(stream)
    }

    /// Gives the program what it takes.
    fn hand_over(&mut self, stream: &mut Stream) -> Result<Fate, Gone> {
        let mut taken = 0;
        while taken < self.waiting.len() {
            match send(&self.socket, &self.waiting[taken..], SendFlags::NOSIGNAL) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return self.withdraw(stream),
            }
        }
        self.waiting.drain(..taken);
        if taken > 0 && !self.heard_all {
            stream.send(&FromGuest::Taken { id: self.id, bytes: taken as u32 })?;
        }
        if self.heard_all && self.waiting.is_empty() && !self.is_told {
            self.is_told = true;
            // One that is gone already is told by the next poll.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        Ok(self.fate())
    }

    fn fate(&self) -> Fate {
        if self.said_all && self.is_told { Fate::Over } else { Fate::Stands }
    }

    fn withdraw(&mut self, stream: &mut Stream) -> Result<Fate, Gone> {
        stream.send(&FromGuest::Withdrawn { id: self.id })?;
        Ok(Fate::Over)
    }
}
