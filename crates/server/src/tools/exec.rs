//! `exec`: one command line in the shell of a sandbox.

use belljar_core::{Program, Source};
use rmcp::model::CallToolResult;

use super::{Arguments, Call, ToolError, program, run};

const ARGUMENTS: &[&str] = &["sandbox_id", "command", "cwd", "env", "stdin", "timeout"];

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let sandbox = arguments.text("sandbox_id")?;
    let command = arguments.text("command")?;
    let program = Program {
        cwd: arguments.optional_text("cwd")?,
        env: arguments.strings("env")?,
        ..program(Source::Command(command), &mut arguments)?
    };
    run(&call, Some(sandbox), program).await
}
