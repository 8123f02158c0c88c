//! The gateway itself, as the server sees it.

use std::sync::Arc;

use belljar_core::{Caller, Soon};
use belljar_gateway::approval::Approvals;
use belljar_gateway::catalogue::Tool as Listed;
use belljar_gateway::error::CallError;
use belljar_gateway::{Gateway, direct_name, stubs};
use rmcp::model::{CallToolResult, Tool};
use tokio::sync::watch;

use super::{CodeMode, DirectCall, Search};

/// What a direct call is in the audit, where others have the name of a run.
const DIRECT: &str = "direct";

const TITLE_BYTES_MAX: usize = 200;

impl CodeMode for Gateway {
    fn has_servers(&self) -> bool {
        Gateway::has_servers(self)
    }

    fn note<'a>(&'a self, _who: &'a str) -> Soon<'a, String> {
        Box::pin(Gateway::note(self))
    }

    fn search<'a>(&'a self, who: &'a str, wanted: Search) -> Soon<'a, Result<String, CallError>> {
        Box::pin(async move { Ok(Gateway::search(self, who, &wanted).await) })
    }

    fn direct_tools<'a>(&'a self, _who: &'a str) -> Soon<'a, Vec<Tool>> {
        Box::pin(async move { self.catalogue().await.tools().filter_map(|tool| offered(self, tool)).collect() })
    }

    fn direct_call<'a>(&'a self, call: DirectCall) -> Soon<'a, Option<Result<CallToolResult, CallError>>> {
        Box::pin(async move {
            let tool = self.direct(&call.name).await?;
            let DirectCall { who, occasion, arguments, .. } = call;
            let caller = Caller { owner: who, run: DIRECT.to_owned(), sandbox: None, occasion };
            Some(Gateway::call(self, caller, &tool, arguments).await)
        })
    }

    fn approvals(&self) -> &Approvals {
        Gateway::approvals(self)
    }

    fn approves_code(&self) -> bool {
        Gateway::approves_code(self)
    }

    fn hide(&self, who: &str, text: &mut String) {
        Gateway::hide(self, who, text);
    }

    fn account(&self, _who: &str, run: &str, calls: u64, entered: u64, direct: u64) {
        Gateway::account(self, run, calls, entered, direct);
    }

    fn changes(&self) -> watch::Receiver<u64> {
        Gateway::changes(self)
    }
}

/// The upstream's own definition, under a name of ours, with words that show what they say. What a server says of its own
/// harmlessness is for clients to believe only where the operator does. One that our protocol library cannot read is for programs
/// alone.
fn offered(gateway: &Gateway, tool: &Arc<Listed>) -> Option<Tool> {
    let mut definition = tool.definition.clone();
    definition["name"] = direct_name(tool).into();
    definition["description"] = tool.description.clone().into();
    if let Some(title) = definition.get("title").and_then(|title| title.as_str()) {
        definition["title"] = stubs::clean(title, TITLE_BYTES_MAX).into();
    }
    if !gateway.trusts(&tool.server)
        && let Some(fields) = definition.as_object_mut()
    {
        fields.remove("annotations");
    }
    serde_json::from_value(definition).ok()
}
