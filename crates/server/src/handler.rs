//! The protocol's side of the server: which methods there are, who calls, and what ends a call early.

mod offered;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::http::request::Parts;
use belljar_engine::{Departure, Engine, Principal};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, ErrorCode, Extensions, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::approval::Desk;
use crate::cancelled::Cancelled;
use crate::gateway::CodeMode;
use crate::profiles::{self, Memory, Profile};
use crate::subscriptions::Subscriptions;
use crate::{resources, schema};

const INSTRUCTIONS: &str = "Runs code in isolated sandboxes without network. One-off: run_code. To keep files between \
     calls: create_sandbox, then pass its sandbox_id to run_code, exec and the file tools; destroy_sandbox when done.";

/// Besides, where there are other servers.
const CODE_MODE: &str = " Programs in run_code can call other servers' tools; only what they print comes back.";

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

/// What callers are offered.
#[derive(Debug, Clone)]
pub struct Surface {
    /// The tools of another system, by its name, in place of our own.
    pub profile: Option<String>,
    /// A run that takes longer becomes a job, and its caller is told so before it loses patience by itself.
    pub yield_after: Duration,
    /// The tools of other servers, for programs; `None` where there are none.
    pub code_mode: Option<Arc<dyn CodeMode>>,
    /// Whether those tools can also be called without a program.
    pub direct: bool,
}

impl Surface {
    fn has_servers(&self) -> bool {
        self.code_mode.as_ref().is_some_and(|code_mode| code_mode.has_servers())
    }
}

impl Default for Surface {
    fn default() -> Surface {
        // Clients give up after 60 seconds and more.
        Surface { profile: None, yield_after: Duration::from_secs(45), code_mode: None, direct: false }
    }
}

/// A clone is for another connection.
#[derive(Debug, Clone)]
pub(crate) struct Handler {
    engine: Engine,
    surface: Surface,
    profile: Option<&'static Profile>,
    /// What a profile remembers for its callers; one for all connections.
    memory: Arc<Memory>,
    cancelled: Arc<Cancelled>,
    tools: Arc<[Tool]>,
    callers: Callers,
    subscriptions: Subscriptions,
    /// What people are asked; one for all connections.
    desk: Arc<Desk>,
}

impl Handler {
    pub(crate) fn local(engine: Engine, surface: Surface) -> Handler {
        Handler::new(engine, surface, Callers::Local)
    }

    pub(crate) fn http(engine: Engine, surface: Surface) -> Handler {
        Handler::new(engine, surface, Callers::InRequest)
    }

    fn new(engine: Engine, surface: Surface, callers: Callers) -> Handler {
        let profile = surface.profile.as_deref().and_then(profiles::find);
        let tools = match profile {
            Some(profile) => profile.tools(&engine.languages()),
            None => schema::tools(&engine.languages(), &engine.templates(), surface.has_servers()),
        };
        Handler {
            engine,
            surface,
            profile,
            memory: Arc::default(),
            cancelled: Arc::default(),
            tools: tools.into(),
            callers,
            subscriptions: Subscriptions::default(),
            desk: Arc::default(),
        }
    }

    /// Over HTTP a request without a principal is a hole in the transport, and is served to nobody.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Principal, ErrorData> {
        self.caller_in(&context.extensions)
    }

    fn caller_in(&self, extensions: &Extensions) -> Result<Principal, ErrorData> {
        if self.callers == Callers::Local {
            return Ok(Principal::local());
        }
        let parts = extensions.get::<Parts>();
        parts.and_then(|parts| parts.extensions.get::<Principal>()).cloned().ok_or_else(|| {
            tracing::error!("a request reached the handler without a principal");
            ErrorData::internal_error("the caller is not known", None)
        })
    }
}

