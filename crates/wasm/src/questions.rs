//! What code asks of those outside. An interpreter has one thread, and so one question at a time.

use belljar_core::wire::{ASKED_FIRST, CHUNK_MAX, FromGuest, KNOCKS_FIRST, Part};

use crate::line::Line;
use crate::stream::{Gone, Stream};

#[derive(Debug)]
pub(crate) struct Questions {
    next: u32,
    open: Vec<Question>,
}

#[derive(Debug)]
struct Question {
    id: u32,
    instance: u64,
    line: Line,
}

impl Default for Questions {
    fn default() -> Self {
        Questions { next: ASKED_FIRST, open: Vec::new() }
    }
}

impl Questions {
    pub(crate) fn ask(
        &mut self,
        instance: u64,
        line: Line,
        by: Option<u32>,
        text: &[u8],
        stream: &mut Stream,
    ) -> Result<(), Gone> {
        // It has one at a time: the one before was given up.
        self.withdraw(instance, stream)?;
        let id = self.next;
        self.next = if self.next + 1 < KNOCKS_FIRST { self.next + 1 } else { ASKED_FIRST };
        let mut parts = text.chunks(CHUNK_MAX).peekable();
        while let Some(part) = parts.next() {
            let rest = if parts.peek().is_some() { Part::MoreComes } else { Part::Last };
            stream.send(&FromGuest::Asked { id, by, bytes: part.to_vec(), part: rest })?;
        }
        self.open.push(Question { id, instance, line });
        Ok(())
    }

    /// A piece of an answer. One to a question that was withdrawn is nobody's.
    pub(crate) fn answer(&mut self, id: u32, bytes: &[u8], part: Part, stream: &mut Stream) -> Result<(), Gone> {
        let Some(index) = self.open.iter().position(|question| question.id == id) else { return Ok(()) };
        self.open[index].line.put(|inbox| {
            inbox.answer.extend_from_slice(bytes);
            inbox.is_answered = part == Part::Last;
        });
        if part == Part::Last {
            self.open.swap_remove(index);
            return Ok(());
        }
        // It is kept here until it is read: an answer has a bound of its host's.
        stream.send(&FromGuest::Taken { id, bytes: bytes.len() as u32 })
    }

    /// Whatever an interpreter asked, nobody waits for.
    pub(crate) fn withdraw(&mut self, instance: u64, stream: &mut Stream) -> Result<(), Gone> {
        let mut index = 0;
        while index < self.open.len() {
            if self.open[index].instance == instance {
                stream.send(&FromGuest::Withdrawn { id: self.open.swap_remove(index).id })?;
            } else {
                index += 1;
            }
        }
        Ok(())
    }
}
