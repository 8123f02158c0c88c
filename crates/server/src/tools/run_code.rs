//! `run_code`: a cell, in a fresh sandbox or in one that stays and remembers.

use belljar_core::{Language, Source, Then};
use belljar_engine::{RunRequest, Wants};
use rmcp::model::CallToolResult;

use super::{Arguments, BadArgument, Call, ToolError, program, run, wanted};

const ARGUMENTS: &[&str] = &["language", "code", "sandbox_id", "timeout", "stdin", "packages", "network", "background"];

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let language: Language =
        arguments.text("language")?.parse().map_err(|error| BadArgument::new(format!("{error}")))?;
    let code = arguments.text("code")?;
    let sandbox = arguments.optional_text("sandbox_id")?;
    let (wall, wanted) = (arguments.optional_seconds("timeout")?, wanted(&mut arguments)?);
    // What follows in its kernel, the engine knows.
    let program = program(Source::Cell { language, code, then: Then::More }, &mut arguments)?;
    let wants = Wants { packages: arguments.list("packages")?, network: arguments.list("network")? };
    run(&call, RunRequest { sandbox, program, wants }, wall, wanted).await
}
