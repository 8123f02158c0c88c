//! Requests that ended with a question. The client gets a handle that says nothing, and what it stands for stays here: whose
//! it is, for which call, and what was asked. A handle counts once, for ten minutes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_gateway::approval::{Pending, Verdict};
use rmcp::model::{ElicitRequest, ElicitResult, InputRequest, InputRequiredResult, InputResponses, JsonObject};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::direct::Underway;
use super::form::{self, Decision, Titles};
use super::held::Held;
use super::{PATIENCE, Question};

/// Questions that are open, of one owner and of all.
const OWN_MAX: usize = 32;
const ALL_MAX: usize = 1024;
const HANDLE_BYTES: usize = 32;
/// The name of our one question among the inputs that a request wants.
const INPUT: &str = "approval";

/// Of a call, so that an answer counts for that call alone.
pub(crate) type CallDigest = [u8; 32];

/// The digest of a tool and its arguments, in whatever order these are written.
pub(crate) fn digest(tool: &str, arguments: Option<&JsonObject>) -> CallDigest {
    let mut hasher = Sha256::new();
    feed(&mut hasher, &Value::String(tool.to_owned()));
    for (key, value) in arguments.into_iter().flatten().collect::<BTreeMap<_, _>>() {
        feed(&mut hasher, &Value::String(key.clone()));
        feed(&mut hasher, value);
    }
    hasher.finalize().into()
}

