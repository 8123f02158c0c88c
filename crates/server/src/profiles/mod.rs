//! Profiles: the tools of the systems that people come from, with their names, parameters and answers, over the same
//! engine. `table` has them as data; `act` does what they ask; `shape` answers as they did.
//!
//! Their shapes are kept and their faults are not: an exception is told, a failure is an error, streams and exit codes
//! are the program's own, and a picture is an image block besides being where they had it.

mod act;
mod args;
mod create;
mod ending;
mod fault;
mod files;
mod memory;
mod reply;
mod resources;
mod rich;
mod shape;
mod table;
mod wrap;

use std::sync::Arc;

use belljar_access::Scope;
use belljar_core::Language;
use belljar_engine::{Engine, Principal};
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, JsonObject, ReadResourceResult, Resource, ResourceTemplate, Tool};
use serde_json::Value;

use crate::tools::Call;
use act::Doing;
use args::Args;
use fault::Fault;
pub(crate) use memory::Memory;
pub use table::NAMES;
pub(crate) use table::Profile;
use table::{Action, Row};

/// The profile of that name.
pub(crate) fn find(name: &str) -> Option<&'static Profile> {
    table::ALL.iter().find(|profile| profile.name == name)
}

impl Profile {
    #[cfg(test)]
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn instructions(&self) -> &'static str {
        self.instructions
    }

    /// Its tools, but for those whose language this host has not.
    pub(crate) fn tools(&self, languages: &[Language]) -> Vec<Tool> {
        let offered = self.rows.iter().filter(|row| row.needs.is_none_or(|language| languages.contains(&language)));
        offered.map(tool).collect()
    }

    pub(crate) fn knows(&self, tool: &str) -> bool {
        self.rows.iter().any(|row| row.name == tool || row.aliases.contains(&tool))
    }

    /// What a call of it needs.
    pub(crate) fn scope(&self, tool: &str) -> Option<Scope> {
        let row = self.rows.iter().find(|row| row.name == tool || row.aliases.contains(&tool))?;
        Some(match row.action {
            Action::Read | Action::List | Action::Info | Action::SessionFiles | Action::Preview => Scope::Read,
            Action::Create
            | Action::Destroy
            | Action::Write
            | Action::Move
            | Action::Delete
            | Action::MakeFolder
            | Action::ClearSession => Scope::Files,
            Action::Run { .. } | Action::Install | Action::Clone => Scope::Run,
        })
    }

    /// The answer of the tool of that name, or of that other spelling; `None` when there is none.
    pub(crate) async fn call(&'static self, tool: &str, call: Call<'_>, memory: &Memory) -> Option<CallToolResponse> {
        let row = self.rows.iter().find(|row| row.name == tool || row.aliases.contains(&tool))?;
        Some(self.answer(row, call, memory).await)
    }

    async fn answer(&'static self, row: &'static Row, mut call: Call<'_>, memory: &Memory) -> CallToolResponse {
        let arguments = call.arguments.take();
        let session = arguments.as_ref().and_then(|all| all.get("session_id")).and_then(Value::as_str);
        let session = session.map(str::to_owned);
        let outcome = match Args::new(arguments, self.keys.wrapper, &Value::Object(schema(row))) {
            Ok(args) => {
                let mut doing = Doing { profile: self, call: &call, desk: memory.desk(call.who), args };
                doing.act(row.action).await
            }
            Err(fault) => Err(fault),
        };
        let reply = match outcome {
            Ok(outcome) => shape::answer(self.style, outcome),
            Err(Fault::Asks(question)) => return CallToolResponse::InputRequired(*question),
            Err(fault) => {
                tracing::debug!(profile = self.name, tool = row.name, ?fault, "a tool call was refused");
                shape::refused(self.style, row.action, &fault, session.as_deref())
            }
        };
        reply.finish().into()
    }

    /// Resources of its own; files of sandboxes are not among them.
    pub(crate) async fn list_resources(&self, _: &Engine, _: &Principal, _: &Memory) -> Vec<Resource> {
        resources::list(self.style)
    }

    pub(crate) fn templates(&self) -> Vec<ResourceTemplate> {
        resources::templates(self.style)
    }

    /// `None` for a URI that is none of its own: then `belljar://` applies.
    pub(crate) async fn read_resource(
        &self,
        engine: &Engine,
        who: &Principal,
        memory: &Memory,
        uri: &str,
    ) -> Option<Result<ReadResourceResult, ErrorData>> {
        resources::read(self.style, engine, who, memory, uri).await
    }
}

/// A test reads each of them; text that is no object would offer a tool that takes anything.
fn schema(row: &Row) -> JsonObject {
    serde_json::from_str(row.input).unwrap_or_default()
}

fn tool(row: &Row) -> Tool {
    let tool = Tool::new(row.name, row.description, Arc::new(schema(row)));
    match row.title {
        Some(title) => tool.with_title(title),
        None => tool,
    }
}

#[cfg(test)]
mod tests;