impl Handler {
    /// `work`, unless the caller cancels or hangs up first: then `work` is dropped. What it ran ends with a cancellation, and
    /// is there for a while after a hang-up.
    async fn unless_cancelled<T>(
        &self,
        context: &RequestContext<RoleServer>,
        departure: &Departure,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        let hangup = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Hangup>().cloned());
        let hung_up = async {
            match &hangup {
                Some(Hangup(token)) => token.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let mut hung_up = pin!(hung_up);
        // Not in the `select!`, which would drop it before the departure is known.
        let mut work = pin!(unless_it_panics(work));
        tokio::select! {
            biased;
            () = &mut hung_up => {
                self.cancelled.left(&context.id, departure);
                Err(ErrorData::internal_error("the caller hung up", None))
            }
            () = context.ct.cancelled() => {
                // Over stdio there is nobody who could come back.
                if hangup.is_some() {
                    self.cancelled.left(&context.id, departure);
                }
                Err(ErrorData::internal_error("the request was cancelled", None))
            }
            done = &mut work => done,
        }
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
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_resources_subscribe()
            .build();
        let mut instructions = self.profile.map_or(INSTRUCTIONS, Profile::instructions).to_owned();
        if self.surface.has_servers() {
            if let Some(tools) = &mut capabilities.tools {
                tools.list_changed = Some(true);
            }
            if self.profile.is_none() {
                instructions.push_str(CODE_MODE);
            }
        }
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("belljar", env!("CARGO_PKG_VERSION")))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let who = self.caller(&context)?;
        let offered = self.offered(&context.extensions);
        let listed = async { Ok(ListToolsResult::with_all_items(self.offered_tools(&who, offered).await)) };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(listed)).await
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
        let departure = Departure::default();
        // Boxed, as those below: the protocol library moves a request's future several times on its way to its task, and
        // this one is tens of kilobytes.
        let answering = Box::pin(self.answer(request, &who, &context, &departure));
        let mut answer = self.unless_cancelled(&context, &departure, answering).await;
        if let Some(hider) = self.hider(&who) {
            hider.answer(&mut answer);
        }
        answer
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let who = self.caller(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let list = async {
            let mut listed = resources::list(&self.engine, &who, cursor.as_deref()).await?;
            if let (Some(profile), None) = (self.profile, &cursor) {
                let own = profile.list_resources(&self.engine, &who, &self.memory).await;
                listed.resources.splice(0..0, own);
            }
            Ok(listed)
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(list)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        // Those of a profile stand for themselves, as where it comes from.
        let own = self.profile.map(Profile::templates).unwrap_or_default();
        let templates = if own.is_empty() { resources::templates() } else { own };
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = self.caller(&context)?;
        let read = async {
            if let Some(profile) = self.profile
                && let Some(read) = profile.read_resource(&self.engine, &who, &self.memory, &request.uri).await
            {
                return read;
            }
            resources::read(&self.engine, &who, &request.uri).await
        };
        let mut read = self.unless_cancelled(&context, &Departure::default(), Box::pin(read)).await;
        if let Some(hider) = self.hider(&who) {
            hider.read(&mut read);
        }
        read.map(ReadResourceResponse::from)
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, _: NotificationContext<RoleServer>) {
        if let Some(id) = cancelled.request_id {
            self.cancelled.word(id);
        }
    }

    /// A connection of the older revisions. It is told from here on.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Ok(who) = self.caller_in(&context.extensions) {
            self.subscriptions.begin(&self.engine, self.tool_news(), who, context.peer);
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.caller(&context)?;
        self.subscriptions.begin(&self.engine, self.tool_news(), who.clone(), context.peer);
        self.subscriptions.subscribe(&self.engine, &who, &request.uri)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions.unsubscribe(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(self.subscriptions.accept(&self.engine, self.tool_news(), requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let who = self.caller(request)?;
        let (accepted, sink) = (context.accepted(), context.sink().clone());
        let listening = self.subscriptions.listen(&self.engine, self.tool_news(), who, accepted, sink);
        self.unless_cancelled(request, &Departure::default(), Box::pin(listening)).await
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
            "resources/subscribe",
            "resources/unsubscribe",
            "subscriptions/listen",
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
        let handler =
            Handler::local(Engine::new(Fake::new(Manners::default()), Settings::default()), Surface::default());
        let info = handler.get_info();
        assert_eq!(info.server_info.name, "belljar");
        let capabilities = serde_json::to_value(&info.capabilities).unwrap();
        assert_eq!(
            capabilities,
            serde_json::json!({"tools": {}, "resources": {"subscribe": true, "listChanged": true}})
        );
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let answer = unless_it_panics::<()>(async { panic!("a bug, on purpose") }).await;
        assert_eq!(answer.unwrap_err().code, ErrorCode::INTERNAL_ERROR);
    }
}
