//! The gateway itself, as the server sees it.

use std::sync::Arc;

use belljar_core::{Caller, Soon};
use belljar_gateway::approval::Approvals;
use belljar_gateway::audit::Decided;
use belljar_gateway::catalogue::Tool as Listed;
use belljar_gateway::error::CallError;
use belljar_gateway::{Gateway, direct_name, stubs};
use rmcp::model::{CallToolResult, Tool};
use serde_json::json;
use tokio::sync::watch;

use super::{Aim, CodeMode, DirectCall, Search};

/// What a direct call is in the audit, where others have the name of a run.
const DIRECT: &str = "direct";

/// Where the result of asking for permission says how that was given.
pub(crate) const DECISION: &str = "decision";

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
        Box::pin(async move {
            let forwarded = self.forwarded();
            let catalogue = self.catalogue().await;
            let tools = catalogue.tools().filter(|tool| !forwarded.contains(&tool.server));
            tools.filter_map(|tool| offered(self, tool, direct_name(tool))).collect()
        })
    }

    fn direct_call<'a>(&'a self, call: DirectCall) -> Soon<'a, Option<Result<CallToolResult, CallError>>> {
        Box::pin(async move {
            let DirectCall { who, occasion, name, arguments, aim } = call;
            let caller = caller(&who, occasion);
            match aim {
                Aim::Call => {
                    let tool = self.direct(&name).await?;
                    Some(Gateway::call(self, caller, &tool, arguments).await)
                }
                Aim::Permit { server } => {
                    let catalogue = self.catalogue().await;
                    let tool = catalogue.tools().find(|tool| tool.server == server && tool.name == name)?;
                    let permitted = self.permit(caller, tool, &arguments).await;
                    Some(permitted.map(|decision| CallToolResult::structured(json!({ DECISION: decision }))))
                }
            }
        })
    }

    fn approvals(&self) -> &Approvals {
        Gateway::approvals(self)
    }

    fn approves_code(&self) -> bool {
        Gateway::approves_code(self)
    }

    fn decided(&self, decided: &Decided) {
        Gateway::decided(self, decided);
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

    fn forwards(&self) -> Option<&Gateway> {
        Some(self).filter(|gateway| !gateway.forwarded().is_empty())
    }
}

/// Who calls without a program.
pub(crate) fn caller(who: &str, occasion: Option<u64>) -> Caller {
    Caller { owner: who.to_owned(), run: DIRECT.to_owned(), sandbox: None, occasion }
}

/// The upstream's own definition, under a name of ours, with words that show what they say. What a server says of its own
/// harmlessness is for clients to believe only where the operator does. One that our protocol library cannot read is for programs
/// alone.
pub(crate) fn offered(gateway: &Gateway, tool: &Arc<Listed>, name: String) -> Option<Tool> {
    let mut definition = tool.definition.clone();
    definition["name"] = name.into();
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
