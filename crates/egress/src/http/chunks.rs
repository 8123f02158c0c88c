//! Bodies in chunks: taken apart strictly, and put together anew.

use super::head::Bad;

const LINE_MAX: usize = 256;
const TRAILERS_MAX: usize = 8 * 1024;

/// Takes a chunked body apart, however it is cut.
#[derive(Debug, Default)]
pub struct Chunks {
    state: State,
    line: Vec<u8>,
    trailers: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    /// The end of the line behind the data.
    Gap,
    Trailers,
    Done,
}

impl Chunks {
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Puts what is body into `body`, and says how many of the bytes belong to it at all. What is behind its end stays.
    pub fn push(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<usize, Bad> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if let State::Data(left) = self.state {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                body.extend_from_slice(&bytes[at..at + count]);
                at += count;
                let left = left - count as u64;
                self.state = if left == 0 { State::Gap } else { State::Data(left) };
                continue;
            }
            let byte = bytes[at];
            at += 1;
            self.line.push(byte);
            if self.line.len() > LINE_MAX && self.state != State::Trailers || self.line.len() > TRAILERS_MAX {
                return Err(Bad("a line of the body's chunks is too long"));
            }
            if byte == b'\n' {
                self.line_ended()?;
            }
        }
        Ok(at)
    }

    fn line_ended(&mut self) -> Result<(), Bad> {
        let line = std::mem::take(&mut self.line);
        let Some(line) = line.strip_suffix(b"\r\n").filter(|line| !line.contains(&b'\r')) else {
            return Err(Bad("a line of the body's chunks does not end in CR LF"));
        };
        self.state = match self.state {
            State::Size => match size(line)? {
                0 => State::Trailers,
                size => State::Data(size),
            },
            State::Gap if line.is_empty() => State::Size,
            State::Gap => return Err(Bad("a chunk is longer than it says")),
            // They are dropped.
            State::Trailers if line.is_empty() => State::Done,
            State::Trailers | State::Data(_) | State::Done => {
                self.trailers += line.len();
                if self.trailers > TRAILERS_MAX {
                    return Err(Bad("there is too much behind the body's last chunk"));
                }
                State::Trailers
            }
        };
        Ok(())
    }
}

/// What is behind a semicolon is nobody's business.
fn size(line: &[u8]) -> Result<u64, Bad> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let is_plain = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain);
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Bad("the size of a chunk is no number"))
}

/// One chunk; nothing for no bytes, which would be the end.
pub fn write(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

pub const LAST: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), Bad> {
        let (mut chunks, mut body) = (Chunks::default(), Vec::new());
        let used = chunks.push(bytes, &mut body)?;
        Ok((body, used, chunks.is_done()))
    }

    #[test]
    fn a_body_ends_where_it_says() {
        assert_eq!(
            read(b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: v\r\n\r\nnext"),
            Ok((b"abc0123456789".to_vec(), 38, true))
        );
        assert_eq!(read(b"3\r\nab"), Ok((b"ab".to_vec(), 5, false)));
    }

    #[test]
    fn what_could_be_read_differently_is_refused() {
        for bytes in [
            &b"3\nabc\r\n"[..],
            b"3\r\nabcd\r\n",
            b"+3\r\n",
            b"0x3\r\n",
            b" 3\r\n",
            b"3 \r\n",
            b"\r\n",
            b"ffffffffffffffff\r\n",
            b"3;\r;\r\n",
        ] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&[b'1'; 300]).is_err());
    }

    proptest! {
        #[test]
        fn no_body_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((body, used, _)) = read(&bytes) {
                prop_assert!(used <= bytes.len() && body.len() <= used);
            }
        }

        #[test]
        fn what_is_put_together_comes_apart_however_it_is_cut(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5),
            cut in 1_usize..20,
        ) {
            let mut wire = Vec::new();
            pieces.iter().for_each(|piece| write(piece, &mut wire));
            wire.extend_from_slice(LAST);
            let (mut chunks, mut body) = (Chunks::default(), Vec::new());
            for part in wire.chunks(cut) {
                prop_assert_eq!(chunks.push(part, &mut body).unwrap(), part.len());
            }
            prop_assert!(chunks.is_done());
            prop_assert_eq!(body, pieces.concat());
        }
    }
}
