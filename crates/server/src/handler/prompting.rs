//! Prompts, completion and tasks: ours, and those of servers that are forwarded.

use belljar_engine::Principal;
use rmcp::model::{
    CacheScope, CompleteRequestParams, CompleteResult, GetPromptRequestParams, GetPromptResponse, GetTaskResult,
    ListPromptsResult, ServerCapabilities,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

use super::{BRIEF_MS, Handler, LASTING_MS, no_method};
use crate::{completion, prompts};

impl Handler {
    /// What our own surface has besides tools and resources, and every one that somebody is forwarded on.
    #[expect(deprecated, reason = "older clients still ask for log messages")]
    pub(super) fn more_capabilities(&self) -> ServerCapabilities {
        let more = ServerCapabilities::builder().enable_prompts().enable_completions().enable_logging().enable_tasks();
        match self.forward.is_some() {
            true => more.enable_prompts_list_changed().build(),
            false => more.build(),
        }
    }

    pub(super) async fn prompts(
        &self,
        who: &Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut all = match self.profile {
            None => prompts::list(self.surface.has_servers()),
            Some(_) if self.forward.is_some() => Vec::new(),
            Some(_) => return Err(no_method("prompts/list")),
        };
        let Some(passage) = self.passage(who, context) else {
            let listed = ListPromptsResult::with_all_items(all);
            return Ok(listed.with_ttl_ms(LASTING_MS).with_cache_scope(self.scope_of_own()));
        };
        for prompt in passage.prompts().await {
            // What is ours stays ours.
            if !all.iter().any(|known| known.name == prompt.name) {
                all.push(prompt);
            }
        }
        let listed = ListPromptsResult::with_all_items(all);
        Ok(listed.with_ttl_ms(BRIEF_MS).with_cache_scope(CacheScope::Private))
    }

    pub(super) async fn prompt(
        &self,
        request: &GetPromptRequestParams,
        who: &Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if self.profile.is_none() {
            let (languages, has_servers) = (self.engine.languages(), self.surface.has_servers());
            let own = prompts::get(&request.name, request.arguments.as_ref(), &languages, has_servers);
            if let Some(own) = own {
                return own.map(GetPromptResponse::Complete);
            }
        }
        match self.passage(who, context) {
            Some(passage) => {
                let mut got = passage.get_prompt(request).await;
                if let (Some(hider), Ok(GetPromptResponse::Complete(prompt))) = (self.hider(who), &mut got) {
                    hider.prompt(prompt);
                }
                got
            }
            None if self.profile.is_some() => Err(no_method("prompts/get")),
            None => {
                let sentence = "there is no such prompt; prompts/list tells what there is";
                Err(ErrorData::invalid_params(sentence, None))
            }
        }
    }

    pub(super) async fn completed(
        &self,
        request: &CompleteRequestParams,
        who: &Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        if self.profile.is_none()
            && let Some(own) = completion::complete(&self.engine, who, request).await
        {
            return own;
        }
        match self.passage(who, context) {
            Some(passage) => passage.complete(request).await,
            None if self.profile.is_some() => Err(no_method("completion/complete")),
            None => Err(ErrorData::invalid_params("there is nothing of that name to complete", None)),
        }
    }

    pub(super) async fn task(
        &self,
        id: &str,
        who: &Principal,
        context: &RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        if let Some(passage) = self.passage(who, context)
            && let Some(theirs) = passage.get_task(id).await
        {
            return theirs;
        }
        let task = self.tasks.get(&self.engine, &self.desk, who, id).await?;
        Ok(GetTaskResult::new(task))
    }
}
