//! The way of a call while something may have to be asked: who waits for whom, and what becomes of it when the request ends
//! with a question.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belljar_engine::{Answer, Attendance, EngineError, JobAction, JobView, Phase, RunRequest, Stays};
use belljar_gateway::approval::Pending;
use tokio::pin;
use tokio_util::sync::CancellationToken;

use super::code::besides;
use super::elicit::Form;
use super::form;
use super::held::{Desk, Held};
use super::state::{About, Answered, CallDigest};
use super::{CameBack, Question, Way};
use crate::gateway::CodeMode;
use crate::tools::Call;

pub(super) const WAITS: &str = "waiting for a person's approval";
/// How long a run may take to become a job. Where there are too many jobs it becomes none.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

const NO_QUESTION: &str = "a person has to approve this and could not be asked; try again";

/// How one call can ask, and what it came back with.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) code_mode: &'a Arc<dyn CodeMode>,
    pub(crate) desk: &'a Desk,
    pub(crate) way: Way,
    pub(crate) call: CallDigest,
    pub(crate) came_back: CameBack,
    /// Whether this call's program was approved.
    pub(crate) approved: AtomicBool,
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Engine(EngineError),
    /// A sentence for the agent.
    Refused(String),
    Asks(Question),
}

impl From<EngineError> for Unanswered {
    fn from(error: EngineError) -> Unanswered {
        Unanswered::Engine(error)
    }
}

/// Runs a program with its caller there to be asked, and tells how far it is; `expected` is about how long that takes.
pub(crate) async fn attend(
    call: &Call<'_>,
    request: RunRequest,
    stays: Stays,
    expected: Duration,
) -> Result<Answer, Unanswered> {
    let phase = Phase::default();
    let (listener, heard) = call.log.channel();
    let attendance =
        Attendance { departure: call.departure.clone(), phase: phase.clone(), listener, ..Attendance::new(stays) };
    match &call.asking {
        None => {
            let attending = call.engine.attend(call.who, request, attendance);
            Ok(call.log.during(heard, call.progress.during(expected, &phase, attending)).await?)
        }
        Some(asking) => {
            let attending = Box::pin(asking.attend(call, request, attendance));
            call.log.during(heard, call.progress.during(expected, &phase, attending)).await
        }
    }
}

/// Looks at a job, and asks what it waits for.
pub(crate) async fn wait_for_job(
    call: &Call<'_>,
    id: &str,
    action: JobAction,
    offset: Option<u64>,
) -> Result<JobView, Unanswered> {
    let expected = match &action {
        JobAction::Wait(time) => *time,
        _ => call.patience,
    };
    let phase = Phase::default();
    let looking = async {
        let Some(asking) = &call.asking else { return Ok(call.engine.job(call.who, id, action, offset).await?) };
        // What was decided is decided; the look itself is the same.
        drop(asking.came_back.take());
        let job = asking.look(call, id, action, offset, &phase).await?;
        if job.ended.is_some() {
            asking.desk.unpark(call.who.as_str(), id);
        }
        Ok(job)
    };
    call.progress.during(expected, &phase, Box::pin(looking)).await
}

