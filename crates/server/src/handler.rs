//! The protocol's side of the server: which methods there are, who calls, and what ends a call early.

mod offered;
mod prompting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::http::request::Parts;
use belljar_access::{Pass, Scope};
use belljar_engine::{Departure, Engine, Principal};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
    CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, DiscoverResult, ErrorCode, Extensions,
    GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult, Implementation, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::approval::Desk;
use crate::cancelled::Cancelled;
use crate::forward::{self, Forward, Passage, Session};
use crate::gateway::CodeMode;
use crate::logging::Level;
use crate::profiles::{self, Memory, Profile};
use crate::shares::Shares;
use crate::subscriptions::Subscriptions;
use crate::tasks::Tasks;
use crate::watch::{Watch, Watched};
use crate::{resources, schema, scopes};

/// How long what never changes while we run may be kept, and what changes with a word about it.
const LASTING_MS: u64 = 3_600_000;
const BRIEF_MS: u64 = 5_000;

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
    /// Who is told of requests.
    pub watch: Watch,
}

impl Surface {
    fn has_servers(&self) -> bool {
        self.code_mode.as_ref().is_some_and(|code_mode| code_mode.has_servers())
    }
}

impl Default for Surface {
    fn default() -> Surface {
        // Clients give up after 60 seconds and more.
        let yield_after = Duration::from_secs(45);
        Surface { profile: None, yield_after, code_mode: None, direct: false, watch: Watch::default() }
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
    /// Servers that are forwarded whole; one for all connections.
    forward: Option<Arc<Forward>>,
    /// This connection's own lines to them.
    session: Session,
    /// Which log messages this connection wants.
    level: Level,
    tasks: Arc<Tasks>,
}

impl Handler {
    pub(crate) fn local(engine: Engine, surface: Surface) -> Handler {
        Handler::new(engine, surface, Callers::Local)
    }

    /// Requests that listen are counted among `streams`.
    pub(crate) fn http(engine: Engine, surface: Surface, streams: Arc<Shares>) -> Handler {
        let subscriptions = Subscriptions::among(streams);
        Handler { subscriptions, ..Handler::new(engine, surface, Callers::InRequest) }
    }

    /// For a connection on which a whole conversation goes on: ids of requests are its own, and no other's word cancels them.
    pub(crate) fn another(&self) -> Handler {
        Handler { cancelled: Arc::default(), ..self.clone() }
    }

    fn new(engine: Engine, surface: Surface, callers: Callers) -> Handler {
        let profile = surface.profile.as_deref().and_then(profiles::find);
        let tools = match profile {
            Some(profile) => profile.tools(&engine.languages()),
            None => schema::tools(&engine.languages(), &engine.templates(), surface.has_servers()),
        };
        let forward = surface.code_mode.as_ref().and_then(|code_mode| Forward::new(code_mode.forwards()?));
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
            forward,
            session: Session::default(),
            level: Level::default(),
            tasks: Arc::default(),
        }
    }

