//! Resources, prompts, completion and tasks of forwarded servers. Which server has something is found by its lists; where
//! those do not say, the servers are asked in turn.

#![expect(deprecated, reason = "older clients subscribe, and set levels, in ways that the protocol is about to drop")]

use rmcp::ErrorData;
use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientRequest, CompleteRequest, CompleteRequestParams, CompleteResult,
    GetPromptRequest, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskRequest, GetTaskResult,
    ListPromptsRequest, ListPromptsResult, ListResourceTemplatesRequest, ListResourceTemplatesResult,
    ListResourcesRequest, ListResourcesResult, PaginatedRequestParams, Prompt, ReadResourceRequest,
    ReadResourceRequestParams, ReadResourceResponse, Reference, Resource, ResourceTemplate, ServerResult,
    SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest, UnsubscribeRequestParams, UpdateTaskParams,
    UpdateTaskRequest,
};

use super::Passage;
use super::exchange::typed;

const PAGES_MAX: usize = 20;
/// Of each kind, of all servers together.
const ITEMS_MAX: usize = 1000;

fn page(cursor: Option<String>) -> PaginatedRequestParams {
    PaginatedRequestParams::default().with_cursor(cursor)
}

/// All pages of a list of each server. A server that has no such list has an empty one.
macro_rules! pages {
    ($name:ident, $of:ident, $request:ident, $result:ident, $field:ident, $item:ty) => {
        pub(crate) async fn $name(&self) -> Vec<$item> {
            let mut all = Vec::new();
            for server in &self.forward.servers {
                all.extend(self.$of(server).await);
            }
            all.truncate(ITEMS_MAX);
            all
        }

        async fn $of(&self, server: &str) -> Vec<$item> {
            let (mut all, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES_MAX {
                let request = ClientRequest::$request($request::with_param(page(cursor)));
                let Ok(result) = self.request(server, request).await else { break };
                let Ok(listed) = typed::<$result>(&result) else { break };
                all.extend(listed.$field);
                cursor = listed.next_cursor;
                if cursor.is_none() || all.len() >= ITEMS_MAX {
                    break;
                }
            }
            all
        }
    };
}

impl Passage<'_> {
    pages!(resources, resources_of, ListResourcesRequest, ListResourcesResult, resources, Resource);
    pages!(
        templates,
        templates_of,
        ListResourceTemplatesRequest,
        ListResourceTemplatesResult,
        resource_templates,
        ResourceTemplate
    );
    pages!(prompts, prompts_of, ListPromptsRequest, ListPromptsResult, prompts, Prompt);

    /// The server that has a prompt; without a choice, the only one.
    async fn server_of_prompt(&self, name: &str) -> Option<&str> {
        if let [only] = self.forward.servers.as_slice() {
            return Some(only);
        }
        for server in &self.forward.servers {
            if self.prompts_of(server).await.iter().any(|prompt| prompt.name == name) {
                return Some(server);
            }
        }
        None
    }

    pub(crate) async fn get_prompt(&self, request: &GetPromptRequestParams) -> Result<GetPromptResponse, ErrorData> {
        let unknown = || ErrorData::invalid_params("there is no such prompt; prompts/list tells what there is", None);
        let server = self.server_of_prompt(&request.name).await.ok_or_else(unknown)?;
        let make = |answered: Option<_>| {
            let mut params = request.clone();
            params.meta = None;
            if let Some((answers, state)) = answered {
                (params.input_responses, params.request_state) = (Some(answers), state);
            }
            ClientRequest::from(GetPromptRequest::new(params))
        };
        match self.request_with_questions(server, make).await? {
            ServerResult::InputRequiredResult(asked) => Ok(GetPromptResponse::InputRequired(asked)),
            result => typed(&result).map(GetPromptResponse::Complete),
        }
    }

    pub(crate) async fn read(&self, request: &ReadResourceRequestParams) -> Result<ReadResourceResponse, ErrorData> {
        let mut trouble = None;
        for server in &self.forward.servers {
            let make = |answered: Option<_>| {
                let mut params = request.clone();
                params.meta = None;
                if let Some((answers, state)) = answered {
                    (params.input_responses, params.request_state) = (Some(answers), state);
                }
                ClientRequest::from(ReadResourceRequest::new(params))
            };
            match self.request_with_questions(server, make).await {
                Ok(ServerResult::InputRequiredResult(asked)) => return Ok(ReadResourceResponse::InputRequired(asked)),
                Ok(result) => return typed(&result).map(ReadResourceResponse::Complete),
                Err(error) => trouble = Some(error.into()),
            }
        }
        Err(trouble.unwrap_or_else(|| ErrorData::resource_not_found("there is no such resource", None)))
    }

    pub(crate) async fn complete(&self, request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        let servers = match &request.r#ref {
            Reference::Prompt(prompt) => self.server_of_prompt(&prompt.name).await.into_iter().collect(),
            _ => self.forward.servers.iter().map(String::as_str).collect::<Vec<_>>(),
        };
        let mut trouble = None;
        for server in servers {
            let mut params = request.clone();
            params.meta = None;
            match self.request(server, CompleteRequest::new(params).into()).await {
                Ok(result) => return typed(&result),
                Err(error) => trouble = Some(error.into()),
            }
        }
        Err(trouble.unwrap_or_else(|| ErrorData::invalid_params("there is nothing of that name to complete", None)))
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<(), ErrorData> {
        self.in_turn(|| SubscribeRequest::new(SubscribeRequestParams::new(uri)).into()).await
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<(), ErrorData> {
        self.in_turn(|| UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri)).into()).await
    }

    pub(crate) async fn set_level(&self, level: rmcp::model::LoggingLevel) {
        for server in &self.forward.servers {
            let params = rmcp::model::SetLevelRequestParams::new(level);
            // Those that have no levels say nothing either.
            let _ = self.request(server, rmcp::model::SetLevelRequest::new(params).into()).await;
        }
    }

    /// The first server that takes it.
    async fn in_turn(&self, make: impl Fn() -> ClientRequest) -> Result<(), ErrorData> {
        let mut trouble = None;
        for server in &self.forward.servers {
            match self.request(server, make()).await {
                Ok(_) => return Ok(()),
                Err(error) => trouble = Some(error.into()),
            }
        }
        Err(trouble.unwrap_or_else(|| ErrorData::resource_not_found("there is no such resource", None)))
    }

    /// `None` when no forwarded server made this task for this caller.
    pub(crate) async fn get_task(&self, id: &str) -> Option<Result<GetTaskResult, ErrorData>> {
        let server = self.forward.server_of_task(self.who, id)?;
        let request = GetTaskRequest::new(GetTaskParams::new(id));
        Some(match self.request(&server, request.into()).await {
            Ok(result) => typed(&result),
            Err(error) => Err(error.into()),
        })
    }

    pub(crate) async fn update_task(&self, params: &UpdateTaskParams) -> Option<Result<(), ErrorData>> {
        let server = self.forward.server_of_task(self.who, &params.task_id)?;
        let mut params = params.clone();
        params.meta = None;
        let request = UpdateTaskRequest::new(params);
        Some(self.request(&server, request.into()).await.map(|_| ()).map_err(ErrorData::from))
    }

    pub(crate) async fn cancel_task(&self, id: &str) -> Option<Result<(), ErrorData>> {
        let server = self.forward.server_of_task(self.who, id)?;
        let request = CancelTaskRequest::new(CancelTaskParams::new(id));
        Some(self.request(&server, request.into()).await.map(|_| ()).map_err(ErrorData::from))
    }
}
