//! What a program printed, in the order in which it came, and not a byte more than its limit.

use std::collections::VecDeque;

use belljar_core::Stream;
use tokio::sync::mpsc::UnboundedSender;

use crate::RunId;

/// Something that a program just printed, for whoever listens while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub run: RunId,
    pub stream: Stream,
    pub bytes: Vec<u8>,
    /// The listener hears no more, though there was more.
    pub is_last: bool,
}

/// What one listener hears of a run, by bytes. It waits for nobody, so that this is also the most that is kept for it.
const HEARD_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
struct Listener {
    run: RunId,
    to: UnboundedSender<Piece>,
    room: usize,
}

/// Both streams in one buffer. Offsets count all bytes that ever came, so that a reader can go on where it stopped.
#[derive(Debug)]
pub(crate) struct Log {
    bytes: VecDeque<u8>,
    /// The offset of the first byte that is still here.
    start: u64,
    /// Where each piece ends, and whose it is; the pieces follow one another without a gap.
    pieces: VecDeque<(u64, Stream)>,
    room: usize,
    full: Full,
    listener: Option<Listener>,
}

/// What becomes of output past the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// It is dropped, and whoever asked for the limit is told.
    Refuses,
    /// The oldest makes room: nobody waits for the end of a job, and a server that talks is no failure.
    Forgets,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Whole,
    /// There was more than the limit; the rest is gone.
    InPart,
}

/// A part of the output, by stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Bytes that were asked for and are forgotten.
    pub(crate) missed: u64,
    /// Where the next part begins.
    pub(crate) end: u64,
}

impl Log {
    pub(crate) fn new(output_bytes_max: u64) -> Log {
        let room = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
        Log { bytes: VecDeque::new(), start: 0, pieces: VecDeque::new(), room, full: Full::Refuses, listener: None }
    }

    /// From here on each piece is also told to a listener.
    pub(crate) fn overhear(&mut self, run: RunId, to: UnboundedSender<Piece>) {
        self.listener = Some(Listener { run, to, room: HEARD_BYTES_MAX });
    }

    pub(crate) fn when_full(&mut self, full: Full) {
        self.full = full;
    }

    /// Sets the limit, which is known only when the sandbox is.
    pub(crate) fn limit(&mut self, output_bytes_max: u64) {
        self.room = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
    }

