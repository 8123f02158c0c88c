//! A handler of the protocol that is watched: each request goes through here on its way, and is told of at its end.
//!
//! Every method that the protocol library knows is passed on. One that were left out would be answered by the library
//! itself, and no longer by us.

use std::borrow::Cow;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam, CompleteRequestParams,
    CompleteResult, CustomNotification, CustomRequest, CustomResult, DiscoverResult, GetPromptRequestParams,
    GetPromptResponse, GetTaskParams, GetTaskResult, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerConfig,
    SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::{About, Watch, Well};

/// A clone is for another connection, as a handler's is.
#[derive(Debug, Clone)]
pub(crate) struct Watched<H> {
    handler: H,
    watch: Watch,
}

impl<H> Watched<H> {
    pub(crate) fn new(handler: H, watch: Watch) -> Watched<H> {
        Watched { handler, watch }
    }
}

impl Well for () {}
impl Well for InitializeResult {}
impl Well for DiscoverResult {}
impl Well for CompleteResult {}
impl Well for GetPromptResponse {}
impl Well for ListPromptsResult {}
impl Well for ListResourcesResult {}
impl Well for ListResourceTemplatesResult {}
impl Well for ReadResourceResponse {}
impl Well for ListToolsResult {}
impl Well for GetTaskResult {}
impl Well for CustomResult {}

/// A request with parameters, by its name in the protocol.
macro_rules! watched {
    ($($method:ident($request:ty) -> $answer:ty = $name:literal;)*) => {
        $(
            async fn $method(
                &self,
                request: $request,
                context: RequestContext<RoleServer>,
            ) -> Result<$answer, ErrorData> {
                let about = About::new($name, None, &context);
                // Boxed: the protocol library moves this future several times, and it is large.
                self.watch.over(about, Box::pin(self.handler.$method(request, context))).await
            }
        )*
    };
}

impl<H: ServerHandler> ServerHandler for Watched<H> {
    watched! {
        initialize(InitializeRequestParams) -> InitializeResult = "initialize";
        complete(CompleteRequestParams) -> CompleteResult = "completion/complete";
        get_prompt(GetPromptRequestParams) -> GetPromptResponse = "prompts/get";
        list_prompts(Option<PaginatedRequestParams>) -> ListPromptsResult = "prompts/list";
        list_resources(Option<PaginatedRequestParams>) -> ListResourcesResult = "resources/list";
        list_resource_templates(Option<PaginatedRequestParams>) -> ListResourceTemplatesResult = "resources/templates/list";
        read_resource(ReadResourceRequestParams) -> ReadResourceResponse = "resources/read";
        list_tools(Option<PaginatedRequestParams>) -> ListToolsResult = "tools/list";
        get_task(GetTaskParams) -> GetTaskResult = "tasks/get";
        update_task(UpdateTaskParams) -> () = "tasks/update";
        cancel_task(CancelTaskParams) -> () = "tasks/cancel";
    }

    #[expect(deprecated, reason = "older clients still ask")]
    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let about = About::new("resources/subscribe", None, &context);
        self.watch.over(about, Box::pin(self.handler.subscribe(request, context))).await
    }

    #[expect(deprecated, reason = "older clients still ask")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let about = About::new("resources/unsubscribe", None, &context);
        self.watch.over(about, Box::pin(self.handler.unsubscribe(request, context))).await
    }

    #[expect(deprecated, reason = "older clients still ask")]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let about = About::new("logging/setLevel", None, &context);
        self.watch.over(about, Box::pin(self.handler.set_level(request, context))).await
    }

    async fn ping(&self, context: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let about = About::new("ping", None, &context);
        self.watch.over(about, self.handler.ping(context)).await
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let about = About::new("server/discover", None, &context);
        self.watch.over(about, Box::pin(self.handler.discover(context))).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.handler.get_tool(&request.name).map(|tool| tool.name.into_owned());
        let about = About::new("tools/call", tool, &context);
        self.watch.over(about, Box::pin(self.handler.call_tool(request, context))).await
    }

    /// One that ends with its connection, mostly: how long it took says nothing.
    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let about = About::new("subscriptions/listen", None, context.request_context());
        self.watch.over(about, Box::pin(self.handler.listen(context))).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let about = About::new(&request.method, None, &context);
        self.watch.over(about, Box::pin(self.handler.on_custom_request(request, context))).await
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.handler.negotiate_initialize(request)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.handler.supported_protocol_versions()
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.handler.accepted_subscription_filter(requested)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.handler.get_tool(name)
    }

    fn get_info(&self) -> ServerConfig {
        self.handler.get_info()
    }

    async fn on_cancelled(&self, cancelled: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        self.handler.on_cancelled(cancelled, context).await;
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, context: NotificationContext<RoleServer>) {
        self.handler.on_progress(progress, context).await;
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.handler.on_initialized(context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.handler.on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(&self, notification: CustomNotification, context: NotificationContext<RoleServer>) {
        self.handler.on_custom_notification(notification, context).await;
    }
}
