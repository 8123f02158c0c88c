//! The protocol's side of the server: which methods there are, who calls, and what ends a call early.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::http::request::Parts;
use belljar_engine::{Engine, Principal};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestParams, CompleteResult, CustomRequest, CustomResult,
    ErrorCode, GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::progress::Progress;
use crate::{resources, schema, tools};

const INSTRUCTIONS: &str = "Runs code in isolated sandboxes without network. One-off: run_code. To keep files between \
     calls: create_sandbox, then pass its sandbox_id to run_code, exec and the file tools; destroy_sandbox when done.";

/// Cancelled when the connection that a request came on is gone.
#[derive(Debug, Clone)]
pub(crate) struct Hangup(pub(crate) CancellationToken);

/// Where the name of a request's caller comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callers {
    /// There is one: whoever started us.
    Local,
    /// The transport put it into the request.
    InRequest,
}

#[derive(Debug, Clone)]
pub(crate) struct Handler {
    engine: Engine,
    tools: Arc<[Tool]>,
    callers: Callers,
}

impl Handler {
    pub(crate) fn local(engine: Engine) -> Handler {
        Handler::new(engine, Callers::Local)
    }

    pub(crate) fn http(engine: Engine) -> Handler {
        Handler::new(engine, Callers::InRequest)
    }

    fn new(engine: Engine, callers: Callers) -> Handler {
        let tools = schema::tools(&engine.languages(), engine.settings().idle).into();
        Handler { engine, tools, callers }
    }

    /// Over HTTP a request without a principal is a hole in the transport, and is served to nobody.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Principal, ErrorData> {
        if self.callers == Callers::Local {
            return Ok(Principal::local());
        }
        let parts = context.extensions.get::<Parts>();
        parts.and_then(|parts| parts.extensions.get::<Principal>()).cloned().ok_or_else(|| {
            tracing::error!("a request reached the handler without a principal");
            ErrorData::internal_error("the caller is not known", None)
        })
    }
}

/// `work`, unless the caller cancels or hangs up first: then `work` is dropped, and with it the program that it runs.
async fn unless_cancelled<T>(
    context: &RequestContext<RoleServer>,
    work: impl Future<Output = Result<T, ErrorData>>,
) -> Result<T, ErrorData> {
    let hangup = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Hangup>().cloned());
    let hung_up = async {
        match hangup {
            Some(Hangup(token)) => token.cancelled_owned().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = context.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
        () = hung_up => Err(ErrorData::internal_error("the caller hung up", None)),
        done = unless_it_panics(work) => done,
    }
}

/// A panic is a bug of ours. It must not leave the caller waiting for an answer.
async fn unless_it_panics<T>(work: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))).unwrap_or_else(|_| {
            tracing::error!("a request met a bug");
            Poll::Ready(Err(ErrorData::internal_error("the server met a bug; its log says more", None)))
        })
    })
    .await
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_resources().build())
            .with_server_info(Implementation::new("belljar", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.to_vec()))
    }

    /// The HTTP transport checks `Mcp-Param-*` headers against this.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = self.caller(&context)?;
        let call = tools::Call {
            engine: &self.engine,
            who: &who,
            progress: Progress::of(&context),
            arguments: request.arguments,
        };
        unless_cancelled(&context, async {
            let answer = tools::call(&request.name, call).await;
            answer.map(CallToolResponse::from).ok_or_else(|| {
                let known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_ref()).collect();
                ErrorData::invalid_params(format!("unknown tool; use one of: {}", known.join(", ")), None)
            })
        })
        .await
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let who = self.caller(&context)?;
        Ok(ListResourcesResult::with_all_items(resources::list(&self.engine, &who)))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = self.caller(&context)?;
        let read = resources::read(&self.engine, &who, &request.uri);
        unless_cancelled(&context, read).await.map(ReadResourceResponse::from)
    }

    /// rmcp answers with an empty list, though we offer no prompts.
    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(no_method("prompts/list"))
    }

    /// The same for completions.
    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(no_method("completion/complete"))
    }

    /// And for these it says only the method's name.
    async fn get_prompt(
        &self,
        _: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Err(no_method("prompts/get"))
    }

    #[expect(deprecated, reason = "older clients still ask")]
    async fn set_level(
        &self,
        _: rmcp::model::SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Err(no_method("logging/setLevel"))
    }

    /// rmcp reads a known method with parameters of the wrong shape as a custom one, and would deny that it exists.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        const KNOWN: &[&str] = &[
            "initialize",
            "server/discover",
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/templates/list",
            "resources/read",
        ];
        // A request that says its own revision is of one that has no handshake.
        let is_gone = request.method == "initialize" && context.meta.protocol_version().is_some();
        if KNOWN.contains(&request.method.as_str()) && !is_gone {
            let sentence =
                format!("the params of {} do not have the shape that the protocol gives them", request.method);
            return Err(ErrorData::invalid_params(sentence, None));
        }
        Err(no_method(&request.method))
    }
}

fn no_method(name: &str) -> ErrorData {
    let name: String = name.chars().take(100).collect();
    let sentence = format!("there is no method {name:?} here; server/discover or initialize tells what there is");
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, sentence, None)
}

#[cfg(test)]
mod tests {
    use belljar_engine::Settings;
    use belljar_testkit::fake::{Fake, Manners};

    use super::*;

    #[tokio::test]
    async fn only_what_we_have_is_declared() {
        let handler = Handler::local(Engine::new(Fake::new(Manners::default()), Settings::default()));
        let info = handler.get_info();
        assert_eq!(info.server_info.name, "belljar");
        let capabilities = serde_json::to_value(&info.capabilities).unwrap();
        assert_eq!(capabilities, serde_json::json!({"tools": {}, "resources": {}}));
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let answer = unless_it_panics::<()>(async { panic!("a bug, on purpose") }).await;
        assert_eq!(answer.unwrap_err().code, ErrorCode::INTERNAL_ERROR);
    }
}
