//! Lines of a byte stream, each at most so long. A longer one is thrown away as it comes, and told once.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

const BUFFER_BYTES: usize = 64 * 1024;
/// A buffer that a long line made is not kept for the short ones that follow.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Without its newline.
    Whole(Vec<u8>),
    TooLong(Trace),
}

/// How a line that is too long begins and ends, so that its sender can be told which one it was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
}

/// So much of each end.
const END_BYTES: usize = 256;

impl Trace {
    fn add(&mut self, part: &[u8]) {
        let room = END_BYTES - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        self.tail.extend_from_slice(&part[part.len().saturating_sub(END_BYTES)..]);
        let over = self.tail.len().saturating_sub(END_BYTES);
        self.tail.drain(..over);
    }
}

#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R, bytes_max: usize) -> Lines<R> {
        Lines { reader: BufReader::with_capacity(BUFFER_BYTES, reader), line: Vec::new(), bytes_max }
    }

    /// The next line; the last one need not end with a newline. `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        let mut too_long: Option<Trace> = None;
        loop {
            let available = match self.reader.fill_buf().await {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            if available.is_empty() {
                return Ok(match (too_long, self.line.is_empty()) {
                    (Some(ends), _) => Some(Line::TooLong(ends)),
                    (None, true) => None,
                    (None, false) => Some(Line::Whole(self.take())),
                });
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..newline.unwrap_or(available.len())];
            if self.line.len() + part.len() > self.bytes_max {
                too_long.get_or_insert_default().add(&std::mem::take(&mut self.line));
            }
            match &mut too_long {
                Some(ends) => ends.add(part),
                None => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(newline.is_some());
            self.reader.consume(used);
            if newline.is_some() {
                return Ok(Some(match too_long {
                    Some(ends) => Line::TooLong(ends),
                    None => Line::Whole(self.take()),
                }));
            }
        }
    }

    fn take(&mut self) -> Vec<u8> {
        let capacity = self.line.len().min(KEPT_BYTES_MAX);
        std::mem::replace(&mut self.line, Vec::with_capacity(capacity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8], bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines::new(bytes, bytes_max);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    /// What is told of a line that is too long, however it came.
    fn too_long(line: &[u8]) -> Line {
        let end = line.len().min(END_BYTES);
        Line::TooLong(Trace { head: line[..end].into(), tail: line[line.len() - end..].into() })
    }

    #[tokio::test]
    async fn lines_come_one_by_one() {
        assert_eq!(all(b"a\n\nbc\nlast", 10).await, [whole("a"), whole(""), whole("bc"), whole("last")]);
        assert_eq!(all(b"", 10).await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_once_and_the_next_is_read() {
        let long = format!("{}\nok\n", "x".repeat(300_000));
        assert_eq!(all(long.as_bytes(), 1000).await, [too_long(&long.as_bytes()[..300_000]), whole("ok")]);
        assert_eq!(all(&[b'x'; 300_000], 1000).await, [too_long(&[b'x'; 300_000])]);
        assert_eq!(all(b"12345\n123456\n", 5).await, [whole("12345"), too_long(b"123456")]);
    }

    #[tokio::test]
    async fn a_long_line_takes_no_memory() {
        let mut lines = Lines::new(tokio::io::AsyncReadExt::take(tokio::io::repeat(b'x'), 50_000_000), 1000);
        assert_eq!(lines.next().await.unwrap(), Some(too_long(&[b'x'; 1000])));
        assert!(lines.line.capacity() < 2000);
    }
}
