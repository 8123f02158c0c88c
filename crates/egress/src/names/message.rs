//! Questions and answers of DNS, as far as a sandbox needs them: one question, one address.

use std::net::Ipv4Addr;

/// The longest datagram that is read, and more than any that is written.
pub const BYTES_MAX: usize = 512;

const HEAD: usize = 12;
const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
/// How long a sandbox may remember a stand-in.
const SECONDS_TO_LIVE: u32 = 60;

/// A question that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    id: u16,
    wants_recursion: bool,
    /// As it came, for the answer.
    section: Vec<u8>,
    /// With dots between its labels, in the letters in which it came.
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An IPv4 address, the only thing that is ever answered with.
    Address,
    Other,
}

/// What is wrong with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// No question at all: it gets no answer.
    Noise,
    /// The answer that its sender gets.
    Malformed { id: u16, code: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Address(Ipv4Addr),
    /// The name is there, and has nothing of that kind.
    Empty,
    NoSuchName,
    /// Too many names.
    Failure,
}

const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

impl Question {
    pub fn parse(bytes: &[u8]) -> Result<Question, Bad> {
        let word = |at: usize| bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
        let (Some(id), Some(flags), Some(questions)) = (word(0), word(2), word(4)) else { return Err(Bad::Noise) };
        // An answer is no question, and answering one could go on for ever.
        if bytes.len() < HEAD || flags & 0x8000 != 0 {
            return Err(Bad::Noise);
        }
        if flags & 0x7800 != 0 {
            return Err(Bad::Malformed { id, code: NOT_IMPLEMENTED });
        }
        let malformed = Bad::Malformed { id, code: FORMAT_ERROR };
        if questions != 1 || word(6) != Some(0) {
            return Err(malformed);
        }
        let (name, end) = name_at(bytes, HEAD).ok_or(malformed)?;
        let (kind, class) = (word(end).ok_or(malformed)?, word(end + 2).ok_or(malformed)?);
        let kind = if kind == TYPE_A && class == CLASS_IN { Kind::Address } else { Kind::Other };
        let section = bytes[HEAD..end + 4].to_vec();
        Ok(Question { id, wants_recursion: flags & 0x0100 != 0, section, name, kind })
    }

    pub fn answer(&self, answer: Answer) -> Vec<u8> {
        let code = match answer {
            Answer::Address(_) | Answer::Empty => 0,
            Answer::NoSuchName => NO_SUCH_NAME,
            Answer::Failure => SERVER_FAILURE,
        };
        let address = match answer {
            Answer::Address(address) => Some(address),
            Answer::Empty | Answer::NoSuchName | Answer::Failure => None,
        };
        let mut bytes = head(self.id, self.wants_recursion, code, 1, u16::from(address.is_some()));
        bytes.extend_from_slice(&self.section);
        if let Some(address) = address {
            // The name is the question's, which is at the end of the head.
            bytes.extend_from_slice(&[0xc0, HEAD as u8]);
            bytes.extend_from_slice(&TYPE_A.to_be_bytes());
            bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
            bytes.extend_from_slice(&SECONDS_TO_LIVE.to_be_bytes());
            bytes.extend_from_slice(&4_u16.to_be_bytes());
            bytes.extend_from_slice(&address.octets());
        }
        bytes
    }
}

impl Bad {
    pub fn answer(self) -> Option<Vec<u8>> {
        match self {
            Bad::Noise => None,
            Bad::Malformed { id, code } => Some(head(id, false, code, 0, 0)),
        }
    }
}

fn head(id: u16, wants_recursion: bool, code: u8, questions: u16, answers: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BYTES_MAX);
    bytes.extend_from_slice(&id.to_be_bytes());
    // An answer, with authority; recursion as it was asked for, and available.
    bytes.extend_from_slice(&[0x84 | u8::from(wants_recursion), 0x80 | code]);
    for count in [questions, answers, 0, 0] {
        bytes.extend_from_slice(&count.to_be_bytes());
    }
    bytes
}

/// The name at `at`, and where it ends. Without pointers, which a question has no use for. A label with a dot in it, or with
/// anything else that no host has, would read as another name than it is.
fn name_at(bytes: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() + length > 253 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        for byte in bytes.get(at..at + length)? {
            if !(byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
                return None;
            }
            name.push(char::from(*byte));
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(name: &[u8], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes
    }

    #[test]
    fn a_question_is_read_and_answered() {
        let asked = Question::parse(&question(b"\x03Api\x04test\0", 1)).unwrap();
        assert_eq!((asked.name.as_str(), asked.kind), ("Api.test", Kind::Address));
        let answer = asked.answer(Answer::Address(Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(&answer[..12], [0xab, 0xcd, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(&answer[12..26], b"\x03Api\x04test\0\0\x01\0\x01");
        assert_eq!(&answer[26..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18, 0, 1]);
        let none = asked.answer(Answer::NoSuchName);
        assert_eq!((none[3] & 15, none[7]), (3, 0));
        let other = Question::parse(&question(b"\x01a\0", 28)).unwrap();
        assert_eq!(other.kind, Kind::Other);
    }

    #[test]
    fn what_would_read_as_another_name_is_malformed() {
        for name in [&b"\x07api.tes\0"[..], b"\x02a\0\0", b"\x01\xff\0", b"\xc0\x0c", b"\x05ab", b"\x01a"] {
            assert_eq!(
                Question::parse(&question(name, 1)).map_err(|bad| bad.answer().map(|bytes| bytes[3] & 15)),
                Err(Some(FORMAT_ERROR)),
                "{name:?}"
            );
        }
    }

    #[test]
    fn an_answer_is_not_answered() {
        let mut bytes = question(b"\x01a\0", 1);
        bytes[2] |= 0x80;
        assert_eq!(Question::parse(&bytes), Err(Bad::Noise));
        assert_eq!(Question::parse(b"short"), Err(Bad::Noise));
    }

    proptest! {
        #[test]
        fn no_datagram_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            match Question::parse(&bytes) {
                Ok(question) => {
                    let answer = question.answer(Answer::Address(Ipv4Addr::LOCALHOST));
                    prop_assert!(answer.len() <= BYTES_MAX);
                    prop_assert_eq!(&answer[..2], &bytes[..2]);
                }
                Err(bad) => prop_assert!(bad.answer().is_none_or(|answer| answer.len() == HEAD)),
            }
        }

        #[test]
        fn a_name_is_read_as_it_was_written(labels in prop::collection::vec("[a-zA-Z0-9_-]{1,20}", 1..8)) {
            let mut wire = Vec::new();
            for label in &labels {
                wire.push(label.len() as u8);
                wire.extend_from_slice(label.as_bytes());
            }
            wire.push(0);
            prop_assert_eq!(Question::parse(&question(&wire, 1)).unwrap().name, labels.join("."));
        }
    }
}
