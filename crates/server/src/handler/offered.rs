//! Which tools a request is about, ours and those of other servers, and the way of a call to one of them.

use std::sync::atomic::AtomicBool;

use axum::http::request::Parts;
use belljar_access::{Pass, Scope};
use belljar_engine::{Departure, Principal};
use rmcp::model::{CallToolRequestParams, CallToolResponse, Extensions, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::Handler;
use crate::approval::{self, Asking, CameBack, Way};
use crate::forward::Place;
use crate::hide::Hider;
use crate::logging::Log;
use crate::progress::Progress;
use crate::subscriptions::ToolNews;
use crate::{answer, schema, scopes, tools};

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

    /// How the caller of this call is asked, and what it came back with. To answer is to let something happen: whoever may
    /// not make it happen by itself is not asked, and is not heard.
    fn asking(
        &self,
        pass: &Pass,
        need: Scope,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
    ) -> Result<Option<Asking<'_>>, ErrorData> {
        let who = &pass.principal;
        let may_answer = pass.scopes.has(need);
        if request.request_state.is_some() && !may_answer {
            return Err(ErrorData::invalid_request(scopes::missing(need), None));
        }
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
        let way = if may_answer { Way::of(context) } else { Way::Nobody };
        let approved = AtomicBool::new(false);
        Ok(code_mode.map(|code_mode| Asking { code_mode, desk: &self.desk, way, call, came_back, approved }))
    }

    pub(super) async fn answer(
        &self,
        request: CallToolRequestParams,
        pass: &Pass,
        context: &RequestContext<RoleServer>,
        departure: &Departure,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = &pass.principal;
        let (offered, name) = (self.offered(&context.extensions), request.name.clone());
        if (offered == Offered::Others || !self.is_own(&name))
            && let Some(place) = self.forwarded_tool(&name).await
        {
            return self.call_through(place, request, pass, context, departure).await;
        }
        let is_own = match offered {
            Offered::Own => true,
            Offered::Others => false,
            Offered::All => self.is_own(&name),
        };
        // A profile's clients know another system's answers.
        let knows_tasks = self.profile.is_none()
            && context.client_capabilities().is_some_and(|client| client.supports_tasks())
            && context.protocol_version().is_some_and(|version| !version.has_initialize());
        let action = request.arguments.as_ref().and_then(|arguments| arguments.get("action"));
        let need = if is_own { scopes::of_tool(self.profile, &name, action) } else { Some(Scope::Tools) };
        if let Some(need) = need.filter(|need| !pass.scopes.has(*need)) {
            return Ok(answer::refused(&scopes::missing(need)).into());
        }
        // What our own tools ask about are programs, and what those call.
        let to_answer = if is_own { Scope::Run } else { Scope::Tools };
        let call = tools::Call {
            engine: &self.engine,
            who,
            progress: Progress::of(context, self.hider(who)),
            asking: self.asking(pass, to_answer, &request, context)?,
            arguments: request.arguments,
            patience: self.surface.yield_after,
            departure: departure.clone(),
            log: Log::of(context, &self.level, self.hider(who)),
            tasks: knows_tasks.then_some(&*self.tasks),
        };
        let answer = match self.profile {
            _ if !is_own => tools::call_directly(&name, call).await,
            Some(profile) => profile.call(&name, call, &self.memory).await,
            None => tools::call(&name, call).await,
        };
        match answer {
            Some(answer) => Ok(answer),
            None => Err(self.unknown_tool(pass, offered).await),
        }
    }

    fn is_own(&self, name: &str) -> bool {
        match self.profile {
            Some(profile) => profile.knows(name),
            None => self.tools.iter().any(|tool| tool.name == name),
        }
    }

    /// A tool of a server that is forwarded, by the name that it has here.
    async fn forwarded_tool(&self, name: &str) -> Option<Place> {
        let forward = self.forward.as_ref()?;
        if let Some(place) = forward.tool(name) {
            return Some(place);
        }
        // It may be new, or nobody has asked for the list yet.
        forward.list(|name| self.is_own(name)).await;
        forward.tool(name)
    }

    /// A call of such a tool: first the policy, and a person if need be, then the server itself.
    async fn call_through(
        &self,
        place: Place,
        mut request: CallToolRequestParams,
        pass: &Pass,
        context: &RequestContext<RoleServer>,
        departure: &Departure,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = &pass.principal;
        let Some(passage) = self.passage(who, context) else {
            return Ok(answer::refused(&scopes::missing(Scope::Tools)).into());
        };
        // A state that is none of ours is the server's.
        let is_ours = request.request_state.as_ref().is_some_and(|state| self.desk.states.knows(who.as_str(), state));
        let mut asked = request.clone();
        if is_ours {
            (request.request_state, request.input_responses) = (None, None);
        } else {
            (asked.request_state, asked.input_responses) = (None, None);
        }
        let call = tools::Call {
            engine: &self.engine,
            who,
            progress: Progress::of(context, self.hider(who)),
            asking: self.asking(pass, Scope::Tools, &asked, context)?,
            arguments: asked.arguments,
            patience: self.surface.yield_after,
            departure: departure.clone(),
            log: Log::of(context, &self.level, None),
            tasks: None,
        };
        match tools::permit(&place.listed.server, &place.listed.name, &call).await {
            Some(Ok(decision)) => passage.call(&place, request, decision).await,
            Some(Err(answer)) => Ok(answer),
            None => Err(self.unknown_tool(pass, Offered::Own).await),
        }
    }

    async fn unknown_tool(&self, pass: &Pass, offered: Offered) -> ErrorData {
        const NAMED_MAX: usize = 50;
        let tools = self.offered_tools(pass, offered).await;
        let mut known: Vec<&str> = tools.iter().map(|tool| tool.name.as_ref()).take(NAMED_MAX).collect();
        if tools.len() > NAMED_MAX {
            known.push("and those that tools/list tells");
        }
        ErrorData::invalid_params(format!("unknown tool; use one of: {}", known.join(", ")), None)
    }

    /// What the caller may call of them.
    pub(super) async fn offered_tools(&self, pass: &Pass, offered: Offered) -> Vec<Tool> {
        let may =
            |tool: &&Tool| scopes::least_of_tool(self.profile, &tool.name).is_some_and(|need| pass.scopes.has(need));
        let own = || self.tools.iter().filter(may).cloned();
        let code_mode = self.surface.code_mode.as_ref().filter(|code_mode| code_mode.has_servers());
        let Some(code_mode) = code_mode else { return own().collect() };
        let (who, may_call) = (pass.principal.as_str(), pass.scopes.has(Scope::Tools));
        let mut tools = Vec::new();
        if offered != Offered::Others {
            tools.extend(own());
            if self.profile.is_none() && may_call {
                let note = code_mode.note(who).await;
                schema::add_note(&mut tools, &note);
            }
        }
        if let (Some(forward), true) = (&self.forward, may_call) {
            tools.extend(forward.list(|name| self.is_own(name)).await);
        }
        if offered != Offered::Own && may_call {
            tools.extend(code_mode.direct_tools(who).await);
        }
        tools
    }
}
