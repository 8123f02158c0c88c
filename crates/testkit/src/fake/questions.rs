//! What the fake's programs ask, and what they are answered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use belljar_core::Asked;
use belljar_core::wire::Part;
use tokio::sync::mpsc;

pub(super) struct Questions {
    sender: mpsc::UnboundedSender<Asked>,
    receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<Asked>>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last_id: u32,
    answers: HashMap<u32, mpsc::UnboundedSender<(Vec<u8>, Part)>>,
}

impl Default for Questions {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Questions { sender, receiver: tokio::sync::Mutex::new(receiver), open: Mutex::default() }
    }
}

impl Questions {
    /// Asks on behalf of the act of this number, and returns with the whole answer. Dropped before that it is withdrawn.
    pub(super) async fn ask(&self, by: u32, body: Vec<u8>) -> Vec<u8> {
        let (pieces, mut answer) = mpsc::unbounded_channel();
        let id = {
            let mut open = self.open();
            open.last_id += 1;
            let id = open.last_id;
            open.answers.insert(id, pieces);
            id
        };
        let _withdrawal = Withdrawal { id, questions: self };
        let _ = self.sender.send(Asked::Question { id, by: Some(by), body });
        let mut whole = Vec::new();
        while let Some((bytes, part)) = answer.recv().await {
            whole.extend(bytes);
            if part == Part::Last {
                self.open().answers.remove(&id);
                break;
            }
        }
        whole
    }

    pub(super) async fn next(&self) -> Option<Asked> {
        self.receiver.lock().await.recv().await
    }

    pub(super) fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        if let Some(pieces) = self.open().answers.get(&id) {
            let _ = pieces.send((bytes, part));
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Withdrawal<'a> {
    id: u32,
    questions: &'a Questions,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.questions.open().answers.remove(&self.id).is_some() {
            let _ = self.questions.sender.send(Asked::Withdrawn { id: self.id });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_comes_whole_and_what_nobody_waits_for_is_withdrawn() {
        let questions = Questions::default();
        let serve = async {
            let Some(Asked::Question { id, by: Some(7), body }) = questions.next().await else { panic!("not asked") };
            questions.answer(id, body, Part::MoreComes);
            questions.answer(id, b"!".to_vec(), Part::Last);
        };
        let ((), answer) = tokio::join!(serve, questions.ask(7, b"so".to_vec()));
        assert_eq!(answer, b"so!");
        tokio::select! {
            biased;
            _ = questions.ask(8, b"again".to_vec()) => panic!("nobody has answered"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(questions.next().await, Some(Asked::Question { id: 2, by: Some(8), .. })));
        assert_eq!(questions.next().await, Some(Asked::Withdrawn { id: 2 }));
    }
}
