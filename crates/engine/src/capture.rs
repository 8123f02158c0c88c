//! What a program printed, up to its limit and not a byte more.

use belljar_core::Stream;

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    room: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Whole,
    /// There was more than the limit; the rest is gone.
    InPart,
}

impl Capture {
    pub(crate) fn new(output_bytes_max: u64) -> Capture {
        let room = usize::try_from(output_bytes_max).unwrap_or(usize::MAX);
        Capture { stdout: Vec::new(), stderr: Vec::new(), room }
    }

    /// Bytes that will still be kept.
    pub(crate) fn room(&self) -> usize {
        self.room
    }

    pub(crate) fn take(&mut self, stream: Stream, mut bytes: Vec<u8>) -> Kept {
        let kept = if bytes.len() > self.room { Kept::InPart } else { Kept::Whole };
        bytes.truncate(self.room);
        self.room -= bytes.len();
        let buffer = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        // Most programs print once.
        if buffer.is_empty() {
            *buffer = bytes
        } else {
            buffer.extend_from_slice(&bytes)
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_share_one_room() {
        let mut capture = Capture::new(5);
        assert_eq!(capture.take(Stream::Stdout, b"abc".to_vec()), Kept::Whole);
        assert_eq!(capture.take(Stream::Stderr, b"de".to_vec()), Kept::Whole, "exactly the limit is not too much");
        assert_eq!(capture.take(Stream::Stdout, Vec::new()), Kept::Whole);
        assert_eq!(capture.take(Stream::Stdout, b"f".to_vec()), Kept::InPart);
        assert_eq!((capture.stdout, capture.stderr), (b"abc".to_vec(), b"de".to_vec()));
    }

    #[test]
    fn the_part_that_fits_is_kept() {
        let mut capture = Capture::new(4);
        capture.take(Stream::Stderr, b"ab".to_vec());
        assert_eq!(capture.take(Stream::Stderr, b"cdef".to_vec()), Kept::InPart);
        assert_eq!(capture.stderr, b"abcd");
    }
}
