//! Those who come to the sandbox's doors, passed on to the host one and all: who may go out, and where to, is decided there.
//!
//! ```text
//! program ── connects ──▶ Knock ──▶ host
//!         ── bytes ─────▶ Said ───▶      ──▶ Taken
//!         ◀─ bytes ────── Answer ◀─      ◀── Taken
//! ```
//!
//! Where the host holds the doors itself there are none here.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use belljar_core::wire::{FromGuest, INPUT_WINDOW, KNOCKS_FIRST, KNOCKS_MAX, NAME_MAX, Part};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, getsockname, recvfrom, sendto};

use crate::connection::{Connection, Fate};
use crate::stream::{Gone, Stream};

/// Questions to the resolver whose answers are awaited; whoever asks more asks again.
const NAMES_OPEN: usize = 32;

/// After a connection could not be taken, as when too many files are open.
const REST: Duration = Duration::from_millis(100);

/// The resolver's own patience is less.
const NAME_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Doors {
    listeners: Vec<OwnedFd>,
    names: Option<OwnedFd>,
    connections: Vec<Connection>,
    asked: Vec<Name>,
    rests_until: Option<Instant>,
    next_id: u32,
}

/// A question to the resolver.
#[derive(Debug)]
struct Name {
    id: u32,
    from: SocketAddr,
    since: Instant,
}

/// What a poll had to say.
#[derive(Debug, Default)]
pub(crate) struct Knocks {
    /// Of the listeners, by their place.
    at: Vec<usize>,
    asked: bool,
    events: Vec<(u32, PollFlags)>,
}

/// What was asked of a poll.
#[derive(Debug)]
pub(crate) struct Interests {
    listeners: usize,
    has_names: bool,
    connections: Vec<u32>,
}

impl Interests {
    pub(crate) fn knocks(self, mut events: impl Iterator<Item = PollFlags>) -> Knocks {
        let mut at = Vec::new();
        for index in 0..self.listeners {
            if events.next().is_some_and(|events| !events.is_empty()) {
                at.push(index);
            }
        }
        let asked = self.has_names && events.next().is_some_and(|events| !events.is_empty());
        Knocks { at, asked, events: self.connections.into_iter().zip(events).collect() }
    }
}

impl Doors {
    /// The last of them is the one for names.
    pub(crate) fn new(mut sockets: Vec<OwnedFd>) -> Doors {
        let names = sockets.pop();
        Doors {
            listeners: sockets,
            names,
            connections: Vec::new(),
            asked: Vec::new(),
            rests_until: None,
            next_id: KNOCKS_FIRST,
        }
    }

    /// What to poll for: the listeners, the names, and then each connection. `has_room` is for what goes to the host.
    pub(crate) fn interests<'a>(&'a self, has_room: bool, polled: &mut Vec<PollFd<'a>>) -> Interests {
        let rests = self.rests_until.is_some_and(|until| Instant::now() < until);
        let lets_in = self.connections.len() < KNOCKS_MAX && has_room && !rests;
        let listeners = if lets_in { self.listeners.as_slice() } else { &[] };
        polled.extend(listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)));
        let names = self.names.as_ref().filter(|_| has_room);
        polled.extend(names.map(|names| PollFd::new(names, PollFlags::IN)));
        polled.extend(self.connections.iter().map(|connection| connection.interest(has_room)));
        let connections = self.connections.iter().map(|connection| connection.id).collect();
        Interests { listeners: listeners.len(), has_names: names.is_some(), connections }
    }

    pub(crate) fn patience(&self) -> Option<Duration> {
        self.rests_until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    pub(crate) fn owns(&self, id: u32) -> bool {
        id >= KNOCKS_FIRST
    }

    pub(crate) fn advance(&mut self, knocks: &Knocks, stream: &mut Stream) -> Result<(), Gone> {
        self.rests_until.take_if(|until| Instant::now() >= *until);
        let mut failed = None;
        self.connections.retain_mut(|connection| {
            let events = knocks.events.iter().find(|(id, _)| *id == connection.id);
            match connection.advance(events.map_or(PollFlags::empty(), |(_, events)| *events), stream) {
                Ok(fate) => fate == Fate::Stands,
                Err(gone) => {
                    failed = Some(gone);
                    false
                }
            }
        });
        if let Some(gone) = failed {
            return Err(gone);
        }
        for index in &knocks.at {
            self.let_in(*index, stream)?;
        }
        if knocks.asked { self.hear_name(stream) } else { Ok(()) }
    }

    fn let_in(&mut self, index: usize, stream: &mut Stream) -> Result<(), Gone> {
        if self.connections.len() >= KNOCKS_MAX {
            return Ok(());
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.listeners[index], flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(()),
            Err(_) => {
                self.rests_until = Some(Instant::now() + REST);
                return Ok(());
            }
        };
        // What the program meant by it is told by the address that it reached us at.
        let Some((to, port)) = getsockname(&socket).ok().and_then(|name| ipv4(name.try_into().ok()?)) else {
            return Ok(());
        };
        let id = self.number();
        stream.send(&FromGuest::Knock { id, to, port })?;
        self.connections.push(Connection::new(id, socket));
        Ok(())
    }

    fn hear_name(&mut self, stream: &mut Stream) -> Result<(), Gone> {
        let Some(names) = &self.names else { return Ok(()) };
        let mut datagram = [0; NAME_MAX];
        let Ok((count, _, Some(from))) = recvfrom(names, &mut datagram[..], RecvFlags::empty()) else { return Ok(()) };
        let Ok(from) = SocketAddr::try_from(from) else { return Ok(()) };
        self.asked.retain(|name| name.since.elapsed() < NAME_TIME);
        if self.asked.len() >= NAMES_OPEN {
            self.asked.remove(0);
        }
        let id = self.number();
        stream.send(&FromGuest::Name { id, bytes: datagram[..count].to_vec() })?;
        self.asked.push(Name { id, from, since: Instant::now() });
        Ok(())
    }

    /// A piece of what comes back. For one that has gone it is nobody's.
    pub(crate) fn answer(&mut self, id: u32, bytes: &[u8], part: Part, stream: &mut Stream) -> Result<(), Gone> {
        if let Some(index) = self.asked.iter().position(|name| name.id == id) {
            let name = self.asked.swap_remove(index);
            if let Some(names) = &self.names {
                // One that does not fit now is asked for again.
                let _ = sendto(names, bytes, SendFlags::NOSIGNAL, &name.from);
            }
            return Ok(());
        }
        let Some(index) = self.connections.iter().position(|connection| connection.id == id) else { return Ok(()) };
        if self.connections[index].hear(bytes, part, stream)? == Fate::Over {
            self.connections.swap_remove(index);
        }
        Ok(())
    }

    /// The host has handed on so much of what a connection said.
    pub(crate) fn taken(&mut self, id: u32, bytes: u32) {
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.id == id) {
            connection.room = (connection.room + bytes as usize).min(INPUT_WINDOW);
        }
    }

    /// The host is done with a connection, whatever it still has to say.
    pub(crate) fn hang_up(&mut self, id: u32) {
        self.connections.retain(|connection| connection.id != id);
    }

    fn number(&mut self) -> u32 {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1) | KNOCKS_FIRST;
        id
    }
}

fn ipv4(address: SocketAddr) -> Option<(Ipv4Addr, u16)> {
    match address {
        SocketAddr::V4(address) => Some((*address.ip(), address.port())),
        SocketAddr::V6(_) => None,
    }
}
