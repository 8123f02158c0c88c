//! Calls of servers that are forwarded: decided on and written down here like all others, and made by whoever has the
//! client's own connection to the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::Caller;
use rmcp::model::CallToolResult;
use serde_json::{Map, Value};

use super::{RunDesk, Story};
use crate::audit;
use crate::catalogue::Tool;
use crate::error::{CallError, ErrorKind};
use crate::gateway::{Gateway, Inner};

/// A call that was permitted. It is written down whatever comes of it, also if it is dropped.
#[derive(Debug)]
pub struct Passing {
    desk: RunDesk,
    tool: Arc<Tool>,
    decision: &'static str,
    bytes_out: usize,
    arguments: String,
    begun: Instant,
    is_told: bool,
}

impl RunDesk {
    /// How a call is permitted; one that is not is written down at once.
    pub(crate) async fn permit(
        &self,
        tool: &Arc<Tool>,
        arguments: &Map<String, Value>,
    ) -> Result<&'static str, CallError> {
        let (bytes_out, digest) = audit::measured(arguments);
        let refused = |decision, error: CallError| {
            let arguments = digest.clone();
            let story = Story { decision, bytes_out, bytes_in: 0, arguments, result: None, traceparent: None };
            self.note(tool.server.clone(), tool.name.clone(), &story, error.kind.name(), Duration::ZERO);
            CallError { server: tool.server.clone(), tool: tool.name.clone(), ..error }
        };
        self.purse.call(bytes_out).map_err(|error| refused("refused", error))?;
        self.permitted(tool, arguments).await.map_err(|error| refused("denied", error))
    }
}

impl Passing {
    pub(crate) fn new(
        gateway: Arc<Inner>,
        caller: Caller,
        tool: Arc<Tool>,
        arguments: &Map<String, Value>,
        decision: &'static str,
    ) -> Passing {
        let (bytes_out, arguments) = audit::measured(arguments);
        let desk = RunDesk::new(gateway, caller);
        Passing { desk, tool, decision, bytes_out, arguments, begun: Instant::now(), is_told: false }
    }

    /// It was answered, with a result or with something that leads to one.
    pub fn answered(mut self, result: Option<&CallToolResult>) {
        match result {
            Some(result) if result.is_error == Some(true) => self.tell(ErrorKind::ToolError.name(), Some(result)),
            result => self.tell("ok", result),
        }
    }

    pub fn failed(mut self, kind: ErrorKind) {
        self.tell(kind.name(), None);
    }

    fn tell(&mut self, outcome: &'static str, result: Option<&CallToolResult>) {
        self.is_told = true;
        let (bytes_in, result) = match result.map(audit::measured) {
            Some((bytes, digest)) => (bytes, Some(digest)),
            None => (0, None),
        };
        let arguments = std::mem::take(&mut self.arguments);
        let (decision, bytes_out) = (self.decision, self.bytes_out);
        let story = Story { decision, bytes_out, bytes_in, arguments, result, traceparent: None };
        self.desk.note(self.tool.server.clone(), self.tool.name.clone(), &story, outcome, self.begun.elapsed());
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if !self.is_told {
            self.tell(ErrorKind::Cancelled.name(), None);
        }
    }
}

impl Gateway {
    /// Whether a call of a forwarded server's tool may be made, and how that was decided. May wait for a person.
    pub async fn permit(
        &self,
        caller: Caller,
        tool: &Arc<Tool>,
        arguments: &Map<String, Value>,
    ) -> Result<&'static str, CallError> {
        RunDesk::new(self.inner().clone(), caller).permit(tool, arguments).await
    }

    /// Begins a call that was permitted.
    pub fn pass(
        &self,
        caller: Caller,
        tool: Arc<Tool>,
        arguments: &Map<String, Value>,
        decision: &'static str,
    ) -> Passing {
        Passing::new(self.inner().clone(), caller, tool, arguments, decision)
    }
}
