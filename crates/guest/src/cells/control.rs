//! The guest's end of a kernel's control socket. The other end is the driver's, and that of whatever code gets hold of it:
//! every length is checked, nothing is kept but a header line, and what does not parse is the kernel's end.

use std::os::fd::OwnedFd;

use belljar_core::wire::{CHUNK_MAX, Part, RECORD_MAX};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// No header line is longer, with its end.
const HEADER_MAX: usize = 64;

/// No number is longer: a process's, or an exit code.
const NUMBER_MAX: usize = 11;

/// The driver does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// What a driver said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said<'a> {
    Ready,
    /// A record begins here; its parts follow.
    Record,
    RecordPart {
        bytes: &'a [u8],
        part: Part,
    },
    Done {
        code: i32,
    },
}

#[derive(Debug)]
pub(super) struct Control {
    /// `None` when the driver has closed its end.
    socket: Option<OwnedFd>,
    outgoing: Vec<u8>,
    written: usize,
    parser: Parser,
    /// Of what was in it when the kernel was gone, so much is left.
    left: u64,
}

impl Control {
    /// `socket` must be non-blocking.
    pub(super) fn new(socket: OwnedFd) -> Control {
        Control { socket: Some(socket), outgoing: Vec::new(), written: 0, parser: Parser::default(), left: 0 }
    }

    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Whether the other end is closed, and with it whoever held it gone.
    pub(super) fn has_hung_up(&self) -> bool {
        let Some(socket) = &self.socket else { return true };
        let mut polled = [PollFd::new(socket, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
    }

    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    pub(super) fn has_outgoing(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Adds a message; [`Control::write`] sends it.
    pub(super) fn say(&mut self, header: &str, payload: &[u8]) {
        self.outgoing.extend_from_slice(header.as_bytes());
        self.outgoing.extend_from_slice(payload);
    }

    /// Writes what the socket takes now: it holds less than a large cell.
    pub(super) fn write(&mut self) {
        while let Some(socket) = self.socket.as_ref().filter(|_| self.has_outgoing()) {
            match rustix::io::write(socket, &self.outgoing[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // There may still be something to read.
                Err(_) => break,
            }
        }
        self.outgoing = Vec::new();
        self.written = 0;
    }

    pub(super) fn interest(&self, listens: bool) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        if listens {
            flags |= PollFlags::IN;
        }
        if self.has_outgoing() {
            flags |= PollFlags::OUT;
        }
        // Without a flag, since a hang-up would still wake.
        self.socket.as_ref().filter(|_| !flags.is_empty()).map(|socket| PollFd::new(socket, flags))
    }

    /// Reads one chunk, and gives what was said to `hear`. `chunk` is empty before and after.
    pub(super) fn read<E: From<Broken>>(
        &mut self,
        chunk: &mut Vec<u8>,
        mut hear: impl FnMut(Said<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(socket) = &self.socket else { return Ok(()) };
        chunk.reserve_exact(CHUNK_MAX);
        match rustix::io::read(socket, spare_capacity(chunk)) {
            Ok(0) => self.socket = None,
            Ok(count) => self.left = self.left.saturating_sub(count as u64),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.socket = None,
        }
        let mut rest = chunk.as_slice();
        let outcome = loop {
            match self.parser.next(&mut rest) {
                Ok(Some(said)) => {
                    if let Err(error) = hear(said) {
                        break Err(error);
                    }
                }
                Ok(None) => break Ok(()),
                Err(broken) => break Err(broken.into()),
            }
        };
        chunk.clear();
        outcome
    }

    /// The kernel is gone: what is in the socket now is all that it has said. A stranger with the same socket can add to
    /// it, and is not waited for.
    pub(super) fn mark(&mut self) {
        self.left = self.socket.as_ref().and_then(|socket| rustix::io::ioctl_fionread(socket).ok()).unwrap_or(0);
    }

    pub(super) fn left(&self) -> u64 {
        if self.is_open() { self.left } else { 0 }
    }
}

#[derive(Debug, Default)]
struct Parser {
    expects: Expects,
    /// A header line as far as it has come, or a number.
    line: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Expects {
    #[default]
    Header,
    Record {
        left: usize,
    },
    Ready {
        left: usize,
    },
    Done {
        left: usize,
    },
}

impl Parser {
    /// The next thing in `bytes`, which are cut by what it took. `None` when more have to come.
    fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Said<'a>>, Broken> {
        match self.expects {
            Expects::Header => self.header(bytes),
            // One that is empty has its last part all the same.
            Expects::Record { left } if left > 0 && bytes.is_empty() => Ok(None),
            Expects::Record { left } => {
                let (now, rest) = bytes.split_at(left.min(bytes.len()));
                *bytes = rest;
                let left = left - now.len();
                self.expects = if left == 0 { Expects::Header } else { Expects::Record { left } };
                let part = if left == 0 { Part::Last } else { Part::MoreComes };
                Ok(Some(Said::RecordPart { bytes: now, part }))
            }
            Expects::Ready { left } => Ok(self.number(left, bytes)?.map(|_| Said::Ready)),
            Expects::Done { left } => Ok(self.number(left, bytes)?.map(|code| Said::Done { code })),
        }
    }

    fn header<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Said<'a>>, Broken> {
        let end = bytes.iter().take(HEADER_MAX).position(|&byte| byte == b'\n');
        let taken = end.unwrap_or(bytes.len());
        if self.line.len() + taken >= HEADER_MAX {
            return Err(Broken);
        }
        self.line.extend_from_slice(&bytes[..taken]);
        if end.is_none() {
            *bytes = &[];
            return Ok(None);
        }
        *bytes = &bytes[taken + 1..];
        let line = std::mem::take(&mut self.line);
        let (word, length) = str::from_utf8(&line).ok().and_then(|line| line.split_once(' ')).ok_or(Broken)?;
        let left = digits(length).ok_or(Broken)?;
        self.expects = match word {
            "record" if left <= RECORD_MAX => Expects::Record { left },
            "ready" if left <= NUMBER_MAX => Expects::Ready { left },
            "done" if left <= NUMBER_MAX => Expects::Done { left },
            _ => return Err(Broken),
        };
        match self.expects {
            Expects::Record { .. } => Ok(Some(Said::Record)),
            _ => self.next(bytes),
        }
    }

    fn number(&mut self, left: usize, bytes: &mut &[u8]) -> Result<Option<i32>, Broken> {
        let wanted = left - self.line.len();
        let (now, rest) = bytes.split_at(wanted.min(bytes.len()));
        self.line.extend_from_slice(now);
        *bytes = rest;
        if now.len() < wanted {
            return Ok(None);
        }
        self.expects = Expects::Header;
        let number = str::from_utf8(&std::mem::take(&mut self.line)).ok().and_then(|text| text.parse().ok());
        number.map(Some).ok_or(Broken)
    }
}

/// A plain decimal number, without a sign.
fn digits(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard when `bytes` come in pieces of `size`: records put together.
    fn heard(bytes: &[u8], size: usize) -> Result<Vec<String>, Broken> {
        let (mut parser, mut all, mut record) = (Parser::default(), Vec::new(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while let Some(said) = parser.next(&mut piece)? {
                match said {
                    Said::Ready => all.push("ready".to_owned()),
                    Said::Record => record.clear(),
                    Said::RecordPart { bytes, part } => {
                        record.extend_from_slice(bytes);
                        if part == Part::Last {
                            all.push(String::from_utf8(record.clone()).unwrap());
                        }
                    }
                    Said::Done { code } => all.push(format!("done {code}")),
                }
            }
            assert!(piece.is_empty());
        }
        Ok(all)
    }

    #[test]
    fn a_closed_other_end_is_seen_also_behind_what_was_said() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut control = Control::new(ours);
        assert!(!control.has_hung_up());
        rustix::io::write(&theirs, b"ready 1\n1").unwrap();
        assert!(!control.has_hung_up());
        drop(theirs);
        assert!(control.has_hung_up());
        control.close();
        assert!(control.has_hung_up());
    }

    #[test]
    fn messages_are_heard_however_they_are_cut() {
        let bytes = b"ready 3\n123record 7\n{\"a\":1}record 0\nrecord 2\n\n\ndone 2\n-1done 3\n130";
        for size in 1..bytes.len() + 1 {
            let all = heard(bytes, size).unwrap();
            assert_eq!(all, ["ready", "{\"a\":1}", "", "\n\n", "done -1", "done 130"], "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_not_a_message_is_the_end() {
        let long = [b"record ".as_slice(), &[b'0'; 80]].concat();
        for bytes in [
            b"record 16777217\n".as_slice(),
            b"record -1\n",
            b"record +1\n",
            b"record \n",
            b"record 1 2\n",
            b"record\n",
            b"record 99999999999999999999999\n",
            b"done 12\n",
            b"done 1\nx",
            b"done 0\n",
            b"done 11\n99999999999",
            b"ready 12\n",
            b"hello 1\nx",
            b"\n",
            b"\xff\xff 1\n",
            &long,
            &[b'x'; 1000],
        ] {
            for size in [1, 7, 4096] {
                assert_eq!(heard(bytes, size), Err(Broken), "{:?}", String::from_utf8_lossy(bytes));
            }
        }
    }

    #[test]
    fn a_header_may_be_as_long_as_it_may() {
        let longest = format!("record {}1\nx", "0".repeat(HEADER_MAX - 9));
        assert_eq!(longest.find('\n'), Some(HEADER_MAX - 1));
        assert_eq!(heard(longest.as_bytes(), 5), Ok(vec!["x".to_owned()]));
        assert_eq!(heard(longest.replacen("record ", "record 0", 1).as_bytes(), 5), Err(Broken));
    }
}
