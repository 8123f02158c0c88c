//! `run_code`: source text, in a fresh sandbox or in one that stays.

use belljar_core::{Language, Source};
use rmcp::model::CallToolResult;

use super::{Arguments, BadArgument, Call, ToolError, program, run};

const ARGUMENTS: &[&str] = &["language", "code", "sandbox_id", "timeout", "stdin"];

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let language: Language =
        arguments.text("language")?.parse().map_err(|error| BadArgument::new(format!("{error}")))?;
    let code = arguments.text("code")?;
    let sandbox = arguments.optional_text("sandbox_id")?;
    let program = program(Source::Code { language, code }, &mut arguments)?;
    run(&call, sandbox, program).await
}
