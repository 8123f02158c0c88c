//! What a guest's programs ask, and what they are answered: the part of a link that the guest begins.
//!
//! How much of it there can be at once is bounded here too: no guest is trusted to keep to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::Asked;
use belljar_core::wire::{ASKED_FIRST, INPUT_WINDOW, KNOCKS_FIRST, Part, QUESTION_MAX, QUESTIONS_MAX};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Bytes of questions that nobody has taken yet. Past that the next is not asked.
const UNTAKEN_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Questions {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The one whose parts are coming.
    coming: Option<(u32, Vec<u8>)>,
    untaken: VecDeque<Asked>,
    open: HashMap<u32, Open>,
    has_ended: bool,
}

/// A question that is not answered to its end.
#[derive(Debug)]
struct Open {
    room: Arc<Semaphore>,
    pieces: mpsc::UnboundedSender<Piece>,
}

#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    pub(crate) part: Part,
}

/// A question's answer on its way: what it is made of, and how much of it the guest has room for.
#[derive(Debug)]
pub(crate) struct Answering {
    pub(crate) id: u32,
    pub(crate) pieces: mpsc::UnboundedReceiver<Piece>,
    pub(crate) room: Arc<Semaphore>,
}

/// What a part of a question came to.
#[derive(Debug)]
pub(crate) enum Heard {
    More,
    /// It is there for whoever takes it, and will be answered by this.
    Whole(Answering),
    /// There are too many; it is over.
    Refused,
    /// No guest of ours does this.
    OutOfTurn,
}

impl Questions {
    pub(crate) fn hear(&self, id: u32, by: Option<u32>, bytes: &[u8], part: Part) -> Heard {
        let mut state = self.state();
        let (coming, body) = state.coming.get_or_insert_with(|| (id, Vec::new()));
        if !(ASKED_FIRST..KNOCKS_FIRST).contains(&id) || *coming != id || body.len() + bytes.len() > QUESTION_MAX {
            return Heard::OutOfTurn;
        }
        body.extend_from_slice(bytes);
        if part == Part::MoreComes {
            return Heard::More;
        }
        let Some((_, body)) = state.coming.take() else { return Heard::OutOfTurn };
        if state.open.len() >= QUESTIONS_MAX || state.open.contains_key(&id) {
            return Heard::OutOfTurn;
        }
        let untaken: usize = state.untaken.iter().map(bytes_of).sum();
        if untaken + body.len() > UNTAKEN_BYTES_MAX || state.has_ended {
            return Heard::Refused;
        }
        let room = Arc::new(Semaphore::new(INPUT_WINDOW));
        let (sender, pieces) = mpsc::unbounded_channel();
        state.open.insert(id, Open { room: Arc::clone(&room), pieces: sender });
        state.untaken.push_back(Asked::Question { id, by, body });
        drop(state);
        self.news.notify_one();
        Heard::Whole(Answering { id, pieces, room })
    }

    pub(crate) fn withdraw(&self, id: u32) {
        let mut state = self.state();
        state.coming.take_if(|(coming, _)| *coming == id);
        // One that was just answered to its end is not known any more.
        let Some(open) = state.open.remove(&id) else { return };
        open.room.close();
        let before = state.untaken.len();
        state.untaken.retain(|asked| !matches!(asked, Asked::Question { id: other, .. } if *other == id));
        if state.untaken.len() == before {
            state.untaken.push_back(Asked::Withdrawn { id });
            drop(state);
            self.news.notify_one();
        }
    }

    /// The guest has handed on so much of an answer.
    pub(crate) fn taken(&self, id: u32, bytes: u32) {
        if let Some(open) = self.state().open.get(&id) {
            // No guest can make the window larger than it was.
            let taken = (bytes as usize).min(INPUT_WINDOW.saturating_sub(open.room.available_permits()));
            open.room.add_permits(taken);
        }
    }

    /// The next one; `None` when there will be no more.
    pub(crate) async fn next(&self) -> Option<Asked> {
        loop {
            {
                let mut state = self.state();
                if let Some(asked) = state.untaken.pop_front() {
                    return Some(asked);
                }
                if state.has_ended {
                    return None;
                }
            }
            // One that was notified in between is kept for us.
            self.news.notified().await;
        }
    }

    pub(crate) fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        if let Some(open) = self.state().open.get(&id) {
            // It fails for one that was answered to its end.
            let _ = open.pieces.send(Piece { bytes, part });
        }
    }

    /// Its last part is about to be sent.
    pub(crate) fn close(&self, id: u32) {
        self.state().open.remove(&id);
    }

    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        for (_, open) in state.open.drain() {
            open.room.close();
        }
        state.untaken.clear();
        drop(state);
        self.news.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bytes_of(asked: &Asked) -> usize {
    match asked {
        Asked::Question { body, .. } => body.len(),
        Asked::Withdrawn { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: u32 = ASKED_FIRST;

    fn whole(questions: &Questions, id: u32, body: &[u8]) -> Answering {
        match questions.hear(id, None, body, Part::Last) {
            Heard::Whole(answering) => answering,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn parts_become_one_question_and_a_withdrawal_before_it_is_taken_is_none() {
        let questions = Questions::default();
        assert!(matches!(questions.hear(ID, None, b"a", Part::MoreComes), Heard::More));
        let _answering = whole(&questions, ID, b"b");
        assert_eq!(questions.next().await, Some(Asked::Question { id: ID, by: None, body: b"ab".to_vec() }));
        questions.withdraw(ID);
        assert_eq!(questions.next().await, Some(Asked::Withdrawn { id: ID }));
        let _answering = whole(&questions, ID + 1, b"c");
        questions.withdraw(ID + 1);
        questions.end();
        assert_eq!(questions.next().await, None);
    }

    #[test]
    fn what_no_guest_of_ours_does_is_out_of_turn() {
        let refused = |heard: Heard| assert!(matches!(heard, Heard::OutOfTurn), "{heard:?}");
        refused(Questions::default().hear(7, None, b"", Part::Last));
        refused(Questions::default().hear(ID, None, &vec![0; QUESTION_MAX + 1], Part::Last));
        let questions = Questions::default();
        questions.hear(ID, None, b"a", Part::MoreComes);
        refused(questions.hear(ID + 1, None, b"a", Part::Last));
        let questions = Questions::default();
        let _all: Vec<_> = (0..QUESTIONS_MAX as u32).map(|number| whole(&questions, ID + number, b"")).collect();
        refused(questions.hear(ID + 100, None, b"", Part::Last));
    }

    #[test]
    fn questions_that_nobody_takes_are_few() {
        let questions = Questions::default();
        let body = vec![0; QUESTION_MAX];
        let _all: Vec<_> = (0..4).map(|number| whole(&questions, ID + number, &body)).collect();
        assert!(matches!(questions.hear(ID + 4, None, &body, Part::Last), Heard::Refused));
    }

    #[test]
    fn no_guest_makes_the_window_larger() {
        let questions = Questions::default();
        let answering = whole(&questions, ID, b"");
        questions.taken(ID, u32::MAX);
        assert_eq!(answering.room.available_permits(), INPUT_WINDOW);
    }
}
