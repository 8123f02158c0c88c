//! What a person is asked by a run that has become a task: told when the task is looked at, answered by an update of it.

use rmcp::model::{ElicitRequest, ElicitResult, InputRequest, InputRequests, InputResponses};

use super::form::{self, Decision, Titles};
use super::held::Desk;

/// Keys are never used twice in a task, so they have the number of the first question in them.
const KEY: &str = "approval-";

/// What has to be answered before a task goes on; `None` when nothing has.
pub(crate) fn inquiries(desk: &Desk, owner: &str, job: &str) -> Option<InputRequests> {
    let held = desk.parked(owner, job)?;
    let mut pending = held.approvals.waiting(held.occasion);
    pending.truncate(form::CALLS_MAX);
    let key = format!("{KEY}{}", pending.first()?.id);
    let request = InputRequest::Elicitation(ElicitRequest::new(form::form(&pending, Titles::OfChoices)));
    Some(InputRequests::from([(key, request)]))
}

/// Takes the answers of a person. What answers nothing that waits is ignored; what cannot be read denies.
pub(crate) fn resolve(desk: &Desk, owner: &str, job: &str, answers: &InputResponses) {
    let Some(held) = desk.parked(owner, job) else { return };
    let mut pending = held.approvals.waiting(held.occasion);
    pending.truncate(form::CALLS_MAX);
    let Some(first) = pending.first() else { return };
    let Some(answer) = answers.get(&format!("{KEY}{}", first.id)) else { return };
    let asked: Vec<u64> = pending.iter().map(|pending| pending.id).collect();
    let answer: Option<ElicitResult> = serde_json::from_value(answer.clone()).ok();
    let decision = match &answer {
        Some(answer) => Decision::of(answer, &asked),
        None => Decision::deny(&asked),
    };
    held.decide(&decision);
}