    /// The way of a request to the servers that are forwarded, if there are any, and its caller may call others' tools.
    fn passage<'a>(&'a self, who: &'a Principal, context: &'a RequestContext<RoleServer>) -> Option<Passage<'a>> {
        let forward = self.forward.as_deref()?;
        self.pass(context).is_ok_and(|pass| pass.scopes.has(Scope::Tools)).then_some(())?;
        Some(Passage { forward, session: &self.session, level: &self.level, who, context })
    }

    /// With those who are told of each request.
    pub(crate) fn watched(self) -> Watched<Handler> {
        let watch = self.surface.watch.clone();
        Watched::new(self, watch)
    }

    /// Over HTTP a request without a pass is a hole in the transport, and is served to nobody.
    fn pass(&self, context: &RequestContext<RoleServer>) -> Result<Pass, ErrorData> {
        self.pass_in(&context.extensions)
    }

    fn pass_in(&self, extensions: &Extensions) -> Result<Pass, ErrorData> {
        if self.callers == Callers::Local {
            return Ok(Pass::local());
        }
        let parts = extensions.get::<Parts>();
        parts.and_then(|parts| parts.extensions.get::<Pass>()).cloned().ok_or_else(|| {
            tracing::error!("a request reached the handler without a pass");
            ErrorData::internal_error("the caller is not known", None)
        })
    }

    /// Whoever calls, if they may do what needs this scope. The gate has said so before, where it could tell.
    fn caller(&self, context: &RequestContext<RoleServer>, need: Scope) -> Result<Principal, ErrorData> {
        let pass = self.pass(context)?;
        if pass.scopes.has(need) {
            Ok(pass.principal)
        } else {
            Err(ErrorData::invalid_request(scopes::missing(need), None))
        }
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
        let in_parts = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Hangup>());
        let hangup = in_parts.or_else(|| context.extensions.get::<Hangup>()).cloned();
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
                self.left(context, departure);
                Err(ErrorData::internal_error("the caller hung up", None))
            }
            () = context.ct.cancelled() => {
                // Over stdio there is nobody who could come back.
                if hangup.is_some() {
                    self.left(context, departure);
                }
                Err(ErrorData::internal_error("the request was cancelled", None))
            }
            done = &mut work => done,
        }
    }

    /// For whom lists of our own may be kept: where somebody is forwarded on, others are offered more.
    fn scope_of_own(&self) -> CacheScope {
        if self.forward.is_some() { CacheScope::Private } else { CacheScope::Public }
    }

    /// Whoever has no pass began nothing.
    fn left(&self, context: &RequestContext<RoleServer>, departure: &Departure) {
        if let Ok(pass) = self.pass(context) {
            self.cancelled.left(&pass.principal, &context.id, departure);
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
        if self.profile.is_none() || self.forward.is_some() {
            let more = self.more_capabilities();
            (capabilities.prompts, capabilities.completions) = (more.prompts, more.completions);
            (capabilities.logging, capabilities.extensions) = (more.logging, more.extensions);
        }
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
        let pass = self.pass(&context)?;
        let offered = self.offered(&context.extensions);
        let listed = async {
            let listed = ListToolsResult::with_all_items(self.offered_tools(&pass, offered).await);
            let ttl = if self.surface.has_servers() { BRIEF_MS } else { LASTING_MS };
            // Who may do less is offered less.
            Ok(listed.with_ttl_ms(ttl).with_cache_scope(CacheScope::Private))
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(listed)).await
    }

    /// The HTTP transport checks `Mcp-Param-*` headers against this.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let own = self.tools.iter().find(|tool| tool.name == name).cloned();
        own.or_else(|| Some(self.forward.as_ref()?.tool(name)?.offered))
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let discovered = DiscoverResult::from_server_info(versions, self.get_info());
        Ok(discovered.with_ttl_ms(LASTING_MS).with_cache_scope(CacheScope::Public))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let pass = self.pass(&context)?;
        let departure = Departure::default();
        // Boxed, as those below: the protocol library moves a request's future several times on its way to its task, and
        // this one is tens of kilobytes.
        let answering = Box::pin(self.answer(request, &pass, &context, &departure));
        let mut answer = self.unless_cancelled(&context, &departure, answering).await;
        if let Some(hider) = self.hider(&pass.principal) {
            hider.answer(&mut answer);
        }
        answer
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        let cursor = request.and_then(|request| request.cursor);
        let list = async {
            let mut listed = resources::list(&self.engine, &who, cursor.as_deref()).await?;
            if let (Some(profile), None) = (self.profile, &cursor) {
                let own = profile.list_resources(&self.engine, &who, &self.memory).await;
                listed.resources.splice(0..0, own);
            }
            if let (Some(passage), None) = (self.passage(&who, &context), &cursor) {
                listed.resources.extend(passage.resources().await);
            }
            Ok(listed.with_ttl_ms(0).with_cache_scope(CacheScope::Private))
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(list)).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        // Those of a profile stand for themselves, as where it comes from.
        let own = self.profile.map(Profile::templates).unwrap_or_default();
        let mut templates = if own.is_empty() { resources::templates() } else { own };
        let Some(passage) = self.passage(&who, &context) else {
            let listed = ListResourceTemplatesResult::with_all_items(templates);
            return Ok(listed.with_ttl_ms(LASTING_MS).with_cache_scope(self.scope_of_own()));
        };
        let list = async {
            templates.extend(passage.templates().await);
            let listed = ListResourceTemplatesResult::with_all_items(templates);
            Ok(listed.with_ttl_ms(BRIEF_MS).with_cache_scope(CacheScope::Private))
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(list)).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        let read = async {
            if let Some(profile) = self.profile
                && let Some(read) = profile.read_resource(&self.engine, &who, &self.memory, &request.uri).await
            {
                return read.map(ReadResourceResponse::from);
            }
            match self.passage(&who, &context).filter(|_| !forward::is_own(&request.uri)) {
                Some(passage) => passage.read(&request).await,
                None => {
                    let read = resources::read(&self.engine, &who, &request.uri).await?;
                    Ok(read.with_ttl_ms(0).with_cache_scope(CacheScope::Private).into())
                }
            }
        };
        let mut read = self.unless_cancelled(&context, &Departure::default(), Box::pin(read)).await;
        if let Some(hider) = self.hider(&who) {
            hider.read(&mut read);
        }
        read
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        if let (Some(id), Ok(pass)) = (&cancelled.request_id, self.pass_in(&context.extensions)) {
            self.cancelled.word(&pass.principal, id);
        }
    }

    /// A connection of the older revisions. It is told from here on.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Ok(pass) = self.pass_in(&context.extensions) {
            self.subscriptions.begin(&self.engine, self.tool_news(), pass.principal, context.peer);
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        self.subscriptions.begin(&self.engine, self.tool_news(), who.clone(), context.peer.clone());
        match self.passage(&who, &context).filter(|_| !forward::is_own(&request.uri)) {
            Some(passage) => {
                let subscribing = Box::pin(passage.subscribe(&request.uri));
                self.unless_cancelled(&context, &Departure::default(), subscribing).await
            }
            None => self.subscriptions.subscribe(&self.engine, &who, &request.uri),
        }
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        if let Some(passage) = self.passage(&who, &context).filter(|_| !forward::is_own(&request.uri)) {
            let unsubscribing = Box::pin(passage.unsubscribe(&request.uri));
            return self.unless_cancelled(&context, &Departure::default(), unsubscribing).await;
        }
        self.subscriptions.unsubscribe(&request.uri);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = self.subscriptions.accept(&self.engine, self.tool_news(), requested);
        if self.forward.is_some() {
            accepted.prompts_list_changed = requested.prompts_list_changed;
            let foreign = requested.resource_subscriptions.iter().flatten().filter(|uri| !forward::is_own(uri));
            let foreign: Vec<String> = foreign.take(forward::WATCHED_MAX).cloned().collect();
            if !foreign.is_empty() {
                accepted.resource_subscriptions.get_or_insert_default().extend(foreign);
            }
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        let who = self.caller(request, Scope::Read)?;
        let (accepted, sink) = (context.accepted(), context.sink().clone());
        let listening = async {
            let passage = self.passage(&who, request);
            let others = async {
                match &passage {
                    Some(passage) => passage.listen(accepted, context.sink()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                done = self.subscriptions.listen(&self.engine, self.tool_news(), who.clone(), accepted, sink) => done,
                () = others => Ok(()),
            }
        };
        self.unless_cancelled(request, &Departure::default(), Box::pin(listening)).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let who = self.pass(&context)?.principal;
        let listing = Box::pin(self.prompts(&who, &context));
        self.unless_cancelled(&context, &Departure::default(), listing).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let who = self.pass(&context)?.principal;
        let getting = Box::pin(self.prompt(&request, &who, &context));
        self.unless_cancelled(&context, &Departure::default(), getting).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        let completing = Box::pin(self.completed(&request, &who, &context));
        self.unless_cancelled(&context, &Departure::default(), completing).await
    }

    #[expect(deprecated, reason = "older clients still ask")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.pass(&context)?.principal;
        let is_older = context.protocol_version().is_none_or(|version| version.has_initialize());
        if !is_older || (self.profile.is_some() && self.forward.is_none()) {
            return Err(no_method("logging/setLevel"));
        }
        self.level.set(request.level);
        if let Some(passage) = self.passage(&who, &context) {
            let setting = async {
                passage.set_level(request.level).await;
                Ok(())
            };
            return self.unless_cancelled(&context, &Departure::default(), Box::pin(setting)).await;
        }
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let who = self.caller(&context, Scope::Read)?;
        let getting = Box::pin(self.task(&request.task_id, &who, &context));
        let mut got = self.unless_cancelled(&context, &Departure::default(), getting).await;
        if let Some(hider) = self.hider(&who) {
            hider.task(&mut got);
        }
        got
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.caller(&context, Scope::Run)?;
        let updating = async {
            if let Some(passage) = self.passage(&who, &context)
                && let Some(updated) = passage.update_task(&request).await
            {
                return updated;
            }
            self.tasks.update(&self.desk, &who, &request.task_id, &request.input_responses)
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(updating)).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let who = self.caller(&context, Scope::Run)?;
        let cancelling = async {
            if let Some(passage) = self.passage(&who, &context)
                && let Some(cancelled) = passage.cancel_task(&request.task_id).await
            {
                return cancelled;
            }
            self.tasks.cancel(&self.engine, &who, &request.task_id).await
        };
        self.unless_cancelled(&context, &Departure::default(), Box::pin(cancelling)).await
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
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "logging/setLevel",
            "tasks/get",
            "tasks/update",
            "tasks/cancel",
        ];
        // A request that says its own revision is of one that has no handshake.
        const GONE: &[&str] = &["initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        let is_gone = GONE.contains(&request.method.as_str()) && context.meta.protocol_version().is_some();
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
            serde_json::json!({"tools": {}, "resources": {"subscribe": true, "listChanged": true}, "prompts": {},
                "completions": {}, "logging": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
        );
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let answer = unless_it_panics::<()>(async { panic!("a bug, on purpose") }).await;
        assert_eq!(answer.unwrap_err().code, ErrorCode::INTERNAL_ERROR);
    }
}
