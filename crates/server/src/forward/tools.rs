//! The tools of forwarded servers: what they are called here, and the way of a call to one of them.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use belljar_gateway::direct_name;
use belljar_gateway::error::ErrorKind;
use rmcp::ErrorData;
use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResponse, ClientRequest, ServerResult, Tool};
use serde_json::Value;

use super::exchange::Trouble;
use super::{Forward, Passage, Place};
use crate::gateway::real::{caller, offered};

impl Forward {
    /// The tools, in the servers' own order. One whose name is taken, by one of ours or by an earlier one, has its server's name
    /// before it.
    pub(crate) async fn list(&self, is_taken: impl Fn(&str) -> bool) -> Vec<Tool> {
        let catalogue = self.gateway.catalogue().await;
        let mut known = BTreeMap::<String, Place>::new();
        let mut tools = Vec::new();
        for listed in catalogue.tools().filter(|tool| self.servers.contains(&tool.server)) {
            let is_free = |name: &str| !is_taken(name) && !known.contains_key(name);
            let names = [listed.name.clone(), direct_name(listed)];
            let Some(name) = names.into_iter().find(|name| is_free(name)) else { continue };
            let Some(offered) = offered(&self.gateway, listed, name.clone()) else { continue };
            tools.push(offered.clone());
            known.insert(name, Place { listed: listed.clone(), offered });
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        tools
    }

    /// A tool by the name that it was listed under last.
    pub(crate) fn tool(&self, name: &str) -> Option<Place> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Passage<'_> {
    /// Makes a call that was permitted, with the arguments that the server is to see.
    pub(crate) async fn call(
        &self,
        place: &Place,
        request: CallToolRequestParams,
        decision: &'static str,
    ) -> Result<CallToolResponse, ErrorData> {
        let (gateway, listed) = (&self.forward.gateway, &place.listed);
        let mut arguments = Value::Object(request.arguments.clone().unwrap_or_default());
        gateway.reveal(self.who.as_str(), &mut arguments);
        let Value::Object(arguments) = arguments else {
            return Err(ErrorData::invalid_params("the arguments are no object", None));
        };
        let passing = gateway.pass(caller(self.who.as_str(), None), listed.clone(), &arguments, decision);
        let make = |answered: Option<_>| {
            let mut params = request.clone();
            params.meta = None;
            params.name = listed.name.clone().into();
            if request.arguments.is_some() {
                params.arguments = Some(arguments.clone());
            }
            if let Some((answers, state)) = answered {
                (params.input_responses, params.request_state) = (Some(answers), state);
            }
            ClientRequest::from(CallToolRequest::new(params))
        };
        match self.request_with_questions(&listed.server, make).await {
            Ok(ServerResult::CallToolResult(result)) => {
                passing.answered(Some(&result));
                Ok(CallToolResponse::Complete(result))
            }
            Ok(ServerResult::InputRequiredResult(asked)) => {
                passing.answered(None);
                Ok(CallToolResponse::InputRequired(asked))
            }
            Ok(ServerResult::CreateTaskResult(task)) => {
                passing.answered(None);
                self.forward.remember_task(self.who, &task.task.task_id, &listed.server);
                Ok(CallToolResponse::Task(task))
            }
            Ok(_) => {
                passing.failed(ErrorKind::Upstream);
                Err(ErrorData::internal_error("the server answered with something that is no result of a tool", None))
            }
            Err(trouble) => {
                passing.failed(match &trouble {
                    Trouble::Theirs(_) => ErrorKind::ToolError,
                    Trouble::Ours(error) => error.kind,
                });
                Err(trouble.into())
            }
        }
    }
}