/// Each piece with its kind and length before it, so that no two values feed the same.
fn feed(hasher: &mut Sha256, value: &Value) {
    let mut piece = |kind: &[u8], bytes: &[u8]| {
        hasher.update(kind);
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    match value {
        Value::String(text) => piece(b"s", text.as_bytes()),
        Value::Array(items) => {
            piece(b"a", &(items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| feed(hasher, item));
        }
        Value::Object(map) => {
            piece(b"o", &(map.len() as u64).to_be_bytes());
            for (key, value) in map.iter().collect::<BTreeMap<_, _>>() {
                feed(hasher, &Value::String(key.clone()));
                feed(hasher, value);
            }
        }
        other => piece(b"v", other.to_string().as_bytes()),
    }
}

#[derive(Debug, Default)]
pub(crate) struct States(Mutex<VecDeque<State>>);

#[derive(Debug)]
struct State {
    handle: String,
    owner: String,
    call: CallDigest,
    since: Instant,
    asked: Vec<u64>,
    about: About,
}

/// What waits for the answer.
#[derive(Debug)]
pub(super) enum About {
    /// A program, which has not begun.
    Code,
    /// A program that runs as a job.
    Job { id: String, held: Arc<Held> },
    /// A call of a tool without a program.
    Direct(Box<Underway>),
}

/// What a request that came back is to go on with.
#[derive(Debug)]
pub(crate) enum Answered {
    Code(Verdict),
    Job { id: String, held: Arc<Held> },
    Direct(Box<Underway>),
}

impl States {
    fn all(&self) -> MutexGuard<'_, VecDeque<State>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|state| state.since.elapsed() < PATIENCE);
        all
    }

    /// The question to end a request with; `None` if there are no random numbers to be had.
    pub(super) fn ask(&self, owner: &str, call: CallDigest, pending: &[Pending], about: About) -> Option<Question> {
        let mut random = [0; HANDLE_BYTES];
        getrandom::fill(&mut random).ok()?;
        let handle: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let asked = pending.iter().map(|pending| pending.id).collect();
        let state =
            State { handle: handle.clone(), owner: owner.to_owned(), call, since: Instant::now(), asked, about };
        let mut all = self.all();
        if all.iter().filter(|state| state.owner == owner).count() >= OWN_MAX
            && let Some(oldest) = all.iter().position(|state| state.owner == owner)
        {
            all.remove(oldest);
        }
        if all.len() >= ALL_MAX {
            all.pop_front();
        }
        all.push_back(state);
        let request = InputRequest::Elicitation(ElicitRequest::new(form::form(pending, Titles::OfChoices)));
        let inputs = BTreeMap::from([(INPUT.to_owned(), request)]);
        Some(Box::new(InputRequiredResult::new(Some(inputs), Some(handle))))
    }

    /// Whether a handle is one of ours that waits for this owner.
    pub(crate) fn knows(&self, owner: &str, handle: &str) -> bool {
        self.all()
            .iter()
            .any(|state| bool::from(state.handle.as_bytes().ct_eq(handle.as_bytes())) && state.owner == owner)
    }

    /// Takes the answer that a request came back with. An error is a sentence, and leaves everything undecided.
    pub(crate) fn redeem(
        &self,
        owner: &str,
        call: CallDigest,
        handle: &str,
        inputs: Option<&InputResponses>,
    ) -> Result<Answered, String> {
        let mut all = self.all();
        let is_it =
            |state: &State| bool::from(state.handle.as_bytes().ct_eq(handle.as_bytes())) && state.owner == owner;
        let at = all.iter().position(is_it).ok_or(
            "this requestState is not one that waits: it was not given to you, was used already, or is older than 10 \
             minutes; call the tool again without it",
        )?;
        if all[at].call != call {
            return Err("this requestState is of another call; send it with the same tool and arguments".into());
        }
        let answer = inputs.and_then(|inputs| inputs.get(INPUT)).ok_or_else(|| {
            format!("inputResponses has no {INPUT:?}; send what the person answered, with the same requestState")
        })?;
        // An answer that cannot be read is none that approves.
        let answer: Option<ElicitResult> = serde_json::from_value(answer.clone()).ok();
        let state = all.remove(at).ok_or("this requestState was used already; call the tool again without it")?;
        drop(all);
        let decision = match &answer {
            Some(answer) => Decision::of(answer, &state.asked),
            None => Decision::deny(&state.asked),
        };
        Ok(match state.about {
            About::Code if decision.ids.is_empty() => Answered::Code(Verdict::Deny),
            About::Code => Answered::Code(decision.verdict),
            About::Job { id, held } => {
                held.decide(&decision);
                Answered::Job { id, held }
            }
            About::Direct(underway) => {
                underway.decide(&decision);
                Answered::Direct(underway)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use belljar_gateway::approval::Subject;
    use serde_json::json;

    use super::*;

    fn handle(states: &States, owner: &str, call: CallDigest) -> String {
        let subject = Subject::Code { language: "python".into(), code: "x".into() };
        let question = states.ask(owner, call, &[Pending { id: 0, subject }], About::Code).unwrap();
        question.request_state.unwrap()
    }

    fn approves() -> InputResponses {
        BTreeMap::from([(INPUT.to_owned(), json!({"action": "accept", "content": {"decision": "approve"}}))])
    }

    #[tokio::test(start_paused = true)]
    async fn a_handle_counts_once_for_its_owner_and_its_call() {
        let states = States::default();
        let (call, other) = ([1; 32], [2; 32]);
        let mine = handle(&states, "me", call);
        let approves = approves();
        let redeem = |who: &str, call, handle: &str| states.redeem(who, call, handle, Some(&approves));
        let said = |redeemed: Result<Answered, String>| redeemed.unwrap_err();
        assert!(said(redeem("another", call, &mine)).contains("not one that waits"));
        assert!(said(redeem("me", call, "00")).contains("not one that waits"));
        assert!(said(redeem("me", call, &mine.replace('0', "1").replace('a', "b"))).contains("not one that waits"));
        assert!(said(redeem("me", other, &mine)).contains("another call"));
        assert!(states.redeem("me", call, &mine, None).unwrap_err().contains("inputResponses has no"));
        assert!(matches!(redeem("me", call, &mine), Ok(Answered::Code(Verdict::Once))));
        assert!(said(redeem("me", call, &mine)).contains("used already"));
        let late = handle(&states, "me", call);
        tokio::time::advance(PATIENCE).await;
        assert!(said(redeem("me", call, &late)).contains("older than 10 minutes"));
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_read_denies() {
        let states = States::default();
        for answer in [json!(null), json!("approve"), json!({"action": "decline"}), json!({"action": "accept"})] {
            let mine = handle(&states, "me", [1; 32]);
            let inputs = BTreeMap::from([(INPUT.to_owned(), answer)]);
            let redeemed = states.redeem("me", [1; 32], &mine, Some(&inputs));
            assert!(matches!(redeemed, Ok(Answered::Code(Verdict::Deny))), "{inputs:?}");
        }
    }

    #[tokio::test]
    async fn one_owner_cannot_push_out_the_questions_of_another() {
        let states = States::default();
        let mine = handle(&states, "me", [1; 32]);
        for _ in 0..OWN_MAX * 2 {
            handle(&states, "flooder", [1; 32]);
        }
        assert_eq!(states.all().len(), OWN_MAX + 1);
        assert!(states.redeem("me", [1; 32], &mine, Some(&approves())).is_ok());
    }

    #[test]
    fn a_digest_is_of_the_call_and_not_of_how_it_is_written() {
        let of = |tool: &str, arguments: Value| digest(tool, arguments.as_object());
        assert_eq!(
            of("t", json!({"a": {"x": 1, "y": [2]}, "b": 2})),
            of("t", json!({"b": 2, "a": {"y": [2], "x": 1}}))
        );
        for other in [json!({"a": 1, "b": "2"}), json!({"a": [1], "b": 2}), json!({"ab": 2}), json!({"a": 1})] {
            assert_ne!(of("t", json!({"a": 1, "b": 2})), of("t", other));
        }
        assert_ne!(of("t", json!({})), of("u", json!({})));
    }
}
