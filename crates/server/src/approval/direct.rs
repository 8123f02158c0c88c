//! Calls of other servers' tools without a program, which may have to wait for a person as well.

use std::sync::Arc;

use belljar_engine::Phase;
use belljar_gateway::error::{CallError, ErrorKind};
use rmcp::model::CallToolResult;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::flow::{Asking, Unanswered};
use super::form::Decision;
use super::held::Held;
use super::state::{About, Answered};
use crate::gateway::real::DECISION;
use crate::gateway::{Aim, DirectCall};
use crate::tools::Call;

/// A call of a tool without a program, under way.
#[derive(Debug)]
pub(crate) struct Underway {
    task: AbortOnDropHandle<Option<Result<CallToolResult, CallError>>>,
    held: Option<Arc<Held>>,
}

impl Underway {
    pub(super) fn decide(&self, decision: &Decision) {
        if let Some(held) = &self.held {
            held.decide(decision);
        }
    }
}

/// A call of another server's tool without a program; `None` when there is no such tool.
pub(crate) async fn direct(call: &Call<'_>, name: &str) -> Option<Result<CallToolResult, Unanswered>> {
    let asking = call.asking.as_ref()?;
    let phase = Phase::default();
    let calling = Box::pin(asking.call_directly(call, name, &Aim::Call, &phase));
    let called = call.progress.during(call.patience, &phase, calling).await;
    called.transpose()
}

/// How a call was permitted that is then made elsewhere, or the answer that it has instead.
pub(crate) async fn permit(
    call: &Call<'_>,
    server: &str,
    name: &str,
) -> Option<Result<Result<&'static str, Box<CallToolResult>>, Unanswered>> {
    let asking = call.asking.as_ref()?;
    let phase = Phase::default();
    let aim = Aim::Permit { server: server.to_owned() };
    let permitted = asking.call_directly(call, name, &aim, &phase).await.transpose()?;
    Some(permitted.map(|result| {
        let decision = result.structured_content.as_ref().and_then(|content| content.get(DECISION));
        match decision.and_then(Value::as_str) {
            Some("allowed") => Ok("allowed"),
            Some("approved") => Ok("approved"),
            _ => Err(Box::new(result)),
        }
    }))
}

impl Asking<'_> {
    async fn call_directly(
        &self,
        call: &Call<'_>,
        name: &str,
        aim: &Aim,
        phase: &Phase,
    ) -> Result<Option<CallToolResult>, Unanswered> {
        let mut underway = match self.came_back.take() {
            Some(Answered::Direct(underway)) => *underway,
            _ => self.begin_directly(call, name, aim.clone()),
        };
        let asking = async {
            match &underway.held {
                Some(held) => self.ask_on(held, phase).await,
                None => std::future::pending().await,
            }
        };
        let pending = tokio::select! {
            biased;
            called = &mut underway.task => {
                let broke = |_| Some(Err(CallError::new(ErrorKind::Upstream, "the call met a bug; the log says more")));
                let called = called.unwrap_or_else(broke);
                return Ok(called.map(|called| called.unwrap_or_else(|error| crate::answer::call_failed(&error))));
            }
            pending = asking => pending,
        };
        Err(self.question(call, &pending, About::Direct(Box::new(underway))))
    }

    fn begin_directly(&self, call: &Call<'_>, name: &str, aim: Aim) -> Underway {
        let held = self.can_ask().then(|| Held::open(self.code_mode.approvals(), call.who.as_str()));
        let made = DirectCall {
            who: call.who.as_str().to_owned(),
            occasion: held.as_ref().map(|held| held.occasion),
            name: name.to_owned(),
            arguments: call.arguments.clone().unwrap_or_default(),
            aim,
        };
        let code_mode = self.code_mode.clone();
        let task = tokio::spawn(belljar_meters::carried(async move { code_mode.direct_call(made).await }));
        Underway { task: AbortOnDropHandle::new(task), held }
    }
}