    /// How many of `count` further bytes will be kept.
    pub(crate) fn room_for(&self, count: usize) -> usize {
        match self.full {
            Full::Refuses => count.min(self.room.saturating_sub(self.memory())),
            Full::Forgets => count,
        }
    }

    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8]) -> Kept {
        let kept = &bytes[..self.room_for(bytes.len())];
        self.tell(stream, kept);
        self.bytes.extend(kept);
        let end = self.end();
        match self.pieces.back_mut() {
            Some((last, whose)) if *whose == stream => *last = end,
            _ => self.pieces.push_back((end, stream)),
        }
        if self.full == Full::Forgets {
            self.forget();
        }
        if kept.len() < bytes.len() { Kept::InPart } else { Kept::Whole }
    }

    fn tell(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(listener) = self.listener.as_mut().filter(|_| !bytes.is_empty()) else { return };
        let told = &bytes[..bytes.len().min(listener.room)];
        let is_last = told.len() < bytes.len();
        listener.room -= told.len();
        let printed = Piece { run: listener.run.clone(), stream, bytes: told.to_vec(), is_last };
        if listener.to.send(printed).is_err() || is_last {
            self.listener = None;
        }
    }

    /// What it takes, of which a program that goes from one stream to the other with every byte makes the most. The first
    /// few pieces are free: a limit is met to the byte by whoever does not do that.
    pub(crate) fn memory(&self) -> usize {
        const FREE: usize = 4096;
        self.bytes.len() + self.pieces.len().saturating_sub(FREE) * size_of::<(u64, Stream)>()
    }

    fn forget(&mut self) {
        let over = self.memory().saturating_sub(self.room).min(self.bytes.len());
        self.bytes.drain(..over);
        self.start += over as u64;
        while self.pieces.front().is_some_and(|(end, _)| *end <= self.start) {
            self.pieces.pop_front();
        }
    }

    /// Everything, and nothing stays. Output of one stream alone is not copied.
    pub(crate) fn take_all(&mut self) -> Part {
        let end = self.end();
        let [(_, stream)] = *self.pieces.make_contiguous() else {
            let part = self.since(0);
            self.bytes = VecDeque::new();
            self.start = end;
            self.pieces.clear();
            return part;
        };
        self.pieces.clear();
        self.start = end;
        let bytes = Vec::from(std::mem::take(&mut self.bytes));
        match stream {
            Stream::Stdout => Part { stdout: bytes, end, ..Part::default() },
            Stream::Stderr => Part { stderr: bytes, end, ..Part::default() },
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// What came from `offset` on.
    pub(crate) fn since(&self, offset: u64) -> Part {
        let end = self.end();
        let from = offset.clamp(self.start, end);
        let mut part = Part { missed: self.start.saturating_sub(offset), end, ..Part::default() };
        let mut at = self.start;
        for (piece_end, stream) in &self.pieces {
            let begin = at.max(from);
            at = *piece_end;
            if begin < at {
                let range = (begin - self.start) as usize..(at - self.start) as usize;
                let buffer = match stream {
                    Stream::Stdout => &mut part.stdout,
                    Stream::Stderr => &mut part.stderr,
                };
                buffer.extend(self.bytes.range(range));
            }
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_share_one_room() {
        let mut log = Log::new(5);
        assert_eq!(log.take(Stream::Stdout, b"abc"), Kept::Whole);
        assert_eq!(log.take(Stream::Stderr, b"de"), Kept::Whole, "exactly the limit is not too much");
        assert_eq!(log.take(Stream::Stdout, b""), Kept::Whole);
        assert_eq!(log.take(Stream::Stdout, b"f"), Kept::InPart);
        let all = log.since(0);
        assert_eq!((all.stdout, all.stderr, all.end), (b"abc".to_vec(), b"de".to_vec(), 5));
    }

    #[test]
    fn the_part_that_fits_is_kept() {
        let mut log = Log::new(4);
        log.take(Stream::Stderr, b"ab");
        assert_eq!(log.take(Stream::Stderr, b"cdef"), Kept::InPart);
        assert_eq!(log.since(0).stderr, b"abcd");
    }

    #[test]
    fn a_reader_goes_on_where_it_stopped() {
        let mut log = Log::new(100);
        log.take(Stream::Stdout, b"one");
        let first = log.since(0);
        log.take(Stream::Stderr, b"two");
        log.take(Stream::Stdout, b"three");
        let second = log.since(first.end);
        assert_eq!((second.stdout.as_slice(), second.stderr.as_slice()), (&b"three"[..], &b"two"[..]));
        assert_eq!(log.since(second.end), Part { end: 11, ..Part::default() });
        assert_eq!(log.since(u64::MAX), Part { end: 11, ..Part::default() });
        assert_eq!(log.since(4).stderr, b"wo", "in the middle of a piece");
    }

    #[test]
    fn what_is_taken_is_all_of_it_once() {
        for pieces in [&[(Stream::Stdout, "a")][..], &[(Stream::Stdout, "a"), (Stream::Stderr, "b")], &[]] {
            let mut log = Log::new(100);
            for (stream, text) in pieces {
                log.take(*stream, text.as_bytes());
            }
            let whole = log.since(0);
            assert_eq!(log.take_all(), whole);
            assert_eq!(log.since(0), Part { end: whole.end, missed: whole.end, ..Part::default() });
        }
    }

    #[test]
    fn a_job_forgets_its_oldest_output_and_says_how_much() {
        let mut log = Log::new(4);
        log.when_full(Full::Forgets);
        log.take(Stream::Stdout, b"abc");
        log.take(Stream::Stderr, b"def");
        assert_eq!(log.take(Stream::Stdout, b"gh"), Kept::Whole);
        let part = log.since(1);
        assert_eq!((part.stdout.as_slice(), part.stderr.as_slice()), (&b"gh"[..], &b"ef"[..]));
        assert_eq!((part.missed, part.end), (3, 8));
    }
}