impl Asking<'_> {
    pub(super) fn can_ask(&self) -> bool {
        !matches!(self.way, Way::Nobody)
    }

    async fn attend(&self, call: &Call<'_>, request: RunRequest, attendance: Attendance) -> Result<Answer, Unanswered> {
        let (phase, leave) = (attendance.phase.clone(), CancellationToken::new());
        let attendance = Attendance { leave: Some(leave.clone()), ..attendance };
        let came_back = self.came_back.take();
        if let Some(Answered::Job { id, held }) = came_back {
            let attendance = Attendance { occasion: Some(held.occasion), ..attendance };
            let attending = call.engine.rejoin(call.who, &id, attendance);
            return self.stay(call, held, leave, attending, &phase).await;
        }
        self.approve_code(call, &request.program.source, &besides(&request), came_back, &phase).await?;
        if !self.can_ask() {
            return Ok(call.engine.attend(call.who, request, attendance).await?);
        }
        let held = Held::open(self.code_mode.approvals(), call.who.as_str());
        let attendance = Attendance { occasion: Some(held.occasion), ..attendance };
        let attending = call.engine.attend(call.who, request, attendance);
        self.stay(call, held, leave, attending, &phase).await
    }

    /// Until the run ends or becomes a job, or something is to be asked that ends the request.
    async fn stay(
        &self,
        call: &Call<'_>,
        held: Arc<Held>,
        leave: CancellationToken,
        attending: impl Future<Output = Result<Answer, EngineError>>,
        phase: &Phase,
    ) -> Result<Answer, Unanswered> {
        pin!(attending);
        let pending = tokio::select! {
            biased;
            answer = &mut attending => return Ok(self.settle(held, answer?)),
            pending = self.ask_on(&held, phase) => pending,
        };
        leave.cancel();
        let answer = match tokio::time::timeout(LEAVE_WAIT, &mut attending).await {
            Ok(answer) => answer?,
            Err(_) => {
                // There is no place to come back to, so nobody can be asked.
                held.close();
                attending.await?
            }
        };
        match self.settle(held.clone(), answer) {
            Answer::Job(job) => {
                let about = About::Job { id: job.id.to_string(), held };
                Err(self.question(call, &pending, about))
            }
            finished => Ok(finished),
        }
    }

    /// A job is still asked about after this; with a run that has ended, its occasion ends.
    fn settle(&self, held: Arc<Held>, answer: Answer) -> Answer {
        match &answer {
            Answer::Job(job) => self.desk.park(job.id.as_str(), held),
            Answer::Finished(run) => self.desk.unpark(&held.owner, run.id.as_str()),
        }
        answer
    }

    pub(super) fn question(&self, call: &Call<'_>, pending: &[Pending], about: About) -> Unanswered {
        match self.desk.states.ask(call.who.as_str(), self.call, pending, about) {
            Some(question) => Unanswered::Asks(question),
            None => Unanswered::Refused(NO_QUESTION.into()),
        }
    }

    /// Asks whatever is to be asked, for ever; returns with what has to end the request.
    pub(super) async fn ask_on(&self, held: &Arc<Held>, phase: &Phase) -> Vec<Pending> {
        loop {
            if let Some(pending) = self.ask_once(held, phase).await {
                return pending;
            }
        }
    }

    /// Waits for something to ask. A form is answered when this returns; `Some` is for the end of the request.
    async fn ask_once(&self, held: &Arc<Held>, phase: &Phase) -> Option<Vec<Pending>> {
        let floor = held.floor.clone().lock_owned().await;
        let wanted = held.approvals.wanted(held.occasion).await;
        let Some(mut pending) = wanted else { return std::future::pending().await };
        pending.truncate(form::CALLS_MAX);
        match &self.way {
            Way::Returns => Some(pending),
            Way::Nobody => std::future::pending().await,
            Way::Elicits { peer, titles } => {
                phase.is(WAITS);
                let form = Form::send(peer, *titles, &pending).await;
                // On its own, since the run may become a job and its request end before a person has answered.
                let _ = tokio::spawn(form.decide(held, floor)).await;
                phase.is("");
                None
            }
        }
    }

    async fn look(
        &self,
        call: &Call<'_>,
        id: &str,
        action: JobAction,
        offset: Option<u64>,
        phase: &Phase,
    ) -> Result<JobView, Unanswered> {
        let waits = matches!(action, JobAction::Wait(_));
        let polls = matches!(action, JobAction::Poll);
        let look = call.engine.job(call.who, id, action, offset);
        let held = self.desk.parked(call.who.as_str(), id).filter(|_| self.can_ask());
        let Some(held) = held else { return Ok(look.await?) };
        let pending = if waits {
            tokio::select! {
                biased;
                job = look => return Ok(job?),
                pending = self.ask_on(&held, phase) => pending,
            }
        } else if polls && !held.approvals.waiting(held.occasion).is_empty() {
            match tokio::time::timeout(call.patience, self.ask_once(&held, phase)).await {
                Ok(Some(pending)) => pending,
                Ok(None) | Err(_) => return Ok(look.await?),
            }
        } else {
            return Ok(look.await?);
        };
        Err(self.question(call, &pending, About::Job { id: id.to_owned(), held }))
    }
}
