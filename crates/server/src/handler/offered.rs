//! Which tools a request is about, ours and those of other servers, and the way of a call to one of them.

use std::sync::atomic::AtomicBool;

use axum::http::request::Parts;
use belljar_engine::{Departure, Principal};
use rmcp::model::{CallToolRequestParams, CallToolResponse, Extensions, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::Handler;
use crate::approval::{self, Asking, CameBack, Way};
use crate::hide::Hider;
use crate::progress::Progress;
use crate::subscriptions::ToolNews;
use crate::{schema, tools};

/// Which tools a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Own,
    /// Ours, and those of other servers after them.
    All,
    /// Those of other servers alone, for a client that writes its programs elsewhere.
    Others,
}

impl Handler {
    pub(super) fn tool_news(&self) -> ToolNews {
        self.surface.code_mode.as_ref().map(|code_mode| code_mode.changes())
    }

    pub(super) fn hider(&self, who: &Principal) -> Option<Hider> {
        let code_mode = self.surface.code_mode.clone()?;
        Some(Hider { code_mode, who: who.clone() })
    }

    /// `?codemode=false` in the address of a request asks for the other servers' tools as they are.
    pub(super) fn offered(&self, extensions: &Extensions) -> Offered {
        let query = extensions.get::<Parts>().and_then(|parts| parts.uri.query()).unwrap_or_default();
        if !self.surface.has_servers() {
            Offered::Own
        } else if query.split('&').any(|pair| pair == "codemode=false") {
            Offered::Others
        } else if self.surface.direct {
            Offered::All
        } else {
            Offered::Own
        }
    }

    /// How the caller of this call is asked, and what it came back with.
    fn asking(
        &self,
        who: &Principal,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Asking<'_>>, ErrorData> {
        let code_mode = self.surface.code_mode.as_ref();
        let call = approval::digest(&request.name, request.arguments.as_ref());
        let came_back = match (&request.request_state, code_mode) {
            (None, _) => CameBack::default(),
            (Some(state), Some(_)) => {
                let inputs = request.input_responses.as_ref();
                let answered = self.desk.states.redeem(who.as_str(), call, state, inputs);
                CameBack::with(answered.map_err(|sentence| ErrorData::invalid_params(sentence, None))?)
            }
            (Some(_), None) => {
                let sentence = "this server gives no requestState; call the tool without one";
                return Err(ErrorData::invalid_params(sentence, None));
            }
        };
        let way = Way::of(context);
        let approved = AtomicBool::new(false);
        Ok(code_mode.map(|code_mode| Asking { code_mode, desk: &self.desk, way, call, came_back, approved }))
    }

    pub(super) async fn answer(
        &self,
        request: CallToolRequestParams,
        who: &Principal,
        context: &RequestContext<RoleServer>,
        departure: &Departure,
    ) -> Result<CallToolResponse, ErrorData> {
        let (offered, name) = (self.offered(&context.extensions), request.name.clone());
        let is_own = match (offered, self.profile) {
            (Offered::Own, _) => true,
            (Offered::Others, _) => false,
            (Offered::All, Some(profile)) => profile.knows(&name),
            (Offered::All, None) => self.tools.iter().any(|tool| tool.name == name),
        };
        let call = tools::Call {
            engine: &self.engine,
            who,
            progress: Progress::of(context, self.hider(who)),
            asking: self.asking(who, &request, context)?,
            arguments: request.arguments,
            patience: self.surface.yield_after,
            departure: departure.clone(),
        };
        let answer = match self.profile {
            _ if !is_own => tools::call_directly(&name, call).await,
            Some(profile) => profile.call(&name, call, &self.memory).await,
            None => tools::call(&name, call).await,
        };
        match answer {
            Some(answer) => Ok(answer),
            None => Err(self.unknown_tool(who, offered).await),
        }
    }

    async fn unknown_tool(&self, who: &Principal, offered: Offered) -> ErrorData {
        const NAMED_MAX: usize = 50;
        let tools = self.offered_tools(who, offered).await;
        let mut known: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).take(NAMED_MAX).collect();
        if tools.len() > NAMED_MAX {
            known.push("and those that tools/list tells");
        }
        ErrorData::invalid_params(format!("unknown tool; use one of: {}", known.join(", ")), None)
    }

    pub(super) async fn offered_tools(&self, who: &Principal, offered: Offered) -> Vec<Tool> {
        let code_mode = self.surface.code_mode.as_ref().filter(|code_mode| code_mode.has_servers());
        let Some(code_mode) = code_mode else { return self.tools.to_vec() };
        let mut tools = Vec::new();
        if offered != Offered::Others {
            tools.extend(self.tools.iter().cloned());
            if self.profile.is_none() {
                let note = code_mode.note(who.as_str()).await;
                schema::add_note(&mut tools, &note);
            }
        }
        if offered != Offered::Own {
            tools.extend(code_mode.direct_tools(who.as_str()).await);
        }
        tools
    }
}
